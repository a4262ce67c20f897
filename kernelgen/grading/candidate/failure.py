"""An exception of the candidate's as a record: by phase and type, never by reading its message."""

import ast
import traceback
from pathlib import Path

from kernelgen.errors import line_in
from kernelgen.grading.wire.device_errors import is_out_of_memory
from kernelgen.grading.wire.messages import CandidateFailed

_MESSAGE_LIMIT = 200_000
_NAME_LIMIT = 1000
# Of an endless recursion's frames; the innermost say the most.
_FRAME_LIMIT = 50
_GENERATED_LIMIT = 400_000
_BUILD_CALLS = ("load_inline", "load")
_EXTENSION_MODULE = "cpp_extension.py"


def describe_failure(
    error: BaseException, phase: str, path: Path, scratch: Path
) -> CandidateFailed:
    """Turn an exception of a phase into a record; extensions are built below `scratch`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == str(path)]
    line = line_in(error, str(path))
    in_build = _raised_in_build(error, path, line)
    return CandidateFailed(
        phase=phase,
        type_name=_text(type(error).__name__)[:_NAME_LIMIT],
        message=_tail(_with_causes(error)),
        line=line,
        in_build=in_build,
        out_of_memory=is_out_of_memory(error),
        trace=tuple(
            _text(f"line {f.lineno}, in {f.name}: {f.line}")[:_NAME_LIMIT]
            for f in own[-_FRAME_LIMIT:]
        ),
        generated=_generated(scratch) if in_build else {},
    )


def _with_causes(error: BaseException) -> str:
    """Return the message, followed by those of the exceptions that led to it."""
    texts = [_text(error)]
    seen = {id(error)}
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        texts.append(f"caused by {type(cause).__name__}: {_text(cause)}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(texts)


def _text(value: object) -> str:
    """Return str(value) as something that can be sent, whatever its class makes of it."""
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001 (an exception's own __str__ may raise anything)
        return f"(its message cannot be read: {type(error).__name__})"
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _tail(text: str) -> str:
    # Compilers print what matters first and pages of notes after it.
    return text if len(text) <= _MESSAGE_LIMIT else text[:_MESSAGE_LIMIT] + "\n[cut]"


def _raised_in_build(error: BaseException, path: Path, line: int | None) -> bool:
    """Whether the exception came out of torch's extension builder, or from calling it wrongly."""
    frames = traceback.walk_tb(error.__traceback__)
    if any(Path(frame.f_code.co_filename).name == _EXTENSION_MODULE for frame, _ in frames):
        return True
    return isinstance(error, TypeError) and line is not None and _calls_builder(path, line)


def _calls_builder(path: Path, line: int) -> bool:
    """Whether the statement at this line calls load_inline or load."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    here = [call for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]
    # An attribute has `attr`, a name has `id`.
    names = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in here}
    return not names.isdisjoint(_BUILD_CALLS)


def _generated(scratch: Path) -> dict[str, str]:
    """Return the sources that torch wrote for the failed build, by file name."""
    found: dict[str, str] = {}
    for name in ("main.cpp", "cuda.cu"):
        newest = sorted(scratch.rglob(name), key=lambda file: file.stat().st_mtime)
        if newest:
            text = newest[-1].read_text(encoding="utf-8", errors="replace")
            found[name] = text[:_GENERATED_LIMIT]
    return found
