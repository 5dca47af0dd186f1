/* Memory of the host while kernels run: other threads of the program write there, and kernels find it where it is. */
#define _DEFAULT_SOURCE
#include "driver.h"
#include <pthread.h>
#include <sys/mman.h>
#include <threads.h>

static const char PTX[] = HEADER
    /* x[tid] += 1, 20,000 times */
    ".visible .entry count(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %x, %i; .reg .b32 %n, %t; .reg .pred %p;\n"
    "  ld.param.u64 %x, [x]; mov.u32 %t, %tid.x; mul.wide.u32 %i, %t, 4; add.u64 %x, %x, %i; mov.u32 %n, 0;\n"
    "again: ld.volatile.global.u32 %t, [%x]; add.u32 %t, %t, 1; st.volatile.global.u32 [%x], %t;\n"
    "  add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 20000; @%p bra again;\n"
    "  ret;\n"
    "}\n"
    /* Says that it is there, and waits for an answer. */
    ".visible .entry answer(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %x; .reg .b32 %t; .reg .pred %p;\n"
    "  ld.param.u64 %x, [x]; st.volatile.global.u32 [%x], 1;\n"
    "again: ld.volatile.global.u32 %t, [%x+4]; setp.ne.u32 %p, %t, 2; @%p bra again;\n"
    "  st.volatile.global.u32 [%x+8], 3;\n"
    "  ret;\n"
    "}\n";

enum { KINDS = 3, PAGE = 4096 };
static volatile unsigned *own[KINDS];
static volatile int stop;
static unsigned written, lost;

/* What is written is there until somebody else writes there, and nobody does. */
static void *writer(void *unused) {
    for (; !stop; ++written)
        for (int k = 0; k < KINDS; ++k) {
            own[k][0] = written;
            for (volatile int i = 0; i < 100; ++i) {
            }
            lost += own[k][0] != written;
        }
    return unused;
}

static void *answerer(void *unused) {
    while (own[0][16] != 1)
        thrd_yield();
    own[0][17] = 2;
    return unused;
}

static void run(CUmodule module, const char *name, const volatile void *x, unsigned threads) {
    void *params[] = {&x};
    OK(cuLaunchKernel(function(module, name), 1, 1, 1, threads, 1, 1, 0, 0, params, 0));
    OK(cuCtxSynchronize());
}

static size_t most_memory(void) {
    char line[200];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6))
            kib = strtoul(line + 6, 0, 10);
    WANT(status && kib);
    fclose(status);
    return kib >> 10;
}

int main(void) {
    start();
    CUmodule module = load(PTX);
    CUdeviceptr managed, device;
    OK(cuMemHostAlloc((void **)&own[0], PAGE, 2));
    OK(cuMemAllocManaged(&managed, PAGE, 1));
    own[1] = (void *)managed;
    own[2] = aligned_alloc(PAGE, PAGE);
    memset((void *)own[2], 0, PAGE);
    OK(cuMemHostRegister_v2((void *)own[2], PAGE, 2));
    OK(cuMemAlloc_v2(&device, 128));
    OK(cuMemsetD8_v2(device, 0, 128));

    /* Kernels that have nothing to do with it, and kernels that write next to it. */
    pthread_t thread;
    WANT(!pthread_create(&thread, 0, writer, 0));
    for (int i = 0; i < 4; ++i) {
        run(module, "count", (void *)device, 32);
        for (int k = 0; k < KINDS; ++k)
            run(module, "count", own[k] + 32, 32);
    }
    stop = 1;
    pthread_join(thread, 0);
    WANT(written > 0 && lost == 0);
    for (int k = 0; k < KINDS; ++k)
        for (int i = 0; i < 64; ++i)
            WANT(own[k][i] == (i == 0 ? written - 1 : i < 32 ? 0 : 80000));

    /* A kernel and a thread that wait for each other. */
    WANT(!pthread_create(&thread, 0, answerer, 0));
    run(module, "answer", own[0] + 16, 1);
    pthread_join(thread, 0);
    WANT(own[0][18] == 3);

    /* No launch touches what its kernel does not. */
    void *large, *small[1000];
    size_t before = most_memory();
    OK(cuMemHostAlloc(&large, 1 << 30, 2));
    for (int i = 0; i < 1000; ++i)
        OK(cuMemHostAlloc(&small[i], 100, 2));
    for (int i = 0; i < 10; ++i)
        run(module, "count", (char *)large + (1 << 30) - 128, 1);
    WANT(((unsigned *)large)[(1 << 28) - 32] == 10 * 20000);
    WANT(most_memory() < before + 100);

    /* Only what is there, and may be written, can be made known; what becomes of it later is of no importance to others. */
    char *pages = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WANT(pages != MAP_FAILED && cuMemHostRegister_v2(pages, PAGE, 8) == 801);
    OK(cuMemHostRegister_v2(pages + 100, PAGE, 0));
    WANT(!mprotect(pages, PAGE, PROT_READ));
    run(module, "count", (void *)device, 32);
    OK(cuMemHostUnregister(pages + 100));
    WANT(cuMemHostRegister_v2(pages + PAGE - 1, 2, 0) == 1);
    OK(cuMemHostRegister_v2(pages + PAGE, PAGE, 0));
    OK(cuMemHostUnregister(pages + PAGE));
    WANT(!munmap(pages + PAGE, PAGE) && cuMemHostRegister_v2(pages + PAGE, 1, 0) == 1);
    puts("done");
}
