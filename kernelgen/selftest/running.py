"""A selftest: candidates in random order, graded several at once, each verdict compared."""

import random
import time
from collections.abc import Sequence
from typing import Any

from kernelgen.grading.identity import versions
from kernelgen.grading.options import Job, compiles_baselines
from kernelgen.grading.supervisor.crew import Crew, settle
from kernelgen.grading.verdict import Verdict
from kernelgen.report.outcome import stopped_code
from kernelgen.report.progress import Reporter
from kernelgen.selftest.comparison import left_behind, misses
from kernelgen.selftest.corpus import Candidate
from kernelgen.selftest.record import SCHEMA_VERSION, Outcome, Result, SelftestRun
from kernelgen.selftest.selection import Selection


class _Round:
    """An observer of one round: it compares each verdict as soon as it is there."""

    def __init__(
        self,
        number: int,
        candidates: Sequence[Candidate],
        results: list[Result],
        reporter: Reporter[Result],
    ) -> None:
        self._number, self._candidates = number, candidates
        self._results, self._reporter = results, reporter
        self._first = (number - 1) * len(candidates)
        self._since: dict[int, float] = {}

    def begin(self, solutions: Sequence[str]) -> None:
        """Ignore it: the reporter was given the names of all rounds."""

    def phase(self, index: int, text: str) -> None:
        """Show it."""
        self._since.setdefault(index, time.monotonic())
        self._reporter.phase(self._first + index, text)

    def finished(self, index: int, verdict: Verdict) -> None:
        """Compare the verdict with the file's header, and look for what the file left behind."""
        candidate = self._candidates[index]
        found = misses(candidate, verdict) + left_behind(candidate)
        since = self._since.get(index)
        result = Result.of(
            candidate,
            round=self._number,
            outcome=_outcome(candidate, missed=bool(found)),
            seconds=None if since is None else time.monotonic() - since,
            misses=found,
            note=candidate.gap or "",
            verdict=verdict,
        )
        self._results.append(result)
        self._reporter.finished(self._first + index, result)


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
    results: list[Result] = []
    environment: dict[str, Any] = versions()
    stopped: int | None = None
    order = ordered(selection.run, seed, rounds)
    reporter.begin([one.name for candidates in order for one in candidates])
    try:
        for number, candidates in enumerate(order, 1):
            files = [
                Job(path=one.path, options=one.options(), alone=one.alone is not None)
                for one in candidates
            ]
            observer = _Round(number, candidates, results, reporter)
            crew = Crew(
                min(jobs, len(files)),
                compiles=any(compiles_baselines(file.options) for file in files),
                share_cores=True,
                gpus=selection.gpus,
            )
            try:
                with crew:
                    settle([crew.submit(job, observer, n) for n, job in enumerate(files)])
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
        results=(*results, *selection.left_out),
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
