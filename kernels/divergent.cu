// Lanes leave a loop at different times, some return from inside it; votes among those left.
extern "C" __global__ void divergent(const int* in, int* out, unsigned* ballots, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = in[i], steps = 0;
  unsigned all = __ballot_sync(0xffffffffu, v & 1);
  int any = __any_sync(0xffffffffu, v > 900), every = __all_sync(0xffffffffu, v >= 0);
  while (v > 0) {
    if (v == 77) {
      out[i] = -steps;
      return;
    }
    if (v % 3 == 0) v -= 5;
    else if (v & 1) v = v / 2;
    else v -= 3;
    if (steps++ > n) break;
  }
  out[i] = steps * 4 + any * 2 + every;
  unsigned mask = __activemask();
  if ((threadIdx.x & 31) == __ffs(mask) - 1) ballots[i >> 5] = all;
}
