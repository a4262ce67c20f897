#pragma once
// Stand-in: the types that ATen's CUDA headers name, and nothing that could be called.
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
