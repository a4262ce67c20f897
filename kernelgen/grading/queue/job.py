"""A file to be graded: as it is asked for (`Job`), and on its way through a crew (`Entry`).

And the key under which its verdict is found again (`key_of`): all that makes two gradings one.
"""

import contextlib
import functools
import platform
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any, Protocol

import msgspec

import kernelgen
from kernelgen.errors import ProblemError, UserError
from kernelgen.grading.options import GradeOptions, Observer, Phase
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.hardware.device import GpuSurvey, ask_driver, cpu_facts, has_gpu_driver
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem, digest
from kernelgen.problem.text import encodable
from kernelgen.solution.file import SolutionFile, read_solution

# Where builds are kept, and on which of the machine's GPUs a file is graded, changes no verdict.
_PLACES: dict[str, Any] = {"problem": None, "build_cache": None, "gpu": None}


def key_of(
    solution: SolutionFile,
    problem: Problem,
    options: GradeOptions,
    on: Sequence[str] | None = None,
) -> str:
    """Return the SHA-256 of all that a verdict depends on, in hexadecimal.

    These are the candidate's bytes, the problem, the options, this release of kernelgen to the
    letter, torch, Python, and the devices: those that `on` names, else this machine's.
    """
    rules = msgspec.structs.replace(options, **_PLACES)
    own = msgspec.structs.replace(options.applied_to(problem), path=Path())
    whole = (
        solution.sha256,
        own,
        rules,
        _grader(),
        tuple(on or devices()),
        _versions(options.allow_imports),
    )
    return digest(msgspec.json.encode(whole, enc_hook=str))


@functools.cache
def _grader() -> str:
    """Return the digest of the package's own source."""
    folder = Path(kernelgen.__file__).resolve().parent
    files = sorted(file for file in folder.rglob("*") if file.suffix in {".py", ".h"})
    return digest("".join(digest(file.read_bytes()) for file in files))


@functools.cache
def devices() -> tuple[str, ...]:
    """Name the CPU, and the GPUs with their driver's newest CUDA."""
    found = ask_driver() if has_gpu_driver() else GpuSurvey()
    newest = f"CUDA {found.version}" if found.devices else ""
    return (cpu_facts().name, *sorted({gpu.name for gpu in found.devices}), newest)


def release() -> dict[str, str]:
    """Return what two machines must have in common for one to grade for the other."""
    known = _versions(())
    return {
        "kernelgen": f"{known['kernelgen']} (source {_grader()[:12]})",
        "python": known["python"],
        "torch": known.get("imports", "none"),
    }


def versions(imports: Sequence[str] = ()) -> dict[str, Any]:
    """Return what of a run's environment is known before anything is graded.

    Args:
        imports: modules that solutions may import; the times of one that does are of its package's
            version, so it is named under `imports`, where it is installed as a package.
    """
    known = {"kernelgen": kernelgen.__version__, "python": platform.python_version()}
    if not imports:
        return known
    installed = packages_distributions()
    packages = dict.fromkeys(name for module in imports for name in installed.get(module, ()))
    named = ", ".join(f"{name} {version(name)}" for name in packages)
    return {**known, "imports": named} if named else known


@functools.cache
def _versions(imports: Sequence[str]) -> dict[str, Any]:
    return versions((*imports, "torch"))


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be graded.

    Attributes:
        path: of the file, or a name for it.
        data: its content; None reads the file when its turn comes.
        no_problem: why it cannot be graded, which is said where it would be; "" if it can.
        alone: nothing else may be graded meanwhile.
        labels: name -> value, which its verdict carries.
    """

    path: Path
    options: GradeOptions
    data: bytes | None = None
    no_problem: str = ""
    alone: bool = False
    labels: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the path as text, which records can carry."""
        return encodable(str(self.path))

    def read(self) -> SolutionFile:
        """Return the file; raises UserError as `read_solution` does."""
        return read_solution(self.path, self.data)

    def problem_of(self, solution: SolutionFile) -> Problem:
        """Return the problem that is asked for, else that of the file's header, else of its name.

        Raises:
            UserError: there is none, or it is wrong.
        """
        if self.no_problem:
            raise UserError(self.no_problem)
        try:
            return self.options.problem or load_problem(solution.problem_name, solution.path)
        except ProblemError:
            raise
        except UserError as error:
            raise UserError(
                f"{solution.path}: which problem it solves is unknown: {error}.\n"
                "Name it with --problem NAME or --reference FILE.py, by a YAML file of its name "
                "beside it, or in the file by a line `# problem: NAME` near its top"
            ) from error

    def fault(self, reason: str) -> Verdict:
        """Return the verdict where it could not be graded, by nobody's fault but the grader's."""
        problem = self.options.problem
        return Verdict(
            problem=problem.name if problem else "",
            solution=self.name,
            solution_sha256="",
            status=Status.GRADER_ERROR,
            owner=Owner.GRADER,
            reason=reason,
        )


class LaneStopped(Exception):  # noqa: N818 (an ending, not an error)
    """The lane was stopped: there is no verdict, and everything that it had started is ending."""


class LaneLost(Exception):  # noqa: N818 (nobody's mistake)
    """The lane has lost its means to grade: its file is graded elsewhere, or in another lane."""


class AnyLane(Protocol):
    """A grader of one file after another: a `Lane` of this machine, or one elsewhere."""

    environment: dict[str, Any]

    def grade_one(self, job: Job, number: int, phase: Phase, *, stop: threading.Event) -> Verdict:
        """Grade a file; raises LaneStopped as `Lane.grade_one` does, and LaneLost."""

    def cancel(self, stop: threading.Event) -> None:
        """End the file that was given this event."""

    def stop(self) -> None:
        """End what runs."""


class Entry(msgspec.Struct, kw_only=True, eq=False):
    """A job in the queue or at work.

    Attributes:
        observer: told of its phases and its verdict, by `index`.
        begins: called before each time that it is graded.
        number: that no other entry of its queue has.
        tried: GPUs on which it has failed by the grader's fault.
        unfit: those of them that fail without a candidate as well.
        fault: the verdict that it got there last.
        alone: nothing else may be graded on its GPU meanwhile.
        losses: lanes that were lost while they had it.
        lane: that has it.
        key: of its verdict in the journal; "" where the file cannot be read, or has no problem.
        sha256: of the content that the key is of.
        same: entries of the same key, which wait for this one's verdict.
        stop: set to end it.
    """

    job: Job
    observer: Observer | None = None
    index: int = 0
    begins: Callable[[], None] = lambda: None
    number: int = 0
    key: str = ""
    sha256: str = ""
    future: Future[Verdict] = msgspec.field(default_factory=Future)
    tried: set[str] = set()
    unfit: set[str] = set()
    fault: Verdict | None = None
    lane: AnyLane | None = None
    alone: bool = False
    losses: int = 0
    same: list["Entry"] = []
    stop: threading.Event = msgspec.field(default_factory=threading.Event)

    def find_key(self, devices: Sequence[str] | None) -> None:
        """Read the file and find its problem."""
        with contextlib.suppress(UserError):
            solution = self.job.read()
            problem = self.job.problem_of(solution)
            self.sha256 = solution.sha256
            self.key = key_of(solution, problem, self.job.options, devices)
