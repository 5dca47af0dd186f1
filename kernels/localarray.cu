// A local array indexed by data: it has to live in local memory.
extern "C" __global__ void localarray(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int count[16];
  for (int k = 0; k < 16; k++) count[k] = k;
  for (int k = 0; k < 24; k++) {
    int v = in[(i * 7 + k) % n];
    count[v & 15] += v >> 4;
  }
  int best = 0;
  for (int k = 1; k < 16; k++)
    if (count[k] > count[best]) best = k;
  out[i] = best << 24 ^ count[in[i] & 15];
}
