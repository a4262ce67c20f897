"""The parts of a solution's section that are about what it computed."""

from collections.abc import Iterator

from kernelgen.grading.verdict import CaseResult, Correctness, EffectivePrecision, SanitizerRecord
from kernelgen.report.html.numbers import count, error_size, plain
from kernelgen.report.html.view import Fact, Fold, Grid, Heading, Part

_CASES = (
    Heading(text="case"),
    Heading(text="agrees"),
    Heading(text="calls", number=True),
    Heading(text="elements", number=True),
    Heading(text="outside", number=True),
    Heading(text="max error", number=True),
    Heading(text="fp32 reference's", number=True),
    Heading(text="exact result in"),
    Heading(text="same inputs again"),
)
_WORST = (
    Heading(text="case"),
    Heading(text="worst element"),
    Heading(text="got", number=True),
    Heading(text="expected", number=True),
    Heading(text="error", number=True),
    Heading(text="bound", number=True),
    Heading(text="error / bound", number=True),
)


def check_parts(correctness: Correctness) -> Iterator[Part]:
    """Yield the cases with their errors, the precision, and which parameter got which."""
    not_run = [name for name in correctness.expected_cases if name not in _names(correctness)]
    yield Part(
        title="Errors",
        notes=(f"Not run: {', '.join(not_run)}.",) if not_run else (),
        grids=tuple(_grids(correctness)),
    )
    if correctness.effective_precision is not None or correctness.precision:
        yield _precision(correctness)
    if correctness.parameters:
        rows = tuple(correctness.parameters.items())
        headings = (Heading(text="the solution's"), Heading(text="the reference's"))
        caption = "Which parameter and buffer was given which values"
        yield Part(
            title="Parameters",
            wide=False,
            grids=(Grid(caption=caption, headings=headings, rows=rows),),
        )


def sanitizer_part(record: SanitizerRecord) -> Part:
    """Return what compute-sanitizer found."""
    tools = " and ".join(record.tools) or "no tool"
    if not record.findings:
        return Part(
            title="compute-sanitizer",
            wide=False,
            notes=(f"Clean: {tools} on one call of case {record.case}.",),
        )
    rows = tuple(
        (f.tool, f.severity, f.what, f.kernel, count(f.count), f.first) for f in record.findings
    )
    headings = (
        Heading(text="tool"),
        Heading(text="severity"),
        Heading(text="what"),
        Heading(text="kernel"),
        Heading(text="reports", number=True),
        Heading(text="first"),
    )
    caption = f"Findings of {tools} in one call of case {record.case}"
    grid = Grid(caption=caption, headings=headings, rows=rows)
    return Part(title="compute-sanitizer", grids=(grid,))


def _grids(correctness: Correctness) -> Iterator[Grid]:
    if correctness.cases:
        caption = "Distance to the exact result, over all calls of a case"
        rows = tuple(_case_row(case) for case in correctness.cases)
        yield Grid(caption=caption, headings=_CASES, rows=rows)
    worst = tuple(_worst_row(case) for case in correctness.cases if case.worst is not None)
    if worst:
        yield Grid(caption="The elements furthest outside", headings=_WORST, rows=worst)


def _names(correctness: Correctness) -> set[str]:
    return {case.name for case in correctness.cases}


def _case_row(case: CaseResult) -> tuple[str, ...]:
    return (
        case.name,
        "✓ yes" if case.agreed else "✗ no",
        count(case.calls),
        count(case.elements),
        count(case.wrong),
        error_size(case.max_abs_err),
        error_size(case.ref_max_abs_err),
        case.exact,
        _again(case),
    )


def _again(case: CaseResult) -> str:
    if case.deterministic is None:
        return ""
    if case.deterministic:
        return "same bits"
    apart = case.repeat_max_diff
    return "other bits" if apart is None else f"other bits, up to {apart:.1e} apart"


def _worst_row(case: CaseResult) -> tuple[str, ...]:
    worst = case.worst
    assert worst is not None
    off = abs(worst.got - worst.expected)
    place = f"{worst.output}[{', '.join(map(str, worst.index))}]"
    ratio = plain(off / worst.bound, 3) if worst.bound > 0 else ""
    return (
        case.name,
        place,
        plain(worst.got, 7),
        plain(worst.expected, 7),
        error_size(off),
        error_size(worst.bound),
        ratio,
    )


def _precision(correctness: Correctness) -> Part:
    effective = correctness.effective_precision
    grids: tuple[Grid, ...] = ()
    facts: tuple[Fact, ...] = ()
    if effective is not None:
        facts = (Fact(name="looks", value=f"{effective.name}, on case {effective.case}"),)
        grids = tuple(_precision_grid(effective))
    pins = "\n".join(f"{name}: {value}" for name, value in correctness.precision.items())
    folds = (Fold(title="Settings of torch that were in force", text=pins),) if pins else ()
    return Part(title="Precision", wide=False, facts=facts, grids=grids, folds=folds)


def _precision_grid(effective: EffectivePrecision) -> Iterator[Grid]:
    errors = (
        ("this solution", effective.error),
        ("this solution, largest", effective.max_error),
        ("fp32 reference", effective.fp32_error),
        ("operands rounded to TF32", effective.tf32_error),
        ("operands rounded to bf16", effective.bf16_error),
        ("operands rounded to fp16", effective.fp16_error),
    )
    rows = [(name, error_size(value)) for name, value in errors if value is not None]
    if effective.resemblance is not None:
        rows.append(("resemblance to that rounding", plain(effective.resemblance, 2)))
    if rows:
        yield Grid(
            caption=f"Errors of {count(effective.elements)} elements, in units of the signal",
            headings=(Heading(text="what"), Heading(text="root mean square", number=True)),
            rows=tuple(rows),
        )
