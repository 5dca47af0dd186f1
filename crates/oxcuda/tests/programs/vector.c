/* A program against CUDA's own header: vector addition, a reduction, streams with events, a graph by capture, and what is
   told of something that is not built. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != CUDA_SUCCESS) {                                                                                 \
            const char *name_ = "?";                                                                                   \
            cuGetErrorName(result_, &name_);                                                                           \
            printf("%d: %s: %s\n", __LINE__, #call, name_);                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define WANT(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("%d: not so: %s\n", __LINE__, #what);                                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { N = 5000, THREADS = 256 };

static const char PTX[] =
    ".version 7.8\n.target sm_75\n.address_size 64\n"
    ".visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n)\n"
    "{\n"
    "  .reg .b32 %r<5>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .pred %p;\n"
    "  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [out]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  setp.ge.u32 %p, %r2, %r1; @%p ret;\n"
    "  mul.wide.u32 %rd4, %r2, 4; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4; add.u64 %rd3, %rd3, %rd4;\n"
    "  ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2]; add.f32 %f3, %f1, %f2; st.global.f32 [%rd3], %f3;\n"
    "  ret;\n"
    "}\n"
    /* The threads of a block add up in shared memory, then one adds the block's sum to the whole. */
    ".visible .entry sum(.param .u64 x, .param .u64 out, .param .u32 n)\n"
    "{\n"
    "  .shared .align 4 .b32 part[256]; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<3>;\n"
    "  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.u32 %r2, %r2, %r3, %r4;\n"
    "  mov.f32 %f1, 0f00000000; setp.lt.u32 %p0, %r2, %r1;\n"
    "  mul.wide.u32 %rd3, %r2, 4; add.u64 %rd1, %rd1, %rd3; @%p0 ld.global.f32 %f1, [%rd1];\n"
    "  mov.u32 %r5, part; mad.lo.u32 %r5, %r4, 4, %r5; st.shared.f32 [%r5], %f1;\n"
    "  shr.u32 %r6, %r3, 1;\n"
    "LOOP: bar.sync 0; setp.ge.u32 %p1, %r4, %r6; @%p1 bra NEXT;\n"
    "  mad.lo.u32 %r7, %r6, 4, %r5; ld.shared.f32 %f1, [%r5]; ld.shared.f32 %f2, [%r7];\n"
    "  add.f32 %f1, %f1, %f2; st.shared.f32 [%r5], %f1;\n"
    "NEXT: shr.u32 %r6, %r6, 1; setp.ne.u32 %p2, %r6, 0; @%p2 bra LOOP;\n"
    "  setp.ne.u32 %p1, %r4, 0; @%p1 ret;\n"
    "  ld.shared.f32 %f1, [%r5]; red.global.add.f32 [%rd2], %f1;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction add, sum;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuModuleGetFunction(&sum, module, "sum"));

    static float x[N], y[N], back[N];
    float want = 0, total = 0;
    for (int i = 0; i < N; i++) {
        x[i] = i % 37;
        y[i] = i % 5;
        want += x[i] + y[i];
    }
    CUdeviceptr dx, dy, out, result;
    OK(cuMemAlloc(&dx, sizeof x));
    OK(cuMemAlloc(&dy, sizeof y));
    OK(cuMemAlloc(&out, sizeof x));
    OK(cuMemAlloc(&result, sizeof total));
    CUstream first, second;
    CUevent ready, begin, end;
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    unsigned n = N, blocks = (N + THREADS - 1) / THREADS;
    void *adding[] = {&dx, &dy, &out, &n}, *summing[] = {&out, &result, &n};

    /* Two streams: the sum waits for what is added. */
    OK(cuEventRecord(begin, first));
    OK(cuMemcpyHtoDAsync(dx, x, sizeof x, first));
    OK(cuMemcpyHtoDAsync(dy, y, sizeof y, first));
    OK(cuMemsetD32Async(result, 0, 1, second));
    OK(cuLaunchKernel(add, blocks, 1, 1, THREADS, 1, 1, 0, first, adding, 0));
    OK(cuEventRecord(ready, first));
    OK(cuStreamWaitEvent(second, ready, CU_EVENT_WAIT_DEFAULT));
    OK(cuLaunchKernel(sum, blocks, 1, 1, THREADS, 1, 1, 0, second, summing, 0));
    OK(cuMemcpyDtoHAsync(&total, result, sizeof total, second));
    OK(cuEventRecord(end, second));
    OK(cuStreamSynchronize(second));
    OK(cuMemcpyDtoH(back, out, sizeof back));
    for (int i = 0; i < N; i++)
        WANT(back[i] == x[i] + y[i]);
    WANT(total == want);
    float ms;
    OK(cuEventElapsedTime(&ms, begin, end));
    WANT(ms > 0);

    /* The same as a graph, twice, with other numbers the second time. */
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(result, 0, 1, first));
    OK(cuLaunchKernel(add, blocks, 1, 1, THREADS, 1, 1, 0, first, adding, 0));
    OK(cuLaunchKernel(sum, blocks, 1, 1, THREADS, 1, 1, 0, first, summing, 0));
    OK(cuStreamEndCapture(first, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        OK(cuGraphLaunch(exec, first));
        OK(cuStreamSynchronize(first));
        OK(cuMemcpyDtoH(&total, result, sizeof total));
        WANT(total == want);
        OK(cuMemcpyHtoD(dx, y, sizeof y));
        want = 0;
        for (int k = 0; k < N; k++)
            want += 2 * y[k];
    }

    /* A pool, and memory that is mapped. */
    CUdeviceptr piece;
    OK(cuMemAllocAsync(&piece, 1 << 20, first));
    OK(cuMemsetD8Async(piece, 1, 1 << 20, first));
    OK(cuMemFreeAsync(piece, first));
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t unit;
    CUmemGenericAllocationHandle memory;
    OK(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemAddressReserve(&piece, unit, 0, 0, 0));
    OK(cuMemCreate(&memory, unit, &properties, 0));
    OK(cuMemMap(piece, unit, 0, memory, 0));
    OK(cuMemSetAccess(piece, unit, &access, 1));
    OK(cuMemcpyDtoD(piece, out, sizeof x));
    OK(cuMemUnmap(piece, unit));
    OK(cuMemRelease(memory));
    OK(cuMemAddressFree(piece, unit));

    /* A node that allocates, as the header has it. */
    CUDA_MEM_ALLOC_NODE_PARAMS node;
    CUgraphNode handle;
    memset(&node, 0, sizeof node);
    node.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    node.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    node.bytesize = 100;
    OK(cuGraphDestroy(graph));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&handle, graph, 0, 0, &node));
    OK(cuGraphAddMemFreeNode(&handle, graph, &handle, 1, node.dptr));

    /* What is not built says so. */
    CUipcMemHandle shared;
    WANT(cuIpcGetMemHandle(&shared, out) == CUDA_ERROR_NOT_SUPPORTED);
    WANT(cuIpcGetMemHandle(&shared, out) == CUDA_ERROR_NOT_SUPPORTED);
    OK(cuDevicePrimaryCtxRelease(device));
    printf("done\n");
    return 0;
}
