/* Kernels that go wrong, one a run: the argument says which. The context is of no use afterwards. */
#include "driver.h"

static const char PTX[] = HEADER
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
    ".global .align 1 .b8 text[6] = {120, 32, 62, 32, 48, 0};\n"
    ".visible .entry outside(.param .u64 x)\n"
    "{\n"
    "  .reg .b32 %r; .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [x]; mov.u32 %r, %tid.x; mul.wide.u32 %rd2, %r, 16; add.u64 %rd1, %rd1, %rd2;\n"
    "  st.global.u32 [%rd1], %r;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry odd(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %rd1;\n"
    "  ld.param.u64 %rd1, [x];\n"
    "  st.global.u32 [%rd1+2], 1;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry stop(.param .u64 x) { trap; }\n"
    ".visible .entry wrong(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %rd1; .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;\n"
    "  cvta.global.u64 %rd1, text;\n"
    "  st.param.b64 [a], %rd1; st.param.b64 [b], %rd1; st.param.b32 [c], 7; st.param.b64 [d], %rd1; st.param.b64 [e], 1;\n"
    "  call.uni __assertfail, (a, b, c, d, e);\n"
    "  ret;\n"
    "}\n";

int main(int argc, char **argv) {
    CUcontext context = start();
    CUmodule module = load(PTX);
    CUdeviceptr x;
    OK(cuMemAlloc_v2(&x, 160));
    void *params[] = {&x};
    WANT(argc == 3);
    OK(cuLaunchKernel(function(module, argv[1]), 1, 1, 1, 64, 1, 1, 0, 0, params, 0));
    CUresult want = atoi(argv[2]);
    WANT(cuCtxSynchronize() == want);
    WANT(cuMemAlloc_v2(&x, 4) == want);
    OK(cuCtxDestroy_v2(context));
    start();
    OK(cuMemAlloc_v2(&x, 4));
    printf("done\n");
    return 0;
}
