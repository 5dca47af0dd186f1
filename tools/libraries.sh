#!/usr/bin/env bash
# PTX of the kernels of libraries: CUTLASS and CuTe, FlashAttention 2 and 3, DeepGEMM, ThunderKittens, ggml, each for the target that
# tools/libraries/list.txt states:
#
#     tools/libraries.sh OUT [NAME…]
#     cargo xtask verify --compile-only OUT/ptx
#
# NAME is the beginning of names in that list; all of them take nvcc an hour. nvcc 13.0.88 is on PATH, or OXPTXAS_ORACLES names its folder; git
# fetches the libraries at the commits below into OUT/src. What is there already is kept. Of what nvcc refuses, or does not
# finish in ten minutes, its messages are in OUT/ptx/NAME.log.
set -euo pipefail
export LC_ALL=C
here=$(realpath "$(dirname "$0")")/libraries
out=$(mkdir -p "$1/ptx" "$1/src" && realpath "$1")
shift
[ -z "${OXPTXAS_ORACLES:-}" ] || PATH=$OXPTXAS_ORACLES:$PATH

# fetch NAME URL COMMIT PATH…: the paths of the commit.
fetch() {
    local name=$1 url=$2 commit=$3 folder=$out/src/$1
    shift 3
    [ ! -e "$folder" ] || return 0
    git init -q "$folder.part.git"
    git -C "$folder.part.git" fetch -q --depth 1 "$url" "$commit"
    mkdir -p "$folder.part"
    git -C "$folder.part.git" archive FETCH_HEAD "$@" | tar x -C "$folder.part"
    rm -rf "$folder.part.git"
    mv "$folder.part" "$folder"
    echo "$name: $url at $commit"
}

# What FlashAttention asks of PyTorch's headers when it is compiled without its interface to Python.
torch() {
    mkdir -p "$out/src/torch/c10/cuda"
    printf '#pragma once\n#define C10_CUDA_CHECK(e) (void)(e)\n#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0\n' \
        >"$out/src/torch/c10/cuda/CUDAException.h"
}

# What the unit tests of CUTLASS ask of GoogleTest: names that kernels are instantiated from.
gtest() {
    mkdir -p "$out/src/gtest/gtest"
    cat >"$out/src/gtest/gtest/gtest.h" <<'END'
#pragma once
#include <iostream>
namespace testing {
struct Test { static bool HasFailure() { return false; } };
struct Message { template <class T> Message &operator<<(T const &) { return *this; } };
}
#define TEST(a, b) struct a##_##b { void run(); static void all() { a##_##b t; t.run(); } }; \
    auto a##_##b##_address = &a##_##b::all; void a##_##b::run()
#define LIBRARIES_CHECK(x) if (bool(x)) {} else std::cerr
#define EXPECT_TRUE(x) LIBRARIES_CHECK(x)
#define ASSERT_TRUE(x) LIBRARIES_CHECK(x)
#define EXPECT_FALSE(x) LIBRARIES_CHECK(!(x))
#define EXPECT_EQ(a, b) LIBRARIES_CHECK((a) == (b))
#define ASSERT_EQ(a, b) LIBRARIES_CHECK((a) == (b))
#define EXPECT_NE(a, b) LIBRARIES_CHECK((a) != (b))
#define EXPECT_GT(a, b) LIBRARIES_CHECK((a) > (b))
#define EXPECT_LT(a, b) LIBRARIES_CHECK((a) < (b))
#define GTEST_SKIP() return
#define CUTLASS_TARGET_NAME "ptx"
END
}

# What ggml asks of cuBLAS's header in files that do not call it.
cublas() {
    mkdir -p "$out/src/cublas"
    cat >"$out/src/cublas/cublas_v2.h" <<'END'
#pragma once
#include <library_types.h>
typedef struct cublasContext *cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS } cublasStatus_t;
typedef enum { CUBLAS_TF32_TENSOR_OP_MATH } cublasMath_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
const char *cublasGetStatusString(cublasStatus_t);
cublasStatus_t cublasCreate(cublasHandle_t *);
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t);
END
}

# The headers of cuRAND, with which CUTLASS's examples fill their matrices.
curand() {
    [ ! -e "$out/src/curand" ] || return 0
    pip download -q nvidia-curand==10.4.0.35 --no-deps -d "$out/src/curand.part"
    (cd "$out/src/curand.part" && unzip -q ./*.whl 'nvidia/cu13/include/*' && rm ./*.whl)
    mv "$out/src/curand.part" "$out/src/curand"
}

fetch cutlass https://github.com/NVIDIA/cutlass 7107b05535f8977f5ecb9d01ee203205b1fd9bc4 include examples tools/util tools/library/include test/unit
fetch flash https://github.com/Dao-AILab/flash-attention 0251105a2fb19d2957484b7f023cd8c115286ced csrc/flash_attn hopper
fetch deepgemm https://github.com/deepseek-ai/DeepGEMM 54e22612409371d6364144b69086735beb54e98b deep_gemm/include
fetch kittens https://github.com/HazyResearch/ThunderKittens 0b55588d2769dde0c7a9a606ffc015b0ca7a9551 include prototype kernels
fetch ggml https://github.com/ggml-org/ggml d99724f2b141fed9e1a9f402213506c081433465 include src
torch
gtest
cublas
curand

cutlass=(-I"$out/src/cutlass/include" -I"$out/src/cutlass/tools/util/include")
declare -A options=(
    [cutlass]="-std=c++17 -DNDEBUG -I$out/src/cutlass/examples/common -I$out/src/cutlass/tools/library/include -I$out/src/cutlass/test/unit -I$out/src/cutlass/test/unit/common -I$out/src/gtest -I$out/src/curand/nvidia/cu13/include"
    [flash2]="-std=c++17 -use_fast_math -DNDEBUG -I$out/src/torch -I$out/src/flash/csrc/flash_attn/src -U__CUDA_NO_HALF_OPERATORS__
        -U__CUDA_NO_HALF_CONVERSIONS__ -DFLASHATTENTION_DISABLE_DROPOUT -DFLASHATTENTION_DISABLE_ALIBI -DFLASHATTENTION_DISABLE_SOFTCAP"
    [flash3]="-std=c++17 -use_fast_math -DNDEBUG -I$out/src/torch -I$out/src/flash/hopper -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90
        -DFLASHATTENTION_DISABLE_SOFTCAP -DFLASHATTENTION_DISABLE_PAGEDKV -DFLASHATTENTION_DISABLE_APPENDKV -DFLASHATTENTION_DISABLE_VARLEN
        -DFLASHATTENTION_DISABLE_SPLIT -DFLASHATTENTION_DISABLE_PACKGQA"
    [deepgemm]="-std=c++20 -I$out/src/deepgemm/deep_gemm/include"
    [kittens]="-std=c++20 -use_fast_math -DNDEBUG -I$out/src/kittens/include -I$out/src/kittens/prototype"
    [ggml]="-std=c++17 -use_fast_math -extended-lambda -DNDEBUG -DGGML_CUDA_USE_GRAPHS -I$out/src/ggml/include -I$out/src/ggml/src -I$out/src/ggml/src/ggml-cuda -I$out/src/cublas"
)

compile() {
    local name=$1 target=$2 library=$3 file=$4
    shift 4
    local ptx=$out/ptx/$name.ptx flags=() folder
    [ ! -e "$ptx" ] && [ ! -e "$ptx.not" ] || return 0
    case $file in
        ./*) file=$here/${file#./} ;;
        *) file=$out/src/${library%[23]}/$file ;;
    esac
    folder=$(dirname "$file")
    case $library in cutlass | flash? | deepgemm) flags+=("${cutlass[@]}") ;; esac
    case $library/$target in
        kittens/90a) flags+=(-DKITTENS_HOPPER) ;;
        kittens/10*) flags+=(-DKITTENS_BLACKWELL) ;;
    esac
    # shellcheck disable=SC2206
    flags+=(${options[$library]})
    echo "$name"
    if timeout 600 nvcc -ptx -O3 -w --expt-relaxed-constexpr --expt-extended-lambda -arch="compute_$target" \
        "${flags[@]}" -I"$folder" "$@" "$file" -o "$ptx.part" >"$out/ptx/$name.log" 2>&1 </dev/null && grep -q '\.entry' "$ptx.part"; then
        mv "$ptx.part" "$ptx"
        rm "$out/ptx/$name.log"
    else
        rm -f "$ptx.part"
        : >"$ptx.not"
    fi
}

[ $# -gt 0 ] || set -- ""
grep -v '^#' "$here/list.txt" | while read -r name target library file more; do
    [ -n "$name" ] || continue
    for prefix; do
        case $name in "$prefix"*)
            # shellcheck disable=SC2086
            compile "$name" "$target" "$library" "$file" $more
            break
            ;;
        esac
    done
done
