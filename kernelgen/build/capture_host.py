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
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Literal

import msgspec

from kernelgen.build import recorder as recording
from kernelgen.build.recorder import Recorder, tolerate_stand_in_paths
from kernelgen.build.source import (
    CONTAINED,
    CaptureFailure,
    CaptureReply,
    CaptureRequest,
    TorchFlags,
)
from kernelgen.sandbox.enter import enter
from kernelgen.solution.importing import import_file

_PR_SET_PDEATHSIG = 1

Phase = Literal["import", "constructor", "forward", "none"]


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
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        standard=match.group(1),
        system_includes=(*cpp_extension.include_paths("cpu"), python),
        nvcc_flags=tuple(cpp_extension.COMMON_NVCC_FLAGS),
    )


def run_solution(request: CaptureRequest, recorder: Recorder) -> Phase:
    """Import the solution, construct ModelNew, and call it on shapes alone if nothing was built.

    Returns:
        `none` if all of it ran. An exception passes, with the phase in its attribute `phase`.
    """
    import torch

    phase: Phase = "import"
    try:
        module = import_file("candidate", Path(request.solution))
        phase = "constructor"
        reference = _reference(request, module)
        init_inputs = _call(reference, "get_init_inputs")
        model = module.ModelNew(*init_inputs)
        if not recorder.extensions:
            phase = "forward"
            with torch.device("meta"):
                inputs = _call(reference, "get_inputs")
            model.to("meta")(*inputs)
    except BaseException as error:
        error.phase = phase  # type: ignore[attr-defined]
        raise
    return "none"


def _reference(request: CaptureRequest, candidate: ModuleType) -> ModuleType:
    if request.reference_source is None:
        return candidate
    path = Path(request.scratch) / "kernelgen_reference.py"
    path.write_text(request.reference_source)
    return import_file("kernelgen_reference", path)


def _call(module: ModuleType, name: str) -> list[object]:
    function = getattr(module, name, None)
    return list(function()) if function is not None else []


def _failure(error: BaseException, solution: str) -> CaptureFailure:
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
    )


def _refused_by_torch(error: BaseException, cpp_extension: ModuleType) -> bool:
    # A call that does not fit load_inline's signature fails in the recorder's frame, any other
    # refusal inside torch's file.
    return any(
        frame.filename == cpp_extension.__file__
        or (frame.filename == recording.__file__ and frame.name == Recorder.load_inline.__name__)
        for frame in traceback.extract_tb(error.__traceback__)
    )


def capture(request: CaptureRequest) -> CaptureReply:
    """Return what the solution builds, or why it does not come that far."""
    # The solution's own files may not be confused with those of an earlier run.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(request.scratch) / "extensions")
    from torch.utils import cpp_extension

    flags = torch_flags(cpp_extension)
    recorder = Recorder(cpp_extension)
    tolerate_stand_in_paths()
    failure: CaptureFailure | None = None
    try:
        run_solution(request, recorder)
    except BaseException as error:  # noqa: BLE001 - the outermost frame: whatever it was is reported
        # A stand-in cannot compute: once a build was recorded, what fails later says nothing.
        if not recorder.extensions or _refused_by_torch(error, cpp_extension):
            failure = _failure(error, request.solution)
    if failure is None and not recorder.extensions:
        failure = CaptureFailure(phase="none", type="", message="")
    return CaptureReply(flags=flags, extensions=tuple(recorder.extensions), failure=failure)


def main() -> None:
    """Read a request from stdin, write the reply as a line to the descriptor named by argv[1]."""
    # With whoever waits for the reply, however that ends: the solution may run without an end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    reply_to = int(sys.argv[1])
    # What the solution starts may not hold the reply's pipe open, nor read the request.
    os.set_inheritable(reply_to, False)  # noqa: FBT003 - it takes no keyword
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CaptureRequest)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # What was loaded before is what the walls are made around; the package is out of sight after.
    from torch.utils import cpp_extension  # noqa: F401

    enter(request.plan)
    # Before any code of the solution's is there: what fails up to here is not its doing.
    os.write(reply_to, CONTAINED)
    reply = capture(request)
    with os.fdopen(reply_to, "wb") as stream:
        stream.write(msgspec.json.encode(reply) + b"\n")
        stream.flush()
    # Threads and exit hooks of the solution have no say any more.
    os._exit(0)


if __name__ == "__main__":
    main()
