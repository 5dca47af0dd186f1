/* Memory of every kind, copies, values everywhere, variables of modules. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .global .align 4 .u32 total = 5;\n"
    ".visible .const .align 4 .b32 factor[2] = {3, 4};\n"
    ".visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n)\n"
    "{\n"
    "  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p;\n"
    "  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
    "  mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p, %r2, %r1; @%p ret;\n"
    "  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;\n"
    "  ld.u32 %r5, [%rd1]; ld.u32 %r6, [%rd2];\n"
    "  ld.const.u32 %r7, [factor+4];\n"
    "  mad.lo.u32 %r5, %r5, %r7, %r6; st.u32 [%rd2], %r5;\n"
    "  atom.global.add.u32 %r6, [total], 1;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    CUcontext context = start();
    CUmodule module = load(PTX);
    CUfunction add = function(module, "add");
    enum { N = 100 };
    unsigned host[N], back[N];
    for (int i = 0; i < N; i++)
        host[i] = i;

    /* The device's, the program's own, pinned and managed: kernels see all of them. */
    CUdeviceptr x, y;
    OK(cuMemAlloc_v2(&x, sizeof host));
    OK(cuMemcpyHtoD_v2(x, host, sizeof host));
    unsigned *pinned, *managed, *own = aligned_alloc(4096, 4096);
    CUdeviceptr at;
    OK(cuMemHostAlloc((void **)&pinned, sizeof host, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, pinned, 0));
    WANT(at == (CUdeviceptr)pinned);
    OK(cuMemAllocManaged(&y, sizeof host, 1));
    managed = (unsigned *)y;
    OK(cuMemHostRegister_v2(own, 4096, 0));
    WANT(cuMemHostRegister_v2(own, 4096, 0) == 712);
    unsigned n = N;
    CUdeviceptr places[] = {(CUdeviceptr)pinned, (CUdeviceptr)managed, (CUdeviceptr)own};
    for (int k = 0; k < 3; k++) {
        unsigned *p = (unsigned *)places[k];
        for (int i = 0; i < N; i++)
            p[i] = 1000;
        void *params[] = {&x, &places[k], &n};
        OK(cuLaunchKernel(add, 4, 1, 1, 32, 1, 1, 0, 0, params, 0));
        OK(cuCtxSynchronize());
        for (int i = 0; i < N; i++)
            WANT(p[i] == 4u * i + 1000);
    }
    OK(cuMemHostUnregister(own));

    /* Variables, constant ones too, and parameters as a block. */
    CUdeviceptr total, factor;
    size_t bytes;
    OK(cuModuleGetGlobal_v2(&total, &bytes, module, "total"));
    WANT(bytes == 4);
    OK(cuMemcpyDtoH_v2(back, total, 4));
    WANT(back[0] == 5 + 3 * N);
    OK(cuModuleGetGlobal_v2(&factor, &bytes, module, "factor"));
    WANT(bytes == 8);
    unsigned two = 2;
    OK(cuMemcpyHtoD_v2(factor + 4, &two, 4));
    WANT(cuModuleGetGlobal_v2(&factor, &bytes, module, "other") == 500);
    struct {
        CUdeviceptr x, y;
        unsigned n;
    } block = {x, y, N};
    size_t size = 20;
    void *extra[] = {(void *)1, &block, (void *)2, &size, 0};
    for (int i = 0; i < N; i++)
        managed[i] = 7;
    OK(cuLaunchKernel(add, 4, 1, 1, 32, 1, 1, 0, 0, 0, extra));
    for (int i = 0; i < N; i++)
        WANT(managed[i] == 2u * i + 7);

    /* Values, copies between any two places, rectangles. */
    OK(cuMemsetD8_v2(x, 0xab, 2));
    OK(cuMemsetD32_v2(x + 8, 0x12345678, 2));
    OK(cuMemcpyDtoH_v2(back, x, 20));
    WANT(back[0] == 0xabab && back[1] == 1 && back[2] == 0x12345678 && back[3] == 0x12345678 && back[4] == 4);
    OK(cuMemcpy((CUdeviceptr)host, x, 4));
    WANT(host[0] == 0xabab);
    size_t pitch;
    CUdeviceptr wide;
    OK(cuMemAllocPitch_v2(&wide, &pitch, 10, 3, 4));
    WANT(pitch >= 10 && pitch % 256 == 0);
    unsigned char small[3][10], out[3][4];
    for (int i = 0; i < 30; i++)
        small[i / 10][i % 10] = i;
    Copy2D copy = {.srcKind = 1, .srcHost = small, .srcPitch = 10, .dstKind = 2, .dstDevice = wide, .dstPitch = pitch,
                   .width = 10, .height = 3};
    OK(cuMemcpy2D_v2(&copy));
    OK(cuMemsetD2D16_v2(wide + 2, pitch, 0x6162, 1, 2));
    Copy2D second = {.srcX = 1, .srcY = 1, .srcKind = 2, .srcDevice = wide, .srcPitch = pitch, .dstKind = 1, .dstHost = out,
                     .dstPitch = 4, .width = 4, .height = 2};
    OK(cuMemcpy2D_v2(&second));
    const unsigned char want[2][4] = {{11, 'b', 'a', 14}, {21, 22, 23, 24}};
    WANT(!memcmp(out, want, 8));

    /* What an address is. */
    CUdeviceptr base;
    OK(cuMemGetAddressRange_v2(&base, &bytes, x + 17));
    WANT(base == x && bytes == sizeof host);
    int kind;
    OK(cuPointerGetAttribute(&kind, 2, x + 1));
    WANT(kind == 2);
    OK(cuPointerGetAttribute(&kind, 2, (CUdeviceptr)pinned));
    WANT(kind == 1);
    OK(cuPointerGetAttribute(&kind, 8, y));
    WANT(kind == 1);
    WANT(cuPointerGetAttribute(&kind, 2, 64) == 1);

    size_t before, after, all;
    OK(cuMemGetInfo_v2(&before, &all));
    CUdeviceptr more;
    OK(cuMemAllocAsync(&more, 1 << 20, 0));
    OK(cuMemGetInfo_v2(&after, &all));
    WANT(before - after == 1 << 20);
    OK(cuMemFreeAsync(more, 0));
    WANT(cuMemFree_v2(more) == 1);
    WANT(cuMemAlloc_v2(&more, all) == 2);
    WANT(cuMemcpyHtoD_v2(x + 4, host, sizeof host) == 1);
    /* More than there is, or than can be counted: told before anything is gathered or read. */
    WANT(cuMemcpyHtoD_v2(x, host, (size_t)1 << 44) == 1);
    WANT(cuMemsetD8_v2(x, 0, (size_t)1 << 44) == 1);
    WANT(cuMemsetD32_v2(x, 0, (size_t)1 << 62) == 1);
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree_v2(x));
    OK(cuMemFree_v2(y));
    OK(cuModuleUnload(module));
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
    return 0;
}
