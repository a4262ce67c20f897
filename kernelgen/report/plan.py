"""A plan as lines for a person: what each stage computes, moves and takes."""

import re
import textwrap
from collections.abc import Iterator

from kernelgen.grading.timing.limit import Work, limit_of
from kernelgen.hardware.calibration import Calibration
from kernelgen.planning.cost import PlanCost, StageCost, StageTime, costs, stage_times
from kernelgen.planning.naming import without_overload
from kernelgen.planning.plan import Library, Map, Plan, Pool, Reduce, Scan, Segment, Stage
from kernelgen.rendering.stages.stage_text import in_words
from kernelgen.report.numbers import plain, times

_COLUMNS = 100
_DIGITS = 3
_HEADINGS = ("stage", "kernel or operator", "shape", "GB moved", "GFLOP", "bound by", "ms")
_INDENT = " " * 10


def plan_lines(plan: Plan, tolerance: float, calibration: Calibration | None) -> Iterator[str]:
    """Yield the lines, of 100 columns at most.

    Args:
        plan: any.
        tolerance: of the problem, which says what arithmetic its limit may rest on.
        calibration: of the device that times are told for; None leaves them out.
    """
    cost = costs(plan)
    spans = stage_times(cost, calibration) if calibration else (None,) * len(plan.stages)
    yield _row(_HEADINGS)
    for stage, one, span in zip(plan.stages, cost.stages, spans, strict=True):
        yield _row(_facts(stage, one, span))
        if formula := _what(stage):
            yield _INDENT + _cut(formula, _COLUMNS - len(_INDENT))
    yield from _sums(plan, cost)
    if calibration is not None:
        total_ms = sum(span.expected_ms for span in spans if span is not None)
        yield from _against_the_limit(cost, tolerance, calibration, total_ms)


def _row(cells: tuple[str, ...]) -> str:
    kind, name, shape, moved, flops, bound, ms = cells
    return (
        f"  {kind:<8}{_cut(name, 27):<28}{_cut(shape, 21):<22}{moved:>9}{flops:>9}"
        f"  {bound:<10}{ms:>8}"
    ).rstrip()


def _cut(text: str, cells: int) -> str:
    return text if len(text) <= cells else f"{text[: cells - 2]}.."


def _facts(stage: Stage, cost: StageCost, span: StageTime | None) -> tuple[str, ...]:
    is_view = isinstance(stage, Library) and stage.view
    kind = "view" if is_view else "library" if isinstance(stage, Library) else _kind(stage)
    name = without_overload(stage.aten) if isinstance(stage, Library) else stage.name
    shape = _shape(stage)
    return (
        kind,
        name,
        "x".join(map(str, shape)) if shape else "()",
        "" if is_view else plain(cost.moved_bytes / 1e9, _DIGITS),
        plain(cost.flops / 1e9, _DIGITS) if cost.flops else "",
        span.bound if span else "",
        plain(span.expected_ms, _DIGITS) if span and span.bound else "",
    )


def _kind(stage: Stage) -> str:
    return type(stage).__name__.lower()


def _shape(stage: Stage) -> tuple[int, ...]:
    """Return the shape of what a stage makes, of its first result."""
    if isinstance(stage, Library):
        return stage.types[0].shape if stage.types and stage.types[0] else ()
    result = stage.result if isinstance(stage, Scan | Pool | Segment) else stage.results[0]
    return result.type.shape


def _what(stage: Stage) -> str:
    """Return a kernel's formula; "" for what stays in torch."""
    match stage:
        case Library():
            return ""
        case Map():
            return "; ".join(in_words(stage.steps, result.of) for result in stage.results)
        case Reduce():
            gathered = {
                one.name: f"{one.kind}({in_words(stage.steps, one.of)})"
                for one in stage.accumulators
            }
            return "; ".join(
                _filled(in_words(stage.epilogue, result.of), gathered) for result in stage.results
            )
        case Segment():
            gathered = {
                one.name: f"{one.kind}({in_words(stage.steps, one.of)})"
                for one in stage.accumulators
            }
            found = {
                name: _filled(in_words(stage.epilogue, of), gathered)
                for name, of in stage.outcome.items()
            }
            if stage.held:
                found[stage.held] = in_words(stage.steps, stage.held)
            return _filled(in_words(stage.after, stage.result.of), found)
        case Scan():
            words = "reverse " * stage.reverse + "exclusive " * stage.exclusive
            return f"{words}cum{stage.kind}({in_words(stage.steps, stage.of)}) along {stage.dim}"
        case Pool():
            window = "x".join(map(str, stage.kernel))
            return f"{stage.kind} of {window}({in_words(stage.steps, stage.of)})"


def _filled(formula: str, known: dict[str, str]) -> str:
    return re.sub(r"[A-Za-z_]\w*", lambda word: known.get(word[0], word[0]), formula)


def _sums(plan: Plan, cost: PlanCost) -> Iterator[str]:
    kept = dict.fromkeys(
        without_overload(s.aten) for s in plan.stages if isinstance(s, Library) and not s.view
    )
    yield from _fact("stays in torch", ", ".join(kept) or "nothing")
    fixed = plan.fixed_sizes()
    sizes = f"free but for dimensions {fixed}" if fixed else "free"
    yield from _fact("sizes", sizes)
    least, moved = cost.minimal_bytes, cost.moved_bytes
    ratio = f", {times(moved / least)} the least" if least else ""
    yield from _fact("moved", f"{_gigabytes(moved)}{ratio} ({_gigabytes(least)})")


def _gigabytes(count: int) -> str:
    return f"{plain(count / 1e9, _DIGITS)} GB"


def _against_the_limit(
    cost: PlanCost, tolerance: float, calibration: Calibration, total_ms: float
) -> Iterator[str]:
    yield from _fact("expected", f"{plain(total_ms, _DIGITS)} ms without launches")
    work = Work(minimal_bytes=cost.minimal_bytes, flops=cost.flops, tolerance=tolerance)
    limit = limit_of(max(total_ms, 1e-9), work, calibration)
    if limit is not None:
        by = limit.rate if limit.bound == "arithmetic" else f"{limit.copy_gbps:.4g} GB/s"
        yield from _fact("limit", f"{plain(limit.limit_ms, _DIGITS)} ms ({limit.bound}, {by})")


def _fact(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _COLUMNS, initial_indent=f"  {name:<18} ", subsequent_indent=" " * 21
    )
