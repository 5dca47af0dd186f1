#!/usr/bin/env bash
# nvcc with oxptxas in ptxas's place, in the ways that builds call it: tools/consumers/nvcc.sh [WORK]
. "$(dirname "$0")/common.sh"
toolkit
nvcc=$work/cuda/bin/nvcc source=$root/tools/consumers/vectors.cu
cd "$work"
build() {
    "$nvcc" "$@" || { echo "nvcc $*" >&2 && exit 1; }
}
build -arch=sm_90 "$source" -o plain && ./plain
build -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120,code=sm_120 -c "$source" -o several.o
build -arch=sm_90 -cubin -O1 "$source" -o one.cubin
build -arch=sm_90 -cubin -Xptxas -O0,-v "$source" -o zero.cubin
build -arch=sm_120 -cubin -lineinfo "$source" -o lines.cubin
build -arch=sm_80 -cubin -maxrregcount=32 -use_fast_math "$source" -o fast.cubin
build -arch=sm_90 -G -cubin "$source" -o debug.cubin
build -arch=sm_90 -cubin -Ofc=mid "$source" -o quick.cubin
build -arch=sm_90 -cubin -fdevice-time-trace trace "$source" -o traced.cubin
build -arch=sm_90 -cubin --split-compile=4 "$source" -o split.cubin
build -arch=sm_90 -fatbin "$source" -o fat.fatbin
build -arch=sm_90 -dc "$source" -o relocatable.o
build -arch=sm_90 -dlink relocatable.o -o linked.o
build -arch=sm_90 -rdc=true "$source" -o separate && ./separate
build -arch=all-major -c "$source" -o all.o
verify_kept 15
