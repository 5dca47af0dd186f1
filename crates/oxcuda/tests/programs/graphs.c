/* Graphs: edges, graphs in graphs, what an update says, nodes that allocate memory. */
#include "driver.h"

typedef struct {
    void (*function)(void *);
    void *data;
} Host;

static void nothing(void *data) { (void)data; }

static unsigned first(CUdeviceptr x) {
    unsigned back;
    OK(cuMemcpyDtoH_v2(&back, x, 4));
    return back;
}

int main(void) {
    CUcontext context = start();
    CUdeviceptr x;
    OK(cuMemAlloc_v2(&x, 64));
    CUgraph graph, other, inner;
    CUgraphExec exec, second;
    CUgraphNode a, b, c, d;
    size_t count;

    /* Edges: each once, no circles, and what is refused leaves the graph as it was. */
    OK(cuGraphCreate(&graph, 0));
    WANT(cuGraphCreate(&other, 1) == 1);
    OK(cuGraphAddEmptyNode(&a, graph, 0, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    CUgraphNode both[] = {a, a};
    WANT(cuGraphAddEmptyNode(&c, graph, both, 2) == 1);
    WANT(cuGraphAddDependencies(graph, &a, &b, 1) == 1);
    WANT(cuGraphAddDependencies(graph, &b, &a, 1) == 1);
    WANT(cuGraphAddDependencies(graph, &a, &a, 1) == 1);
    WANT(cuGraphRemoveDependencies(graph, &b, &a, 1) == 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    WANT(cuGraphInstantiateWithFlags(&second, graph, 64) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphRemoveDependencies(graph, &a, &b, 1));
    OK(cuGraphAddDependencies(graph, &b, &a, 1));

    /* A graph in a graph is a copy, which can be changed; never the graph itself. */
    Fill fill = {x, 0, 7, 4, 4, 1};
    WANT(cuGraphAddChildGraphNode(&c, graph, 0, 0, graph) == 1);
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddMemsetNode(&d, inner, 0, 0, &fill, context));
    OK(cuGraphAddChildGraphNode(&c, graph, 0, 0, inner));
    OK(cuGraphDestroy(inner));
    OK(cuGraphChildGraphNodeGetGraph(c, &inner));
    fill = (Fill){x + 4, 0, 9, 4, 1, 1};
    OK(cuGraphAddMemsetNode(&d, inner, 0, 0, &fill, context));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, 0));
    WANT(first(x) == 7 && first(x + 4) == 9);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphClone(&other, graph));
    OK(cuGraphNodeFindInClone(&d, a, other));
    WANT(d != a && cuGraphNodeFindInClone(&d, d, other) == 1);
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(graph));

    /* Why an update fails. */
    UpdateResult result;
    Host host = {nothing, 0};
    fill = (Fill){x, 0, 1, 4, 1, 1};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&a, graph, 0, 0, &fill, context));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphExecUpdate_v2(exec, graph, &result));
    WANT(result.result == 0 && !result.node && !result.from);
    fill.value = 2;
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddMemsetNode(&c, other, 0, 0, &fill, context));
    WANT(cuGraphExecUpdate_v2(exec, other, &result) == 910 && result.result == 2 && !result.node);
    OK(cuGraphAddEmptyNode(&d, other, 0, 0));
    WANT(cuGraphExecUpdate_v2(exec, other, &result) == 910 && result.result == 2 && result.node == d);
    OK(cuGraphAddDependencies(other, &c, &d, 1));
    OK(cuGraphExecUpdate_v2(exec, other, &result));
    OK(cuGraphLaunch(exec, 0));
    WANT(first(x) == 2);
    OK(cuGraphDestroyNode(d));
    OK(cuGraphAddHostNode(&d, other, &c, 1, &host));
    WANT(cuGraphExecUpdate_v2(exec, other, &result) == 910 && result.result == 3 && result.node == d);
    /* What is not enabled is not done. */
    OK(cuMemsetD32_v2(x, 5, 1));
    OK(cuGraphNodeSetEnabled(exec, a, 0));
    OK(cuGraphLaunch(exec, 0));
    WANT(first(x) == 5 && cuGraphNodeSetEnabled(exec, b, 0) == 1);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(graph));

    /* Memory of a graph: an address that stays, freed in the graph, by the program, or by the next launch. */
    Alloc alloc = {.pool = {.type = 1, .location = {1, 0}}, .size = 4096};
    uint64_t used;
    for (int way = 0; way < 3; way++) {
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddMemAllocNode(&a, graph, 0, 0, &alloc));
        WANT(alloc.address && cuMemsetD32_v2(alloc.address, 1, 1) == 1);
        fill = (Fill){alloc.address, 0, 3 + way, 4, 1024, 1};
        OK(cuGraphAddMemsetNode(&b, graph, &a, 1, &fill, context));
        WANT(cuGraphAddMemFreeNode(&c, graph, &b, 1, x) == 1);
        if (way == 0) {
            OK(cuGraphAddMemFreeNode(&c, graph, &b, 1, alloc.address));
            WANT(cuGraphAddMemFreeNode(&c, graph, &b, 1, alloc.address) == 1);
            CUdeviceptr again;
            OK(cuGraphMemFreeNodeGetParams(c, &again));
            int kind;
            OK(cuGraphNodeGetType(a, &kind));
            WANT(again == alloc.address && kind == 10);
        }
        WANT(cuGraphClone(&other, graph) != 0 && cuGraphDestroyNode(b) != 0);
        OK(cuGraphInstantiateWithFlags(&exec, graph, way == 2 ? 1 : 0));
        WANT(cuGraphInstantiateWithFlags(&second, graph, 0) == 1);
        OK(cuGraphLaunch(exec, 0));
        OK(cuDeviceGetGraphMemAttribute(0, 0, &used));
        WANT(used == (way == 0 ? 0 : 4096));
        if (way > 0) WANT(first(alloc.address + 4092) == 3u + way);
        if (way == 1) {
            WANT(cuGraphLaunch(exec, 0) == 1);
            OK(cuMemFreeAsync(alloc.address, 0));
        }
        OK(cuGraphLaunch(exec, 0));
        if (way > 0) OK(cuMemFree_v2(alloc.address));
        WANT(cuMemFree_v2(alloc.address) == 1);
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuDeviceGetGraphMemAttribute(0, 1, &used));
    WANT(used == 4096);

    /* The same by capture. */
    CUstream s;
    CUdeviceptr y;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuMemAllocAsync(&y, 64, s));
    OK(cuMemcpyHtoDAsync_v2(y, &fill, 4, s));
    OK(cuMemFreeAsync(y, s));
    OK(cuStreamEndCapture(s, &graph));
    count = 0;
    OK(cuGraphGetNodes(graph, 0, &count));
    WANT(count == 3);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    printf("done\n");
    return 0;
}
