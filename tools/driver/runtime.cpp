// CUDA's runtime on the documented driver API, as far as the programs of tools/libraries-run.sh call it.
//
// NVIDIA's libcudart asks the driver for tables of functions that no document describes, so that programs linked with it do not run on our
// driver library (docs/driver.md). What nvcc makes of `<<<…>>>` and of variables is declared in its headers crt/host_runtime.h,
// crt/device_functions.h and fatbinary_section.h; values of cudaError_t, of attributes and flags are those of the driver's.
//
//     nvcc -cudart none … program.cu runtime.cpp -lcuda
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fatbinary_section.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Module {
    const void *image;
    CUmodule module = nullptr;
};
struct Named {
    Module *module;
    std::string name;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
    size_t size = 0;
};
struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

std::recursive_mutex lock;
thread_local cudaError_t last = cudaSuccess;
thread_local std::vector<Configuration> configurations;

std::map<const void *, Named> &functions() {
    static std::map<const void *, Named> map;
    return map;
}

std::map<const void *, Named> &variables() {
    static std::map<const void *, Named> map;
    return map;
}

cudaError_t result(CUresult r) {
    auto e = static_cast<cudaError_t>(r);
    if (e != cudaSuccess && e != cudaErrorNotReady) last = e;
    return e;
}

cudaError_t result(cudaError_t e) {
    if (e != cudaSuccess) last = e;
    return e;
}

// The primary context is current in every thread that asks for anything.
CUresult ready() {
    static CUcontext context = nullptr;
    static CUresult made = [] {
        CUresult r = cuInit(0);
        return r != CUDA_SUCCESS ? r : cuDevicePrimaryCtxRetain(&context, 0);
    }();
    CUcontext current = nullptr;
    if (made == CUDA_SUCCESS && cuCtxGetCurrent(&current) == CUDA_SUCCESS && !current) return cuCtxSetCurrent(context);
    return made;
}

CUresult load(Module *m) {
    if (m->module) return CUDA_SUCCESS;
    CUresult r = ready();
    return r != CUDA_SUCCESS ? r : cuModuleLoadFatBinary(&m->module, m->image);
}

cudaError_t function(const void *host, CUfunction *out) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto found = functions().find(host);
    if (found == functions().end()) return cudaErrorInvalidDeviceFunction;
    Named &f = found->second;
    if (!f.function) {
        CUresult r = load(f.module);
        if (r == CUDA_SUCCESS) r = cuModuleGetFunction(&f.function, f.module->module, f.name.c_str());
        if (r != CUDA_SUCCESS) return static_cast<cudaError_t>(r);
    }
    *out = f.function;
    return cudaSuccess;
}

cudaError_t variable(const void *host, CUdeviceptr *address, size_t *size) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto found = variables().find(host);
    if (found == variables().end()) return cudaErrorInvalidSymbol;
    Named &v = found->second;
    if (!v.address) {
        CUresult r = load(v.module);
        if (r == CUDA_SUCCESS) r = cuModuleGetGlobal(&v.address, &v.size, v.module->module, v.name.c_str());
        if (r != CUDA_SUCCESS) return static_cast<cudaError_t>(r);
    }
    *address = v.address;
    *size = v.size;
    return cudaSuccess;
}

CUdeviceptr at(const void *p) { return reinterpret_cast<CUdeviceptr>(p); }

int attribute(CUdevice_attribute a) {
    int value = 0;
    cuDeviceGetAttribute(&value, a, 0);
    return value;
}

}  // namespace

extern "C" {

// What nvcc's code calls.

void **__cudaRegisterFatBinary(void *wrapper) {
    auto *w = static_cast<__fatBinC_Wrapper_t *>(wrapper);
    return reinterpret_cast<void **>(new Module{w->data});
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterFunction(void **m, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
    functions()[host] = Named{reinterpret_cast<Module *>(m), name};
}
void __cudaRegisterVar(void **m, char *host, char *, const char *name, int, size_t, int, int) {
    variables()[host] = Named{reinterpret_cast<Module *>(m), name};
}
void __cudaRegisterManagedVar(void **m, void **host, char *, const char *name, int, size_t, int, int) {
    variables()[host] = Named{reinterpret_cast<Module *>(m), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (configurations.empty()) return cudaErrorMissingConfiguration;
    Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t *>(stream) = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void *>(host));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments, shared, stream);
}

// Launches.

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    if (e != cudaSuccess) return result(e);
    return result(cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, nullptr));
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **arguments) {
    static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute), "the same attributes");
    CUfunction f;
    cudaError_t e = function(host, &f);
    if (e != cudaSuccess) return result(e);
    CUlaunchConfig c = {};
    c.gridDimX = config->gridDim.x, c.gridDimY = config->gridDim.y, c.gridDimZ = config->gridDim.z;
    c.blockDimX = config->blockDim.x, c.blockDimY = config->blockDim.y, c.blockDimZ = config->blockDim.z;
    c.sharedMemBytes = config->dynamicSmemBytes;
    c.hStream = config->stream;
    c.attrs = reinterpret_cast<CUlaunchAttribute *>(config->attrs);
    c.numAttrs = config->numAttrs;
    return result(cuLaunchKernelEx(&c, f, arguments, nullptr));
}
cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    if (e != cudaSuccess) return result(e);
    return result(cuLaunchCooperativeKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments));
}
cudaError_t cudaFuncSetAttribute(const void *host, cudaFuncAttribute attribute, int value) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    return e != cudaSuccess ? result(e) : result(cuFuncSetAttribute(f, static_cast<CUfunction_attribute>(attribute), value));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *host) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    if (e != cudaSuccess) return result(e);
    auto get = [&](CUfunction_attribute which) {
        int value = 0;
        cuFuncGetAttribute(&value, which, f);
        return value;
    };
    std::memset(a, 0, sizeof *a);
    a->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    a->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    a->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    a->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    a->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    a->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    a->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    a->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    return e != cudaSuccess ? result(e) : result(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t shared, unsigned flags) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    return e != cudaSuccess ? result(e) : result(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, flags));
}
cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *host, const cudaLaunchConfig_t *config) {
    CUfunction f;
    cudaError_t e = function(host, &f);
    if (e != cudaSuccess) return result(e);
    CUlaunchConfig c = {};
    c.gridDimX = config->gridDim.x, c.gridDimY = config->gridDim.y, c.gridDimZ = config->gridDim.z;
    c.blockDimX = config->blockDim.x, c.blockDimY = config->blockDim.y, c.blockDimZ = config->blockDim.z;
    c.sharedMemBytes = config->dynamicSmemBytes;
    c.attrs = reinterpret_cast<CUlaunchAttribute *>(config->attrs);
    c.numAttrs = config->numAttrs;
    return result(cuOccupancyMaxActiveClusters(clusters, f, &c));
}

// Devices.

cudaError_t cudaGetDeviceCount(int *count) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuDeviceGetCount(count));
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return result(ready());
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? result(ready()) : result(cudaErrorInvalidDevice); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuCtxSynchronize());
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(which), device));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    CUresult r = ready();
    if (r != CUDA_SUCCESS) return result(r);
    std::memset(p, 0, sizeof *p);
    cuDeviceGetName(p->name, sizeof p->name, device);
    cuDeviceTotalMem(&p->totalGlobalMem, device);
    p->sharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    p->sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    p->sharedMemPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    p->reservedSharedMemPerBlock = attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
    p->regsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    p->regsPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    p->warpSize = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    p->maxThreadsPerBlock = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    p->maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    p->maxBlocksPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = attribute(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
        p->maxGridSize[i] = attribute(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
    }
    p->totalConstMem = attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    p->major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    p->minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    p->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    p->l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    p->unifiedAddressing = p->concurrentKernels = p->cooperativeLaunch = 1;
    p->clusterLaunch = attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return result(cuDriverGetVersion(version)); }
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version, unsigned long long flags, cudaDriverEntryPointQueryResult *found) {
    CUdriverProcAddressQueryResult how;
    CUresult r = cuGetProcAddress(name, entry, version, flags, &how);
    if (found) *found = static_cast<cudaDriverEntryPointQueryResult>(how);
    return result(r);
}
cudaError_t cudaGetDriverEntryPoint(const char *name, void **entry, unsigned long long flags, cudaDriverEntryPointQueryResult *found) {
    return cudaGetDriverEntryPointByVersion(name, entry, CUDART_VERSION, flags, found);
}

// Errors.

cudaError_t cudaGetLastError() {
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError() { return last; }
const char *cudaGetErrorString(cudaError_t e) {
    const char *text = nullptr;
    return cuGetErrorString(static_cast<CUresult>(e), &text) == CUDA_SUCCESS && text ? text : "an error of the runtime";
}
const char *cudaGetErrorName(cudaError_t e) {
    const char *text = nullptr;
    return cuGetErrorName(static_cast<CUresult>(e), &text) == CUDA_SUCCESS && text ? text : "an error of the runtime";
}

// Memory.

cudaError_t cudaMalloc(void **p, size_t size) {
    CUresult r = ready();
    if (r != CUDA_SUCCESS) return result(r);
    CUdeviceptr address = 0;
    if (size != 0) r = cuMemAlloc(&address, size);
    *p = reinterpret_cast<void *>(address);
    return result(r);
}
cudaError_t cudaFree(void *p) { return p ? result(cuMemFree(at(p))) : result(ready()); }
cudaError_t cudaMallocManaged(void **p, size_t size, unsigned flags) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemAllocManaged(reinterpret_cast<CUdeviceptr *>(p), size, flags));
}
cudaError_t cudaMallocHost(void **p, size_t size) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemAllocHost(p, size));
}
cudaError_t cudaHostAlloc(void **p, size_t size, unsigned flags) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemHostAlloc(p, size, flags));
}
cudaError_t cudaFreeHost(void *p) { return p ? result(cuMemFreeHost(p)) : cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemGetInfo(free, total));
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, cudaMemcpyKind kind, cudaStream_t stream) {
    CUresult r = ready();
    if (r != CUDA_SUCCESS) return result(r);
    switch (kind) {
        case cudaMemcpyHostToHost: std::memcpy(to, from, size); return cudaSuccess;
        case cudaMemcpyHostToDevice: return result(cuMemcpyHtoDAsync(at(to), from, size, stream));
        case cudaMemcpyDeviceToHost: return result(cuMemcpyDtoHAsync(to, at(from), size, stream));
        case cudaMemcpyDeviceToDevice: return result(cuMemcpyDtoDAsync(at(to), at(from), size, stream));
        default: return result(cuMemcpyAsync(at(to), at(from), size, stream));
    }
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
    cudaError_t e = cudaMemcpyAsync(to, from, size, kind, nullptr);
    return e != cudaSuccess ? e : result(cuCtxSynchronize());
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, cudaMemcpyKind kind) {
    CUdeviceptr address;
    size_t whole;
    cudaError_t e = variable(symbol, &address, &whole);
    return e != cudaSuccess ? result(e) : cudaMemcpy(reinterpret_cast<void *>(address + offset), from, size, kind);
}
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, cudaMemcpyKind kind) {
    CUdeviceptr address;
    size_t whole;
    cudaError_t e = variable(symbol, &address, &whole);
    return e != cudaSuccess ? result(e) : cudaMemcpy(to, reinterpret_cast<const void *>(address + offset), size, kind);
}
cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) {
    size_t whole;
    return result(variable(symbol, reinterpret_cast<CUdeviceptr *>(p), &whole));
}
cudaError_t cudaMemset(void *p, int value, size_t size) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemsetD8(at(p), static_cast<unsigned char>(value), size));
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t size, cudaStream_t stream) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuMemsetD8Async(at(p), static_cast<unsigned char>(value), size, stream));
}

// Streams and events.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuStreamCreate(s, flags));
}
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return result(cuStreamDestroy(s)); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuStreamSynchronize(s));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { return result(cuStreamWaitEvent(s, e, flags)); }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuStreamIsCapturing(s, reinterpret_cast<CUstreamCaptureStatus *>(status)));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    CUresult r = ready();
    return r != CUDA_SUCCESS ? result(r) : result(cuEventCreate(e, flags));
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return result(cuEventDestroy(e)); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return result(cuEventRecord(e, s)); }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return result(cuEventSynchronize(e)); }
cudaError_t cudaEventQuery(cudaEvent_t e) { return result(cuEventQuery(e)); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { return result(cuEventElapsedTime(ms, from, to)); }

}  // extern "C"
