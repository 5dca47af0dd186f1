#!/usr/bin/env bash
# PTX of the CUDA files of HeCBench, for sm_75, sm_80, sm_90 and sm_120 in turn:
#
#     git -C HECBENCH archive HEAD -- ':(glob)src/*-cuda/**/*.cu' ':(glob)src/*-cuda/**/*.cuh' \
#         ':(glob)src/*-cuda/**/*.h' ':(glob)src/*-cuda/**/*.hpp' ':(glob)src/include/**' | tar x -C FOLDER
#     tools/hecbench.sh FOLDER OUT [FIRST [LAST]]
#     cargo xtask check-hazards OUT
#
# nvcc and ptxas are on PATH. Files are numbered as sorted, so that a part of them (FIRST to LAST) gives what the whole gives.
# What nvcc refuses by itself (a part of another file, a library that isn't there), what takes it over a minute, what has no
# kernel, and PTX of over 600 kB is left out. What is there already is kept.
set -euo pipefail
export LC_ALL=C
folder=$(realpath "$1") out=$(mkdir -p "$2" && realpath "$2") first=${3:-1} last=${4:-999999}
targets=(75 80 90 120)
n=0
find "$folder/src" -path '*-cuda/*.cu' | sort | while read -r file; do
    n=$((n + 1))
    [ "$n" -ge "$first" ] && [ "$n" -le "$last" ] || continue
    name=${file#"$folder/src/"}
    name=${name%.cu}
    ptx=$out/${name//\//__}.ptx
    [ ! -e "$ptx" ] && [ ! -e "$ptx.not" ] || continue
    top=$folder/src/${name%%/*}
    here=$(dirname "$file")
    if timeout 60 nvcc -ptx -O3 -std=c++17 -w --extended-lambda --expt-relaxed-constexpr -arch="compute_${targets[n % 4]}" \
        -I"$here" -I"$here/include" -I"$here/.." -I"$top" -I"$top/include" -I"$top/src" -I"$folder/src/include" \
        "$file" -o "$ptx.part" >/dev/null 2>&1 </dev/null &&
        grep -q '\.entry' "$ptx.part" && [ "$(stat -c %s "$ptx.part")" -le 600000 ]; then
        mv "$ptx.part" "$ptx"
    else
        rm -f "$ptx.part"
        : >"$ptx.not"
    fi
done
