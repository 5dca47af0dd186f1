#pragma once
#include "cublas_v2.h"
typedef struct cublasLtContext *cublasLtHandle_t;
template <class... A> cublasStatus_t cublasLtCreate(A...) { return CUBLAS_STATUS_SUCCESS; }
