// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm90_fp8_gemm_1d1d.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm90_fp8_gemm_1d1d_impl<0, 4096, 7168, 1, 128, 128, 128, 128, 128, 5, 128, 256, 2, false, 132, GemmType::KGroupedContiguous, float>);
}
