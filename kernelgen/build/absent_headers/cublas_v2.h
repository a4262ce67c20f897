#pragma once
// Stand-in: the types that ATen's CUDA headers name, and nothing that could be called.
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
