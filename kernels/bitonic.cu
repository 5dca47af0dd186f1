// Bitonic sort of 256 keys in shared memory.
extern "C" __global__ void bitonic(unsigned* keys) {
  __shared__ unsigned s[256];
  unsigned t = threadIdx.x;
  s[t] = keys[blockIdx.x * 256 + t];
  __syncthreads();
  for (unsigned k = 2; k <= 256; k <<= 1)
    for (unsigned j = k >> 1; j > 0; j >>= 1) {
      unsigned other = t ^ j;
      if (other > t) {
        bool up = (t & k) == 0;
        unsigned a = s[t], b = s[other];
        if ((a > b) == up) {
          s[t] = b;
          s[other] = a;
        }
      }
      __syncthreads();
    }
  keys[blockIdx.x * 256 + t] = s[t];
}
