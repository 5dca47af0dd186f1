/* Streams that wait for values: which the host writes, another stream, another thread. With an argument nobody writes it. */
#include "driver.h"
#include <pthread.h>
#include <threads.h>

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuStreamWaitValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuStreamWriteValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamBatchMemOp_v2(CUstream, unsigned, Operation *, unsigned);

static const char PTX[] = HEADER
    /* *x = 3 · *x + n */
    ".visible .entry step(.param .u64 x, .param .u32 n)\n"
    "{\n"
    "  .reg .b64 %rd; .reg .b32 %a, %b;\n"
    "  ld.param.u64 %rd, [x]; ld.param.u32 %b, [n];\n"
    "  ld.global.u32 %a, [%rd]; mad.lo.u32 %a, %a, 3, %b; st.global.u32 [%rd], %a;\n"
    "  ret;\n"
    "}\n";

enum { GEQ, EQ, AND, NOR, NOT_READY = 600, TIMEOUT = 702 };
static CUfunction f;
static volatile unsigned *flag;

static void step(CUdeviceptr x, unsigned n, CUstream s) {
    void *params[] = {&x, &n};
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, 0));
}

static unsigned get(CUdeviceptr x, CUstream s) {
    unsigned back;
    OK(cuMemcpyDtoHAsync_v2(&back, x, 4, s));
    OK(cuStreamSynchronize(s));
    return back;
}

static void *later(void *value) {
    struct timespec t = {0, 50000000};
    thrd_sleep(&t, 0);
    *flag = (unsigned)(uintptr_t)value;
    return 0;
}

static void noted(void *to) { ++*(int *)to; }

int main(int argc, char **argv) {
    (void)argv;
    CUcontext context;
    CUmodule module;
    CUstream a, b, c;
    CUdeviceptr x, y, z, w, at;
    CUevent e;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    f = function(module, "step");
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuStreamCreate(&c, 0));
    OK(cuEventCreate(&e, 0));
    CUdeviceptr *all[] = {&x, &y, &z, &w};
    for (int i = 0; i < 4; i++) {
        OK(cuMemAlloc_v2(all[i], 8));
        OK(cuMemsetD32_v2(*all[i], 0, 2));
    }
    OK(cuMemHostAlloc((void **)&flag, 8, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, (void *)flag, 0));
    *flag = 0;
    WANT(cuStreamWaitValue32_v2(a, at + 2, 1, GEQ) == 1);
    WANT(cuStreamWaitValue32_v2(a, 64, 1, GEQ) == 1);
    WANT(cuStreamWaitValue32_v2(a, at, 1, 16) == 1);

    /* The host writes. What comes behind, and what waits for it elsewhere, comes after; all else goes on. */
    int count = 0;
    unsigned given = 5;
    OK(cuStreamWaitValue32_v2(a, at, 0, EQ));
    WANT(cuStreamQuery(a) == 0);
    OK(cuStreamWaitValue32_v2(a, at, 1, GEQ));
    if (argc > 1) {
        step(x, 1, a);
        WANT(cuStreamQuery(a) == NOT_READY);
        WANT(cuStreamSynchronize(a) == TIMEOUT);
        WANT(cuCtxSynchronize() == TIMEOUT);
        printf("done\n");
        return 0;
    }
    OK(cuMemcpyHtoDAsync_v2(x, &given, 4, a));
    given = 77;
    step(x, 1, a);
    OK(cuLaunchHostFunc(a, noted, &count));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    step(y, 2, b);
    step(z, 3, c);
    WANT(cuStreamQuery(a) == NOT_READY && cuStreamQuery(b) == NOT_READY && cuStreamQuery(c) == 0);
    WANT(cuEventQuery(e) == NOT_READY && count == 0);
    unsigned got;
    OK(cuMemcpyDtoH_v2(&got, x, 4));
    WANT(got == 0 && get(z, c) == 3);
    *flag = 1;
    OK(cuStreamSynchronize(b));
    WANT(count == 1 && cuStreamQuery(a) == 0 && cuEventQuery(e) == 0);
    WANT(get(x, a) == 16 && get(y, b) == 2);

    /* Another stream writes, memory of the device; the shared stream and those that wait for it come behind. */
    OK(cuMemsetD32_v2(w, 8, 1));
    OK(cuStreamWaitValue32_v2(c, w, 6, AND));
    step(z, 1, c);
    step(z, 1, 0);
    WANT(cuStreamQuery(c) == NOT_READY && cuStreamQuery(0) == NOT_READY);
    OK(cuStreamWriteValue32_v2(a, w, 16, 0));
    WANT(cuStreamQuery(c) == NOT_READY);
    OK(cuStreamWriteValue32_v2(a, w, 4, 0));
    WANT(cuStreamQuery(c) == 0 && cuStreamQuery(0) == 0 && get(z, c) == 31);
    /* The writing itself comes behind a wait. */
    *flag = 0;
    OK(cuStreamWaitValue32_v2(b, at, 9, EQ));
    OK(cuStreamWriteValue32_v2(b, w, 100, 0));
    OK(cuStreamWaitValue64_v2(a, w, 100, EQ));
    step(x, 0, a);
    WANT(cuStreamQuery(a) == NOT_READY);
    *flag = 9;
    WANT(cuStreamQuery(a) == 0 && get(x, a) == 48);
    OK(cuStreamWaitValue32_v2(a, at, ~9u, NOR));
    WANT(cuStreamQuery(a) == NOT_READY);
    *flag = 1;
    WANT(cuStreamQuery(a) == 0);

    /* Several at once: a wait, then words of both sizes. Nothing is done if one of them is none. */
    Operation list[] = {{{1, at, 3, GEQ, 0}}, {{5, w, 0x100000002, 0, 0}}, {{6, 0, 0, 0, 0}}, {{2, w + 4, 7, 0, 0}}, {{9, 0, 0, 0, 0}}};
    WANT(cuStreamBatchMemOp_v2(a, 5, list, 0) == 1 && cuStreamQuery(a) == 0);
    OK(cuStreamBatchMemOp_v2(a, 4, list, 0));
    OK(cuStreamWaitValue64_v2(b, w, 0x700000002, EQ));
    step(y, 0, b);
    WANT(cuStreamQuery(a) == NOT_READY && cuStreamQuery(b) == NOT_READY);
    *flag = 3;
    WANT(cuStreamQuery(b) == 0 && get(y, b) == 6 && get(w + 4, a) == 7);
    OK(cuStreamWriteValue64_v2(a, w, 1, 0));
    WANT(get(w, a) == 1 && get(w + 4, a) == 0 && cuStreamWriteValue64_v2(a, w + 4, 1, 0) == 1);

    /* Another thread writes while this one waits, or reads what is to come. */
    pthread_t thread;
    OK(cuStreamWaitValue32_v2(a, at, 7, EQ));
    step(x, 2, a);
    pthread_create(&thread, 0, later, (void *)7);
    OK(cuStreamSynchronize(a));
    pthread_join(thread, 0);
    WANT(get(x, a) == 146);
    OK(cuStreamWaitValue32_v2(c, at, 8, EQ));
    step(z, 2, c);
    pthread_create(&thread, 0, later, (void *)8);
    OK(cuMemcpyDtoH_v2(&got, z, 4));
    WANT(got == 95);
    pthread_join(thread, 0);
    OK(cuStreamWaitValue32_v2(a, at, 9, EQ));
    step(x, 0, a);
    pthread_create(&thread, 0, later, (void *)9);
    OK(cuMemFree_v2(x));
    pthread_join(thread, 0);
    OK(cuCtxSynchronize());
    printf("done\n");
}
