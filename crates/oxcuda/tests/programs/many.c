/* Much work that waits for one value: each call takes as long as where little waits. */
#include "driver.h"
#include <time.h>

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuMemsetD32Async(CUdeviceptr, unsigned, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);

enum { MANY = 20000, NOT_READY = 600 };

int main(void) {
    start();
    CUstream a, b, c;
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuStreamCreate(&c, 1));
    CUdeviceptr x, y, z, flag;
    OK(cuMemAlloc_v2(&x, 4));
    OK(cuMemAlloc_v2(&y, 4 * MANY));
    OK(cuMemAlloc_v2(&z, 4));
    OK(cuMemAlloc_v2(&flag, 4));
    OK(cuMemsetD32_v2(flag, 0, 1));
    CUevent done, taken;
    OK(cuEventCreate(&done, 2));
    OK(cuEventCreate(&taken, 2));
    OK(cuEventRecord(taken, b));
    clock_t from = clock();
    OK(cuStreamWaitValue32_v2(a, flag, 1, 1));
    for (unsigned i = 0; i < MANY; ++i) {
        /* One writes what the other one takes, in turns. */
        OK(cuStreamWaitEvent(a, taken, 0));
        OK(cuMemsetD32Async(x, i, 1, a));
        OK(cuEventRecord(done, a));
        OK(cuStreamWaitEvent(b, done, 0));
        OK(cuMemcpyDtoDAsync_v2(y + 4 * i, x, 4, b));
        OK(cuEventRecord(taken, b));
        OK(cuMemsetD32Async(z, i, 1, c));
        if (i % 100 == 0) {
            OK(cuStreamQuery(c));
            WANT(cuStreamQuery(a) == NOT_READY && cuEventQuery(taken) == NOT_READY);
        }
    }
    OK(cuStreamWriteValue32_v2(c, flag, 1, 0));
    OK(cuStreamSynchronize(b));
    double seconds = (double)(clock() - from) / CLOCKS_PER_SEC;
    static unsigned back[MANY];
    OK(cuMemcpyDtoH_v2(back, y, sizeof back));
    for (unsigned i = 0; i < MANY; ++i)
        WANT(back[i] == i);
    WANT(seconds < 60);
    printf("%.2f s\n", seconds);
    puts("done");
}
