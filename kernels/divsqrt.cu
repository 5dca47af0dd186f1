// IEEE division, reciprocal and square root in single precision, special values and subnormals included.
extern "C" __global__ void divsqrt(const float* x, const float* y, float* quotient, float* root, float* recip, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  quotient[i] = __fdiv_rn(x[i], y[i]);
  root[i] = __fsqrt_rn(x[i]);
  recip[i] = __frcp_rn(y[i]);
}
