#!/usr/bin/env bash
# PTX with the debug information of three producers, for `cargo xtask places`: kernels/*.cu by nvcc -G and by clang -g -O0, and the kernels
# of tools/triton/aot.py:
#
#     tools/debug/files.sh OUT && cargo xtask places --launches kernels OUT/nvcc OUT/clang OUT/triton
#
# OXPTXAS_ORACLES names the folder of nvcc (docs/oracles.md), CLANG clang, PYTHON one that has Triton (pip install triton numpy).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1
nvcc=${OXPTXAS_ORACLES:-$root/target/oracles/nvidia/cu13/bin}/nvcc
mkdir -p "$out/nvcc" "$out/clang" "$out/triton"
for file in "$root"/kernels/*.cu; do
    name=$(basename "$file" .cu)
    "$nvcc" -G -ptx -arch=compute_75 "$file" -o "$out/nvcc/$name.ptx"
    # Five need more of CUDA's headers than builtins.h has.
    "${CLANG:-clang++}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_75 -nocudainc -nocudalib -include "$root/tools/debug/builtins.h" -g -O0 -S "$file" \
        -o "$out/clang/$name.ptx" 2>"$out/clang/$name.log" || rm -f "$out/clang/$name.ptx"
done
"${PYTHON:-python3}" "$root/tools/triton/aot.py" --ptxas "${OXPTXAS:-$root/target/release/oxptxas}" --oxsass "${OXSASS:-$root/target/release/oxsass}" \
    --keep "$out/triton" 75
echo "nvcc $(find "$out/nvcc" -name '*.ptx' | wc -l), clang $(find "$out/clang" -name '*.ptx' | wc -l), triton $(find "$out/triton" -name '*.ptx' | wc -l)"
