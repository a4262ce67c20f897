"""The supervisor: from paths to verdicts. It imports neither torch nor candidate code."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kernelgen
from kernelgen.errors import UserError
from kernelgen.grading.file_grading import FileGrading
from kernelgen.grading.launch import scratch_folder, worker_environment
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.verdict import SCHEMA_VERSION, Run, Verdict
from kernelgen.grading.workers import ForkServer
from kernelgen.sandbox.survey import require_namespaces


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
        ContainmentError: `options.sandbox` is `require`, and this machine has not all of it.
        Interrupted: by ^C, after everything that was started has been ended.
    """
    files = expand(paths)
    options = options or GradeOptions()
    observer = observer or _Silent()
    if options.sandbox == "require":
        require_namespaces()
    observer.begin([str(file) for file in files])
    verdicts: list[Verdict] = []
    environment: dict[str, Any] = {
        "kernelgen": kernelgen.__version__,
        "python": platform.python_version(),
    }

    def run() -> Run:
        return Run(schema=SCHEMA_VERSION, environment=environment, verdicts=tuple(verdicts))

    try:
        with scratch_folder() as scratch, _Servers(scratch) as servers:
            for index, file in enumerate(files):
                one = FileGrading(file, options, index, observer)
                verdict = one.verdict(servers.present(), scratch)
                environment |= one.environment
                verdicts.append(verdict)
                observer.finished(index, verdict)
    except KeyboardInterrupt:
        raise Interrupted(run()) from None
    return run()


class _Servers(contextlib.AbstractContextManager["_Servers"]):
    """The fork server of a run, and a new one where a candidate has ended it."""

    def __init__(self, scratch: Path) -> None:
        # Empty: `python -m` looks for modules in the folder that it is started in.
        self._folder = scratch / "start"
        self._folder.mkdir()
        self._server = ForkServer(worker_environment(), self._folder)

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def present(self) -> ForkServer:
        """Return a server that runs."""
        if not self._server.running:
            self._server.close()
            self._server = ForkServer(worker_environment(), self._folder)
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
