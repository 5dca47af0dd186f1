/* Streams, events, functions of the host, graphs: captured and made by hand. */
#include "driver.h"
#include <sys/wait.h>
#include <unistd.h>

static const char PTX[] = HEADER
    ".visible .entry twice(.param .u64 x, .param .u32 add)\n"
    "{\n"
    "  .reg .b32 %r<3>; .reg .b64 %rd;\n"
    "  ld.param.u64 %rd, [x]; ld.param.u32 %r2, [add];\n"
    "  ld.global.u32 %r1, [%rd]; shl.b32 %r1, %r1, 1; add.u32 %r1, %r1, %r2; st.global.u32 [%rd], %r1;\n"
    "  ret;\n"
    "}\n";

static unsigned seen;
static void note(void *data) { seen = *(unsigned *)data; }

static CUdeviceptr kept;

/* Behind the end of the thread's own variables, as destructors of C++ are. */
static void at_the_end(void) {
    if (cuMemFree_v2(kept) != 0)
        _exit(1);
}

int main(void) {
    start();
    OK(cuMemAlloc_v2(&kept, 4));
    atexit(at_the_end);
    CUmodule module = load(PTX);
    CUfunction twice = function(module, "twice");
    CUdeviceptr x;
    unsigned one = 1, back = 0, add = 1;
    OK(cuMemAlloc_v2(&x, 4));
    CUstream s, t;
    CUevent e, f;
    OK(cuStreamCreate(&s, 1));
    OK(cuStreamCreate(&t, 1));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&f, 0));
    void *params[] = {&x, &add};

    OK(cuEventRecord(e, s));
    OK(cuMemcpyHtoDAsync_v2(x, &one, 4, s));
    OK(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, s, params, 0));
    OK(cuMemcpyDtoHAsync_v2(&back, x, 4, s));
    OK(cuLaunchHostFunc(s, note, &back));
    OK(cuEventRecord(f, s));
    OK(cuEventSynchronize(f));
    WANT(seen == 3);
    float ms;
    OK(cuEventElapsedTime(&ms, e, f));
    WANT(ms > 0);

    /* A second stream joins the capture by an event; nothing runs until the graph is launched. */
    CUgraph graph;
    CUgraphExec exec;
    OK(cuMemcpyHtoD_v2(x, &one, 4));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, s, params, 0));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    add = 10;
    OK(cuLaunchKernel(twice, 1, 1, 1, 1, 1, 1, 0, t, params, 0));
    OK(cuEventRecord(f, t));
    OK(cuStreamWaitEvent(s, f, 0));
    OK(cuMemcpyDtoHAsync_v2(&back, x, 4, s));
    OK(cuLaunchHostFunc(s, note, &back));
    OK(cuStreamEndCapture(s, &graph));
    WANT(seen == 3);
    size_t count = 0;
    OK(cuGraphGetNodes(graph, 0, &count));
    WANT(count == 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    WANT(seen == 16);
    OK(cuGraphLaunch(exec, s));
    WANT(seen == (16 * 2 + 1) * 2 + 10);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));

    /* Nodes come after what they name, whatever the order in which they were made. */
    CUgraphNode a, b;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&a, graph, 0, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    CUgraphNode other = (CUgraphNode)8;
    WANT(cuGraphAddEmptyNode(&b, graph, &other, 1) == 1);
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(s));
    WANT(cuStreamDestroy_v2(s) == 400);
    /* A child that is forked off has no driver. */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(cuInit(0) == 3 && cuMemFree_v2(x) == 3 && cuStreamSynchronize(s) == 3 ? 7 : 1);
    int status = 0;
    WANT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    printf("done\n");
    return 0;
}
