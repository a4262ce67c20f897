"""A search for a schedule as a table: what was tried, how long it took, and what came of it."""

from collections.abc import Iterator, Mapping
from statistics import median

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from kernelgen.rendering.schedule_table import in_words
from kernelgen.report.columns import decimal
from kernelgen.report.details import Line
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.table import print_line
from kernelgen.tuning.record import PRESENT, Comparison, Outcome, Result, TuneRun

_HEADINGS = ("schedule", "time ms", "[quartiles]", "speed")
_GAP = "  "
_VERBS = {
    Outcome.RECORDED: "recorded",
    Outcome.DRY_RUN: "would be recorded (--dry-run)",
    Outcome.NOT_RECORDED: "faster, and not recorded",
}


def show(run: TuneRun, console: Console) -> None:
    """Print a search: the trials from the fastest to the slowest, what failed, and the outcome."""
    timed = [trial for trial in run.trials if trial.result.time_ms is not None]
    failed = [trial for trial in run.trials if trial.result.time_ms is None]
    timed.sort(key=lambda trial: trial.result.time_ms or 0.0)
    present = run.trials[0].result
    rows = [(_name(run, trial.schedule), *_cells(trial.result, present.time_ms)) for trial in timed]
    _print_rows([_HEADINGS, *rows], console)
    for trial in failed:
        reason = next(iter(printable_lines(trial.result.reason)), "")
        words = f"{_name(run, trial.schedule)}: {trial.result.status.value}: {reason}"
        _print(words, console, "bold red")
    console.print()
    for text in _closing(run):
        _print(text, console, "bold")


def _print_rows(rows: list[tuple[str, ...]], console: Console) -> None:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        name, *numbers = row
        cells = [set_cell_size(name, widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        style = "bold" if row is rows[0] else ""
        console.print(_GAP.join(cells).rstrip(), soft_wrap=True, style=style)


def _name(run: TuneRun, schedule: Mapping[str, int]) -> str:
    changed = {name: value for name, value in schedule.items() if value != run.present[name]}
    return in_words(changed) or PRESENT


def _cells(result: Result, present_ms: float | None) -> tuple[str, str, str]:
    assert result.time_ms is not None
    assert present_ms is not None
    low, high = result.quartiles_ms or (result.time_ms, result.time_ms)
    speed = f"{present_ms / result.time_ms:.2f}x"
    return decimal(result.time_ms), f"[{decimal(low)}, {decimal(high)}]", speed


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
        reason = printable_lines(comparison.failure)
        return f"the comparison ended with {reason[0]}"
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


def _print(text: str, console: Console, style: str) -> None:
    shown = printable(text, ascii_only=console.options.ascii_only)
    print_line(Line(lead="", folded_lead=_GAP, text=shown, style=style), console)
