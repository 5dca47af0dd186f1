// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, 7168, 2048, 1, 128, 128, 128, 128, 128, 128, 5, 128, 256, 2, true, 132,
        GemmType::Normal, cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>);
}
