#pragma once
// Stand-in: the types that ATen's CUDA headers name, and nothing that could be called.
typedef enum { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_INVALID_VALUE = 3 } cusolverStatus_t;
