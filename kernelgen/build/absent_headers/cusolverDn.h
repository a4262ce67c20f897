#pragma once
// Stand-in: the types that ATen's CUDA headers name, and nothing that could be called.
#include <cusolver_common.h>
typedef struct cusolverDnContext* cusolverDnHandle_t;
