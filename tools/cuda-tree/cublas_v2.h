// Just enough of cuBLAS that files with kernels of their own beside calls of it compile to PTX; nothing here is executed.
#pragma once
typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_DEFAULT_MATH, CUBLAS_TF32_TENSOR_OP_MATH };
enum cublasComputeType_t { CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT };
#define CUBLAS_STUB(name) \
    template <class... A> cublasStatus_t name(A...) { return CUBLAS_STATUS_SUCCESS; }
CUBLAS_STUB(cublasCreate)
CUBLAS_STUB(cublasDestroy)
CUBLAS_STUB(cublasSetMathMode)
CUBLAS_STUB(cublasSgemm)
CUBLAS_STUB(cublasSgemv)
CUBLAS_STUB(cublasSgemmStridedBatched)
CUBLAS_STUB(cublasGemmStridedBatchedEx)
CUBLAS_STUB(cublasGemmEx)
#undef CUBLAS_STUB
