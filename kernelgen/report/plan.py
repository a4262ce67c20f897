"""A plan for a person: what each stage computes, moves and takes, in cells and in lines."""

import textwrap
from collections.abc import Iterator

from kernelgen.grading.plan_record import PlannedStage, PlanRecord
from kernelgen.report.numbers import plain, times

HEADINGS = ("stage", "kernel or operator", "shape", "GB moved", "GFLOP", "bound by", "ms")
_COLUMNS = 100
_DIGITS = 3
_INDENT = " " * 10


def plan_lines(plan: PlanRecord) -> Iterator[str]:
    """Yield the lines, of 100 columns at most."""
    yield _row(HEADINGS)
    for stage in plan.stages:
        yield _row(stage_cells(stage))
        if stage.formula:
            yield _INDENT + cut(stage.formula, _COLUMNS - len(_INDENT))
    for name, text in plan_facts(plan):
        yield from textwrap.wrap(
            text, _COLUMNS, initial_indent=f"  {name:<18} ", subsequent_indent=" " * 21
        )


def stage_cells(stage: PlannedStage) -> tuple[str, ...]:
    """Return what stands below `HEADINGS`."""
    return (
        stage.kind,
        stage.name,
        "x".join(map(str, stage.shape)) if stage.shape else "()",
        "" if stage.kind == "view" else plain(stage.moved_bytes / 1e9, _DIGITS),
        plain(stage.flops / 1e9, _DIGITS) if stage.flops else "",
        stage.bound,
        plain(stage.expected_ms, _DIGITS),
    )


def plan_facts(plan: PlanRecord) -> Iterator[tuple[str, str]]:
    """Yield what is to be said of a whole plan, each with its name."""
    kept = dict.fromkeys(stage.name for stage in plan.stages if stage.kind == "library")
    yield "stays in torch", ", ".join(kept) or "nothing"
    sizes = plan.fixed_sizes
    yield "sizes", f"free but for dimensions {sizes}" if sizes else "free"
    if plan.identities:
        yield "identities", "; ".join(plan.identities)
    least, moved = plan.minimal_bytes, plan.moved_bytes
    ratio = f", {times(moved / least)} the least" if least else ""
    yield "moved", f"{_gigabytes(moved)}{ratio} ({_gigabytes(least)})"
    if plan.expected_ms is not None:
        yield "expected", f"{plain(plan.expected_ms, _DIGITS)} ms without launches"
    if (limit := plan.limit) is not None:
        by = limit.rate if limit.bound == "arithmetic" else f"{limit.copy_gbps:.4g} GB/s"
        yield "limit", f"{plain(limit.limit_ms, _DIGITS)} ms ({limit.bound}, {by})"


def cut(text: str, cells: int) -> str:
    """Return a text that is no longer than so many characters."""
    return text if len(text) <= cells else f"{text[: cells - 2]}.."


def _row(cells: tuple[str, ...]) -> str:
    kind, name, shape, moved, flops, bound, ms = cells
    stage = f"{kind:<7} "
    room = 36 - len(stage)  # a longer kind leaves a name less
    return (
        f"  {stage}{cut(name, room - 1):<{room}}{cut(shape, 21):<22}{moved:>9}{flops:>9}"
        f"  {bound:<10}{ms:>8}"
    ).rstrip()


def _gigabytes(count: int) -> str:
    return f"{plain(count / 1e9, _DIGITS)} GB"
