"""The process that imports a solution and writes down what it would build, without building it.

torch's own load_inline and load run as they are, up to the point where ninja would be started:
there the recipe that they wrote is recorded. So a call that torch would refuse is refused here, in
torch's words, and the recorded files are those that torch would compile.

The solution's code runs here, contained as far as this machine can, and could forge the reply: it
would fool `kernelgen build`, which informs, and not `kernelgen grade`, which judges.
"""

import ctypes
import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from kernelgen.build.recipe import Recipe, read_recipe
from kernelgen.build.source import CaptureFailure, CaptureReply, CaptureRequest, Phase
from kernelgen.build.torch_build import settle_builds, skip_precompiling
from kernelgen.errors import line_in
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
    """Takes the place of the steps of torch.utils.cpp_extension that start ninja and load."""

    def __init__(self, cpp_extension: ModuleType) -> None:
        self.recipes: list[Recipe] = []
        instead = {
            "_run_ninja_build": self.record,
            "_import_module_from_library": _stand_in,
            "load_inline": _passing_on(cpp_extension.load_inline),
            "load": _passing_on(cpp_extension.load),
        }
        for name, function in instead.items():
            setattr(cpp_extension, name, function)

    def record(self, build_directory: str, *_args: object, **_kwargs: object) -> None:
        """Record one extension; same parameters as torch's `_run_ninja_build`."""
        self.recipes.append(read_recipe(Path(build_directory)))


def _stand_in(_name: str, _folder: str, is_python_module: bool) -> object:  # noqa: FBT001
    return StandIn() if is_python_module else StandInPath("not-built.so")


def _passing_on(real: Callable[..., object]) -> Callable[..., object]:
    """Return a function of torch's within a frame of ours, which tells that a call does not fit."""

    @functools.wraps(real)
    def pass_on(*args: object, **kwargs: object) -> object:
        return real(*args, **kwargs)

    return pass_on


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
        model = module.ModelNew(*_call(reference, "get_init_inputs"))
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


def _refused_by_torch(error: BaseException, cpp_extension: ModuleType) -> bool:
    # A call that does not fit a function's signature fails in the recorder's frame, any other
    # refusal inside torch's file.
    return any(
        frame.filename == cpp_extension.__file__
        or (frame.filename == __file__ and frame.name == "pass_on")
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
    if request.anywhere:
        _pretend_a_toolchain(cpp_extension)
    else:
        settle_builds(request.capability)
    recorder = Recorder(cpp_extension)
    failure: CaptureFailure | None = None
    try:
        run_solution(request, lambda: bool(recorder.recipes))
    except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever it was is reported
        # A stand-in cannot compute: once a build was recorded, what fails later says nothing.
        in_build = _refused_by_torch(error, cpp_extension)
        if not recorder.recipes or in_build:
            failure = CaptureFailure(
                phase=getattr(error, "phase", "import"),
                type=type(error).__name__,
                message=error.msg if isinstance(error, SyntaxError) else str(error),
                line=line_in(error, request.solution),
                in_build=in_build,
            )
    return CaptureReply(recipes=tuple(recorder.recipes), failure=failure)


def _pretend_a_gpu(capability: tuple[int, int]) -> None:
    """Let files build that ask first whether there is a GPU, and which: here is none."""
    import torch

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda *_: capability


def _pretend_a_toolchain(cpp_extension: ModuleType) -> None:
    """Have torch write builds down that it could not start here, without targets."""
    os.environ["TORCH_DONT_CHECK_COMPILER_ABI"] = "1"
    # A torch without CUDA looks for no toolkit.
    home = cpp_extension.CUDA_HOME or os.environ.get("CUDA_HOME", "/usr/local/cuda")
    cpp_extension.CUDA_HOME = home  # type: ignore[attr-defined]
    cpp_extension.verify_ninja_availability = lambda: None  # type: ignore[attr-defined]
    cpp_extension._get_cuda_arch_flags = lambda *_: []  # type: ignore[attr-defined] # noqa: SLF001
