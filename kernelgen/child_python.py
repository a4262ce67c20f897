"""Python processes of kernelgen's own: what they are started with, and where they find modules."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

# Variables that would make one precision's matrix products into another's, from outside.
WEAKENING = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")


def start_code(module: str, call: str) -> str:
    """Return the text for `python -c` that makes a call, such as `run()`, of a module's function.

    With -c, Python looks for modules in the present folder first: a `torch.py` or a `cuda.py` that
    lies there would run in a trusted process. The empty entry, which PYTHONSAFEPATH leaves out, is
    that folder.
    """
    function = call.partition("(")[0]
    return (
        "import sys; sys.path = [entry for entry in sys.path if entry]; "
        f"from {module} import {function}; {call}"
    )


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `main()` of a module of ours, which reads `sys.argv`.

    Not `python -m`: that looks in the present folder first, which may be a checkout of another
    kernelgen. The process needs the PYTHONPATH of `python_path`.
    """
    return [sys.executable, "-c", start_code(module, "main()"), *arguments]


def python_path(environment: Mapping[str, str]) -> str:
    """Return a PYTHONPATH that finds this very kernelgen from any folder, installed or not."""
    named = environment.get("PYTHONPATH", "").split(os.pathsep)
    entries = [str(Path(entry).resolve()) for entry in named if entry]
    return os.pathsep.join(dict.fromkeys([*entries, str(Path(__file__).resolve().parents[1])]))


def own_environment() -> dict[str, str]:
    """Return this process's environment for a process that runs no candidate."""
    kept = {name: text for name, text in os.environ.items() if name not in WEAKENING}
    return {**kept, "PYTHONPATH": python_path(os.environ)}


def said_by(command: Sequence[str], timeout_s: float, **how: Any) -> bytes:
    """Return what a command that reads nothing writes to standard output.

    Args:
        command: its words.
        timeout_s: after it, it is killed.
        how: environment, folder and standard error, as `subprocess.run` takes them.

    Raises:
        OSError: it cannot be started.
        SubprocessError: it fails, or is killed.
    """
    how |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    said: bytes = subprocess.run(command, check=True, timeout=timeout_s, **how).stdout
    return said


@contextlib.contextmanager
def reply_stream() -> Iterator[BinaryIO]:
    """Yield this process's standard output, for records alone, and end the process after that.

    Whatever else is printed goes to standard error. Threads and exit hooks have no say any more,
    and the interpreter's own ending, which takes torch most of a second, is left out.
    """
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        yield out
    os._exit(0)
