"""What a solution would build: the records that capture and compilation share."""

from typing import Literal

import msgspec

from kernelgen.build.recipe import Recipe
from kernelgen.sandbox.record import Plan

Phase = Literal["import", "constructor", "forward", "none"]
"""How far a solution came; `none` where all of it ran."""


class GeneratedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One source file as torch would hand it to a compiler.

    Attributes:
        filename: such as `main.cpp` or `cuda.cu`.
        folder: where a file given to `torch.utils.cpp_extension.load` lies; None for inline text.
    """

    filename: str
    text: str
    folder: str | None = None

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.filename.endswith((".cu", ".cuh"))


class ExtensionSource(msgspec.Struct, frozen=True, kw_only=True):
    """One extension that a solution asks torch to build.

    Attributes:
        functions: names that load_inline was told to bind, as the solution wrote them.
        extra_cflags, extra_cuda_cflags, extra_include_paths: as given.
    """

    name: str
    files: tuple[GeneratedFile, ...]
    functions: tuple[str, ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()


class TorchFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What this torch passes to the compilers of an extension.

    Attributes:
        cuda: the CUDA version that it was built with, or None for a CPU-only torch.
        standard: of C++, such as `c++20`.
        system_includes: torch's and Python's header folders.
        nvcc_flags: common to every CUDA source.
    """

    version: str
    cuda: str | None
    standard: str
    system_includes: tuple[str, ...]
    nvcc_flags: tuple[str, ...]


class CaptureFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a solution does not reach the point where it builds.

    Attributes:
        phase: in which it failed; `none` if all of it ran and built nothing.
        type: of the exception, or "".
        line: the last line of the solution's own file that was running, or None.
    """

    phase: Phase
    type: str
    message: str
    line: int | None = None


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What to build for; `capability` is a GPU's, such as (9, 0), or None for the CPU."""

    capability: tuple[int, int] | None


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the capturing process is asked; paths are absolute.

    Attributes:
        target: wanted are the recipes of a build for it; None asks for the sources instead.
    """

    solution: str
    reference_source: str | None
    scratch: str
    plan: Plan
    target: Target | None = None


class CaptureReply(msgspec.Struct, frozen=True, kw_only=True):
    """What the capturing process found.

    Attributes:
        all_told: nothing is built but from these recipes.
    """

    flags: TorchFlags
    extensions: tuple[ExtensionSource, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    all_told: bool = True
    failure: CaptureFailure | None = None
