# problem: tiny_lending
# expect: RUNTIME_ERROR
# reason: no reference within reach
# exploit: H09
"""Looks for the reference's Model from what is lent to it, and calls it: in any problem alike.

It looks through all modules, the globals of a lent function, what the collector knows, and the
sources that Python keeps. RUNTIME_ERROR: none of them leads there.
"""

import ctypes
import gc
import linecache
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


def found():
    modules = [vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    known = [one for one in gc.get_objects() if isinstance(one, dict)]
    for names in [get_inputs.__globals__, *modules, *known]:
        if isinstance(names.get("Model"), type):
            return names["Model"]
    for cls in nn.Module.__subclasses__():
        if cls.__name__ == "Model":
            return cls
    for entry in list(linecache.cache.values()):
        if len(entry) > 1 and any(line.startswith("class Mod" "el(") for line in entry[2]):
            names = {}
            exec("".join(entry[2]), names)
            return names["Model"]
    raise LookupError("no reference within reach")


class ModelNew(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.model = found()(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.model(x).contiguous()
        y = torch.empty_like(result)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (result, y)]
        library.copy(*pointers, ctypes.c_long(y.numel()))
        return y
