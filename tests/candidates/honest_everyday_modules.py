# problem: tiny_polynomial
# expect: PASSED
# time: true
"""Does what scripts do: logs, prints, warns, asks a compiler in a child, and reads its own file. PASSED: all harmless.

Its temporary files go to a folder of its own; it calls itself on inputs of its own seed and sizes; and its globals, named
like the problem's constants and set to 1, must not shrink the reference's inputs.
"""

import ctypes
import inspect
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

batch_size = 1
features = 1

tempfile.tempdir = os.path.abspath("temporary")
os.makedirs(tempfile.tempdir, exist_ok=True)
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
log = logging.getLogger("polynomial")
version = subprocess.run(["c++", "--version"], capture_output=True, text=True, check=False)
log.info("compiler: %s", version.stdout.splitlines()[:1])
print("imported")

KERNEL = r"""
#include <cstdio>
extern "C" void polynomial(const float* x, float* y, long count) {
  std::printf("%ld elements\n", count);
  for (long i = 0; i < count; ++i) y[i] = x[i] * x[i] + x[i];
}
"""


def source() -> str:
    text = Path(__file__).read_text(encoding="utf-8")
    assert inspect.getsource(source) in text
    return re.findall(r'^KERNEL = r"""(.*?)"""', text, re.DOTALL | re.MULTILINE)[0]


with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "polynomial.cpp").write_text(source())
    SOURCE = (Path(folder) / "polynomial.cpp").read_text()

library = ctypes.CDLL(
    load_inline("polynomial", SOURCE, no_implicit_headers=True, is_python_module=False)
)


def get_inputs() -> list[torch.Tensor]:
    torch.manual_seed(1234)
    return [torch.randn(2, 5)]


def get_init_inputs() -> list[object]:
    raise RuntimeError("nobody asks for it")


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self(*get_inputs())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("forward of", tuple(x.shape))
        log.info("forward on %s", tuple(x.shape))
        warnings.warn("a warning from forward")
        sys.stderr.write("to standard error\n")
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.polynomial(*pointers, ctypes.c_long(x.numel()))
        return y
