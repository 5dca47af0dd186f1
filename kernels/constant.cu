// Table lookup in constant memory, uniform and divergent indices.
__constant__ float weights[32] = {0.5f, 1, 1.5f, 2, 2.5f, 3, 3.5f, 4, 4.5f, 5, 5.5f, 6, 6.5f, 7, 7.5f, 8,
                                  -0.5f, -1, -1.5f, -2, -2.5f, -3, -3.5f, -4, -4.5f, -5, -5.5f, -6, -6.5f, -7, -7.5f, -8};
__constant__ unsigned char permutation[16] = {3, 1, 4, 15, 9, 2, 6, 5, 8, 7, 10, 0, 11, 14, 13, 12};
__device__ int calls = 40;

extern "C" __global__ void constant(const int* in, float* out, int* counter, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = in[i];
  float sum = 0;
  for (int k = 0; k < 4; k++) sum = __fadd_rn(sum, weights[(v + permutation[(v >> k) & 15]) & 31]);
  out[i] = __fadd_rn(sum, weights[blockIdx.x & 31]);
  if (i == 0) counter[0] = calls + 2;
}
