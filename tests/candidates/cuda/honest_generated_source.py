# problem: tiny_polynomial
# expect: PASSED
# time: true
"""CUDA that Python generates, names included: no kernel's name stands in the text. PASSED."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

WIDTH = 256
PARTS = {"multiplied": "x[i] * x[i]", "summed": "y[i] + x[i]"}
KERNEL = """
extern "C" __global__ void {name}_by_{width}(const float* x, float* y, long count) {{
  const long i = blockIdx.x * long({width}) + threadIdx.x;
  if (i < count) y[i] = {value};
}}
"""
LAUNCH = "{name}_by_{width}<<<(count + {width} - 1) / {width}, {width}, 0, stream>>>(x, y, count);"
kernels = [KERNEL.format(name=name, width=WIDTH, value=PARTS[name]) for name in PARTS]
launches = [LAUNCH.format(name=name, width=WIDTH) for name in PARTS]
SOURCE = f"""
#include <cuda_runtime.h>
{"".join(kernels)}
extern "C" int polynomial(const float* x, float* y, long count, cudaStream_t stream) {{
  {" ".join(launches)}
  return cudaGetLastError();
}}
"""

library = ctypes.CDLL(
    load_inline(
        "polynomial", "", SOURCE, with_cuda=True, no_implicit_headers=True, is_python_module=False
    )
)


def polynomial(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    if error := library.polynomial(*pointers, ctypes.c_long(x.numel()), stream):
        raise RuntimeError(f"CUDA error {error}")
    return y


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return polynomial(x)
