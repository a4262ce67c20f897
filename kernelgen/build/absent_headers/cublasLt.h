#pragma once
// Stand-in: the types that ATen's CUDA headers name, and nothing that could be called.
#include <cublas_v2.h>
typedef struct cublasLtContext* cublasLtHandle_t;
