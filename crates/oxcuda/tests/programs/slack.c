/* A store behind an allocation of ten numbers, and one behind a block's shared memory, but in the units that a driver
   gives. The first argument is the kernel, the second what the store leads to. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .entry put(.param .u64 x)\n"
    "{\n"
    "  .reg .b32 %r1; .reg .b64 %rd<3>;\n"
    "  .loc 1 6 0\n"
    "  ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "  st.global.u32 [%rd1], %r1;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry lay(.param .u64 x)\n"
    "{\n"
    "  .shared .align 4 .b32 one;\n"
    "  .reg .b32 %r<3>;\n"
    "  mov.u32 %r1, one; mov.u32 %r2, %tid.x;\n"
    "  st.shared.u32 [%r1+8], %r2;\n"
    "  ret;\n"
    "}\n"
    ".file 1 \"put.py\"\n";

int main(int argc, char **argv) {
    start();
    CUmodule module = load(PTX);
    CUdeviceptr x;
    WANT(argc == 3);
    OK(cuMemAlloc_v2(&x, 40));
    void *params[] = {&x};
    OK(cuLaunchKernel(function(module, argv[1]), 1, 1, 1, 16, 1, 1, 0, 0, params, 0));
    WANT(cuCtxSynchronize() == atoi(argv[2]));
    printf("done\n");
    return 0;
}
