"""The process that imports a solution and writes down what it would build, without building it.

torch's own load_inline and load run as they are, up to the point where a compiler would be started:
there the sources they composed are recorded. So a call that torch would refuse is refused here, in
torch's words, and the recorded files are those that torch would compile.

The solution's code runs here, contained as far as this machine can, and could forge the reply: it
would fool `kernelgen build`, which informs, and not `kernelgen grade`, which judges.
"""

import ctypes
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kernelgen.build.recipe import Recipe, read_recipe
from kernelgen.build.source import (
    CaptureFailure,
    CaptureReply,
    CaptureRequest,
    ExtensionSource,
    GeneratedFile,
    Phase,
    TorchFlags,
)
from kernelgen.build.torch_build import settle_builds, skip_precompiling
from kernelgen.child_python import reply_stream
from kernelgen.sandbox.launch import enter_and_tell
from kernelgen.solution.file import read_solution
from kernelgen.solution.importing import import_file


class StandIn:
    """A stand-in for a recorded build's result: it may be called and asked for anything."""

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
                files=tuple(_read(path, inline=inline) for path in paths),
                functions=self._functions if inline else (),
                extra_cflags=tuple(given.get("extra_cflags") or ()),
                extra_cuda_cflags=tuple(given.get("extra_cuda_cflags") or ()),
                extra_include_paths=tuple(map(str, given.get("extra_include_paths") or ())),
            )
        )
        self._functions = ()
        return StandIn() if given.get("is_python_module", True) else StandInPath("not-built.so")


class RecipeRecorder:
    """Takes the place of the step of torch.utils.cpp_extension that starts ninja."""

    def __init__(self, cpp_extension: ModuleType) -> None:
        self.recipes: list[Recipe] = []
        self.all_told = True
        cpp_extension._run_ninja_build = self.record  # type: ignore[attr-defined] # noqa: SLF001
        name = "_import_module_from_library"
        setattr(cpp_extension, name, lambda *given: StandIn() if given[2] else StandInPath())

    def record(self, build_directory: str, *_args: object, **_kwargs: object) -> None:
        """Record one extension; same parameters as torch's `_run_ninja_build`."""
        recipe = read_recipe(Path(build_directory))
        if recipe is None:
            self.all_told = False
        else:
            self.recipes.append(recipe)


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


def torch_flags(cpp_extension: ModuleType) -> TorchFlags:
    """Return what this torch gives to compilers; the C++ standard is read from its source."""
    import sysconfig

    import torch

    writer = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)  # noqa: SLF001
    match = re.search(r"-std=(c\+\+\d+)", writer)
    if match is None:
        raise RuntimeError(f"torch {torch.__version__} does not say which C++ standard it uses")
    python = sysconfig.get_path("include", scheme="posix_prefix")
    return TorchFlags(
        standard=match.group(1),
        system_includes=(*cpp_extension.include_paths("cpu"), python),
        nvcc_flags=tuple(cpp_extension.COMMON_NVCC_FLAGS),
    )


def run_solution(request: CaptureRequest, recorded: Callable[[], bool]) -> None:
    """Import the solution, construct ModelNew, and call it on shapes alone if nothing was built.

    An exception passes, with the phase in its attribute `phase`.
    """
    import torch

    phase: Phase = "import"
    try:
        path = Path(request.solution)
        module = import_file("candidate", path, read_solution(path).text, lent=request.lent)
        phase = "constructor"
        reference = _reference(request, module)
        init_inputs = _call(reference, "get_init_inputs")
        model = module.ModelNew(*init_inputs)
        if not recorded():
            phase = "forward"
            with torch.device("meta"):
                inputs = _call(reference, "get_inputs")
            model.to("meta")(*inputs)
    except BaseException as error:
        error.phase = phase  # type: ignore[attr-defined]
        raise


def _reference(request: CaptureRequest, candidate: ModuleType) -> ModuleType:
    if request.reference_source is None:
        return candidate
    path = Path(request.scratch) / "kernelgen_reference.py"
    path.write_text(request.reference_source)
    return import_file("kernelgen_reference", path)


def _call(module: ModuleType, name: str) -> list[object]:
    function = getattr(module, name, None)
    return list(function()) if function is not None else []


def _failure(error: BaseException, solution: str, *, in_build: bool = False) -> CaptureFailure:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == solution
    ]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == solution:
        line = error.lineno
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return CaptureFailure(
        phase=getattr(error, "phase", "import"),
        type=type(error).__name__,
        message=message,
        line=line,
        in_build=in_build,
    )


def _refused_by_torch(error: BaseException, cpp_extension: ModuleType) -> bool:
    # A call that does not fit load_inline's signature fails in the recorder's frame, any other
    # refusal inside torch's file.
    return any(
        frame.filename == cpp_extension.__file__
        or (frame.filename == __file__ and frame.name == Recorder.load_inline.__name__)
        for frame in traceback.extract_tb(error.__traceback__)
    )


def capture(request: CaptureRequest) -> CaptureReply:
    """Return what the solution builds, or why it does not come that far."""
    # The solution's own files may not be confused with those of an earlier run.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(request.scratch) / "extensions")
    from torch.utils import cpp_extension

    tolerate_stand_in_paths()
    if request.capability is not None:
        _pretend_a_gpu(request.capability)
    skip_precompiling(cpp_extension)
    if request.recipes:
        return _capture_recipes(request, cpp_extension)
    flags = torch_flags(cpp_extension)
    recorder = Recorder(cpp_extension)
    failure: CaptureFailure | None = None
    try:
        run_solution(request, lambda: bool(recorder.extensions))
    except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever it was is reported
        # A stand-in cannot compute: once a build was recorded, what fails later says nothing.
        in_build = _refused_by_torch(error, cpp_extension)
        if not recorder.extensions or in_build:
            failure = _failure(error, request.solution, in_build=in_build)
    return CaptureReply(flags=flags, extensions=tuple(recorder.extensions), failure=failure)


def _pretend_a_gpu(capability: tuple[int, int]) -> None:
    """Let files build that ask first whether there is a GPU, and which: here is none."""
    import torch

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *_: capability


def _capture_recipes(request: CaptureRequest, cpp_extension: ModuleType) -> CaptureReply:
    settle_builds(request.capability)
    recorder = RecipeRecorder(cpp_extension)
    failure: CaptureFailure | None = None
    try:
        run_solution(request, lambda: bool(recorder.recipes))
    except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever it was is reported
        failure = _failure(error, request.solution)
    flags = torch_flags(cpp_extension)
    recipes = tuple(recorder.recipes)
    return CaptureReply(flags=flags, recipes=recipes, all_told=recorder.all_told, failure=failure)


def main() -> None:
    """Read a request from the file named by argv[1], write the reply as a line to stdout."""
    asked = Path(sys.argv[1])
    request = msgspec.json.decode(asked.read_bytes(), type=CaptureRequest)
    asked.unlink()
    os.chdir(request.scratch)
    with reply_stream() as out:
        # Modules loaded before are what the walls are made around; the package is out of sight
        # after.
        from torch.utils import cpp_extension  # noqa: F401

        enter_and_tell(request.plan, request.solution)
        out.write(msgspec.json.encode(capture(request)) + b"\n")
