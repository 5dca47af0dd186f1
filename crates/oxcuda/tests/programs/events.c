/* Events that are recorded again, captured, or ended while an older record of them waits for its turn. */
#include "driver.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuGraphAddEventWaitNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);

enum { GEQ, EQ, NOT_READY = 600 };
static volatile unsigned *flag;
static CUdeviceptr at;

/* Lets a stream wait for a word that the host writes later. */
static void block(CUstream s, int word) {
    flag[word] = 0;
    OK(cuStreamWaitValue32_v2(s, at + 4 * word, 1, EQ));
}

static float between(CUevent from, CUevent to) {
    float ms;
    OK(cuEventElapsedTime(&ms, from, to));
    return ms;
}

int main(void) {
    start();
    CUstream a, b, c, d;
    CUstream *streams[] = {&a, &b, &c, &d};
    CUevent e, f, g;
    float ms;
    for (int i = 0; i < 4; i++)
        OK(cuStreamCreate(streams[i], 1));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&f, 0));
    OK(cuEventCreate(&g, 0));
    OK(cuMemHostAlloc((void **)&flag, 64, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, (void *)flag, 0));

    /* Recorded again, where nothing waits: the event is the newer record; who waited for the older one still does. */
    block(a, 0);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    WANT(cuEventQuery(e) == NOT_READY && cuEventElapsedTime(&ms, e, e) == NOT_READY);
    OK(cuEventRecord(e, c));
    OK(cuStreamWaitEvent(d, e, 0));
    OK(cuEventRecord(f, c));
    WANT(cuEventQuery(e) == 0 && cuStreamQuery(b) == NOT_READY && cuStreamQuery(d) == 0);
    OK(cuEventSynchronize(e));
    float early = between(e, f);
    flag[0] = 1;
    WANT(cuStreamQuery(a) == 0 && cuStreamQuery(b) == 0 && cuEventQuery(e) == 0);
    WANT(early >= 0 && between(e, f) == early);

    /* Recorded again, where something waits, too: the event is done with the newer record alone. */
    block(a, 0);
    block(c, 1);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuEventRecord(e, c));
    OK(cuStreamWaitEvent(d, e, 0));
    flag[0] = 1;
    WANT(cuStreamQuery(a) == 0 && cuStreamQuery(b) == 0 && cuStreamQuery(d) == NOT_READY);
    WANT(cuEventQuery(e) == NOT_READY && cuEventElapsedTime(&ms, f, e) == NOT_READY);
    OK(cuStreamWaitEvent(b, e, 0));
    WANT(cuStreamQuery(b) == NOT_READY);
    flag[1] = 1;
    OK(cuEventSynchronize(e));
    WANT(cuStreamQuery(b) == 0 && cuStreamQuery(d) == 0 && between(f, e) > 0);

    /* The other way about: the newer one is done first. */
    block(a, 0);
    block(c, 1);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuEventRecord(e, c));
    flag[1] = 1;
    WANT(cuEventQuery(e) == 0 && cuStreamQuery(b) == NOT_READY);
    OK(cuEventRecord(f, d));
    flag[0] = 1;
    WANT(cuStreamQuery(b) == 0 && between(e, f) >= 0);

    /* Captured meanwhile: it stays so, whatever becomes of the older record. */
    CUgraph graph;
    size_t count;
    block(a, 0);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuStreamBeginCapture_v2(c, 2));
    OK(cuEventRecord(e, c));
    flag[0] = 1;
    OK(cuStreamQuery(b));
    OK(cuStreamWaitEvent(d, e, 0));
    int state;
    OK(cuStreamIsCapturing(d, &state));
    WANT(state == 1);
    OK(cuEventRecord(f, d));
    OK(cuStreamWaitEvent(c, f, 0));
    OK(cuStreamEndCapture(c, &graph));
    OK(cuGraphGetNodes(graph, 0, &count));
    WANT(count == 0);
    OK(cuGraphDestroy(graph));
    WANT(cuEventQuery(e) == 907);
    OK(cuEventRecord(e, c));
    OK(cuEventQuery(e));

    /* Ended while it waits: nothing is lost but its handle; the same holds of a stream. */
    block(a, 0);
    OK(cuEventRecord(g, a));
    OK(cuStreamWaitEvent(b, g, 0));
    OK(cuEventDestroy_v2(g));
    WANT(cuEventQuery(g) == 400 && cuStreamWaitEvent(c, g, 0) == 400 && cuEventDestroy_v2(g) == 400);
    OK(cuStreamDestroy_v2(a));
    WANT(cuStreamQuery(a) == 400 && cuStreamQuery(b) == NOT_READY);
    flag[0] = 1;
    OK(cuStreamQuery(b));
    OK(cuCtxSynchronize());
    OK(cuStreamCreate(&a, 1));

    /* A graph that is launched behind a wait records when its turn comes; one that waits for an event waits for what the event
       is when it is launched. */
    CUgraphExec records, waits;
    CUgraphNode node;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventRecordNode(&node, graph, 0, 0, e));
    OK(cuGraphInstantiateWithFlags(&records, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventWaitNode(&node, graph, 0, 0, e));
    OK(cuGraphInstantiateWithFlags(&waits, graph, 0));
    OK(cuGraphLaunch(waits, b));
    WANT(cuStreamQuery(b) == 0);
    block(a, 0);
    OK(cuGraphLaunch(records, a));
    WANT(cuEventQuery(e) == NOT_READY);
    OK(cuGraphLaunch(waits, b));
    OK(cuEventRecord(f, b));
    WANT(cuStreamQuery(b) == NOT_READY && cuEventQuery(f) == NOT_READY);
    /* A graph does one launch after another, in whichever stream. */
    OK(cuEventRecord(e, c));
    OK(cuGraphLaunch(waits, d));
    WANT(cuEventQuery(e) == 0 && cuStreamQuery(d) == NOT_READY);
    flag[0] = 1;
    OK(cuEventSynchronize(f));
    WANT(cuStreamQuery(a) == 0 && cuStreamQuery(b) == 0 && cuStreamQuery(d) == 0);
    OK(cuGraphExecDestroy(records));
    OK(cuGraphExecDestroy(waits));
    OK(cuGraphDestroy(graph));
    OK(cuCtxSynchronize());
    printf("done\n");
}
