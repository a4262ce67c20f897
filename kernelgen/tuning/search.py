"""A search from beginning to end: what is tuned, the descent, the fair comparison, the grading."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kernelgen.engines.schedule import Schedule, tried_values
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew, ended
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import Verdict
from kernelgen.problem.record import Backend, Problem, device_of
from kernelgen.rendering import schedule_table
from kernelgen.rendering.solution import render
from kernelgen.report.columns import decimal
from kernelgen.report.progress import Reporter

PRESENT = "the present schedule"

Grade = Callable[[str, str, Schedule], Verdict]
"""Grades the text of a solution with a schedule, under a name such as `threads=256`."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A problem's solution for an architecture."""

    problem: Problem
    backend: Backend
    arch: str

    @property
    def schedule(self) -> Schedule:
        """The one that the problem is rendered with at present."""
        return schedule_table.schedule_for(self.problem, self.backend, self.arch)

    def text(self, schedule: Schedule) -> str:
        """Return the solution with another schedule.

        Raises:
            UserError: the template does not take it.
        """
        numbers = schedule_table.changed_numbers(schedule, self.schedule)
        settings = {f"schedule.{name}": str(value) for name, value in numbers.items()}
        return render(self.problem, self.backend, settings, self.arch)

    def words(self, schedule: Schedule) -> str:
        """Return in what a schedule differs from the present one, such as `threads=256`."""
        return (
            schedule_table.in_words(schedule_table.changed_numbers(schedule, self.schedule))
            or PRESENT
        )


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a search.

    Attributes:
        verdicts: of all grades in their order, first the present schedule's; with a `best`, the
            last two are the present one's and its, graded once more.
        complete: no number's values were left to try when the search ended.
        best: the fastest schedule, if one was clearly faster than the present one.
        entry: numbers of the best that differ from the defaults, if it was so once more.
    """

    verdicts: tuple[Verdict, ...]
    complete: bool = False
    best: Schedule | None = None
    entry: dict[str, int] | None = None


def tune(target: Target, grade: Grade, budget_s: float) -> Found:
    """Search for a faster schedule; nothing is written.

    Where the present schedule does not pass, there is nothing to compare with, and its verdict is
    all that is found.

    Args:
        target: what is tuned.
        grade: grades a solution.
        budget_s: wall time of the search; what has begun is finished, and two grades follow.

    Raises:
        KernelgenFault: the grader's own processes cannot be started.
    """
    search = _Search(target, grade)
    ends = time.monotonic() + budget_s
    first = search.tried(search.present)
    assert first is not None, "the first of all schedules was graded before"
    if first.timing is None:
        return Found(verdicts=(first,))
    complete = search.descend(first, lambda: time.monotonic() >= ends)
    if search.best == search.present:
        return Found(verdicts=tuple(search.verdicts), complete=complete)
    # The fastest of many noisy times is flattered.
    present, best = (search.again(one) for one in (search.present, search.best))
    base = schedule_table.default_schedule(target.problem, target.backend, target.arch)
    entry = schedule_table.changed_numbers(search.best, base)
    return Found(
        verdicts=tuple(search.verdicts),
        complete=complete,
        best=search.best,
        entry=entry if clearly_below(best, present) else None,
    )


class _Search:
    """A search under way: what was tried, and the fastest schedule that passed."""

    def __init__(self, target: Target, grade: Grade) -> None:
        self._target, self._grade = target, grade
        self._seen: set[tuple[str, ...]] = set()
        self.verdicts: list[Verdict] = []
        self.present = self.best = target.schedule

    def descend(self, fastest: Verdict, spent: Callable[[], bool]) -> bool:
        """Change one number after another, until no value of any improves the best schedule.

        A change counts only if it is clearly faster, so that the search does not follow the noise,
        and a number that makes no difference stays.

        Returns:
            Whether all was tried before the budget was spent.
        """
        tries = tried_values(type(self.present))
        moves = [(name, value) for name, values in tries.items() for value in values]
        before = None
        while before != self.best:
            before = self.best
            for name, value in moves:
                schedule = schedule_table.replaced(self.best, {name: value})
                if schedule is None or schedule == self.best:
                    continue
                if spent():
                    return False
                verdict = self.tried(schedule)
                if verdict is not None and clearly_below(verdict, fastest):
                    self.best, fastest = schedule, verdict
        return True

    def again(self, schedule: Schedule) -> Verdict:
        """Grade a schedule once more."""
        name = f"once more: {self._target.words(schedule)}"
        return self._graded(self._target.text(schedule), name, schedule)

    def tried(self, schedule: Schedule) -> Verdict | None:
        """Grade a schedule; None if it does not render, or to nothing but what was graded before.

        A template need not use every number.
        """
        try:
            text = self._target.text(schedule)
        except UserError:
            return None
        # Without the comment at its top, which names the schedule.
        code = tuple(itertools.dropwhile(lambda line: line.startswith("#"), text.splitlines()))
        if code in self._seen:
            return None
        self._seen.add(code)
        return self._graded(text, self._target.words(schedule), schedule)

    def _graded(self, text: str, name: str, schedule: Schedule) -> Verdict:
        verdict = self._grade(text, name, schedule)
        self.verdicts.append(verdict)
        return verdict


def clearly_below(one: Verdict, other: Verdict) -> bool:
    """Whether one passed and is faster by more than the middle halves of the samples vary."""
    if one.timing is None or other.timing is None:
        return False
    below, above = one.timing.subjects[CANDIDATE], other.timing.subjects[CANDIDATE]
    return below.quartiles_ms[1] < above.quartiles_ms[0]


@contextmanager
def grader(target: Target, reporter: Reporter) -> Iterator[Grade]:
    """Give what grades a text with the grader's own processes and clock, until the block is left.

    All texts share what the processes are started from, and so what that has imported.
    """
    options = GradeOptions(problem=target.problem, device=device_of(target.backend), baselines=())
    with Crew(1) as crew:

        def graded(text: str, name: str, schedule: Schedule) -> Verdict:
            labels = msgspec.structs.asdict(schedule)
            job = Job(path=Path(name), data=text.encode(), options=options, labels=labels)
            return next(ended([crew.submit(job, reporter, reporter.add(name))])).result()

        yield graded


def closing(found: Found, target: Target, budget_s: float) -> Iterator[str]:
    """Yield what was tried, how the fastest compares with the present schedule, and what to do."""
    name = target.problem.name
    tried = len(found.verdicts) - (0 if found.best is None else 2)
    text = f"{tried} schedules tried on {found.verdicts[0].device or target.arch}"
    yield text if found.complete else f"{text}; the budget of {budget_s:g} s was spent first"
    if found.best is None:
        yield f"{name}: the present schedule stays, nothing was clearly faster"
        return
    present, best = (
        decimal(v.timing.candidate_ms) if v.timing else "no" for v in found.verdicts[-2:]
    )
    yield f"fastest: {target.words(found.best)}: once more {best} ms, the present one {present} ms"
    if found.entry is None:
        yield f"{name}: the present schedule stays, that is no sure gain"
    elif found.entry:
        numbers = ", ".join(f"{number}: {value}" for number, value in found.entry.items())
        yield f"{name}: to have it rendered, write under `schedules` in {target.problem.path}:"
        yield f"{target.arch}: {{{numbers}}}"
    else:
        entry = f"schedules.{target.arch}"
        yield f"{name}: to have it rendered, remove {entry} from {target.problem.path}"
