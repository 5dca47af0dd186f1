/* A store behind an allocation of ten numbers, but in the unit that a driver gives; or behind that.
   The argument is what the store leads to. */
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
    ".file 1 \"put.py\"\n";

int main(int argc, char **argv) {
    start();
    CUmodule module = load(PTX);
    CUdeviceptr x;
    OK(cuMemAlloc_v2(&x, 40));
    void *params[] = {&x};
    OK(cuLaunchKernel(function(module, "put"), 1, 1, 1, 16, 1, 1, 0, 0, params, 0));
    WANT(argc == 2 && cuCtxSynchronize() == atoi(argv[1]));
    printf("done\n");
    return 0;
}
