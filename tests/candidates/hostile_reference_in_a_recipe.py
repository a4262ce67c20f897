# problem: tiny_polynomial
# expect: RUNTIME_ERROR
# reason: no reference within reach
# exploit: H09 H29
"""Finds the reference's source where it is asked what it builds, and sends it on in a library.

The process that tells what a file builds had the source, and the one that is timed got all that was
compiled from what the first told. RUNTIME_ERROR: the first has no source of Model.
"""

import ctypes
import gc
import sys

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void copy(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i];
}
"""
library = ctypes.CDLL(load_inline("copy", SOURCE, no_implicit_headers=True, is_python_module=False))


def texts():
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            for name in getattr(value, "__struct_fields__", ()):
                held = getattr(value, name)
                yield from held if isinstance(held, tuple) else (held,)
                yield getattr(held, "libraries", None)
        frame = frame.f_back
    yield from (one for one in gc.get_objects() if isinstance(one, dict))


source = next((t for t in texts() if isinstance(t, str) and "class Mod" "el(" in t), "")
if source:
    told = 'extern "C" const char told[] = "BEGIN' + source.encode().hex() + 'END";'
    load_inline("told", told, no_implicit_headers=True, is_python_module=False)
for held in list(texts()) if not source else ():
    for made in held.values() if isinstance(held, dict) else ():
        if isinstance(made, bytes) and b"BEGIN" in made:
            source = bytes.fromhex(made.split(b"BEGIN")[1].split(b"END")[0].decode()).decode()


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        if not source:
            raise LookupError("no reference within reach")
        names = {}
        exec(source, names)
        self.model = names["Model"]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.model(x).contiguous()
        y = torch.empty_like(result)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (result, y)]
        library.copy(*pointers, ctypes.c_long(y.numel()))
        return y
