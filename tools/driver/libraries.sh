#!/usr/bin/env bash
# Programs of CUTLASS, which compare what the GPU computed with what the host did, on the driver library: no GPU, our code of their PTX.
#
#     tools/libraries.sh OUT cutlass_48                       # fetches the sources
#     LD_LIBRARY_PATH=$(cargo xtask driver) tools/driver/libraries.sh OUT [NAME…]
#
# Each line of tools/driver/libraries.txt is a program of tools/libraries/list.txt, the SM to run it on, and its arguments; NAME is the beginning of
# some of them. nvcc 13.0.88 is on PATH or in OXPTXAS_ORACLES; it takes a minute or two for each. The programs are linked with runtime.cpp in
# place of NVIDIA's libcudart. The driver library's variables (docs/driver.md) choose whose code runs: OXCUDA_PTXAS, OXCUDA_MODE=ptx.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
out=$(realpath "$1")
shift
[ -z "${OXPTXAS_ORACLES:-}" ] || PATH=$OXPTXAS_ORACLES:$PATH
include=$(realpath "$(dirname "$(command -v nvcc)")/../include")
mkdir -p "$out/programs"
runtime=$out/programs/runtime.o
g++ -O1 -c -I"$include" "$here/runtime.cpp" -o "$runtime"

build() {
    local name=$1 target file program=$out/programs/$1
    [ ! -e "$program.o" ] || return 0
    read -r _ target _ file _ < <(grep "^$name " "$here/../libraries/list.txt")
    file=$out/src/cutlass/$file
    nvcc -c -O1 -std=c++17 -w --expt-relaxed-constexpr --expt-extended-lambda -gencode "arch=compute_$target,code=compute_$target" \
        -I"$out/src/cutlass/include" -I"$out/src/cutlass/tools/util/include" -I"$out/src/cutlass/examples/common" \
        -I"$out/src/curand/nvidia/cu13/include" -I"$(dirname "$file")" "$file" -o "$program.part.o"
    mv "$program.part.o" "$program.o"
}

[ $# -gt 0 ] || set -- ""
grep -v '^#' "$here/libraries.txt" | while read -r name sm arguments; do
    [ -n "$name" ] || continue
    for prefix; do
        case $name in "$prefix"*) ;; *) continue ;; esac
        build "$name" </dev/null
        g++ "$out/programs/$name.o" "$runtime" -L"${LD_LIBRARY_PATH%%:*}" -lcuda -o "$out/programs/$name"
        # shellcheck disable=SC2086
        if said=$(OXCUDA_SM=$sm timeout 600 "$out/programs/$name" $arguments 2>&1 </dev/null) && [[ $said == *Passed* || $said == *GFlop/s* ]]; then
            echo "$name $arguments: passed"
        else
            echo "$name $arguments: FAILED: $(tail -n 3 <<<"$said" | cut -c1-300)"
        fi
        break
    done
done
