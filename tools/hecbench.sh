#!/usr/bin/env bash
# PTX of the CUDA files of HeCBench, for sm_75, sm_80, sm_90 and sm_120 in turn:
#
#     git -C HECBENCH archive HEAD -- ':(glob)src/*-cuda/**/*.cu' ':(glob)src/*-cuda/**/*.cuh' \
#         ':(glob)src/*-cuda/**/*.h' ':(glob)src/*-cuda/**/*.hpp' ':(glob)src/include/**' | tar x -C FOLDER
#     tools/hecbench.sh FOLDER OUT [FIRST [LAST]]
#     cargo xtask check-hazards OUT
#
# nvcc and ptxas are on PATH. Files are numbered as sorted, so that a part of them (FIRST to LAST) gives what the whole gives.
# tools/cuda-tree/run.sh says what is left out, and where headers are looked for.
set -euo pipefail
exec "$(dirname "$0")/cuda-tree/run.sh" "$1/src" "$2" 1 "${3:-1}" "${4:-999999}"
