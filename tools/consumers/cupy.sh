#!/usr/bin/env bash
# CuPy, which compiles with NVRTC and loads what the driver makes of it, or with nvcc: tools/consumers/cupy.sh [WORK]. PYTHON has cupy and NVRTC
# (pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl); no GPU is needed.
. "$(dirname "$0")/common.sh"
toolkit
cat >"$work/program.py" <<'PY'
import pathlib
import subprocess
import sys

from cupy.cuda import compiler

SOURCE = """
extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void sums(const float *x, float *y) {
    __shared__ float part[128];
    part[threadIdx.x] = x[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
    for (int step = 64; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""
kept, ptxas = pathlib.Path(sys.argv[1]), sys.argv[2]
for arch in ["75", "90", "120"]:
    # With nvcc CuPy has cubins itself (backend="nvcc").
    assert compiler.compile_using_nvcc(SOURCE, arch=arch, code_type="cubin")[:4] == b"\x7fELF"
    # NVRTC's PTX, which CuPy would give to the driver.
    program = compiler._NVRTCProgram(SOURCE, "kernels.cu", method="ptx")
    ptx, _ = program.compile((f"-arch=compute_{arch}",))
    file = kept.parent / f"nvrtc-{arch}.ptx"
    file.write_bytes(ptx.rstrip(b"\0") if isinstance(ptx, bytes) else ptx.encode())
    subprocess.run([ptxas, f"-arch=sm_{arch}", file, "-o", kept.parent / "nvrtc.cubin"], check=True)
PY
NVCC=$work/cuda/bin/nvcc "${PYTHON:-python3}" "$work/program.py" "$KEPT" "$work/bin/ptxas"
verify_kept 6
