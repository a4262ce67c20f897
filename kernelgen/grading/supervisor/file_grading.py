"""One file on its way to a verdict, whatever happens on that way."""

import contextlib
import os
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from kernelgen.build.nvcc import Tools
from kernelgen.build.solution_build import build_solution
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import KernelgenFault, ToolchainError, UserError
from kernelgen.grading.options import Phase
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.blame import excuse, full_disk_reason
from kernelgen.grading.supervisor.calls import Task
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.prebuilding import told_by_a_fork
from kernelgen.grading.supervisor.session import Session
from kernelgen.grading.supervisor.timing_lock import Displaced
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Judged, Owner, Status, Verdict
from kernelgen.problem.record import Device, Problem
from kernelgen.problem.text import encodable
from kernelgen.scratch import remove_tree
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import SolutionFile, read_bytes

# The oldest architecture that the project supports: what compiles for it compiles for newer ones,
# unless it says otherwise itself.
_DRY_ARCH = "sm_80"
# Of characters, some of which may be the candidate's; 200 findings take a part of it.
_LONGEST_REASON = 50_000


class FileGrading:
    """Grades one file: every failure becomes a verdict.

    Args:
        stop: set in another thread, it ends compilers; workers end with their server.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        phase: Phase,
        stop: threading.Event,
    ) -> None:
        self._job, self._options, self._stop = job, job.options, stop
        self._number, self._phase = number, phase
        self._solution: SolutionFile | None = None
        self._problem: Problem | None = job.options.problem
        self._evidence = Evidence(expected=())
        self._notes: list[str] = []

    @property
    def environment(self) -> dict[str, str | int | bool | None]:
        """Facts about the device, once it was used."""
        ready = self._evidence.ready
        return ready.environment if ready else {}

    def prepared(self) -> Job | Verdict:
        """Return the job with all that another machine needs; its verdict, if it has none there."""
        with contextlib.suppress(OSError):  # it is said where it is read
            if self._job.data is None:
                self._job = msgspec.structs.replace(self._job, data=read_bytes(self._job.path))
        try:
            _, problem = self._found()
        except Judged as judged:
            return self._make(judged.status, judged.owner, judged.reason)
        options = msgspec.structs.replace(self._options, problem=problem)
        return msgspec.structs.replace(self._job, options=options)

    def verdict(self, server: Callable[[], ForkServer], oracles: Oracles, scratch: Path) -> Verdict:
        """Grade the file in a new folder below `scratch`."""
        folder = scratch / str(self._number)
        try:
            folder.mkdir()
            solution, found = self._found()
            problem = self._problem = self._options.applied_to(found)
            self._check_contract(solution, problem)
            self._run(solution, problem, server(), oracles, folder)
        except Judged as judged:
            judged = excuse(judged, folder)
            return self._make(judged.status, judged.owner, judged.reason)
        except Displaced:
            raise
        except KernelgenFault as fault:
            return self._make(Status.GRADER_ERROR, Owner.GRADER, str(fault))
        except Exception as error:  # noqa: BLE001 (one bad file never stops the others)
            full = full_disk_reason(error, folder) if isinstance(error, OSError) else None
            reason = full or traceback.format_exc()
            return self._make(Status.GRADER_ERROR, Owner.GRADER, reason)
        finally:
            remove_tree(folder)
        return self._make(Status.PASSED, Owner.CANDIDATE, "")

    def _found(self) -> tuple[SolutionFile, Problem]:
        """Read the file and find its problem."""
        try:
            solution = self._solution = self._job.read()
        except UserError as error:
            raise Judged(Status.BROKEN_CONTRACT, str(error)) from error
        try:
            return solution, self._job.problem_of(solution)
        except UserError as error:
            raise Judged(Status.INVALID_PROBLEM, str(error)) from error

    def _check_contract(self, solution: SolutionFile, problem: Problem) -> None:
        findings = check_contract(solution, problem, allow_imports=self._options.allow_imports)
        errors: list[str] = []
        for finding in findings:
            told = errors if finding.severity == "error" else self._notes
            told.append(finding.at(solution.path))
        if errors:
            first = next(one for one in findings if one.severity == "error")
            raise Judged(Status(first.status), "\n".join(errors))

    def _run(
        self,
        solution: SolutionFile,
        problem: Problem,
        server: ForkServer,
        oracles: Oracles,
        folder: Path,
    ) -> None:
        device: Device = solution.wants if self._options.device == "auto" else self._options.device
        names = [case.name for case in problem.all_cases()]
        self._evidence = Evidence(expected=(*names[1:], names[0]))
        task = Task(
            solution=solution,
            problem=problem,
            device=device,
            options=self._options,
            phase=self._phase,
            evidence=self._evidence,
            stop=self._stop,
        )
        if device == "cpu" and solution.wants == "cuda":
            reason = "the file's source is CUDA and it was to be graded on the CPU"
            raise Judged(Status.NO_DEVICE, reason)
        try:
            Session(task).run(server, folder, oracles)
        except Judged as judged:
            if judged.status is not Status.NO_DEVICE:
                raise
            self._phase("building, there is no GPU")
            self._build_without_device(task, judged.reason, folder, server)

    def _build_without_device(
        self, task: Task, why: str, folder: Path, server: ForkServer
    ) -> NoReturn:
        """Compile the CUDA sources and judge that much: BUILD_ERROR or NO_DEVICE.

        A build that could not be contained is a KernelgenFault, never an error of the build.
        """
        # As in grading: its text alone, without the files beside it.
        problem, copy = task.problem, folder / task.solution.name
        copy.write_text(task.solution.text, encoding="utf-8")
        solution = msgspec.structs.replace(task.solution, path=copy)
        try:
            tools = Tools(toolkit=find_toolkit(), compiler=find_compiler(), stop=self._stop)
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as executor:
                source = problem.reference_source(problem.all_cases()[0], "cuda")
                lends = problem.module_source is not None
                given = solution, source, (_DRY_ARCH,), tools, executor
                built = build_solution(*given, tell=partial(told_by_a_fork, server), lends=lends)
        except ToolchainError as error:
            reason = f"not graded and not built: {why}, and {error}"
            raise Judged(Status.NO_DEVICE, reason) from error
        broken = built.reason.replace(str(copy), str(self._job.path))
        if not built.ok and built.came_to_build:
            raise Judged(Status.BUILD_ERROR, broken)
        if not built.ok:
            raise Judged(Status.NO_DEVICE, f"not graded: {why}; nothing was built: {broken}")
        what = f" for {_DRY_ARCH}" if any(run.arch for run in built.compile_times) else ""
        raise Judged(
            Status.NO_DEVICE,
            f"built{what} in {built.seconds:.1f} s, not graded: {why}; "
            "grade it where there is a GPU",
        )

    def _make(self, status: Status, owner: Owner, reason: str) -> Verdict:
        solution, problem, found = self._solution, self._problem, self._evidence
        return Verdict(
            problem=problem.name if problem else "",
            solution=self._job.name,
            solution_sha256=solution.sha256 if solution else "",
            status=status,
            owner=owner,
            reason=encodable(reason[:_LONGEST_REASON]),
            device=found.ready.device_name if found.ready else "",
            device_fault=found.device_fault,
            correctness=found.correctness(),
            timing=found.timing if status is Status.PASSED else None,
            build=found.build,
            sanitizer=found.sanitizer,
            kernels=found.kernels,
            containment=found.containment,
            overrides=self._options.overrides(),
            warnings=(*map(encodable, self._notes), *found.warnings),
            source=solution.text if solution else "",
            log=found.printed,
        )
