"""The supervisor: from paths to verdicts. It imports neither torch nor candidate code."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kernelgen
from kernelgen.build.toolchain import child_environment
from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.file_grading import FileGrading
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.grading.workers import ForkServer

# glibc takes no larger one: what is larger than this is mapped anew in every process alike.
_LARGEST_MMAP_THRESHOLD_BYTES = 32 << 20


class Interrupted(KeyboardInterrupt):
    """The user interrupted grading; everything that was started has been ended.

    Attributes:
        run: the verdicts that were there by then.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


class _Silent:
    """An observer that tells nobody."""

    def begin(self, solutions: Sequence[str]) -> None:
        """Say nothing."""

    def phase(self, index: int, text: str) -> None:
        """Say nothing."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """Say nothing."""


def grade(
    paths: Sequence[Path | str],
    *,
    options: GradeOptions | None = None,
    observer: Observer | None = None,
) -> Run:
    """Grade solutions.

    Args:
        paths: files, or folders whose *.py files are meant (not those of their subfolders).
        options: what the run may do.
        observer: told what is going on.

    Returns:
        One verdict a file, in the order given. One bad file never stops the others.

    Raises:
        UserError: a path does not exist, or a folder holds no solution.
        KernelgenFault: the grader's own processes cannot be started.
        Interrupted: by ^C, after everything that was started has been ended.
    """
    files = expand(paths)
    options = options or GradeOptions()
    observer = observer or _Silent()
    observer.begin([str(file) for file in files])
    verdicts: list[Verdict] = []
    environment: dict[str, Any] = {
        "kernelgen": kernelgen.__version__,
        "python": platform.python_version(),
    }

    def run() -> Run:
        return Run(schema=SCHEMA_VERSION, environment=environment, verdicts=tuple(verdicts))

    try:
        with _scratch() as scratch, _Servers(scratch) as servers:
            for index, file in enumerate(files):
                one = FileGrading(file, options, index, observer)
                verdict = one.verdict(servers.present(), scratch)
                environment |= one.environment
                verdicts.append(verdict)
                observer.finished(index, verdict)
    except KeyboardInterrupt:
        raise Interrupted(run()) from None
    return run()


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    try:
        # A candidate may leave files that cannot be removed: no reason to lose its verdict.
        folder = tempfile.TemporaryDirectory(prefix="kernelgen-", ignore_cleanup_errors=True)
    except OSError as error:
        reason = "no folder for temporary files can be written; set TMPDIR to one that can"
        raise KernelgenFault(f"{reason} ({error.strerror})") from error
    with folder as name:
        yield Path(name)


class _Servers(contextlib.AbstractContextManager["_Servers"]):
    """The fork server of a run, and a new one where a candidate has ended it."""

    def __init__(self, scratch: Path) -> None:
        # Empty: `python -m` looks for modules in the folder that it is started in.
        self._folder = scratch / "start"
        self._folder.mkdir()
        self._server = ForkServer(_worker_environment(), self._folder)

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def present(self) -> ForkServer:
        """Return a server that runs."""
        if not self._server.running:
            self._server.close()
            self._server = ForkServer(_worker_environment(), self._folder)
        return self._server


def expand(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files that paths mean, each once.

    Raises:
        UserError: a path does not exist, or a folder holds no solution.
    """
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            # A link to nothing is listed as well: its verdict says that it cannot be read.
            inside = sorted(f for f in path.glob("*.py") if f.is_file() or f.is_symlink())
            if not inside:
                raise UserError(
                    f"{path}: holds no .py file; name a solution, or render one with "
                    "`kernelgen render NAME`"
                )
            files |= dict.fromkeys(inside)
        elif not path.exists():
            kind = "a link to nothing" if path.is_symlink() else "no such file or folder"
            raise UserError(f"{path}: {kind}")
        elif path.suffix != ".py":
            raise UserError(f"{path}: a solution is a *.py file")
        else:
            files[path] = None
    return list(files)


def _worker_environment() -> dict[str, str]:
    environment = child_environment(os.environ)
    # What would weaken the pins from outside.
    for name in ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"):
        environment.pop(name, None)
    environment["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    # Keep freed memory for the next call. Otherwise the C library's allocator gives large outputs
    # back to the kernel or not depending on the process's history, and page faults, which take
    # longer than the work, are timed in one process and not in the other.
    environment["MALLOC_MMAP_THRESHOLD_"] = str(_LARGEST_MMAP_THRESHOLD_BYTES)
    environment["MALLOC_TRIM_THRESHOLD_"] = str(1 << 40)
    return environment
