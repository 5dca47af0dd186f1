// More live values than the 32 registers that it is allowed.
extern "C" __global__ void __maxnreg__(32) spill(const unsigned* in, unsigned* out, int rounds) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned v[72];
#pragma unroll
  for (int k = 0; k < 72; k++) v[k] = in[i * 72 + k];
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int k = 0; k < 72; k++) v[k] = v[k] * 5u + (v[(k + 31) % 72] >> 3) + (v[(k + 50) % 72] ^ r);
  }
#pragma unroll
  for (int k = 0; k < 72; k++) out[i * 72 + k] = v[k];
}
