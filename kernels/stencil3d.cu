// Seven-point stencil with 64-bit indices.
extern "C" __global__ void stencil3d(const float* in, float* out, long long nx, long long ny, long long nz) {
  long long x = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  long long y = (long long)blockIdx.y * blockDim.y + threadIdx.y;
  long long z = (long long)blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1) return;
  long long i = (z * ny + y) * nx + x;
  float sum = __fadd_rn(in[i - 1], in[i + 1]);
  sum = __fadd_rn(sum, __fadd_rn(in[i - nx], in[i + nx]));
  sum = __fadd_rn(sum, __fadd_rn(in[i - nx * ny], in[i + nx * ny]));
  out[i] = __fmaf_rn(-6.0f, in[i], sum);
}
