// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm100_fp8_fp4_gemm_1d1d.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm100_fp8_fp4_gemm_1d1d_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 128, 128, 128, 0, 4096, 7168, 128, 128, 128, 1, 128, 128, 128, 5, 128, 128,
        2, false, 148, false, false, GemmType::Normal, false, cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>);
}
