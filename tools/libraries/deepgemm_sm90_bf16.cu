// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm90_bf16_gemm.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm90_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::MN, 0, 4096, 7168, 4, 128, 128, 64, 128, 128, 128, 5, 128, 256, 1, false, 132,
        GemmType::MGroupedMasked, false, cutlass::bfloat16_t>);
}
