"""Streams, events, graphs by capture and by hand, and mapped memory, by cuda.bindings: what cuda-python's examples do."""

import ctypes

import numpy as np
from cuda.bindings import driver as cu
from cuda.bindings import nvrtc

CODE = rb"""
extern "C" __global__ void saxpy(float a, const float *x, const float *y, float *out, size_t n) {
    size_t i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void sum(const float *x, float *out, size_t n) {
    __shared__ float part[8];
    float mine = 0;
    for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    for (int k = 16; k > 0; k /= 2)
        mine += __shfl_down_sync(~0u, mine, k);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; k++)
            mine += part[k];
        atomicAdd(out, mine);
    }
}
"""


def ok(result):
    """The values of a call that went well."""
    error, *values = result
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


ok(cu.cuInit(0))
device = ok(cu.cuDeviceGet(0))
context = ok(cu.cuDevicePrimaryCtxRetain(device))
ok(cu.cuCtxSetCurrent(context))
major, minor = (ok(cu.cuDeviceGetAttribute(a, device)) for a in (
    cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
))
program = ok(nvrtc.nvrtcCreateProgram(CODE, b"saxpy.cu", 0, [], []))
options = [f"--gpu-architecture=compute_{major}{minor}".encode()]
ok(nvrtc.nvrtcCompileProgram(program, len(options), options))
ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
ok(nvrtc.nvrtcGetPTX(program, ptx))
module = ok(cu.cuModuleLoadData(np.char.array(ptx)))
saxpy, total = ok(cu.cuModuleGetFunction(module, b"saxpy")), ok(cu.cuModuleGetFunction(module, b"sum"))

N = 4096
rng = np.random.default_rng(2)
x, y = (rng.integers(0, 50, N).astype(np.float32) for _ in range(2))
dx, dy, out, result = (ok(cu.cuMemAlloc(b)) for b in (x.nbytes, y.nbytes, x.nbytes, 4))


def run(function, grid, stream, *values):
    """Launches with parameters of these types."""
    types = tuple(None if isinstance(v, cu.CUdeviceptr) else ctypes.c_float if isinstance(v, float) else ctypes.c_size_t
                  for v in values)
    ok(cu.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, (values, types), 0))


def work(stream):
    """What the graph does, too."""
    ok(cu.cuMemsetD32Async(result, 0, 1, stream))
    run(saxpy, N // 256, stream, 3.0, dx, dy, out, N)
    run(total, 4, stream, out, result, N)


def check(x):
    got, whole = np.zeros(N, np.float32), np.zeros(1, np.float32)
    ok(cu.cuMemcpyDtoH(got.ctypes.data, out, got.nbytes))
    ok(cu.cuMemcpyDtoH(whole.ctypes.data, result, 4))
    assert (got == 3 * x + y).all() and whole[0] == (3 * x + y).sum()


# Two streams and an event.
first, second = (ok(cu.cuStreamCreate(1)) for _ in range(2))
ready = ok(cu.cuEventCreate(2))
ok(cu.cuMemcpyHtoDAsync(dx, x.ctypes.data, x.nbytes, first))
ok(cu.cuMemcpyHtoDAsync(dy, y.ctypes.data, y.nbytes, first))
ok(cu.cuEventRecord(ready, first))
ok(cu.cuStreamWaitEvent(second, ready, 0))
work(second)
ok(cu.cuStreamSynchronize(second))
check(x)

# A graph by capture, launched again with other numbers.
ok(cu.cuStreamBeginCapture(first, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
work(first)
graph = ok(cu.cuStreamEndCapture(first))
nodes, count = ok(cu.cuGraphGetNodes(graph))
assert count == 3
run_graph = ok(cu.cuGraphInstantiate(graph, 0))
for values in (x, y):
    ok(cu.cuMemcpyHtoD(dx, values.ctypes.data, values.nbytes))
    ok(cu.cuGraphLaunch(run_graph, first))
    ok(cu.cuStreamSynchronize(first))
    check(values)

# Mapped memory.
properties = cu.CUmemAllocationProp()
properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
unit = ok(cu.cuMemGetAllocationGranularity(
    properties, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
place = ok(cu.cuMemAddressReserve(unit, 0, 0, 0))
memory = ok(cu.cuMemCreate(unit, properties, 0))
ok(cu.cuMemMap(place, unit, 0, memory, 0))
access = cu.CUmemAccessDesc()
access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(cu.cuMemSetAccess(place, unit, [access], 1))
ok(cu.cuMemcpyDtoD(place, dy, y.nbytes))
ok(cu.cuMemsetD32(result, 0, 1))
run(total, 2, first, place, result, N)
whole = np.zeros(1, np.float32)
ok(cu.cuMemcpyDtoH(whole.ctypes.data, result, 4))
assert whole[0] == y.sum()
ok(cu.cuMemUnmap(place, unit))
ok(cu.cuMemRelease(memory))
ok(cu.cuMemAddressFree(place, unit))

# What is not built says so.
error, _ = cu.cuIpcGetMemHandle(out)
assert error == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
print("done")
