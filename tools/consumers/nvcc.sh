#!/usr/bin/env bash
# nvcc with oxptxas in ptxas's place, in the ways that builds call it: tools/consumers/nvcc.sh [WORK]
. "$(dirname "$0")/common.sh"
toolkit
nvcc=$work/cuda/bin/nvcc source=$root/tools/consumers/vectors.cu
cd "$work"
build() {
    "$nvcc" "$@" || { echo "nvcc $*" >&2 && exit 1; }
}
# One line is one way; programs that have a main are run, which needs no GPU.
build -arch=sm_90 "$source" -o plain && ./plain
build -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_120,code=sm_120 -c "$source" -o several.o
build -arch=all-major -c "$source" -o all.o
build -arch=compute_80 -code=compute_80,sm_80,sm_86 -c "$source" -o both.o
build -arch=sm_100a -cubin "$source" -o own.cubin
build -arch=sm_120f -cubin "$source" -o family.cubin
build -arch=sm_90 -cubin -O1 "$source" -o one.cubin
build -arch=sm_90 -cubin -Xptxas -O0,-v "$source" -o zero.cubin
build -arch=sm_90 -cubin -Xptxas -O2 -Xptxas -dlcm=cg "$source" -o cached.cubin
build -arch=sm_80 -cubin -maxrregcount=32 -use_fast_math "$source" -o fast.cubin
build -arch=sm_75 -cubin -ftz=true -prec-div=false -prec-sqrt=false -fmad=false "$source" -o exact.cubin
build -arch=sm_90 -cubin -res-usage "$source" -o used.cubin
build -arch=sm_90 -cubin -Werror all-warnings -Xptxas --warn-on-spills "$source" -o warned.cubin
build -arch=sm_120 -cubin -lineinfo "$source" -o lines.cubin
build -arch=sm_90 -cubin -g -lineinfo "$source" -o host-debug.cubin
build -arch=sm_90 -G -cubin "$source" -o debug.cubin
build -arch=sm_75 -g -G "$source" -o debugged && ./debugged
build -arch=sm_90 -G -dopt=on -cubin "$source" -o debug-fast.cubin
build -arch=sm_90 -cubin -Ofc=min "$source" -o quick-min.cubin
build -arch=sm_90 -cubin -Ofc=mid "$source" -o quick.cubin
build -arch=sm_90 -cubin -Ofc=max "$source" -o quick-max.cubin
build -arch=sm_90 -cubin -fdevice-time-trace trace "$source" -o traced.cubin
build -arch=sm_90 -cubin --split-compile=4 "$source" -o split.cubin
build -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -t2 -c "$source" -o threads.o
printf 'all:\n\t+%s -arch=sm_90 -cubin -jobserver -split-compile=0 %s -o jobs.cubin\n' "$nvcc" "$source" >Makefile
make -j2 >/dev/null || { echo "nvcc -jobserver" >&2 && exit 1; }
build -arch=sm_90 -cubin --device-stack-protector=true "$source" -o protected.cubin
build -arch=sm_90 -cubin -uumn "$source" -o managed.cubin
build -arch=sm_90 -cubin -ewp "$source" -o extensible.cubin
build -arch=sm_90 -cubin -keep -keep-dir . "$source" -o kept.cubin && test -s vectors.ptx
printf -- '-arch=sm_90 -cubin' >options.txt
build --options-file options.txt "$source" -o listed.cubin
build -arch=sm_90 -fatbin "$source" -o fat.fatbin
build -arch=sm_90 -ptx "$source" -o made.ptx && build -arch=sm_90 -cubin made.ptx -o from-ptx.cubin
build -arch=sm_90 -dc "$source" -o relocatable.o
build -arch=sm_90 -dlink relocatable.o -o linked.o
build -arch=sm_90 -rdc=true "$source" -o separate && ./separate
build -arch=sm_90 -rdc=true -G "$source" -o separate-debug && ./separate-debug
build -arch=sm_90 -rdc=true -lineinfo -lib "$source" -o libvectors.a
printf '__device__ float twice(float x) { return x + x; }\n' >twice.cu
printf 'extern __device__ float twice(float);\n__global__ void k(float *p) { *p = twice(*p); }\nint main() { return 0; }\n' >main.cu
build -arch=sm_80 -rdc=true twice.cu main.cu -o files && ./files
verify_kept 38
