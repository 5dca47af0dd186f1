#!/usr/bin/env bash
# PTX of NVIDIA's CUDA samples, each for sm_75, sm_80, sm_90 or sm_120, like tools/hecbench.sh, which it calls:
#
#     git -C CUDA-SAMPLES archive HEAD -- ':(glob)**/*.cu' ':(glob)**/*.cuh' ':(glob)**/*.h' ':(glob)**/*.hpp' | tar x -C FOLDER
#     tools/cuda-samples.sh FOLDER OUT [FIRST [LAST]]
set -euo pipefail
folder=$(realpath "$1")
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/src"
ln -s "$folder/Common" "$scratch/src/include"
find "$folder" -name '*.cu' | sort | while read -r file; do
    sample=$(dirname "$file")
    name=$(basename "$sample")
    cp -rn "$sample" "$scratch/src/$name-cuda"
done
"$(dirname "$0")/hecbench.sh" "$scratch" "$@"
