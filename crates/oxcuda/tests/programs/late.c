/* Work that waits when something else goes wrong, and graphs that allocate when their turn comes. With an argument the context breaks:
   by a kernel behind a wait, or as nobody writes what is waited for. */
#include "driver.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuStreamAddCallback(CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned);

static const char PTX[] = HEADER ".visible .entry stop() { trap; }\n";


enum { GEQ, EQ, NOT_READY = 600 };
static volatile unsigned *flag;
static int functions, callbacks[2], told = -1;

static void counted(void *data) {
    (void)data;
    functions++;
}

static void called(CUstream s, CUresult status, void *which) {
    (void)s;
    callbacks[*(int *)which]++;
    if (*(int *)which)
        told = status;
}

/* A function of the program is not called where the context is of no use; a callback is told. */
static void broken(CUstream s, CUdeviceptr at, const char *how) {
    CUfunction stop = function(load(PTX), "stop");
    int first = 0, second = 1, trap = *how == 't';
    OK(cuStreamWaitValue32_v2(s, at, 1, EQ));
    if (trap) {
        OK(cuStreamAddCallback(s, called, &first, 0));
        OK(cuLaunchKernel(stop, 1, 1, 1, 1, 1, 1, 0, s, 0, 0));
    }
    OK(cuLaunchHostFunc(s, counted, 0));
    OK(cuStreamAddCallback(s, called, &second, 0));
    WANT(functions == 0 && callbacks[0] == 0 && callbacks[1] == 0);
    *flag = trap;
    int code = trap ? 719 : 702;
    WANT(cuStreamSynchronize(s) == code);
    WANT(functions == 0 && callbacks[0] == trap && callbacks[1] == 1 && told == code);
    WANT(cuCtxSynchronize() == code);
}

int main(int argc, char **argv) {
    CUcontext context = start();
    CUstream a, b;
    CUdeviceptr at;
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuMemHostAlloc((void **)&flag, 64, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, (void *)flag, 0));
    if (argc > 1) {
        broken(a, at, argv[1]);
        printf("done\n");
        return 0;
    }

    /* A graph that leaves what it allocates: its next launch is refused until that is freed, also where both are still to come;
       unless the launch itself is to free it. */
    unsigned back;
    for (int way = 0; way < 2; way++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node, next;
        Alloc alloc = {.pool = {.type = 1, .location = {1, 0}}, .size = 4096};
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemAllocNode(&node, graph, 0, 0, &alloc));
        Fill fill = {alloc.address, 0, 7 + way, 4, 1024, 1};
        OK(cuGraphAddMemsetNode(&next, graph, &node, 1, &fill, context));
        OK(cuGraphInstantiateWithFlags(&exec, graph, way));
        *flag = 0;
        OK(cuStreamWaitValue32_v2(a, at, 1, EQ));
        OK(cuGraphLaunch(exec, a));
        if (way == 0) {
            WANT(cuGraphLaunch(exec, a) == 1);
            OK(cuMemFreeAsync(alloc.address, a));
        }
        OK(cuGraphLaunch(exec, b));
        WANT(cuStreamQuery(a) == NOT_READY && cuStreamQuery(b) == NOT_READY);
        *flag = 1;
        OK(cuStreamSynchronize(b));
        OK(cuMemcpyDtoH_v2(&back, alloc.address + 4092, 4));
        WANT(back == 7u + way);
        WANT(cuGraphLaunch(exec, a) == !way);
        OK(cuMemFree_v2(alloc.address));
        WANT(cuMemFree_v2(alloc.address) == 1);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuCtxSynchronize());
    printf("done\n");
}
