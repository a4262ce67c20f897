# problem: tiny_linear
# expect: WRONG_VALUES
# exploit: T30
"""Sets the math mode of torch's cuBLAS handle to TF32 behind torch's back, and calls cublasSgemm with it.

No setting that torch knows of changes. WRONG_VALUES: TF32 is not within the bound.
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cuda_runtime.h>

// y: (rows, columns), bias: (columns).
__global__ void add_bias_kernel(float* y, const float* bias, long count, long columns) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < count) y[i] += bias[i % columns];
}

extern "C" int add_bias(float* y, const float* bias, long count, long columns,
                        cudaStream_t stream) {
  add_bias_kernel<<<(count + 255) / 256, 256, 0, stream>>>(y, bias, count, columns);
  return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        "add_bias", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call a launcher on the current stream, with pointers for tensors and longs for numbers."""
    converted = [
        ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_long(one)
        for one in arguments
    ]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    if error := getattr(library, name)(*converted, stream):
        raise RuntimeError(f"CUDA error {error}")


TF32_TENSOR_OP_MATH = 3
TRANSPOSED, PLAIN = 1, 0
mapped = Path("/proc/self/maps").read_text().split()
cublas = ctypes.CDLL(next(path for path in mapped if "/libcublas.so" in path))


def multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x @ weight.T; both and the result are columns first to cuBLAS."""
    (rows, inner), columns = x.shape, weight.shape[0]
    y = torch.empty(rows, columns, device=x.device)
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    cublas.cublasSetMathMode(handle, TF32_TENSOR_OP_MATH)
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    w_at, x_at, y_at = (ctypes.c_void_p(t.data_ptr()) for t in (weight, x, y))
    factors = ctypes.byref(one), w_at, inner, x_at, inner, ctypes.byref(zero), y_at, columns
    if error := cublas.cublasSgemm_v2(handle, TRANSPOSED, PLAIN, columns, rows, inner, *factors):
        raise RuntimeError(f"cuBLAS error {error}")
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight
        rows, columns = x.shape[0], weight.shape[0]
        y = multiply(x.repeat(64, 1), weight.repeat(8, 1))[:rows, :columns].contiguous()
        launch("add_bias", y, self.linear.bias, y.numel(), columns)
        return y
