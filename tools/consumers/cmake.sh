#!/usr/bin/env bash
# CMake's CUDA language with oxptxas in ptxas's place: tools/consumers/cmake.sh [WORK]. cmake and ninja on PATH (pip has both).
. "$(dirname "$0")/common.sh"
toolkit
mkdir -p "$work/source"
cp "$root/tools/consumers/vectors.cu" "$work/source"
cat >"$work/source/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.24)
project(vectors LANGUAGES CXX CUDA)
add_executable(vectors vectors.cu)
set_target_properties(vectors PROPERTIES CUDA_ARCHITECTURES "80-real;90-real;120" CUDA_SEPARABLE_COMPILATION ${SEPARABLE})
CMAKE
for type in Release Debug RelWithDebInfo; do
    for separable in OFF ON; do
        build=$work/build-$type-$separable
        CUDACXX=$work/cuda/bin/nvcc cmake -G Ninja -S "$work/source" -B "$build" -DCMAKE_BUILD_TYPE=$type -DSEPARABLE=$separable >"$build.log"
        cmake --build "$build" >>"$build.log" || { cat "$build.log" && exit 1; }
        "$build/vectors"
    done
done
verify_kept 18
