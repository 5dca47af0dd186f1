// An instance as the library's compiler at run time makes it.
#include <deep_gemm/impls/sm90_fp8_mqa_logits.cuh>

using namespace deep_gemm;

void *kernel() {
    return reinterpret_cast<void *>(&sm90_fp8_mqa_logits<32, 128, false, 4, 256, 3, 3, 132, 128, 512, float>);
}
