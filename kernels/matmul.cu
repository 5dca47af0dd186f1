// c = a b, square matrices of n a multiple of 16, tiled in shared memory.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[16][16], tb[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    ta[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    tb[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 16; j++) sum = __fmaf_rn(ta[threadIdx.y][j], tb[j][threadIdx.x], sum);
    __syncthreads();
  }
  c[row * n + col] = sum;
}
