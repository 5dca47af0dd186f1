// Device functions that are really called: scalars, aggregates in registers and in memory, many arguments,
// recursion, function pointers, shared memory and a barrier in the callee.
#define CALLED extern "C" __device__ __noinline__

CALLED float called_poly(float x, int n) {
  float s = x;
  for (int i = 0; i < n; i++) s = __fmaf_rn(s, x, 0.5f);
  return s;
}

extern "C" __global__ void call_scalar(float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i] = called_poly(p[i], n) + called_poly(p[i] * 0.5f, n + i % 3);
}

struct Small {
  int x[5];
  long long d;
};
struct Large {
  int v[24];
};

CALLED Small called_small(Small s, int k) {
  s.x[k % 5] += 3;
  s.d *= s.x[(k + 1) % 5];
  return s;
}

CALLED Large called_large(int first, Large a, char step, short from) {
  Large r;
  for (int i = 0; i < 24; i++) r.v[i] = a.v[(i + from) % 24] * step + first;
  return r;
}

extern "C" __global__ void call_struct(Small* small, Large* large, int k) {
  int i = threadIdx.x;
  small[i] = called_small(small[i], k + i);
  large[i] = called_large(i, large[i], (char)(i - 20), (short)(i + k));
}

CALLED int called_many(int a, long long b, int c, int d, int e, int f, long long g, int h, int i, int j, int k,
                       int l, long long m, int n) {
  return a + 2 * (int)b + 3 * c + 5 * d + 7 * e + 11 * f + 13 * (int)g + 17 * h + 19 * i + 23 * j + 29 * k + 31 * l +
         37 * (int)(m >> 32) + 41 * n;
}

extern "C" __global__ void call_many(int* out, const int* in) {
  int t = threadIdx.x;
  const int* v = in + 16 * t;
  out[t] = called_many(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11],
                       (long long)v[12] << 32, v[13]) + v[15];
}

CALLED int called_fib(int n) { return n < 2 ? n : called_fib(n - 1) + called_fib(n - 2); }

extern "C" __global__ void call_recursive(int* p, int n) {
  int i = threadIdx.x;
  if (i < n) p[i] = called_fib(i % 11);
}

typedef int (*Binary)(int, int);
CALLED int called_add(int a, int b) { return a + b; }
CALLED int called_xor(int a, int b) { return a ^ b; }
CALLED int called_steps(int a, int b) {
  int n = 0;
  while (a > b) {
    a = a / 2 - 1;
    n++;
  }
  return n;
}
__device__ Binary called_table[3] = {called_add, called_xor, called_steps};

extern "C" __global__ void call_indirect(const int* op, const int* a, const int* b, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = called_table[op[i]](a[i], b[i]);
}

CALLED int called_neighbour(int v) {
  __shared__ int tile[64];
  tile[threadIdx.x] = v;
  __syncthreads();
  int r = tile[(threadIdx.x + 1) % 64];
  __syncthreads();
  return r;
}

extern "C" __global__ void call_shared(int* p) {
  __shared__ int mine[64];
  int i = threadIdx.x;
  mine[i] = p[i];
  int a = called_neighbour(p[i]);
  int b = called_neighbour(a * 3);
  p[i] = mine[(i + 5) % 64] + a - b;
}
