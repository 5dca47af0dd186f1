// Inclusive scan of a block of 256 with warp shuffles.
extern "C" __global__ void scan(const int* in, int* out) {
  __shared__ int sums[8];
  int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int v = in[i];
  for (int d = 1; d < 32; d <<= 1) {
    int up = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += up;
  }
  if (lane == 31) sums[warp] = v;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < warp; w++) before += sums[w];
  out[i] = v + before;
}
