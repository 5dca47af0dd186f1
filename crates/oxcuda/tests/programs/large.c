/* Large arrays, for the memory that the checks take: so many MiB (the argument) as two arrays, of which every word is read and
   written, one in order, the other as pairs of numbers of 64 bits. The last line says how many MiB the process had at most. */
#include "driver.h"
#include <sys/resource.h>

static const char PTX[] = HEADER
    ".visible .entry turn(.param .u64 x, .param .u64 y)\n"
    "{\n"
    "  .reg .b64 %x, %y, %a, %b, %w; .reg .b32 %t, %n, %r;\n"
    "  ld.param.u64 %x, [x]; ld.param.u64 %y, [y];\n"
    "  mov.u32 %t, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %t, %n, 256, %t;\n"
    "  mul.wide.u32 %w, %t, 16; add.u64 %y, %y, %w;\n"
    "  ld.global.u64 %a, [%y]; ld.global.u64 %b, [%y+8];\n"
    "  add.u64 %a, %a, %b; add.u64 %b, %b, 1;\n"
    "  st.global.u64 [%y], %a; st.global.u64 [%y+8], %b;\n"
    "  shl.b32 %n, %n, 10; mov.u32 %t, %tid.x; add.u32 %n, %n, %t; mul.wide.u32 %w, %n, 4; add.u64 %x, %x, %w;\n"
    "  ld.global.u32 %r, [%x]; add.u32 %r, %r, 1; st.global.u32 [%x], %r;\n"
    "  ld.global.u32 %r, [%x+1024]; add.u32 %r, %r, 1; st.global.u32 [%x+1024], %r;\n"
    "  ld.global.u32 %r, [%x+2048]; add.u32 %r, %r, 1; st.global.u32 [%x+2048], %r;\n"
    "  ld.global.u32 %r, [%x+3072]; add.u32 %r, %r, 1; st.global.u32 [%x+3072], %r;\n"
    "  ret;\n"
    "}\n";

int main(int argc, char **argv) {
    size_t half = (argc > 1 ? strtoull(argv[1], 0, 10) : 4) << 19;
    CUcontext context;
    CUdeviceptr x, y;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    CUfunction f = function(load(PTX), "turn");
    OK(cuMemAlloc_v2(&x, half));
    OK(cuMemAlloc_v2(&y, half));
    OK(cuMemsetD8_v2(x, 0, half));
    OK(cuMemsetD8_v2(y, 0, half));
    void *params[] = {&x, &y};
    OK(cuLaunchKernel(f, half / 4096, 1, 1, 256, 1, 1, 0, 0, params, 0));
    unsigned last[4];
    OK(cuMemcpyDtoH_v2(last, x + half - 16, 16));
    WANT(last[0] == 1 && last[3] == 1);
    OK(cuMemcpyDtoH_v2(last, y + half - 16, 16));
    WANT(last[0] == 0 && last[2] == 1);
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld MiB\ndone\n", usage.ru_maxrss / 1024);
}
