"""A selftest: candidates in random order, graded several at once, each verdict compared."""

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kernelgen.grading.options import compiles_baselines
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import Interrupted, grade_jobs
from kernelgen.grading.supervisor.servers import FORK_SERVER_CODE
from kernelgen.grading.verdict import Run, Verdict, owner_of
from kernelgen.report.progress import Reporter
from kernelgen.sandbox.tree import ancestors_of
from kernelgen.selftest.corpus import Candidate
from kernelgen.selftest.selection import Selection

_LOG_LIMIT_CHARACTERS = 64 << 10
_SHOWN_CHARACTERS = 200


class _Comparing:
    """An observer that compares each verdict with its file's header as soon as it is there."""

    def __init__(self, candidates: Sequence[Candidate], reporter: Reporter) -> None:
        self._candidates, self._reporter = candidates, reporter
        self.verdicts: list[Verdict] = []

    def begin(self, _solutions: Sequence[str]) -> None:
        """Name what is to be graded."""
        self._reporter.begin([one.name for one in self._candidates])

    def phase(self, index: int, text: str) -> None:
        """Show it."""
        self._reporter.phase(index, text)

    def finished(self, index: int, verdict: Verdict) -> None:
        """Compare the verdict with the file's header, and look for what the file left behind."""
        candidate = self._candidates[index]
        found = misses(candidate, verdict) + left_behind(candidate)
        verdict = msgspec.structs.replace(
            verdict, solution=candidate.name, expected=candidate.expect, misses=found
        )
        self.verdicts.append(verdict)
        self._reporter.finished(index, verdict)


def selftest(selection: Selection, reporter: Reporter, *, seed: int, jobs: int) -> Run:
    """Grade candidates in an order that the seed draws; compare each verdict with its header.

    Returns:
        The verdicts in the order in which they came, each with the status that was expected.

    Raises:
        ProblemError: a problem of the corpus cannot be read.
        KernelgenFault: the grader's own processes cannot be started.
        Interrupted: by ^C or SIGTERM, after everything that was started has been ended.
    """
    candidates = ordered(selection.run, seed)
    queue = [
        Job(path=one.path, options=one.options(), alone=one.alone is not None, labels=one.labels)
        for one in candidates
    ]
    crew = Crew(
        min(jobs, len(queue)),
        compiles=any(compiles_baselines(job.options) for job in queue),
        share_cores=True,
        gpus=selection.gpus,
    )
    observer = _Comparing(candidates, reporter)

    def compared(run: Run) -> Run:
        return msgspec.structs.replace(
            run,
            verdicts=tuple(observer.verdicts),
            environment={**run.environment, "seed": seed},
        )

    try:
        return compared(grade_jobs(queue, crew, observer))
    except Interrupted as stop:
        raise Interrupted(compared(stop.run), stop.code) from None


def ordered(candidates: Sequence[Candidate], seed: int) -> list[Candidate]:
    """Return candidates in a random order; the same seed gives the same."""
    shuffled = list(candidates)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 (an order that has to be repeatable)
    # Slow ones come first, or all lanes would wait for the last of them. Those that have to be
    # alone come last, when fewer lanes have something to wait for.
    return sorted(shuffled, key=lambda one: (one.alone is not None, one.slow is None))


def misses(candidate: Candidate, verdict: Verdict) -> tuple[str, ...]:
    """Return in words where a verdict departs from a candidate's header; nothing if it does not."""
    status = candidate.expect
    found: list[str] = []
    if verdict.status is not status:
        found.append(f"the status is {verdict.status.value}, not {status.value}")
    elif verdict.owner is not owner_of(status):
        found.append(f"the owner is the {verdict.owner.value}, not the {owner_of(status).value}")
    found += [
        f"the reason does not contain {text!r}"
        for text in candidate.reason
        if text not in verdict.reason
    ]
    warnings = "\n".join(verdict.warnings)
    found += [f"no warning contains {text!r}" for text in candidate.warning if text not in warnings]
    line = candidate.blamed_line
    if line is not None and not re.search(rf"(:|line ){line}\b", verdict.reason):
        found.append(f"the reason does not name line {line}")
    found += _mapping(candidate, verdict)
    found += _speedup(candidate, verdict)
    if len(verdict.log) > _LOG_LIMIT_CHARACTERS:
        length = len(verdict.log)
        found.append(f"the log has {length} characters, more than {_LOG_LIMIT_CHARACTERS}")
    return tuple(found)


def _mapping(candidate: Candidate, verdict: Verdict) -> list[str]:
    if not candidate.maps:
        return []
    given = {} if verdict.correctness is None else verdict.correctness.parameters
    mapped = {f"{own} <- {name}" for own, name in given.items()}
    expected = set(candidate.maps)
    return [
        *(f"the parameter mapping lacks {one}" for one in sorted(expected - mapped)),
        *(f"the parameter mapping has {one}" for one in sorted(mapped - expected)),
    ]


def _speedup(candidate: Candidate, verdict: Verdict) -> list[str]:
    most = candidate.max_speedup
    if most is None:
        return []
    eager = None if verdict.timing is None else verdict.timing.speedup.get("eager")
    if eager is None:
        return ["there is no speedup over eager to be judged"]
    if eager.median < most:
        return []
    return [f"the speedup over eager is {eager.median:.3g}, which cannot be true over {most:g}"]


def left_behind(candidate: Candidate) -> tuple[str, ...]:
    """Return in words which processes of a candidate still run; asked once its verdict is there.

    Not those that somebody else's grader has started and not ended yet: two selftests may run on a
    machine at once.
    """
    if candidate.orphan is None:
        return ()
    found = []
    for pid in (int(process.name) for process in Path("/proc").glob("[0-9]*")):
        arguments = _arguments(pid)
        if candidate.orphan.encode() in arguments and not _is_of_another_grader(pid):
            told = b" ".join(arguments).decode(errors="replace")[:_SHOWN_CHARACTERS]
            found.append(f"a process was left behind: {pid}: {told}")
    return tuple(found)


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return []


def _is_of_another_grader(pid: int) -> bool:
    above = ancestors_of(pid)
    server = FORK_SERVER_CODE.encode()
    return os.getpid() not in above and any(server in _arguments(one) for one in above)
