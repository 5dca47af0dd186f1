/* Virtual memory management, the way that allocators grow a range: pieces side by side that are one to kernels and copies. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .entry number(.param .u64 x, .param .u32 n)\n"
    "{\n"
    "  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p;\n"
    "  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p, %r2, %r1; @%p ret;\n"
    "  mul.wide.u32 %rd2, %r2, 4096; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2;\n"
    "  ret;\n"
    "}\n";

typedef struct {
    int type, handles, location[2];
    void *security;
    unsigned char flags[8];
} Properties;

int main(int argc, char **argv) {
    CUcontext context = start();
    CUfunction number = function(load(PTX), "number");
    int can;
    OK(cuDeviceGetAttribute(&can, 102, 0));
    WANT(can == 1);
    Properties properties = {.type = 1, .location = {1, 0}};
    size_t unit, left, before, total;
    OK(cuMemGetAllocationGranularity(&unit, &properties, 0));
    OK(cuMemGetInfo_v2(&before, &total));

    CUdeviceptr range, small;
    OK(cuMemAddressReserve(&range, 8 * unit, 0, 0, 0));
    WANT(cuMemAddressReserve(&small, unit + 1, 0, 0, 0) == 1);
    OK(cuMemAddressReserve(&small, unit, 0, range + 2 * unit, 0));
    WANT(small != range + 2 * unit);
    uint64_t memory[2], none;
    for (int i = 0; i < 2; i++)
        OK(cuMemCreate(&memory[i], 2 * unit, &properties, 0));
    WANT(cuMemCreate(&none, unit / 2, &properties, 0) == 1);
    OK(cuMemGetInfo_v2(&left, &total));
    WANT(left == before - 4 * unit);
    for (int i = 0; i < 2; i++)
        OK(cuMemMap(range + 2 * i * unit, 2 * unit, 0, memory[i], 0));
    WANT(cuMemMap(range, 2 * unit, 0, memory[0], 0) == 1);
    WANT(cuMemMap(range + 8 * unit, unit, 0, memory[0], 0) == 1);
    WANT(cuMemMap(range + 4 * unit, 2 * unit, unit, memory[0], 0) == 1);
    WANT(cuMemMap(range + 4 * unit, 2 * unit, 0, memory[0], 0) == 801);

    /* Nothing is there until it may be accessed, and what is not mapped cannot be. */
    WANT(cuMemsetD8_v2(range, 1, 4) == 1);
    struct {
        int location[2], flags;
    } access = {{1, 0}, 3};
    WANT(cuMemSetAccess(range, 5 * unit, &access, 1) == 1);
    OK(cuMemSetAccess(range, 4 * unit, &access, 1));
    uint64_t flags;
    OK(cuMemGetAccess(&flags, access.location, range + 3 * unit));
    WANT(flags == 3 && cuMemGetAccess(&flags, access.location, range + 5 * unit) == 1);

    /* Four units as one. */
    unsigned n = 4 * unit / 4096;
    void *params[] = {&range, &n};
    OK(cuMemsetD8_v2(range, 0, 4 * unit));
    OK(cuLaunchKernel(number, n / 64, 1, 1, 64, 1, 1, 0, 0, params, 0));
    unsigned *back = malloc(4 * unit);
    OK(cuMemcpyDtoH_v2(back, range, 4 * unit));
    for (unsigned i = 0; i < n; i++)
        WANT(back[1024 * i] == i);
    WANT(cuMemcpyDtoH_v2(back, range + 1, 4 * unit) == 1);
    WANT(cuMemFree_v2(range) == 1);
    int kind;
    OK(cuPointerGetAttribute(&kind, 2, range + 5));
    WANT(kind == 2);

    /* Elsewhere it holds what it held; it is freed when nobody refers to it. */
    WANT(cuMemUnmap(range, unit) == 1);
    WANT(cuMemAddressFree(range, 8 * unit) == 1);
    OK(cuMemUnmap(range, 4 * unit));
    OK(cuMemMap(range + 4 * unit, 2 * unit, 0, memory[1], 0));
    OK(cuMemSetAccess(range + 4 * unit, 2 * unit, &access, 1));
    OK(cuMemcpyDtoH_v2(back, range + 4 * unit, 4096));
    WANT(back[0] == n / 2);
    OK(cuMemRetainAllocationHandle(&none, (void *)(range + 5 * unit)));
    WANT(none == memory[1]);
    OK(cuMemRelease(none));
    OK(cuMemRelease(memory[0]));
    OK(cuMemRelease(memory[1]));
    WANT(cuMemRelease(memory[0]) == 1);
    OK(cuMemGetInfo_v2(&left, &total));
    WANT(left == before - 2 * unit);
    if (argc > 1) {
        /* A kernel finds nothing where nothing is mapped any more. */
        OK(cuLaunchKernel(number, 1, 1, 1, 64, 1, 1, 0, 0, params, 0));
        WANT(cuCtxSynchronize() == atoi(argv[1]));
        printf("done\n");
        return 0;
    }
    OK(cuMemUnmap(range + 4 * unit, 2 * unit));
    OK(cuMemAddressFree(range, 8 * unit));
    OK(cuMemGetInfo_v2(&left, &total));
    WANT(left == before);

    /* What is not built is told. */
    properties.handles = 1;
    WANT(cuMemCreate(&none, unit, &properties, 0) == 801);
    WANT(cuMemExportToShareableHandle(&kind, 1, 1, 0) == 801);
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
    return 0;
}
