/* What CUDA's documentation of the driver says of arguments that are wrong: each call below is refused as it says, and changes nothing.
   Written against CUDA's own header. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad;
#define GIVES(want, call)                                                                                              \
    do {                                                                                                               \
        int got_ = (call);                                                                                             \
        if (got_ != (want)) {                                                                                          \
            printf("%d: %s: %d in place of %d\n", __LINE__, #call, got_, want);                                        \
            bad = 1;                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) GIVES(CUDA_SUCCESS, call)
#define NO(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define WANT(what) GIVES(1, !!(what))

static CUcontext context;

static size_t left(void) {
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t w, size_t h, size_t d, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR s = {.Width = w, .Height = h, .Depth = d, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1, .Flags = flags};
    return s;
}

/* Makes an array and takes it back. */
static CUresult made(CUDA_ARRAY3D_DESCRIPTOR s) {
    CUarray a;
    CUresult r = cuArray3DCreate(&a, &s);
    if (!r)
        OK(cuArrayDestroy(a));
    return r;
}

static CUresult levels(CUDA_ARRAY3D_DESCRIPTOR s, unsigned asked, unsigned want) {
    CUmipmappedArray m;
    CUarray a;
    CUresult r = cuMipmappedArrayCreate(&m, &s, asked);
    if (!r) {
        OK(cuMipmappedArrayGetLevel(&a, m, want - 1));
        NO(cuMipmappedArrayGetLevel(&a, m, want));
        OK(cuMipmappedArrayDestroy(m));
    }
    return r;
}

static void arrays(void) {
    CUarray a, b;
    CUDA_ARRAY_DESCRIPTOR flat = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    size_t before = left();
    NO(cuArrayCreate(0, &flat));
    NO(cuArrayCreate(&a, 0));
    NO(cuArray3DCreate(0, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}));
    NO(cuMipmappedArrayCreate(0, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 16, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1}, 2));
    WANT(left() == before);
    flat.NumChannels = 3;
    NO(cuArrayCreate(&a, &flat));
    flat.NumChannels = 0;
    NO(cuArrayCreate(&a, &flat));
    flat.NumChannels = 1;
    flat.Format = 0x04;
    NO(cuArrayCreate(&a, &flat));
    flat.Format = CU_AD_FORMAT_FLOAT;
    flat.Width = 0;
    NO(cuArrayCreate(&a, &flat));
    flat.Width = 16;
    NO(made(shape(0, 0, 0, 0)));
    NO(made(shape(16, 0, 4, 0)));
    NO(made(shape(0, 16, 0, 0)));
    OK(made(shape(16, 0, 4, CUDA_ARRAY3D_LAYERED)));
    NO(made(shape(16, 4, 0, CUDA_ARRAY3D_LAYERED)));
    NO(made(shape(16, 16, 5, CUDA_ARRAY3D_CUBEMAP)));
    NO(made(shape(16, 8, 6, CUDA_ARRAY3D_CUBEMAP)));
    NO(made(shape(16, 16, 12, CUDA_ARRAY3D_CUBEMAP)));
    OK(made(shape(16, 16, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)));
    NO(made(shape(16, 16, 0, 0x80000000)));
    /* Bounds, some of which are tighter with levels, for gathering, and for surfaces; volumes have two sets of them. */
    int most, high, deep;
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 0));
    OK(made(shape(most, 0, 0, 0)));
    NO(made(shape(most + 1, 0, 0, 0)));
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 0));
    OK(levels(shape(most, 0, 0, 0), 1, 1));
    NO(levels(shape(most + 1, 0, 0, 0), 1, 1));
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 0));
    OK(cuDeviceGetAttribute(&high, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 0));
    OK(levels(shape(most, 1, 0, 0), 1, 1));
    NO(levels(shape(most + 1, 1, 0, 0), 1, 1));
    NO(levels(shape(1, high + 1, 0, 0), 1, 1));
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 0));
    OK(made(shape(most, 1, 0, CUDA_ARRAY3D_TEXTURE_GATHER)));
    NO(made(shape(most + 1, 1, 0, CUDA_ARRAY3D_TEXTURE_GATHER)));
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 0));
    OK(made(shape(most, 0, 0, CUDA_ARRAY3D_SURFACE_LDST)));
    NO(made(shape(most + 1, 0, 0, CUDA_ARRAY3D_SURFACE_LDST)));
    OK(cuDeviceGetAttribute(&deep, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 0));
    OK(made(shape(2, 2, deep, 0)));
    OK(cuDeviceGetAttribute(&deep, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 0));
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 0));
    OK(made(shape(2, 2, deep, 0)));
    OK(made(shape(most, 1, deep, 0)));
    NO(made(shape(most + 1, 1, deep, 0)));
    NO(made(shape(2, 2, deep + 1, 0)));
    NO(made(shape(2, 2, deep, CUDA_ARRAY3D_SURFACE_LDST)));
    NO(made(shape(SIZE_MAX, 0, 0, 0)));
    NO(made(shape(16, SIZE_MAX / 8, 0, 0)));
    OK(levels(shape(16, 5, 0, 0), 0, 1));
    OK(levels(shape(16, 5, 0, 0), 99, 5));
    OK(levels(shape(1, 1, 9, 0), 99, 4));
    OK(levels(shape(2, 2, 9, CUDA_ARRAY3D_LAYERED), 99, 2));
    WANT(left() == before);

    OK(cuArrayCreate(&a, &flat));
    NO(cuArrayGetDescriptor(0, a));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor(&flat, (CUarray)64));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy((CUarray)64));
    /* Copies: whole elements, inside, between elements of one size. */
    char host[1024] = {0};
    CUdeviceptr x;
    OK(cuMemAlloc(&x, 1024));
    OK(cuMemcpyHtoA(a, 0, host, 256));
    NO(cuMemcpyHtoA(a, 4, host, 256));
    NO(cuMemcpyHtoA(a, SIZE_MAX, host, 2));
    NO(cuMemcpyHtoA(a, 0, 0, 16));
    NO(cuMemcpyAtoD(x, a, 0, 6));
    OK(cuMemcpyAtoD(x, a, 0, 8));
    NO(cuMemcpyAtoD(x + 1020, a, 0, 8));
    NO(cuMemcpyDtoA(a, 0, x + 1020, 8));
    OK(cuArray3DCreate(&b, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1}));
    NO(cuMemcpyAtoA(a, 0, b, 0, 8));
    OK(cuArrayDestroy(b));
    OK(cuArray3DCreate(&b, &(CUDA_ARRAY3D_DESCRIPTOR){.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_HALF, .NumChannels = 2}));
    OK(cuMemcpyAtoA(a, 0, b, 0, 8));
    NO(cuMemcpyAtoA(a, 0, b, 0, 6));
    CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = 64, .Height = 4};
    OK(cuMemcpy2D(&two));
    NO(cuMemcpy2D(0));
    two.Height = 5;
    NO(cuMemcpy2D(&two));
    two.Height = 4;
    two.dstXInBytes = 4;
    NO(cuMemcpy2D(&two));
    two.WidthInBytes = 60;
    OK(cuMemcpy2D(&two));
    two.dstXInBytes = 2;
    NO(cuMemcpy2D(&two));
    two.dstXInBytes = 0;
    two.WidthInBytes = 62;
    NO(cuMemcpy2D(&two));
    two.WidthInBytes = 64;
    two.srcPitch = 60;
    NO(cuMemcpy2D(&two));
    two.srcPitch = 64;
    two.srcHost = 0;
    NO(cuMemcpy2D(&two));
    int pitch;
    OK(cuDeviceGetAttribute(&pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, 0));
    two.srcHost = host;
    two.Height = 1;
    two.srcPitch = (size_t)pitch + 1;
    NO(cuMemcpy2D(&two));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 16, .srcHeight = 2, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = x, .dstPitch = 16, .dstHeight = 2, .WidthInBytes = 16, .Height = 2, .Depth = 3};
    OK(cuMemcpy3D(&box));
    NO(cuMemcpy3D(0));
    box.srcLOD = 1;
    NO(cuMemcpy3D(&box));
    box.srcLOD = 0;
    box.srcHeight = 1;
    NO(cuMemcpy3D(&box));
    box.srcHeight = 2;
    box.dstPitch = 15;
    NO(cuMemcpy3D(&box));
    box.dstPitch = 16;
    box.dstDevice = x + 944;
    NO(cuMemcpy3D(&box));
    box.dstDevice = x;
    box.Depth = 0;
    OK(cuMemcpy3D(&box));
    /* Rows of no pitch are dense, as those of two dimensions. */
    for (int i = 0; i < 32; i++)
        host[i] = i + 1;
    box.Depth = 1;
    box.srcPitch = box.dstPitch = box.srcHeight = box.dstHeight = 0;
    OK(cuMemcpy3D(&box));
    char back[32];
    OK(cuMemcpyDtoH(back, x, 32));
    WANT(!memcmp(back, host, 32));
    box.Depth = 2;
    NO(cuMemcpy3D(&box));
    OK(cuArrayDestroy(b));
    OK(cuArrayDestroy(a));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(a));
    OK(cuMemFree(x));
}

static void objects(void) {
    CUdeviceptr x;
    CUarray a, plain;
    CUtexObject t = 0;
    CUsurfObject s = 0;
    OK(cuMemAlloc(&x, 1 << 16));
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 16, .Height = 4, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SURFACE_LDST};
    OK(cuArray3DCreate(&a, &d));
    d.Flags = 0;
    OK(cuArray3DCreate(&plain, &d));
    CUDA_RESOURCE_DESC array = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = a}, r = array;
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {x, CU_AD_FORMAT_FLOAT, 1, 4096}};
    CUDA_RESOURCE_DESC rows = {.resType = CU_RESOURCE_TYPE_PITCH2D, .res.pitch2D = {x, CU_AD_FORMAT_FLOAT, 1, 16, 8, 64}};
    CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_POINT}, w = how;
    CUDA_RESOURCE_VIEW_DESC view = {.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = 16, .height = 4}, v = view;
    NO(cuTexObjectCreate(0, &array, &how, 0));
    NO(cuTexObjectCreate(&t, 0, &how, 0));
    NO(cuTexObjectCreate(&t, &array, 0, 0));
    r.resType = 4;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = array;
    r.flags = 1;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    w.filterMode = 2;
    NO(cuTexObjectCreate(&t, &array, &w, 0));
    w = how;
    w.addressMode[1] = 4;
    NO(cuTexObjectCreate(&t, &array, &w, 0));
    w = how;
    w.flags = 0x8;
    NO(cuTexObjectCreate(&t, &array, &w, 0));
    w.flags = CU_TRSF_SEAMLESS_CUBEMAP;
    NO(cuTexObjectCreate(&t, &array, &w, 0));
    /* Views are of arrays, in their size and of one level and layer. */
    NO(cuTexObjectCreate(&t, &linear, &how, &view));
    NO(cuTexObjectCreate(&t, &rows, &how, &view));
    v.width = 15;
    NO(cuTexObjectCreate(&t, &array, &how, &v));
    v = view;
    v.lastMipmapLevel = 1;
    NO(cuTexObjectCreate(&t, &array, &how, &v));
    v = view;
    v.lastLayer = 1;
    NO(cuTexObjectCreate(&t, &array, &how, &v));
    v = view;
    v.format = 99;
    NO(cuTexObjectCreate(&t, &array, &how, &v));
    OK(cuTexObjectCreate(&t, &array, &how, &view));
    NO(cuTexObjectGetResourceDesc(0, t));
    OK(cuTexObjectGetResourceViewDesc(&v, t));
    WANT(v.width == 16);
    OK(cuTexObjectDestroy(t));
    NO(cuTexObjectDestroy(t));
    NO(cuTexObjectGetTextureDesc(&w, t));
    /* Memory: its place, rows and sizes. */
    int align, pitch, most;
    OK(cuDeviceGetAttribute(&align, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 0));
    OK(cuDeviceGetAttribute(&pitch, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 0));
    r = linear;
    r.res.linear.devPtr = x + align / 2;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = linear;
    r.res.linear.sizeInBytes = (1 << 16) + 4;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r.res.linear.sizeInBytes = 0;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = linear;
    r.res.linear.numChannels = 3;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = rows;
    r.res.pitch2D.pitchInBytes = 64 + pitch / 2;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = rows;
    OK(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 0));
    r.res.pitch2D.width = most + 1;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = rows;
    r.res.pitch2D.width = 17;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    r = rows;
    r.res.pitch2D.height = 0;
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    OK(cuTexObjectCreate(&t, &rows, &how, 0));
    OK(cuTexObjectDestroy(t));
    /* Levels are sampled by normalized coordinates; surfaces are of arrays that were made for them. */
    CUmipmappedArray m;
    OK(cuMipmappedArrayCreate(&m, &d, 3));
    r = (CUDA_RESOURCE_DESC){.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, .res.mipmap.hMipmappedArray = m};
    NO(cuTexObjectCreate(&t, &r, &how, 0));
    NO(cuSurfObjectCreate(&s, &r));
    w = how;
    w.flags = CU_TRSF_NORMALIZED_COORDINATES;
    OK(cuTexObjectCreate(&t, &r, &w, 0));
    OK(cuTexObjectDestroy(t));
    OK(cuMipmappedArrayDestroy(m));
    NO(cuSurfObjectCreate(0, &array));
    NO(cuSurfObjectCreate(&s, 0));
    NO(cuSurfObjectCreate(&s, &linear));
    r = array;
    r.flags = 1;
    NO(cuSurfObjectCreate(&s, &r));
    r = array;
    r.res.array.hArray = plain;
    NO(cuSurfObjectCreate(&s, &r));
    OK(cuSurfObjectCreate(&s, &array));
    NO(cuTexObjectDestroy((CUtexObject)s));
    OK(cuSurfObjectGetResourceDesc(&r, s));
    WANT(r.res.array.hArray == a);
    OK(cuSurfObjectDestroy(s));
    NO(cuSurfObjectDestroy(s));
    OK(cuArrayDestroy(a));
    OK(cuArrayDestroy(plain));
    OK(cuMemFree(x));
}

static CUresult inside;
static int called;
static void CUDA_CB noted(CUstream s, CUresult status, void *data) {
    (void)s;
    inside = cuMemsetD8(*(CUdeviceptr *)data, 1, 1);
    called += status == CUDA_SUCCESS;
}
static void CUDA_CB nothing(void *data) { (void)data; }

static void streams(void) {
    CUstream s, t;
    CUevent e, f, g;
    CUgraph graph;
    CUcontext other;
    CUdeviceptr x;
    float ms;
    NO(cuStreamCreate(0, 0));
    NO(cuStreamCreate(&s, 4));
    NO(cuEventCreate(0, 0));
    NO(cuEventCreate(&e, CU_EVENT_INTERPROCESS));
    OK(cuMemAlloc(&x, 64));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
    /* An event before its first record is no work; it has no time. */
    OK(cuEventQuery(e));
    OK(cuEventSynchronize(e));
    OK(cuStreamWaitEvent(s, e, 0));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, e, e));
    OK(cuEventRecord(e, s));
    OK(cuEventRecord(f, s));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, e, f));
    NO(cuEventElapsedTime(0, e, e));
    NO(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
    NO(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(s, 0, 0));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(0, s));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery((CUevent)s));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery((CUstream)e));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, (CUstream)e));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(0));
    /* Events are recorded in streams of their context, and waited for in any. */
    OK(cuCtxCreate(&other, 0, 0, 0));
    OK(cuStreamCreate(&t, 0));
    OK(cuEventCreate(&g, 0));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(e, t));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(g, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(cuCtxDestroy(other));
    OK(cuCtxSetCurrent(context));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(t));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(g));
    /* Functions of the program: a callback may call nothing, and is none of a graph's. */
    NO(cuStreamAddCallback(s, 0, 0, 0));
    NO(cuStreamAddCallback(s, noted, &x, 1));
    NO(cuLaunchHostFunc(s, 0, 0));
    OK(cuStreamAddCallback(s, noted, &x, 0));
    OK(cuStreamSynchronize(s));
    WANT(called == 1);
    GIVES(CUDA_ERROR_NOT_PERMITTED, inside);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamAddCallback(s, noted, &x, 0));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamUpdateCaptureDependencies(s, 0, 0, 0, 0));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
    NO(cuThreadExchangeStreamCaptureMode(0));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    const CUgraphNode *after;
    size_t count = 9;
    OK(cuStreamGetCaptureInfo(s, &status, &id, &graph, &after, 0, &count));
    WANT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 0);
    CUgraphNode none = (CUgraphNode)64;
    NO(cuStreamUpdateCaptureDependencies(s, &none, 0, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    NO(cuStreamUpdateCaptureDependencies(s, 0, 0, 0, 2));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(s));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(s));
    OK(cuEventDestroy(e));
    OK(cuEventDestroy(f));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(f));
    OK(cuMemFree(x));
}

static size_t nodes(CUgraph graph) {
    size_t count;
    OK(cuGraphGetNodes(graph, 0, &count));
    return count;
}

static void graphs(void) {
    CUgraph graph, second;
    CUgraphExec exec;
    CUgraphNode a, b, c, list[4], from[4], to[4];
    CUdeviceptr x;
    size_t count;
    OK(cuMemAlloc(&x, 4096));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&second, 0));
    NO(cuGraphCreate(0, 0));
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = x, .elementSize = 4, .value = 1, .width = 8, .height = 1}, g = fill;
    CUDA_HOST_NODE_PARAMS host = {nothing, 0}, no = {0, 0};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = x, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = x + 2048,
                          .WidthInBytes = 64, .Height = 1, .Depth = 1};
    NO(cuGraphAddEmptyNode(0, graph, 0, 0));
    NO(cuGraphAddEmptyNode(&a, graph, 0, 1));
    NO(cuGraphAddMemsetNode(&a, graph, 0, 0, 0, context));
    NO(cuGraphAddMemsetNode(0, graph, 0, 0, &fill, context));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuGraphAddMemsetNode(&a, graph, 0, 0, &fill, (CUcontext)64));
    NO(cuGraphAddMemcpyNode(&a, graph, 0, 0, &copy, (CUcontext)64));
    NO(cuGraphAddMemcpyNode(&a, graph, 0, 0, 0, context));
    NO(cuGraphAddHostNode(&a, graph, 0, 0, 0));
    NO(cuGraphAddHostNode(&a, graph, 0, 0, &no));
    NO(cuGraphAddKernelNode(&a, graph, 0, 0, 0));
    NO(cuGraphAddChildGraphNode(&a, graph, 0, 0, graph));
    g.elementSize = 3;
    NO(cuGraphAddMemsetNode(&a, graph, 0, 0, &g, context));
    g = fill;
    g.height = 2;
    g.pitch = 31;
    NO(cuGraphAddMemsetNode(&a, graph, 0, 0, &g, context));
    WANT(nodes(graph) == 0);
    OK(cuGraphAddMemsetNode(&a, graph, 0, 0, &fill, context));
    OK(cuGraphAddHostNode(&b, graph, &a, 1, &host));
    OK(cuGraphAddMemcpyNode(&c, graph, &b, 1, &copy, context));
    NO(cuGraphAddEmptyNode(&list[0], second, &a, 1));
    NO(cuGraphHostNodeSetParams(b, &no));
    NO(cuGraphHostNodeSetParams(a, &host));
    NO(cuGraphMemsetNodeGetParams(b, &g));
    NO(cuGraphNodeGetType(a, 0));
    /* Lists: what there is room for; the rest of it is null. */
    count = 4;
    OK(cuGraphGetNodes(graph, list, &count));
    WANT(count == 3 && !list[3]);
    count = 4;
    memset(from, 1, sizeof from);
    memset(to, 1, sizeof to);
    OK(cuGraphGetEdges(graph, from, to, 0, &count));
    WANT(count == 2 && from[0] == a && to[0] == b && !from[2] && !to[2] && !to[3]);
    count = 1;
    OK(cuGraphGetEdges(graph, from, to, 0, &count));
    WANT(count == 1);
    NO(cuGraphGetNodes(graph, list, 0));
    CUgraphEdgeData data[4];
    count = 4;
    NO(cuGraphGetEdges(graph, 0, 0, data, &count));
    count = 4;
    NO(cuGraphNodeGetDependencies(b, 0, data, &count));
    count = 4;
    OK(cuGraphNodeGetDependencies(b, list, data, &count));
    WANT(count == 1 && list[0] == a && !list[1]);

    /* Executable graphs: what may be changed in them. */
    NO(cuGraphInstantiate(0, graph, 0));
    NO(cuGraphInstantiate(&exec, graph, 1 << 20));
    OK(cuGraphInstantiate(&exec, graph, 0));
    g = fill;
    g.value = 9;
    g.dst = x + 64;
    OK(cuGraphExecMemsetNodeSetParams(exec, a, &g, context));
    g.height = 2;
    g.pitch = 32;
    NO(cuGraphExecMemsetNodeSetParams(exec, a, &g, context));
    g = fill;
    g.width = 0;
    NO(cuGraphExecMemsetNodeSetParams(exec, a, &g, context));
    NO(cuGraphExecMemsetNodeSetParams(exec, b, &fill, context));
    NO(cuGraphExecMemsetNodeSetParams(exec, a, 0, context));
    NO(cuGraphExecHostNodeSetParams(exec, b, &no));
    CUDA_MEMCPY3D other = copy;
    other.WidthInBytes = 32;
    OK(cuGraphExecMemcpyNodeSetParams(exec, c, &other, context));
    other.Height = 2;
    other.srcPitch = other.dstPitch = 32;
    NO(cuGraphExecMemcpyNodeSetParams(exec, c, &other, context));
    other = copy;
    other.WidthInBytes = 0;
    NO(cuGraphExecMemcpyNodeSetParams(exec, c, &other, context));
    other = copy;
    other.srcMemoryType = CU_MEMORYTYPE_HOST;
    other.srcHost = &count;
    other.WidthInBytes = 8;
    NO(cuGraphExecMemcpyNodeSetParams(exec, c, &other, context));
    NO(cuGraphNodeSetEnabled(exec, b, 0));
    unsigned enabled;
    NO(cuGraphNodeGetEnabled(exec, a, 0));
    OK(cuGraphNodeGetEnabled(exec, a, &enabled));
    WANT(enabled == 1);
    OK(cuGraphLaunch(exec, 0));
    unsigned word;
    OK(cuMemcpyDtoH(&word, x + 64, 4));
    WANT(word == 9);
    NO(cuGraphLaunch(0, 0));
    /* What an update may not change: the height of a fill, the kind of memory of a copy. */
    CUgraphExecUpdateResultInfo info;
    CUgraphNode d, e;
    OK(cuGraphClone(&second, graph));
    OK(cuGraphNodeFindInClone(&d, a, second));
    OK(cuGraphNodeFindInClone(&e, c, second));
    NO(cuGraphNodeFindInClone(&list[0], d, graph));
    g = fill;
    g.height = 2;
    g.pitch = 32;
    OK(cuGraphMemsetNodeSetParams(d, &g));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, second, &info));
    WANT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == d);
    OK(cuGraphMemsetNodeSetParams(d, &fill));
    OK(cuGraphMemcpyNodeSetParams(e, &other));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, second, &info));
    WANT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED && info.errorNode == e);
    OK(cuGraphMemcpyNodeSetParams(e, &copy));
    OK(cuGraphExecUpdate(exec, second, &info));
    WANT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphDestroyNode(b));
    NO(cuGraphDestroyNode(b));
    NO(cuGraphNodeGetType(b, &(CUgraphNodeType){0}));
    OK(cuGraphExecDestroy(exec));
    NO(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(second));
    OK(cuGraphDestroy(graph));
    NO(cuGraphDestroy(graph));
    NO(cuGraphAddEmptyNode(&a, graph, 0, 0));
    NO(cuGraphInstantiate(&exec, graph, 0));

    /* User objects: counts are positive, and nobody lets go of more than there are. */
    CUuserObject object;
    OK(cuGraphCreate(&graph, 0));
    NO(cuUserObjectCreate(&object, 0, nothing, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NO(cuUserObjectCreate(&object, 0, nothing, 1, 0));
    NO(cuUserObjectCreate(&object, 0, 0, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NO(cuUserObjectCreate(&object, 0, nothing, 1u << 31, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NO(cuUserObjectCreate(0, 0, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuUserObjectCreate(&object, 0, nothing, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    NO(cuUserObjectRetain(object, 0));
    NO(cuUserObjectRelease(object, 0));
    NO(cuGraphRetainUserObject(graph, object, 0, 0));
    NO(cuGraphRetainUserObject(graph, object, 1, 2));
    OK(cuGraphRetainUserObject(graph, object, 1, 0));
    NO(cuGraphReleaseUserObject(graph, object, 0));
    NO(cuGraphReleaseUserObject(graph, object, 2));
    OK(cuGraphReleaseUserObject(graph, object, 1));
    OK(cuUserObjectRelease(object, 2));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(x));
}

/* A level of an array of one dimension is such an array; gathering is for two dimensions. */
static void single_levels(void) {
    CUDA_ARRAY3D_DESCRIPTOR line = shape(16, 0, 0, 0), gather = shape(8, 0, 0, CUDA_ARRAY3D_TEXTURE_GATHER);
    CUmipmappedArray all;
    CUarray level[3], no;
    unsigned char bytes[64], back[64] = {0};
    for (int i = 0; i < 64; ++i)
        bytes[i] = (unsigned char)(i + 1);
    size_t texel = 1;
    OK(cuMipmappedArrayCreate(&all, &line, 3));
    for (unsigned i = 0; i < 3; ++i) {
        OK(cuMipmappedArrayGetLevel(&level[i], all, i));
        OK(cuMemcpyHtoA(level[i], 0, bytes + i, texel * (16 >> i)));
        NO(cuMemcpyHtoA(level[i], 0, bytes, texel * (16 >> i) + texel));
        NO(cuMemcpyHtoA(level[i], texel * (16 >> i), bytes, texel));
    }
    OK(cuMemcpyAtoA(level[2], texel, level[1], 0, texel));
    for (unsigned i = 0; i < 3; ++i) {
        OK(cuMemcpyAtoH(back, level[i], 0, texel * (16 >> i)));
        WANT(back[0] == i + 1 && back[texel * (16 >> i) - 1] == i + texel * (16 >> i));
    }
    WANT(back[texel] == 2);
    OK(cuMipmappedArrayDestroy(all));
    NO(cuArray3DCreate(&no, &gather));
    gather.Height = gather.Depth = 8;
    NO(cuArray3DCreate(&no, &gather));
    gather.Depth = 0;
    gather.Format = 0xa0;
    NO(cuArray3DCreate(&no, &gather));
}

/* A pool gives no more than it was made for. */
static void pools(void) {
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .maxSize = 4 << 20};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemoryPool pool;
    CUdeviceptr x, y;
    OK(cuMemPoolCreate(&pool, &properties));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&x, 5 << 20, pool, 0));
    OK(cuMemAllocFromPoolAsync(&x, 3 << 20, pool, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&y, 3 << 20, pool, 0));
    OK(cuMemFreeAsync(x, 0));
    OK(cuMemAllocFromPoolAsync(&y, 3 << 20, pool, 0));
    OK(cuMemFreeAsync(y, 0));
    OK(cuMemPoolDestroy(pool));
}

/* The module of a library goes with it; functions say which PTX they came from. */
static void modules(void) {
    static const char ptx[] = ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
    CUlibrary library;
    CUmodule module;
    CUfunction f;
    int version;
    void *function;
    CUdriverProcAddressQueryResult found;
    OK(cuLibraryLoadData(&library, ptx, 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetModule(&module, library));
    GIVES(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(module));
    OK(cuModuleGetFunction(&f, module, "k"));
    OK(cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
    WANT(version == 75);
    OK(cuLibraryUnload(library));
    OK(cuGetProcAddress("cuInit", &function, CUDA_VERSION, 0, &found));
    NO(cuGetProcAddress("cuInit", &function, CUDA_VERSION + 1000, 0, &found));
    NO(cuGetProcAddress("cuInit", &function, CUDA_VERSION, 4, &found));
}

static void count(void *n) { ++*(int *)n; }

/* A graph in a graph: only one of the same shape takes its place, and it goes with its node. */
static void inner_graphs(void) {
    CUgraph outer, inner, own, others[3];
    CUgraphNode node, a, b;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    int counts[2] = {0};
    CUDA_HOST_NODE_PARAMS host = {count, &counts[0]}, other = {count, &counts[1]};
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphAddHostNode(&a, inner, 0, 0, &host));
    OK(cuGraphAddChildGraphNode(&node, outer, 0, 0, inner));
    OK(cuGraphInstantiate(&exec, outer, 0));
    for (int i = 0; i < 3; ++i)
        OK(cuGraphCreate(&others[i], 0));
    NO(cuGraphExecChildGraphNodeSetParams(exec, node, others[0]));
    OK(cuGraphAddHostNode(&a, others[1], 0, 0, &other));
    OK(cuGraphAddEmptyNode(&b, others[1], &a, 1));
    NO(cuGraphExecChildGraphNodeSetParams(exec, node, others[1]));
    OK(cuGraphAddEmptyNode(&b, others[0], 0, 0));
    NO(cuGraphExecChildGraphNodeSetParams(exec, node, others[0]));
    OK(cuGraphLaunch(exec, 0));
    OK(cuStreamSynchronize(0));
    WANT(counts[0] == 1 && counts[1] == 0);
    OK(cuGraphAddHostNode(&a, others[2], 0, 0, &other));
    OK(cuGraphExecChildGraphNodeSetParams(exec, node, others[2]));
    OK(cuGraphLaunch(exec, 0));
    OK(cuStreamSynchronize(0));
    WANT(counts[0] == 1 && counts[1] == 1);
    OK(cuGraphChildGraphNodeGetGraph(node, &own));
    NO(cuGraphDestroy(own));
    OK(cuGraphAddEmptyNode(&b, own, 0, 0));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, outer, &info));
    WANT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphClone(&own, own));
    OK(cuGraphDestroy(own));
    OK(cuGraphDestroy(outer));
    OK(cuGraphDestroy(inner));
    for (int i = 0; i < 3; ++i)
        OK(cuGraphDestroy(others[i]));
}

/* A node with a launch says what it launches, with parameters of its own. */
static void launches(void) {
    static const char ptx[] = ".version 7.8\n.target sm_75\n.address_size 64\n"
                              ".visible .entry two(.param .u32 a, .param .u64 b) { ret; }\n"
                              ".visible .entry none() { ret; }\n";
    CUmodule module;
    CUfunction two, none;
    CUgraph graph;
    CUgraphNode node, other;
    unsigned a = 5;
    uint64_t b = 1ull << 40;
    void *params[] = {&a, &b};
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&two, module, "two"));
    OK(cuModuleGetFunction(&none, module, "none"));
    CUDA_KERNEL_NODE_PARAMS launch = {.func = two, 3, 2, 1, 32, 4, 2, 100, params, 0}, told = {0};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, 0, 0, &launch));
    a = 6;
    for (int i = 0; i < 2; ++i) {
        OK(cuGraphKernelNodeGetParams(node, &told));
        WANT(told.func == two && told.gridDimX == 3 && told.gridDimY == 2 && told.gridDimZ == 1);
        WANT(told.blockDimX == 32 && told.blockDimY == 4 && told.blockDimZ == 2 && told.sharedMemBytes == 100 && !told.extra);
        WANT(*(unsigned *)told.kernelParams[0] == 5 && *(uint64_t *)told.kernelParams[1] == b);
    }
    /* They can be given as they are, and are others from then on. */
    told.gridDimX = 7;
    OK(cuGraphAddKernelNode(&other, graph, &node, 1, &told));
    OK(cuGraphKernelNodeSetParams(node, &launch));
    OK(cuGraphKernelNodeGetParams(node, &told));
    WANT(told.gridDimX == 3 && *(unsigned *)told.kernelParams[0] == 6);
    OK(cuGraphKernelNodeGetParams(other, &told));
    WANT(told.gridDimX == 7 && *(unsigned *)told.kernelParams[0] == 5);
    launch.func = none;
    OK(cuGraphAddKernelNode(&other, graph, 0, 0, &launch));
    OK(cuGraphKernelNodeGetParams(other, &told));
    WANT(told.func == none && !told.kernelParams);
    OK(cuGraphAddEmptyNode(&other, graph, 0, 0));
    /* What is reserved is 0. */
    CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY}, wrong = empty;
    CUgraphEdgeData plain = {0}, strange = {.type = 9}, more = {.reserved = {1}};
    CUgraphNode no;
    OK(cuGraphAddNode(&no, graph, &node, &plain, 1, &empty));
    NO(cuGraphAddNode(&no, graph, &node, &strange, 1, &empty));
    NO(cuGraphAddNode(&no, graph, &node, &more, 1, &empty));
    NO(cuGraphAddDependencies(graph, &node, &other, &strange, 1));
    OK(cuGraphAddDependencies(graph, &node, &other, &plain, 1));
    wrong.reserved0[2] = 1;
    NO(cuGraphAddNode(&no, graph, 0, 0, 0, &wrong));
    wrong = empty;
    wrong.type = 99;
    NO(cuGraphAddNode(&no, graph, 0, 0, 0, &wrong));
    wrong = empty;
    wrong.reserved2 = 1;
    NO(cuGraphAddNode(&no, graph, 0, 0, 0, &wrong));
    NO(cuGraphKernelNodeGetParams(other, &told));
    NO(cuGraphKernelNodeGetParams(node, 0));
    OK(cuGraphDestroy(graph));
    OK(cuModuleUnload(module));
}

int main(void) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    size_t before = left();
    NO(cuMemAlloc(0, 1 << 20));
    arrays();
    objects();
    streams();
    graphs();
    single_levels();
    pools();
    modules();
    inner_graphs();
    launches();
    WANT(left() == before);
    if (!bad)
        printf("done\n");
    return bad;
}
