/* What ends a capture: a fork that is not joined, and calls that may not be made while it is under way. */
#include "driver.h"
#include <pthread.h>

static CUstream s, t, blocking;
static CUevent e, f, g;
static CUdeviceptr x;
static char bytes[64];

static void *elsewhere(void *what) {
    CUcontext context = what;
    CUgraph graph;
    CUdeviceptr y;
    OK(cuCtxSetCurrent(context));
    /* A capture is for the thread that began it to end, and strict ones let no other thread allocate. */
    WANT(cuStreamEndCapture(s, &graph) == 908);
    int mode = 1;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    WANT(mode == 0);
    OK(cuMemAlloc_v2(&y, 4));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    WANT(mode == 1);
    WANT(cuMemAlloc_v2(&y, 4) == 900);
    return 0;
}

/* Of another thread: its own default stream captures nothing, and does not wait for that of the first one. */
static void *own(void *what) {
    int state;
    OK(cuCtxSetCurrent((CUcontext)what));
    OK(cuStreamIsCapturing_ptsz(0, &state));
    WANT(state == 0);
    OK(cuMemcpyHtoD_v2_ptds(x, bytes, 4));
    return 0;
}

/* A capture of one fill that something makes invalid. */
#define INVALID(mode, call, code)                                                                                      \
    do {                                                                                                               \
        CUgraph graph_ = (CUgraph)1;                                                                                   \
        int state_;                                                                                                    \
        OK(cuStreamBeginCapture_v2(s, mode));                                                                          \
        OK(cuMemcpyHtoDAsync_v2(x, bytes, 4, s));                                                                      \
        OK(cuEventRecord(e, s));                                                                                       \
        WANT((call) == code);                                                                                          \
        OK(cuStreamIsCapturing(s, &state_));                                                                           \
        WANT(state_ == 2);                                                                                             \
        WANT(cuMemcpyHtoDAsync_v2(x, bytes, 4, s) == 901);                                                             \
        WANT(cuStreamWaitEvent(t, e, 0) == 901);                                                                       \
        WANT(cuStreamEndCapture(s, &graph_) == 901 && !graph_);                                                        \
        OK(cuStreamIsCapturing(s, &state_));                                                                           \
        WANT(state_ == 0);                                                                                             \
        OK(cuMemcpyHtoDAsync_v2(x, bytes, 4, s));                                                                      \
    } while (0)

int main(void) {
    CUcontext context = start();
    CUgraph graph, other;
    CUdeviceptr y;
    OK(cuMemAlloc_v2(&x, 64));
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuStreamCreate(&blocking, 0));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&f, 0));
    OK(cuEventCreate(&g, 0));
    OK(cuEventRecord(g, s));

    INVALID(0, cuStreamSynchronize(s), 900);
    INVALID(0, cuStreamQuery(s), 900);
    INVALID(0, cuCtxSynchronize(), 900);
    INVALID(0, cuEventQuery(e), 907);
    INVALID(2, cuEventSynchronize(e), 907);
    INVALID(0, cuMemAlloc_v2(&y, 4), 900);
    INVALID(1, cuMemFree_v2(x), 900);
    INVALID(0, cuStreamWaitEvent(s, g, 0), 905);

    /* What is relaxed may allocate. */
    OK(cuStreamBeginCapture_v2(s, 2));
    OK(cuMemAlloc_v2(&y, 4));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    WANT(cuStreamBeginCapture_v2(s, 3) == 1 && cuStreamBeginCapture_v2(0, 0) == 900);

    /* A fork that is not joined, and one that is. */
    for (int join = 0; join < 2; join++) {
        OK(cuStreamBeginCapture_v2(s, 0));
        OK(cuMemcpyHtoDAsync_v2(x, bytes, 4, s));
        OK(cuEventRecord(e, s));
        OK(cuStreamWaitEvent(t, e, 0));
        OK(cuMemcpyHtoDAsync_v2(x, bytes, 8, t));
        WANT(cuStreamEndCapture(t, &graph) == 903);
        if (join) {
            OK(cuEventRecord(f, t));
            OK(cuStreamWaitEvent(s, f, 0));
        }
        graph = (CUgraph)1;
        WANT(cuStreamEndCapture(s, &graph) == (join ? 0 : 904));
        WANT(join || !graph);
    }
    OK(cuGraphDestroy(graph));

    /* Two captures cannot become one. */
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuStreamBeginCapture_v2(t, 0));
    OK(cuEventRecord(e, s));
    WANT(cuStreamWaitEvent(t, e, 0) == 902);
    WANT(cuStreamEndCapture(s, &graph) == 901 && cuStreamEndCapture(t, &other) == 901);

    /* The stream that everyone shares would have to wait for one that captures, unless that does not block. */
    int state;
    OK(cuStreamBeginCapture_v2(blocking, 0));
    WANT(cuStreamIsCapturing(0, &state) == 906);
    OK(cuStreamIsCapturing(blocking, &state));
    WANT(state == 1);
    WANT(cuMemcpyHtoD_v2(x, bytes, 4) == 906);
    WANT(cuStreamEndCapture(blocking, &graph) == 901);
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuMemcpyHtoD_v2(x, bytes, 4));

    pthread_t thread;
    WANT(!pthread_create(&thread, 0, elsewhere, context) && !pthread_join(thread, 0));
    WANT(cuStreamEndCapture(s, &graph) == 901);

    /* Each thread has a default stream of its own, too, which can capture, and which blocks what everyone shares. */
    OK(cuStreamBeginCapture_v2_ptsz(0, 0));
    OK(cuStreamIsCapturing_ptsz(0, &state));
    WANT(state == 1);
    OK(cuStreamIsCapturing((CUstream)2, &state));
    WANT(state == 1);
    bytes[0] = 7;
    OK(cuMemcpyHtoDAsync_v2_ptsz(x, bytes, 4, 0));
    WANT(!pthread_create(&thread, 0, own, context) && !pthread_join(thread, 0));
    OK(cuStreamEndCapture_ptsz(0, &graph));
    size_t nodes = 0;
    OK(cuGraphGetNodes(graph, 0, &nodes));
    WANT(nodes == 1);
    OK(cuStreamBeginCapture_v2_ptsz(0, 0));
    WANT(cuMemcpyHtoD_v2(x, bytes, 4) == 906);
    WANT(cuStreamEndCapture_ptsz(0, &graph) == 901);
    OK(cuStreamBeginCapture_v2_ptsz(0, 0));
    WANT(cuMemcpyHtoD_v2_ptds(x, bytes, 4) == 900);
    WANT(cuStreamEndCapture_ptsz(0, &graph) == 901);

    /* A launch that the device does not take is told when it is captured. */
    OK(cuStreamBeginCapture_v2(s, 0));
    CUfunction none = function(load(HEADER ".visible .entry none() { ret; }"), "none");
    WANT(cuLaunchKernel(none, 1, 1, 1, 2048, 1, 1, 0, s, 0, 0) == 1);
    OK(cuStreamEndCapture(s, &graph));

    /* An event belongs to the context that it was made in. */
    CUcontext second;
    CUevent theirs;
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuEventCreate(&theirs, 0));
    WANT(cuEventRecord(theirs, s) == 400);
    OK(cuEventRecord(theirs, 0));
    OK(cuStreamWaitEvent(s, theirs, 0));
    OK(cuCtxDestroy_v2(second));
    WANT(cuEventQuery(theirs) == 400);
    printf("done\n");
    return 0;
}
