#!/usr/bin/env bash
# PTX of every CUDA file under a folder, for sm_75, sm_80, sm_90 and sm_120 in turn:
#
#     tools/cuda-tree/run.sh FOLDER OUT [EVERY [FIRST [LAST]]]
#     cargo xtask cycles OUT
#
# nvcc and ptxas are on PATH. Every EVERY-th file, from the FIRST to the LAST, of all as sorted. Headers are looked for beside the file
# and in the folders around it up to FOLDER, in their `include`, `inc`, `src`, `common` and `Common` too; what is missing on the host's side
# (cuBLAS, functions of older CUDA) stands beside this file.
# What nvcc refuses by itself (a part of another file, a library that isn't there), what takes it over a minute, what has no
# kernel, and PTX of over 600 kB is left out. What is there already is kept.
set -euo pipefail
export LC_ALL=C
folder=$(realpath "$1") out=$(mkdir -p "$2" && realpath "$2") every=${3:-1} first=${4:-1} last=${5:-999999}
targets=(75 80 90 120)
beside=$(realpath "$(dirname "$0")")
n=0
find "$folder" -name '*.cu' | sort | while read -r file; do
    n=$((n + 1))
    [ "$n" -ge "$first" ] && [ "$n" -le "$last" ] && [ $(((n - first) % every)) -eq 0 ] || continue
    name=${file#"$folder/"}
    name=${name%.cu}
    ptx=$out/${name//\//__}.ptx
    [ ! -e "$ptx" ] && [ ! -e "$ptx.not" ] || continue
    include=("-I$beside")
    at=$(dirname "$file")
    while :; do
        for sub in . include inc src common Common; do
            [ ! -d "$at/$sub" ] || include+=("-I$at/$sub")
        done
        [ "$at" != "$folder" ] || break
        at=$(dirname "$at")
    done
    if timeout 60 nvcc -ptx -O3 -std=c++17 -w -include "$beside/before.h" --extended-lambda --expt-relaxed-constexpr -arch="compute_${targets[n % 4]}" \
        "${include[@]}" "$file" -o "$ptx.part" >/dev/null 2>&1 </dev/null &&
        grep -q '\.entry' "$ptx.part" && [ "$(stat -c %s "$ptx.part")" -le 600000 ]; then
        mv "$ptx.part" "$ptx"
    else
        rm -f "$ptx.part"
        : >"$ptx.not"
    fi
done
