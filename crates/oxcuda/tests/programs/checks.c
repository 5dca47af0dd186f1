/* Kernels with which only a check finds something wrong: memory that nobody has written, a race, a buffer that is not freed. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .entry turn(.param .u64 to, .param .u64 from)\n"
    "{\n"
    "  .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b32 s[64];\n"
    "  ld.param.u64 %rd1, [to]; ld.param.u64 %rd2, [from];\n"
    "  mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\n"
    "  mov.u32 %r2, s; mad.lo.u32 %r2, %r1, 4, %r2; xor.b32 %r3, %r2, 128;\n"
    "  ld.global.u32 %r1, [%rd2];\n"
    "  st.shared.u32 [%r2], %r1;\n"
    "  ld.shared.u32 %r1, [%r3];\n"
    "  st.global.u32 [%rd1], %r1;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    CUcontext context = start();
    CUmodule module = load(PTX);
    CUdeviceptr to, from;
    uint32_t some[32] = {0};
    OK(cuMemAlloc_v2(&to, 256));
    OK(cuMemAlloc_v2(&from, 256));
    /* The first half only. */
    OK(cuMemcpyHtoD_v2(from, some, sizeof some));
    void *params[] = {&to, &from};
    OK(cuLaunchKernel(function(module, "turn"), 1, 1, 1, 64, 1, 1, 0, 0, params, 0));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(from));
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
    return 0;
}
