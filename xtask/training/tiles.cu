// Products of matrices in tiles, as libraries write them: copies to shared memory in stages, `ldmatrix`, `mma`, all loops of a tile unrolled; and
// two such products with a softmax between. Nobody runs them: `cargo xtask release` compiles them to see which parts of the compiler such code
// keeps busy.
#include <cuda_fp16.h>

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void copy_16(void* to, const void* from, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}

__device__ __forceinline__ void load_4(unsigned (&r)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(from)));
}

__device__ __forceinline__ void load_4_transposed(unsigned (&r)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(from)));
}

__device__ __forceinline__ void product(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Eight pieces of 16 bytes a row, placed so that neither rows nor columns of them meet in a bank.
__device__ __forceinline__ int placed(int row, int piece) {
  return row * 64 + (piece ^ row & 7) * 8;
}

// c = a b, tiles of M by N, 64 deep, by four warps.
template <int M, int N, int Stages>
__device__ __forceinline__ void multiply(const half* a, const half* b, half* c, int m, int n, int k, float scale) {
  extern __shared__ half shared[];
  constexpr int Piece = (M + N) * 64;
  constexpr int Rows = M / 32, Columns = N / 16;
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int row = blockIdx.y * M, column = blockIdx.x * N;
  float sums[Rows][Columns][4] = {};
  auto fetch = [&](int at, int stage) {
    half* to = shared + stage * Piece;
#pragma unroll
    for (int p = thread; p < M * 8; p += 128) {
      int r = p / 8, q = p % 8;
      bool valid = row + r < m && at * 64 + q * 8 < k;
      copy_16(to + placed(r, q), a + size_t(row + r) * k + at * 64 + q * 8, valid);
    }
#pragma unroll
    for (int p = thread; p < N * 8; p += 128) {
      int r = p / 8, q = p % 8;
      bool valid = column + r < n && at * 64 + q * 8 < k;
      copy_16(to + M * 64 + placed(r, q), b + size_t(column + r) * k + at * 64 + q * 8, valid);
    }
    asm volatile("cp.async.commit_group;");
  };
  int steps = (k + 63) / 64;
#pragma unroll
  for (int s = 0; s < Stages - 1; s++) fetch(s, s);
  int stage = 0;
  for (int at = 0; at < steps; at++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(Stages - 2));
    __syncthreads();
    if (at + Stages - 1 < steps) fetch(at + Stages - 1, (stage + Stages - 1) % Stages);
    const half *left = shared + stage * Piece, *right = left + M * 64;
#pragma unroll
    for (int depth = 0; depth < 4; depth++) {
      unsigned x[Rows][4];
#pragma unroll
      for (int i = 0; i < Rows; i++)
        load_4(x[i], left + placed(warp / 2 * (M / 2) + i * 16 + lane % 16, depth * 2 + lane / 16));
#pragma unroll
      for (int j = 0; j < Columns / 2; j++) {
        unsigned y[4];
        load_4(y, right + placed(warp % 2 * (N / 2) + j * 16 + lane % 16, depth * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < Rows; i++) {
          product(sums[i][2 * j], x[i], y[0], y[2]);
          product(sums[i][2 * j + 1], x[i], y[1], y[3]);
        }
      }
    }
    stage = (stage + 1) % Stages;
  }
#pragma unroll
  for (int i = 0; i < Rows; i++)
#pragma unroll
    for (int j = 0; j < Columns; j++) {
      int r = row + warp / 2 * (M / 2) + i * 16 + lane / 4, q = column + warp % 2 * (N / 2) + j * 8 + lane % 4 * 2;
#pragma unroll
      for (int h = 0; h < 2; h++)
        if (r + 8 * h < m && q < n)
          *reinterpret_cast<half2*>(c + size_t(r + 8 * h) * n + q) =
              __floats2half2_rn(scale * sums[i][j][2 * h], scale * sums[i][j][2 * h + 1]);
    }
}

extern "C" __global__ void __launch_bounds__(128) tiles_64_64(const half* a, const half* b, half* c, int m, int n, int k, float scale) {
  multiply<64, 64, 3>(a, b, c, m, n, k, scale);
}

// So few registers that values have to leave theirs.
extern "C" __global__ void __launch_bounds__(128, 5) tiles_in_memory(const half* a, const half* b, half* c, int m, int n, int k, float scale) {
  multiply<128, 128, 2>(a, b, c, m, n, k, scale);
}

// Softmax of q k, times v, for a head of D: 64 rows of q by four warps, 64 columns of k at a time.
template <int D, bool Causal>
__device__ __forceinline__ void attend(const half* q, const half* k, const half* v, half* out, float* sums_out, int length, float scale) {
  extern __shared__ half shared[];
  half *keys = shared, *values = shared + 64 * D;
  int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int first = blockIdx.x * 64;
  size_t head = size_t(blockIdx.y) * length * D;
  q += head, k += head, v += head, out += head;
  auto fetch = [&](half* to, const half* from, int at) {
#pragma unroll
    for (int p = thread; p < 8 * D; p += 128) {
      int r = p / (D / 8), piece = p % (D / 8);
      copy_16(to + piece / 8 * 4096 + placed(r, piece % 8), from + size_t(at + r) * D + piece * 8, at + r < length);
    }
    asm volatile("cp.async.commit_group;");
  };
  unsigned x[D / 16][4];
  fetch(keys, q, first);
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
#pragma unroll
  for (int d = 0; d < D / 16; d++)
    load_4(x[d], keys + d / 4 * 4096 + placed(warp * 16 + lane % 16, d % 4 * 2 + lane / 16));
  __syncthreads();
  float total[D / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  int end = Causal ? min(length, first + 64) : length;
  fetch(keys, k, 0);
  for (int at = 0; at < end; at += 64) {
    fetch(values, v, at);
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    float scores[8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        unsigned y[4];
        load_4(y, keys + d / 4 * 4096 + placed(j * 16 + lane % 16, d % 4 * 2 + lane / 16));
        product(scores[2 * j], x[d], y[0], y[2]);
        product(scores[2 * j + 1], x[d], y[1], y[3]);
      }
    if (Causal && at + 64 > first) {
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (at + j * 8 + lane % 4 * 2 + e % 2 > first + warp * 16 + lane / 4 + e / 2 * 8) scores[j][e] = -INFINITY;
    }
    unsigned weights[8][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float now = most[h];
#pragma unroll
      for (int j = 0; j < 8; j++) now = fmaxf(now, fmaxf(scores[j][2 * h], scores[j][2 * h + 1]));
      now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, 2));
      float base = now == -INFINITY ? 0 : now * scale, less = exp2f(most[h] * scale - base);
      most[h] = now;
      sum[h] *= less;
#pragma unroll
      for (int d = 0; d < D / 8; d++) total[d][2 * h] *= less, total[d][2 * h + 1] *= less;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        float one = exp2f(scores[j][2 * h] * scale - base), other = exp2f(scores[j][2 * h + 1] * scale - base);
        sum[h] += one + other;
        half2 both = __floats2half2_rn(one, other);
        weights[j][h] = *reinterpret_cast<unsigned*>(&both);
      }
    }
    __syncthreads();
    if (at + 64 < end) fetch(keys, k, at + 64);
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) {
      unsigned left[4] = {weights[2 * j][0], weights[2 * j][1], weights[2 * j + 1][0], weights[2 * j + 1][1]};
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned y[4];
        load_4_transposed(y, values + d / 4 * 4096 + placed(j * 16 + lane % 16, d % 4 * 2 + lane / 16));
        product(total[2 * d], left, y[0], y[1]);
        product(total[2 * d + 1], left, y[2], y[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
    int r = first + warp * 16 + lane / 4 + 8 * h;
    if (r >= length) continue;
    float part = sum[h] == 0 ? 1 : 1 / sum[h];
    if (lane % 4 == 0) sums_out[size_t(blockIdx.y) * length + r] = most[h] * scale + log2f(sum[h]);
#pragma unroll
    for (int d = 0; d < D / 8; d++)
      *reinterpret_cast<half2*>(out + size_t(r) * D + d * 8 + lane % 4 * 2) =
          __floats2half2_rn(part * total[d][2 * h], part * total[d][2 * h + 1]);
  }
}

extern "C" __global__ void __launch_bounds__(128) attend_64(const half* q, const half* k, const half* v, half* out, float* sums, int length, float scale) {
  attend<64, true>(q, k, v, out, sums, length, scale);
}
