/* Operations on words of memory that are nodes of graphs: added, captured, changed; and what may be asked for. */
#include "driver.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuStreamWaitValue64_v2(CUstream, CUdeviceptr, uint64_t, unsigned);
CUresult cuStreamWriteValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, void *);
CUresult cuUserObjectCreate(void **, void *, void (*)(void *), unsigned, unsigned);
CUresult cuGraphRetainUserObject(CUgraph, void *, unsigned, unsigned);
typedef struct {
    int type, reserved[3];
    union {
        Batch batch;
        CUevent event;
        int64_t room[29];
    } of;
    int64_t last;
} Node;
CUresult cuStreamBatchMemOp_v2(CUstream, unsigned, Operation *, unsigned);
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const Batch *);
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode, Batch *);
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode, const Batch *);
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec, CUgraphNode, const Batch *);

enum { GEQ, EQ, FLUSH = 1 << 30 };
enum { WAIT32 = 1, WRITE32, FLUSH_WRITES, WAIT64, WRITE64, BARRIER };
enum { NOT_READY = 600, NOT_SUPPORTED = 801 };
static volatile unsigned *flag;
static CUdeviceptr at, x;

static unsigned word(int i) {
    unsigned back;
    OK(cuMemcpyDtoH_v2(&back, x + 4 * i, 4));
    return back;
}

static void gone(void *count) { ++*(int *)count; }

/* A graph that waits for a value in one branch, behind which words 0 and 1 are written, and writes word 2 in another. */
static CUgraph branches(CUgraphNode *node, unsigned value) {
    CUgraph graph;
    CUgraphNode other;
    Operation list[] = {{{WAIT32, at, value, EQ, 0}}, {{WRITE32, x, 5, 0, 0}}, {{WRITE64, x + 8, 0x900000008, 0, 0}}};
    Batch batch = {0, 2, list, 0};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddBatchMemOpNode(node, graph, 0, 0, &batch));
    batch = (Batch){0, 1, list + 1, 0};
    list[1].op.address = x + 4;
    list[1].op.value = 6;
    OK(cuGraphAddBatchMemOpNode(&other, graph, node, 1, &batch));
    batch = (Batch){0, 1, list + 2, 0};
    OK(cuGraphAddBatchMemOpNode(&other, graph, 0, 0, &batch));
    memset(list, 77, sizeof list);
    return graph;
}

int main(void) {
    CUcontext context = start();
    CUstream a, b;
    CUgraph graph, outer;
    CUgraphExec exec;
    CUgraphNode node, other, nodes[4];
    size_t count;
    int number, type;
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuMemAlloc_v2(&x, 64));
    OK(cuMemHostAlloc((void **)&flag, 64, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, (void *)flag, 0));
    OK(cuMemsetD32_v2(x, 0, 16));

    /* What there is, and what is none. */
    OK(cuDeviceGetAttribute(&number, 122, 0));
    WANT(number == 1);
    OK(cuDeviceGetAttribute(&number, 123, 0));
    WANT(number == 1);
    OK(cuDeviceGetAttribute(&number, 98, 0));
    WANT(number == 0 && cuStreamWaitValue32_v2(a, at, 0, GEQ | FLUSH) == NOT_SUPPORTED);
    CUdeviceptr managed;
    OK(cuMemAllocManaged(&managed, 64, 1));
    WANT(cuStreamWaitValue32_v2(a, managed, 0, GEQ) == 1 && cuStreamWriteValue32_v2(a, managed, 0, 0) == 1);
    WANT(cuStreamWriteValue32_v2(a, 64, 0, 0) == 1 && cuStreamWriteValue32_v2(a, x + 64, 0, 0) == 1);
    WANT(cuStreamWriteValue32_v2(a, x, 0, 2) == 1 && cuStreamWaitValue64_v2(a, x + 60, 0, 0) == 1);
    WANT(cuStreamWriteValue32_v2((CUstream)64, x, 0, 0) == 400 && cuStreamQuery(a) == 0);
    Operation list[256] = {{{WRITE32, x, 1, 0, 0}}, {{WRITE32, x + 64, 1, 0, 0}}};
    Batch batch = {context, 2, list, 0};
    WANT(cuStreamBatchMemOp_v2(a, 2, list, 0) == 1 && word(0) == 0);
    OK(cuGraphCreate(&graph, 0));
    WANT(cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == 1);
    list[1] = (Operation){.barrier = {BARRIER, 2}};
    WANT(cuStreamBatchMemOp_v2(a, 2, list, 0) == 1 && word(0) == 0);
    list[1] = (Operation){.barrier = {FLUSH_WRITES, 0}};
    WANT(cuStreamBatchMemOp_v2(a, 2, list, 0) == NOT_SUPPORTED && word(0) == 0);
    WANT(cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == NOT_SUPPORTED);
    list[1] = (Operation){.barrier = {BARRIER, 1}};
    WANT(cuStreamBatchMemOp_v2(a, 2, list, 1) == 1 && cuStreamBatchMemOp_v2(a, 2, 0, 0) == 1);
    OK(cuStreamBatchMemOp_v2(a, 2, list, 0));
    OK(cuStreamBatchMemOp_v2(a, 0, list, 0));
    WANT(word(0) == 1);
    for (int i = 0; i < 256; i++)
        list[i] = (Operation){{WRITE32, x, i, 0, 0}};
    batch.count = 256;
    WANT(cuStreamBatchMemOp_v2(a, 256, list, 0) == 1 && cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == 1);
    OK(cuStreamBatchMemOp_v2(a, 255, list, 0));
    WANT(word(0) == 254);
    batch = (Batch){context, 1, 0, 0};
    WANT(cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == 1 && cuGraphAddBatchMemOpNode(&node, graph, 0, 0, 0) == 1);
    batch = (Batch){context, 1, list, 1};
    WANT(cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == 1);
    batch = (Batch){(CUcontext)64, 1, list, 0};
    WANT(cuGraphAddBatchMemOpNode(&node, graph, 0, 0, &batch) == 1);
    batch = (Batch){context, 1, list, 0};
    WANT(cuGraphAddBatchMemOpNode(0, graph, 0, 0, &batch) == 1 && cuGraphAddBatchMemOpNode(&node, graph, 0, 1, &batch) == 1);
    OK(cuGraphGetNodes(graph, 0, &count));
    WANT(count == 0);
    Node any = {.type = 7, .of.event = (CUevent)64};
    WANT(cuGraphAddNode_v2(&node, graph, 0, 0, 0, &any) != 0);
    any.type = 6;
    WANT(cuGraphAddNode_v2(&node, graph, 0, 0, 0, &any) != 0);
    any = (Node){.type = 12, .of.batch = {context, 1, list + 3, 0}};
    OK(cuGraphAddNode_v2(&node, graph, 0, 0, 0, &any));
    OK(cuGraphNodeGetType(node, &type));
    WANT(type == 12);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    WANT(word(0) == 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));

    /* Only what comes after a wait waits for it: in the graph, and in the stream. */
    graph = branches(&node, 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
        *flag = 0;
        OK(cuMemsetD32_v2(x, 0, 16));
        OK(cuGraphLaunch(exec, a));
        OK(cuStreamWriteValue32_v2(a, x + 16, 7, 0));
        WANT(cuStreamQuery(a) == NOT_READY && word(0) == 0 && word(1) == 0 && word(2) == 8 && word(3) == 9 && word(4) == 0);
        *flag = 1;
        OK(cuStreamSynchronize(a));
        WANT(word(0) == 5 && word(1) == 6 && word(4) == 7);
    }
    /* One launch after another, in whichever stream; what is changed meanwhile is of the next one. */
    *flag = 0;
    OK(cuMemsetD32_v2(x, 0, 16));
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphBatchMemOpNodeGetParams(node, &batch));
    WANT(batch.context == context && batch.count == 2 && batch.flags == 0);
    WANT(batch.list[0].op.kind == WAIT32 && batch.list[0].op.address == at && batch.list[0].op.value == 1);
    WANT(batch.list[0].op.flags == EQ && batch.list[1].op.kind == WRITE32 && batch.list[1].op.value == 5);
    Operation next[3] = {batch.list[0], batch.list[1], batch.list[1]};
    next[0].op.value = 2;
    next[1].op.value = 50;
    batch.list = next;
    OK(cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch));
    OK(cuGraphLaunch(exec, b));
    *flag = 2;
    WANT(cuStreamQuery(a) == NOT_READY && cuStreamQuery(b) == NOT_READY && word(0) == 0);
    *flag = 1;
    WANT(cuStreamQuery(a) == 0 && cuStreamQuery(b) == NOT_READY && word(0) == 5);
    *flag = 2;
    WANT(cuStreamQuery(b) == 0 && word(0) == 50);
    /* Count and kinds of an executable graph stay; those of the graph itself need not. */
    batch.count = 3;
    WANT(cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch) == 1);
    batch.count = 2;
    next[1].op.kind = WAIT32;
    WANT(cuGraphExecBatchMemOpNodeSetParams(exec, node, &batch) == 1);
    next[1].op.kind = WRITE32;
    next[2].op.address = x + 20;
    batch.count = 3;
    OK(cuGraphBatchMemOpNodeSetParams(node, &batch));
    UpdateResult result;
    WANT(cuGraphExecUpdate_v2(exec, graph, &result) == 910 && result.result == 5 && result.node == node);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    WANT(word(5) == 5);
    OK(cuGraphAddEmptyNode(&other, graph, 0, 0));
    WANT(cuGraphBatchMemOpNodeGetParams(other, &batch) == 1 && cuGraphBatchMemOpNodeSetParams(other, &batch) == 1);
    WANT(cuGraphNodeSetEnabled(exec, node, 0) == 1);

    /* A graph in a graph; both are ended while they wait, and what they refer to is let go when all is done. */
    void *object;
    int ended = 0;
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    graph = branches(&node, 3);
    OK(cuGraphCreate(&outer, 0));
    OK(cuUserObjectCreate(&object, &ended, gone, 1, 1));
    OK(cuGraphRetainUserObject(outer, object, 1, 1));
    OK(cuGraphAddChildGraphNode(&node, outer, 0, 0, graph));
    Operation last = {{WRITE32, x + 24, 11, 0, 0}};
    batch = (Batch){0, 1, &last, 0};
    OK(cuGraphAddBatchMemOpNode(&other, outer, &node, 1, &batch));
    OK(cuGraphInstantiateWithFlags(&exec, outer, 0));
    OK(cuMemsetD32_v2(x, 0, 16));
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(outer));
    OK(cuGraphDestroy(graph));
    WANT(cuStreamQuery(a) == NOT_READY && word(2) == 8 && word(0) == 0 && word(6) == 0 && ended == 0);
    *flag = 3;
    OK(cuCtxSynchronize());
    WANT(word(0) == 5 && word(1) == 6 && word(6) == 11 && ended == 1);

    /* Captured: each call is a node. A branch waits for what another one writes. */
    CUevent e, f;
    OK(cuEventCreate(&e, 2));
    OK(cuEventCreate(&f, 2));
    OK(cuMemsetD32_v2(x, 0, 16));
    OK(cuStreamBeginCapture_v2(a, 0));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuStreamWaitValue64_v2(a, x, 0x200000001, EQ));
    OK(cuStreamWriteValue32_v2(a, x + 8, 3, 0));
    Operation pair[] = {{{WRITE32, x, 1, 0, 0}}, {{WRITE32, x + 4, 2, 0, 0}}};
    OK(cuStreamBatchMemOp_v2(b, 2, pair, 0));
    WANT(cuStreamWaitValue32_v2(a, x + 1, 0, 0) == 1);
    OK(cuEventRecord(f, b));
    OK(cuStreamWaitEvent(a, f, 0));
    OK(cuStreamEndCapture(a, &graph));
    count = 4;
    OK(cuGraphGetNodes(graph, nodes, &count));
    WANT(count == 3 && word(0) == 0);
    for (int i = 0; i < 3; i++) {
        OK(cuGraphNodeGetType(nodes[i], &type));
        WANT(type == 12);
    }
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    WANT(word(0) == 1 && word(1) == 2 && word(2) == 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
}
