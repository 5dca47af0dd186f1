// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm100_bf16_gemm.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm100_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 0, 4096, 7168, 128, 128, 64, 1, 128, 128, 128, 5, 128, 128, 2, false, 148, 128,
        false, false, GemmType::Normal, false, cutlass::bfloat16_t, 100>);
}
