#!/usr/bin/env bash
# clang with oxptxas in ptxas's place: tools/consumers/clang.sh [WORK]. CLANG names it. The program has no header of CUDA's, so that any
# version of clang takes it, whatever release of CUDA it knows.
. "$(dirname "$0")/common.sh"
clang=${CLANG:-clang++}
cd "$work"
cat >kernels.cu <<'CU'
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
__device__ __attribute__((noinline)) float polynomial(float x, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum = sum * x + i;
    return sum;
}
extern "C" __global__ void evaluate(const float *x, float *y) {
    int i = __nvvm_read_ptx_sreg_tid_x();
    y[i] = polynomial(x[i], 5);
}
CU
for options in -O0 -O3 "-O2 -g" "-O2 -gline-tables-only" "-O3 -Xcuda-ptxas -maxrregcount=32" "-O3 -fgpu-rdc"; do
    for arch in sm_75 sm_86; do
        # shellcheck disable=SC2086 # Several words.
        "$clang" -x cuda --cuda-device-only --cuda-gpu-arch=$arch --ptxas-path="$work/bin/ptxas" -nocudainc -nocudalib $options -c kernels.cu -o out.cubin \
            || { echo "$clang $options $arch" >&2 && exit 1; }
    done
done
verify_kept 12
