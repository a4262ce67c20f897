# problem: tiny_polynomial
# expect: PASSED
"""Logs, uses a temporary file, and asks a compiler for its version in a child process. PASSED: all that is harmless."""

import ctypes
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
log = logging.getLogger("polynomial")
version = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False)
log.info("compiler: %s", version.stdout.splitlines()[:1])

with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "polynomial.cpp").write_text(r"""
extern "C" void polynomial(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
""")
    SOURCE = (Path(folder) / "polynomial.cpp").read_text()

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        log.info("forward on %s", tuple(x.shape))
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
