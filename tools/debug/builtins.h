// What kernels/*.cu use of CUDA's headers, by clang's builtins, so that any version of clang compiles them without a toolkit.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __noinline__ __attribute__((noinline))
#define __forceinline__ __attribute__((always_inline)) inline
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
typedef unsigned long size_t;
#include <__clang_cuda_builtin_vars.h>
struct float4 {
    float x, y, z, w;
} __attribute__((aligned(16)));
#define OPERATION(result, name, parameters, value) static __device__ inline result name parameters { return value; }
OPERATION(float4, make_float4, (float x, float y, float z, float w), (float4{x, y, z, w}))
OPERATION(float, __fadd_rn, (float x, float y), __nvvm_add_rn_f(x, y))
OPERATION(float, __fmul_rn, (float x, float y), __nvvm_mul_rn_f(x, y))
OPERATION(float, __fmaf_rn, (float x, float y, float z), __nvvm_fma_rn_f(x, y, z))
OPERATION(float, __fdiv_rn, (float x, float y), __nvvm_div_rn_f(x, y))
OPERATION(float, __fsqrt_rn, (float x), __nvvm_sqrt_rn_f(x))
OPERATION(float, __frcp_rn, (float x), __nvvm_rcp_rn_f(x))
OPERATION(float, rsqrtf, (float x), __nvvm_rsqrt_approx_f(x))
OPERATION(double, __dadd_rn, (double x, double y), __nvvm_add_rn_d(x, y))
OPERATION(double, __dmul_rn, (double x, double y), __nvvm_mul_rn_d(x, y))
OPERATION(double, __fma_rn, (double x, double y, double z), __nvvm_fma_rn_d(x, y, z))
OPERATION(double, __ddiv_rn, (double x, double y), __nvvm_div_rn_d(x, y))
OPERATION(double, __dsqrt_rn, (double x), __nvvm_sqrt_rn_d(x))
OPERATION(float, fabsf, (float x), __builtin_fabsf(x))
OPERATION(double, fabs, (double x), __builtin_fabs(x))
OPERATION(float, fminf, (float x, float y), __nvvm_fmin_f(x, y))
OPERATION(float, fmaxf, (float x, float y), __nvvm_fmax_f(x, y))
OPERATION(int, min, (int x, int y), x < y ? x : y)
OPERATION(int, max, (int x, int y), x > y ? x : y)
OPERATION(int, abs, (int x), x < 0 ? -x : x)
OPERATION(int, __popc, (unsigned x), __builtin_popcount(x))
OPERATION(int, __clz, (unsigned x), x ? __builtin_clz(x) : 32)
OPERATION(int, atomicAdd, (int *p, int x), __nvvm_atom_add_gen_i(p, x))
OPERATION(unsigned, atomicAdd, (unsigned *p, unsigned x), __nvvm_atom_add_gen_i((int *)p, x))
OPERATION(float, atomicAdd, (float *p, float x), __nvvm_atom_add_gen_f(p, x))
#define __syncthreads() __nvvm_bar_sync(0)
