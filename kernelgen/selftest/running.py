"""A selftest: candidates in random order, graded several at once, each verdict compared."""

import itertools
import os
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelgen.grading.options import compiles_baselines
from kernelgen.grading.queue.identity import versions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew, ended
from kernelgen.grading.supervisor.servers import FORK_SERVER_CODE
from kernelgen.grading.verdict import Status, Verdict, owner_of
from kernelgen.report.outcome import stopped_code
from kernelgen.report.progress import Reporter
from kernelgen.sandbox.tree import ancestors_of
from kernelgen.selftest.corpus import Candidate
from kernelgen.selftest.record import SCHEMA_VERSION, Outcome, Result, SelftestRun
from kernelgen.selftest.selection import Selection

_LOG_LIMIT_CHARACTERS = 64 << 10
_SHOWN_CHARACTERS = 200


class _Comparing:
    """An observer of all rounds: it compares each verdict as soon as it is there."""

    def __init__(self, order: Sequence[Sequence[Candidate]], reporter: Reporter[Result]) -> None:
        self._graded = [(n, one) for n, candidates in enumerate(order, 1) for one in candidates]
        self._reporter = reporter
        self._since: dict[int, float] = {}
        self.results: list[Result] = []
        self.begin([one.name for _, one in self._graded])

    def begin(self, solutions: Sequence[str]) -> None:
        """Name what is to be graded in all rounds."""
        self._reporter.begin(solutions)

    def phase(self, index: int, text: str) -> None:
        """Show it."""
        self._since.setdefault(index, time.monotonic())
        self._reporter.phase(index, text)

    def finished(self, index: int, verdict: Verdict) -> None:
        """Compare the verdict with the file's header, and look for what the file left behind."""
        number, candidate = self._graded[index]
        found = misses(candidate, verdict) + left_behind(candidate)
        since = self._since.get(index)
        result = Result.of(
            candidate,
            round=number,
            outcome=_outcome(candidate, missed=bool(found)),
            seconds=None if since is None else time.monotonic() - since,
            misses=found,
            note=candidate.gap or "",
            verdict=verdict,
        )
        self.results.append(result)
        self._reporter.finished(index, result)


def selftest(
    selection: Selection, reporter: Reporter[Result], *, seed: int, jobs: int, rounds: int
) -> tuple[SelftestRun, int]:
    """Grade candidates, each round in another order, and compare each verdict with its header.

    Returns:
        What was found, and the program's exit code: after ^C or SIGTERM what had been found by
        then, and 130 or 143. Everything that was started has been ended.

    Raises:
        ProblemError: a problem of the corpus cannot be read.
        KernelgenFault: the grader's own processes cannot be started.
    """
    started = time.monotonic()
    environment: dict[str, Any] = versions()
    stopped: int | None = None
    order = ordered(selection.run, seed, rounds)
    observer = _Comparing(order, reporter)
    numbers = itertools.count()
    try:
        for candidates in order:
            files = [
                Job(path=one.path, options=one.options(), alone=one.alone is not None)
                for one in candidates
            ]
            crew = Crew(
                min(jobs, len(files)),
                compiles=any(compiles_baselines(file.options) for file in files),
                share_cores=True,
                gpus=selection.gpus,
            )
            try:
                with crew:
                    for one in ended(crew.submit(job, observer, next(numbers)) for job in files):
                        one.result()
            finally:
                environment |= crew.environment
    except (KeyboardInterrupt, SystemExit) as stop:
        # What was found by then is not lost, also not to a deadline that ends us by SIGTERM.
        stopped = stopped_code(stop)
    run = SelftestRun(
        schema=SCHEMA_VERSION,
        environment=environment,
        seed=seed,
        jobs=jobs,
        rounds=rounds,
        seconds=time.monotonic() - started,
        interrupted=stopped is not None,
        results=(*observer.results, *selection.left_out),
    )
    return run, run.exit_code if stopped is None else stopped


def ordered(candidates: Sequence[Candidate], seed: int, rounds: int) -> list[list[Candidate]]:
    """Return each round in its random order; the same seed gives the same."""
    order = random.Random(seed)  # noqa: S311 (an order that has to be repeatable)
    found: list[list[Candidate]] = []
    for _ in range(rounds):
        shuffled = list(candidates)
        order.shuffle(shuffled)
        # Slow ones come first, or all lanes would wait for the last of them. Those that have to be
        # alone come last, when fewer lanes have something to wait for.
        shuffled.sort(key=lambda one: (one.alone is not None, one.slow is None))
        found.append(shuffled)
    return found


def _outcome(candidate: Candidate, *, missed: bool) -> Outcome:
    if candidate.gap is not None:
        return Outcome.KNOWN_GAP if missed else Outcome.CLOSED_GAP
    return Outcome.MISS if missed else Outcome.AS_EXPECTED


def misses(candidate: Candidate, verdict: Verdict, expect: Status | None = None) -> tuple[str, ...]:
    """Return in words where a verdict departs from a candidate's header; nothing if it does not.

    The status has to be `expect`, else the header's.
    """
    status = expect or candidate.expect
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
