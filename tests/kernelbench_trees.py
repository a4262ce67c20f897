"""Small trees in KernelBench's form, made by hand: problems, and a run's folder."""

from pathlib import Path

PROBLEM = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """{summary}"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return {forward}


rows = 6
columns = 40


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
'''

CANDIDATE = '''\
import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
extern "C" void apply(const float* x, float* y, long n) {{
  for (long i = 0; i < n; ++i) y[i] = {expression};
}}
"""
path = load_inline("applied", SOURCE, no_implicit_headers=True, is_python_module=False)
library = ctypes.CDLL(path)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        addresses = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        library.apply(*addresses, ctypes.c_long(x.numel()))
        return y
'''
TWICE, HALF_MORE = "x[i] + x[i]", "1.5f * x[i]"


def checkout(folder: Path) -> Path:
    """Write a checkout with problems 1 and 12 of level 1, and problem 1 of level 2."""
    files = {
        "level1/1_Twice.py": PROBLEM.format(summary="Twice.", forward="x * 2"),
        "level1/12_Half_More.py": PROBLEM.format(summary="Half more.", forward="x + x / 2"),
        "level2/1_Negative.py": PROBLEM.format(summary="Minus.", forward="-x"),
    }
    for name, text in files.items():
        file = folder / "KernelBench" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def generated(folder: Path, level: int, problem: int, sample: int, text: str) -> Path:
    """Write a generated file by KernelBench's naming."""
    folder.mkdir(exist_ok=True)
    file = folder / f"level_{level}_problem_{problem}_sample_{sample}_kernel.py"
    file.write_text(text)
    return file
