// Eight small kernels in one file.
extern "C" __global__ void fill(int* p, int v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = v;
}
extern "C" __global__ void iota(int* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = i;
}
extern "C" __global__ void scale(float* p, float s, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] *= s;
}
extern "C" __global__ void clampf(float* p, float lo, float hi, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = fminf(fmaxf(p[i], lo), hi);
}
extern "C" __global__ void reverse(const short* in, short* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[n - 1 - i] = in[i];
}
extern "C" __global__ void count(const int* in, int* out, int key, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && in[i] == key) atomicAdd(out, 1);
}
extern "C" __global__ void convert(const double* in, float* f, int* k, unsigned long long* u, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  f[i] = (float)in[i];
  k[i] = __double2int_rn(in[i]);
  u[i] = __float2ull_rz(fabsf(f[i]));
}
extern "C" __global__ void maxima(const int* in, int* best, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMax(&best[i & 3], in[i]);
}
