"""Builds that a solution asks for: the records that capture and compilation share."""

from typing import Literal

import msgspec

from kernelgen.build.recipe import Recipe
from kernelgen.sandbox.record import Plan

MOST_EXTENSIONS = 64
TOO_MANY = f"more than {MOST_EXTENSIONS} extensions are built; put more functions into each"

Phase = Literal["import", "constructor", "forward"]
"""How far a solution came."""


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
    """Arguments that this torch passes to the compilers of an extension.

    Attributes:
        standard: of C++, such as `c++20`.
        system_includes: torch's and Python's header folders.
        nvcc_flags: common to every CUDA source.
    """

    standard: str
    system_includes: tuple[str, ...]
    nvcc_flags: tuple[str, ...]


class CaptureFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a solution does not reach the point where it builds.

    Attributes:
        phase: in which it failed.
        type: of the exception.
        in_build: it came out of torch.utils.cpp_extension, or from the call of it.
        line: the last line of the solution's own file that was running, or None.
    """

    phase: Phase
    type: str
    message: str
    line: int | None = None
    in_build: bool = False


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the capturing process; paths are absolute.

    Attributes:
        reference_source: what of it makes arguments and inputs; None uses the solution's own.
        recipes: wanted are the recipes of a build; else the sources of the extensions.
        lent: source of what the reference lends to the solution.
        capability: of the GPU that the solution finds, such as (9, 0), or None for the CPU.
    """

    solution: str
    reference_source: str | None
    scratch: str
    plan: Plan
    recipes: bool = False
    lent: str = ""
    capability: tuple[int, int] | None = None


class CaptureReply(msgspec.Struct, frozen=True, kw_only=True):
    """The capturing process's answer.

    Attributes:
        all_told: nothing is built but from these recipes.
        failure: None if all of it ran, whether it has built something or not.
    """

    flags: TorchFlags
    extensions: tuple[ExtensionSource, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    all_told: bool = True
    failure: CaptureFailure | None = None
