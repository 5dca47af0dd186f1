#!/usr/bin/env bash
# Numba's PTX through the Python package: tools/consumers/numba.sh [WORK]. PYTHON has numba, numba-cuda with its CUDA packages
# (pip install 'numba-cuda[cu13]') and the package oxptxas. Numba links PTX by the driver or nvJitLink, not by a program, so there is
# nothing to set; compiling ahead of time is where ours comes in.
. "$(dirname "$0")/common.sh"
cat >"$work/program.py" <<'PY'
import pathlib
import sys

import oxptxas
from numba import cuda, float32, int32


def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def count(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i] % 16, 1)


kept = pathlib.Path(sys.argv[1])
for function, signature in [(saxpy, (float32, float32[:], float32[:])), (count, (int32[:], int32[:]))]:
    for major, minor in [(7, 5), (9, 0), (12, 0)]:
        ptx, _ = cuda.compile_ptx(function, signature, cc=(major, minor))
        name = kept / f"{function.__name__}-{major}{minor}"
        name.with_suffix(".ptx").write_text(ptx)
        name.with_suffix(".cubin").write_bytes(oxptxas.compile(ptx, f"sm_{major}{minor}"))
        name.with_suffix(".command").write_text("oxptxas.compile")
PY
"${PYTHON:-python3}" "$work/program.py" "$KEPT"
verify_kept 6
