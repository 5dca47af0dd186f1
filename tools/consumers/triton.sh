#!/usr/bin/env bash
# Triton with oxptxas in ptxas's place: tools/consumers/triton.sh [WORK]. PYTHON has Triton (pip install triton numpy). No GPU is needed.
. "$(dirname "$0")/common.sh"
cat >"$work/kernels.py" <<'PY'
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def softmax(x, o, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * B + i, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + r * B + i, e / tl.sum(e, axis=0), mask=i < n)


pointers = {"x": "*fp32", "y": "*fp32", "o": "*fp32"}
for kernel in [add, softmax]:
    names = [n for n in kernel.arg_names if n != "B"]
    signature = {n: pointers.get(n, "i32") for n in names} | {"B": "constexpr"}
    for capability in map(int, sys.argv[1:]):
        source = ASTSource(kernel, signature, {"B": 128})
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert made.asm["cubin"][:4] == b"\x7fELF"
PY
export TRITON_PTXAS_PATH=$work/bin/ptxas TRITON_PTXAS_BLACKWELL_PATH=$work/bin/ptxas
compile() {
    TRITON_CACHE_DIR=$(mktemp -d "$work/cache-XXXX") "${PYTHON:-python3}" "$work/kernels.py" 75 80 90 100 120
}
compile
DISABLE_PTXAS_OPT=1 compile
PTXAS_OPTIONS="-maxrregcount=64" compile
TRITON_DISABLE_LINE_INFO=1 compile
verify_kept 40
