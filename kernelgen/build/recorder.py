"""What stands in for torch's compiling and loading while a solution is only looked at."""

import ctypes
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelgen.build.source import ExtensionSource, GeneratedFile


class StandIn:
    """What a recorded build returns: it may be called and asked for anything."""

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __getitem__(self, key: object) -> "StandIn":
        return StandIn()

    def __call__(self, *_args: object, **_kwargs: object) -> "StandIn":
        """Answer any call, as the function of a library would."""
        return StandIn()


class StandInPath(str):
    """The path of a library that was not built; the loaders below answer it with a StandIn."""

    __slots__ = ()


class Recorder:
    """Takes the place of the step of torch.utils.cpp_extension that compiles and loads."""

    def __init__(self, cpp_extension: ModuleType) -> None:
        self.extensions: list[ExtensionSource] = []
        self._functions: tuple[str, ...] = ()
        self._signature = inspect.signature(cpp_extension._jit_compile)  # noqa: SLF001
        self._inline = cpp_extension.load_inline
        cpp_extension._jit_compile = self.record  # type: ignore[attr-defined] # noqa: SLF001
        cpp_extension.load_inline = self.load_inline  # type: ignore[attr-defined]
        # Compiling torch's headers ahead of time is of no use when nothing is compiled.
        name = "_check_and_build_extension_h_precompiler_headers"
        setattr(cpp_extension, name, lambda *_args, **_kwargs: None)

    def load_inline(self, *args: Any, **kwargs: Any) -> object:
        """Note the names to bind, which torch only passes on as C++ text, and call torch."""
        try:
            given = inspect.signature(self._inline).bind(*args, **kwargs).arguments
        except TypeError:
            given = {}
        functions = given.get("functions")
        if isinstance(functions, str):
            functions = [functions]
        # Anything else is refused by torch, whose words say it best.
        names = functions if isinstance(functions, (list, dict)) else ()
        self._functions = tuple(map(str, names))
        return self._inline(*args, **kwargs)

    def record(self, *args: Any, **kwargs: Any) -> object:
        """Record one extension; same parameters as torch's `_jit_compile`."""
        given = self._signature.bind(*args, **kwargs).arguments
        paths = [Path(source) for source in given["sources"]]
        # load_inline writes its sources itself and always calls the first one main.cpp.
        inline = bool(paths) and paths[0].parent == Path(given["build_directory"])
        self.extensions.append(
            ExtensionSource(
                name=given["name"],
                kind="inline" if inline else "files",
                files=tuple(_read(path, inline=inline) for path in paths),
                functions=self._functions if inline else (),
                extra_cflags=tuple(given.get("extra_cflags") or ()),
                extra_cuda_cflags=tuple(given.get("extra_cuda_cflags") or ()),
                extra_include_paths=tuple(map(str, given.get("extra_include_paths") or ())),
            )
        )
        self._functions = ()
        return StandIn() if given.get("is_python_module", True) else StandInPath("not-built.so")


def _read(path: Path, *, inline: bool) -> GeneratedFile:
    folder = None if inline else str(path.parent.resolve())
    return GeneratedFile(filename=path.name, text=path.read_text(), folder=folder)


def tolerate_stand_in_paths() -> None:
    """Let the usual ways to open a library answer a StandInPath with a StandIn."""
    import torch

    def tolerant(real: Callable[..., object]) -> Callable[..., object]:
        def load(name: object, *args: object, **kwargs: object) -> object:
            return StandIn() if isinstance(name, StandInPath) else real(name, *args, **kwargs)

        return load

    for owner, name in (
        (ctypes, "CDLL"),
        (ctypes, "PyDLL"),
        (ctypes.cdll, "LoadLibrary"),
        (torch.ops, "load_library"),
    ):
        setattr(owner, name, tolerant(getattr(owner, name)))
