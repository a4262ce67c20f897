"""Programs that come with the CUDA toolkit beside its compiler, such as ncu."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelgen.build.toolchain import find_toolkit
from kernelgen.errors import ToolchainError

PLACES = "CUDA_HOME, CUDA_PATH, PATH, beside nvcc, /usr/local/cuda"
"""Where `find_cuda_tool` looks, for messages."""


def find_cuda_tool(name: str, base: Mapping[str, str] | None = None) -> Path | None:
    """Return a program from CUDA_HOME, CUDA_PATH, PATH, beside nvcc or /usr/local/cuda, or None."""
    for folder in folders(os.environ if base is None else base):
        found = shutil.which(name, path=folder)
        if found is not None:
            return Path(found)
    return None


def folders(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield where to look, each a folder or several in PATH's form."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environment.get(name):
            yield str(Path(environment[name]) / "bin")
    yield environment.get("PATH", os.defpath)
    with contextlib.suppress(ToolchainError):
        toolkit = find_toolkit(environment)
        yield str(toolkit.nvcc.parent)
        yield str(toolkit.nvcc.resolve().parent)
    yield "/usr/local/cuda/bin"
