"""The supervisor: from paths to verdicts. It imports neither torch nor candidate code."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kernelgen
from kernelgen.build.toolchain import child_environment
from kernelgen.errors import KernelgenFault, ProblemError, UserError
from kernelgen.grading.dry_build import build_without_device
from kernelgen.grading.evidence import Evidence
from kernelgen.grading.judged import Judged
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.session import Session
from kernelgen.grading.verdict import SCHEMA_VERSION, Owner, Run, Status, Verdict
from kernelgen.grading.workers import ForkServer
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import SolutionFile, read_solution

# With less than this, compilers fail in ways that look like errors in the source.
_LEAST_FREE_BYTES = 16 << 20

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
        with _scratch() as scratch, _fork_server(scratch) as server:
            for index, file in enumerate(files):
                one = _Grading(file, options, index, observer)
                verdict = one.verdict(server, scratch)
                environment |= one.environment
                verdicts.append(verdict)
                observer.finished(index, verdict)
    except KeyboardInterrupt:
        raise Interrupted(run()) from None
    return run()


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    # A candidate may leave files that cannot be removed; that is no reason to lose its verdict.
    with tempfile.TemporaryDirectory(prefix="kernelgen-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _fork_server(scratch: Path) -> ForkServer:
    start = scratch / "start"
    start.mkdir()
    return ForkServer(_worker_environment(), start)


def expand(paths: Sequence[Path | str]) -> list[Path]:
    """Return the files that paths mean, each once.

    Raises:
        UserError: a path does not exist, or a folder holds no solution.
    """
    files: dict[Path, None] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.glob("*.py") if file.is_file())
            if not inside:
                raise UserError(
                    f"{path}: holds no .py file; name a solution, or render one with "
                    "`kernelgen render NAME`"
                )
            files |= dict.fromkeys(inside)
        elif path.exists():
            files[path] = None
        else:
            raise UserError(f"{path}: no such file or folder")
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


class _Grading:
    """One file on its way to a verdict."""

    def __init__(self, path: Path, options: GradeOptions, index: int, observer: Observer) -> None:
        self._path, self._options = path, options
        self._index, self._observer = index, observer
        self._solution: SolutionFile | None = None
        self._problem: Problem | None = options.problem
        self._evidence = Evidence(expected=())
        self._notes: list[str] = []

    @property
    def environment(self) -> dict[str, str | int | bool | None]:
        """Facts about the device, once it was used."""
        return self._evidence.environment

    def verdict(self, server: ForkServer, scratch: Path) -> Verdict:
        """Grade the file, whatever happens."""
        try:
            solution = self._solution = _read(self._path)
            problem = self._problem = self._options.problem or _find_problem(solution)
            self._check_contract(solution, problem)
            self._run(solution, problem, server, scratch)
        except Judged as judged:
            judged = _excuse(judged, scratch)
            return self._make(judged.status, judged.owner, judged.reason)
        except KernelgenFault as fault:
            return self._make(Status.GRADER_ERROR, Owner.GRADER, str(fault))
        except Exception:  # noqa: BLE001 (one bad file never stops the others)
            return self._make(Status.GRADER_ERROR, Owner.GRADER, traceback.format_exc())
        return self._make(Status.PASSED, Owner.CANDIDATE, "")

    def _check_contract(self, solution: SolutionFile, problem: Problem) -> None:
        findings = check_contract(solution, problem, allow_imports=self._options.allow_imports)
        for finding in findings:
            place = solution.path if finding.line is None else f"{solution.path}:{finding.line}"
            if finding.severity == "warning":
                self._notes.append(f"{place}: {finding.message}")
        errors = [finding for finding in findings if finding.severity == "error"]
        if errors:
            lines = [
                f"{solution.path}{'' if error.line is None else f':{error.line}'}: {error.message}"
                for error in errors
            ]
            raise Judged(Status(errors[0].status), "\n".join(lines))

    def _run(
        self, solution: SolutionFile, problem: Problem, server: ForkServer, scratch: Path
    ) -> None:
        device: Device = solution.wants if self._options.device == "auto" else self._options.device
        session = Session(
            solution=solution,
            problem=problem,
            device=device,
            options=self._options,
            phase=lambda text: self._observer.phase(self._index, text),
        )
        self._evidence = session.evidence
        folder = scratch / str(self._index)
        folder.mkdir()
        if device == "cpu" and solution.wants == "cuda":
            raise Judged(
                Status.NO_DEVICE, "the file's source is CUDA and it was to be graded on the CPU"
            )
        try:
            session.run(server, folder)
        except Judged as judged:
            if judged.status is not Status.NO_DEVICE:
                raise
            self._observer.phase(self._index, "building, there is no GPU")
            build_without_device(solution, problem, judged.reason)

    def _make(self, status: Status, owner: Owner, reason: str) -> Verdict:
        solution, problem, evidence = self._solution, self._problem, self._evidence
        return Verdict(
            problem=problem.name if problem else "",
            solution=str(self._path),
            solution_sha256=solution.sha256 if solution else "",
            status=status,
            owner=owner,
            reason=reason,
            device=evidence.device,
            correctness=evidence.correctness(),
            timing=evidence.timing if status is Status.PASSED else None,
            build=evidence.build(),
            warnings=(*self._notes, *evidence.warnings),
            log=evidence.log,
        )


def _excuse(judged: Judged, scratch: Path) -> Judged:
    """Take the blame off a candidate whose compiler or process found no room on the disk."""
    free = shutil.disk_usage(scratch).free
    if judged.owner is not Owner.CANDIDATE or free > _LEAST_FREE_BYTES:
        return judged
    reason = (
        f"the disk of {scratch.parent} is full ({free >> 20} MiB free), which may be why: "
        f"{judged.reason}\nMake room, or set TMPDIR to a folder on another disk"
    )
    return Judged(Status.GRADER_ERROR, reason)


def _read(path: Path) -> SolutionFile:
    try:
        return read_solution(path)
    except UserError as error:
        raise Judged(Status.BROKEN_CONTRACT, str(error)) from error


def _find_problem(solution: SolutionFile) -> Problem:
    """Find the problem by the file's header, else by its name."""
    name = solution.declared_problem or solution.path.stem
    try:
        return load_problem(name)
    except ProblemError as error:
        raise Judged(Status.INVALID_PROBLEM, str(error)) from error
    except UserError as error:
        reason = (
            f"{solution.path}: which problem it solves is unknown: {error}.\n"
            "Name it with --problem NAME or --reference FILE.py, or in the file by a line "
            "`# problem: NAME` near its top"
        )
        raise Judged(Status.INVALID_PROBLEM, reason) from error
