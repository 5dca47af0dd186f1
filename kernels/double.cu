// Double precision: axpy, dot product, a polynomial, division and square root.
extern "C" __global__ void daxpy(int n, double a, const double* x, double* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __fma_rn(a, x[i], y[i]);
}

extern "C" __global__ void ddot(const double* a, const double* b, double* out, int n) {
  __shared__ double part[64];
  double sum = 0;
  for (int i = threadIdx.x; i < n; i += 64) sum = __fma_rn(a[i], b[i], sum);
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int k = 32; k > 0; k >>= 1) {
    if (threadIdx.x < k) part[threadIdx.x] = __dadd_rn(part[threadIdx.x], part[threadIdx.x + k]);
    __syncthreads();
  }
  if (threadIdx.x == 0) out[0] = part[0];
}

extern "C" __global__ void dpoly(const double* x, double* y, double* q, double* r, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double v = x[i], p = 0.125;
  for (int k = 0; k < 6; k++) p = __fma_rn(p, v, (double)(k - 3));
  y[i] = p;
  q[i] = __ddiv_rn(p, v);
  r[i] = __dsqrt_rn(fabs(v));
}
