"""Vector addition, a reduction with shared memory, two streams and an event, by cuda.core: what its examples do."""

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

CODE = r"""
extern "C" __global__ void add(const float *x, const float *y, float *out, size_t n) {
    for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = x[i] + y[i];
}
extern "C" __global__ void sum(const float *x, float *out, size_t n) {
    __shared__ float part[256];
    float mine = 0;
    for (size_t i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += gridDim.x * blockDim.x)
        mine += x[i];
    part[threadIdx.x] = mine;
    for (int k = 128; k > 0; k /= 2) {
        __syncthreads();
        if (threadIdx.x < k)
            part[threadIdx.x] += part[threadIdx.x + k];
    }
    if (threadIdx.x == 0)
        atomicAdd(out, part[0]);
}
"""

device = Device()
device.set_current()
first, second = device.create_stream(), device.create_stream()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
module = Program(CODE, code_type="c++", options=options).compile("ptx", name_expressions=("add", "sum"))
add, total = module.get_kernel("add"), module.get_kernel("sum")

N = 5000
rng = np.random.default_rng(1)


def buffer(count, values=None):
    """Memory that both sides see, and an array on it."""
    from cuda.core import LegacyPinnedMemoryResource

    b = LegacyPinnedMemoryResource().allocate(4 * count)
    array = np.from_dlpack(b).view(np.float32)
    array[:] = 0 if values is None else values
    return b, array


x, hx = buffer(N, rng.integers(0, 100, N))
y, hy = buffer(N, rng.integers(0, 100, N))
out, hout = buffer(N)
result, hresult = buffer(1)
config = LaunchConfig(grid=8, block=256)
launch(first, config, add, x, y, out, np.uint64(N))
second.wait(first.record())
launch(second, config, total, out, result, np.uint64(N))
second.sync()
assert (hout == hx + hy).all()
assert hresult[0] == (hx + hy).sum()
print("done")
