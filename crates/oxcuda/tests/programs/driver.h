/* What the programs here use of CUDA's driver interface: our own declarations of documented names. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef void *CUcontext, *CUmodule, *CUfunction, *CUstream, *CUevent, *CUgraph, *CUgraphExec, *CUgraphNode;
typedef void *CUlibrary, *CUkernel, *CUlinkState, *CUmemoryPool;

CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int *);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
CUresult cuDeviceGet(CUdevice *, int);
CUresult cuDeviceGetCount(int *);
CUresult cuDeviceGetName(char *, int, CUdevice);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuCtxDestroy_v2(CUcontext);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSetLimit(int, size_t);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleLoadDataEx(CUmodule *, const void *, unsigned, int *, void **);
CUresult cuModuleLoad(CUmodule *, const char *);
CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *);
CUresult cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned);
CUresult cuLibraryGetKernel(CUkernel *, CUlibrary, const char *);
CUresult cuLibraryUnload(CUlibrary);
CUresult cuFuncGetAttribute(int *, int, CUfunction);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);
CUresult cuFuncGetName(const char **, CUfunction);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);
CUresult cuMemFreeHost(void *);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemcpyDtoD_v2(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void *, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD32_v2(CUdeviceptr, unsigned, size_t);
CUresult cuMemsetD2D16_v2(CUdeviceptr, size_t, unsigned short, size_t, size_t);
CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);
CUresult cuPointerSetAttribute(const void *, int, CUdeviceptr);
CUresult cuLibraryGetManaged(CUdeviceptr *, size_t *, CUlibrary, const char *);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *, CUfunction, int, int);
CUresult cuCtxDetach(CUcontext);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
                        void **);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                                   void **);
CUresult cuLaunchHostFunc(CUstream, void (*)(void *), void *);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream, int);
CUresult cuStreamEndCapture_ptsz(CUstream, CUgraph *);
CUresult cuStreamIsCapturing_ptsz(CUstream, int *);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphAddEmptyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, uint64_t);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphDestroy(CUgraph);
CUresult cuLinkCreate_v2(unsigned, int *, void **, CUlinkState *);
CUresult cuLinkAddData_v2(CUlinkState, int, void *, size_t, const char *, unsigned, int *, void **);
CUresult cuLinkComplete(CUlinkState, void **, size_t *);
CUresult cuLinkDestroy(CUlinkState);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamAttachMemAsync(CUstream, CUdeviceptr, size_t, unsigned);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuEventQuery(CUevent);
CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);
CUresult cuCtxAttach(CUcontext *, unsigned);
CUresult cuCtxSetCacheConfig(int);
CUresult cuCtxSetFlags(unsigned);
CUresult cuFuncSetCacheConfig(CUfunction, int);
CUresult cuMemAdvise(CUdeviceptr, size_t, int, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemsetD2D8_v2(CUdeviceptr, size_t, unsigned char, size_t, size_t);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
CUresult cuGraphAddHostNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const void *);
CUresult cuGraphAddEventRecordNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);
CUresult cuGraphDestroyNode(CUgraphNode);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphNodeFindInClone(CUgraphNode *, CUgraphNode, CUgraph);
CUresult cuGraphNodeGetType(CUgraphNode, int *);
CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const void *, CUcontext);
CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, void *);
CUresult cuGraphAddMemFreeNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode, CUdeviceptr *);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, void *);
typedef struct {
    int result;
    CUgraphNode node, from;
} UpdateResult;
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, UpdateResult *);
CUresult cuMemGetAllocationGranularity(size_t *, const void *, int);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, uint64_t);
CUresult cuMemAddressFree(CUdeviceptr, size_t);
CUresult cuMemCreate(uint64_t *, size_t, const void *, uint64_t);
CUresult cuMemRelease(uint64_t);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, uint64_t, uint64_t);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemGetAccess(uint64_t *, const void *, CUdeviceptr);
CUresult cuMemRetainAllocationHandle(uint64_t *, void *);
CUresult cuMemExportToShareableHandle(void *, uint64_t, int, uint64_t);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuOccupancyMaxPotentialBlockSize(int *, int *, CUfunction, size_t (*)(int), size_t, int);
CUresult cuTexRefCreate(void **);
CUresult cuCtxGetLimit(size_t *, int);

typedef struct {
    size_t srcX, srcY;
    int srcKind;
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstX, dstY;
    int dstKind;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t width, height;
} Copy2D;
CUresult cuMemcpy2D_v2(const Copy2D *);

typedef struct {
    int id;
    char pad[4];
    union {
        char pad[64];
        int cooperative;
        unsigned dim[3];
    } value;
} LaunchAttribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    LaunchAttribute *attributes;
    unsigned count;
} LaunchConfig;
CUresult cuLaunchKernelEx(const LaunchConfig *, CUfunction, void **, void **);

/* The program ends where something is not as it must be. */
#define WANT(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_) {                                                                                                 \
            const char *name_ = "?";                                                                                   \
            cuGetErrorName(result_, &name_);                                                                           \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_);                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* CUstreamBatchMemOpParams, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS and CUDA_MEM_ALLOC_NODE_PARAMS, with names of our
   own. */
typedef union {
    struct {
        int kind;
        CUdeviceptr address;
        uint64_t value;
        unsigned flags;
        CUdeviceptr alias;
    } op;
    struct {
        int kind;
        unsigned flags;
    } barrier;
    uint64_t pad[6];
} Operation;
typedef struct {
    CUcontext context;
    unsigned count;
    Operation *list;
    unsigned flags;
} Batch;
typedef struct {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
} Fill;
typedef struct {
    struct {
        int type, handles, location[2];
        void *security;
        size_t most;
        unsigned short usage;
        unsigned char reserved[54];
    } pool;
    const void *access;
    size_t count, size;
    CUdeviceptr address;
} Alloc;

#define HEADER ".version 7.8\n.target sm_75\n.address_size 64\n"

static inline CUmodule load(const char *ptx) {
    CUmodule module;
    OK(cuModuleLoadData(&module, ptx));
    return module;
}

static inline CUfunction function(CUmodule module, const char *name) {
    CUfunction f;
    OK(cuModuleGetFunction(&f, module, name));
    return f;
}

static inline CUcontext start(void) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    return context;
}
