"""A search for a person: what is going on, what was tried, and what came of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from rich.console import Console

from kernelgen.grading.verdict import Status
from kernelgen.rendering.schedule_table import in_words
from kernelgen.report.columns import decimal
from kernelgen.report.outcome import failure_lines
from kernelgen.report.printable import printable_lines
from kernelgen.report.progress import Said, Verbosity, progress_of
from kernelgen.report.table import Column, Line, print_line, print_table
from kernelgen.tuning.record import PRESENT, Comparison, Outcome, Result, Trial, TuneRun
from kernelgen.tuning.search import Grade, Measure

_VERBS = {
    Outcome.RECORDED: "recorded",
    Outcome.DRY_RUN: "would be recorded (--dry-run)",
    Outcome.NOT_RECORDED: "faster, and not recorded",
}


@contextmanager
def progress(
    grade: Grade, console: Console, verbosity: Verbosity, budget_s: float
) -> Iterator[Measure]:
    """Give what grades, and prints lines such as `[4] threads=256: PASSED: 1.22 ms (9.6 s)`.

    The budget begins now.
    """
    present_ms: list[float] = []

    def say(result: Result) -> Said:
        style = "cyan" if result.status is Status.PASSED else "bold red"
        if result.time_ms is None:
            more = next(iter(printable_lines(result.reason)), "")
        elif present_ms:
            ratio = present_ms[0] / result.time_ms
            more = f"{decimal(result.time_ms)} ms, {ratio:.2f}x the present speed"
        else:
            present_ms.append(result.time_ms)
            more = f"{decimal(result.time_ms)} ms"
        return Said(word=result.status.value, style=style, more=more)

    with progress_of(console, verbosity, say, brief=True, budget_s=budget_s) as reporter:

        def measure(text: str, what: str) -> Result:
            index = reporter.add(what)
            result = grade(text, lambda phase: reporter.phase(index, phase))
            reporter.finished(index, result)
            return result

        yield measure


def show(run: TuneRun, console: Console) -> None:
    """Print a search: the trials from the fastest to the slowest, what failed, and the outcome."""
    timed = [trial for trial in run.trials if trial.result.time_ms is not None]
    timed.sort(key=lambda trial: trial.result.time_ms or 0.0)
    print_table(_columns(run), timed, console)
    for trial in run.trials:
        if trial.result.time_ms is None:
            first = failure_lines(trial.result.status, trial.result.reason)[0]
            words = f"{_name(run, trial.schedule)}: {first}"
            print_line(Line(text=words, style="bold red"), console)
    console.print()
    for text in _closing(run):
        print_line(Line(text=text, style="bold"), console)


def _columns(run: TuneRun) -> list[Column[Trial]]:
    present_ms = run.trials[0].result.time_ms or 0.0

    def time_ms(trial: Trial) -> float:
        return trial.result.time_ms or 0.0

    def quartiles(trial: Trial) -> str:
        low, high = trial.result.quartiles_ms or (time_ms(trial), time_ms(trial))
        return f"[{decimal(low)}, {decimal(high)}]"

    return [
        Column(heading="schedule", cell=lambda trial: _name(run, trial.schedule), name=True),
        Column(heading="time ms", cell=lambda trial: decimal(time_ms(trial)), number=True),
        Column(heading="[quartiles]", cell=quartiles, number=True, rank=1),
        Column(heading="speed", cell=lambda t: f"{present_ms / time_ms(t):.2f}x", number=True),
    ]


def _name(run: TuneRun, schedule: Mapping[str, int]) -> str:
    changed = {name: value for name, value in schedule.items() if value != run.present[name]}
    return in_words(changed) or PRESENT


def _closing(run: TuneRun) -> Iterator[str]:
    tried = f"{len(run.trials)} schedules tried on {run.device or run.arch}"
    yield tried if run.complete else f"{tried}; the budget of {run.budget_s:g} s was spent first"
    if run.best is not None and run.comparison is not None:
        yield f"fastest: {_name(run, run.best)}: {_compared(run.comparison)}"
    if run.outcome is Outcome.STAYS:
        why = "nothing was clearly faster" if run.best is None else "that is no sure gain"
        yield f"{run.problem}: the present schedule stays, {why}"
        return
    what = in_words(run.entry or {}) or "the defaults"
    yield f"{run.problem}: {_VERBS[run.outcome]} for {run.arch}: {what}"


def _compared(comparison: Comparison) -> str:
    if comparison.failure:
        return f"the comparison ended with {printable_lines(comparison.failure)[0]}"
    best, present = (
        " ".join(decimal(time_ms) for time_ms in times)
        for times in (comparison.best_ms, comparison.present_ms)
    )
    whole = median(comparison.present_ms)
    gain, spread = 100 * comparison.gain_ms / whole, 100 * comparison.spread_ms / whole
    faster = f"{gain:.1f} % faster" if gain > 0 else "no faster"
    return (
        f"{best} ms by turns with {present} ms of the present one; {faster}, where grades of one "
        f"schedule differ by {spread:.1f} %"
    )
