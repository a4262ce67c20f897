"""The parts of a solution's section about what it computed, and how it was built and run."""

from collections.abc import Iterator

from markupsafe import Markup

from kernelgen.grading.plan_record import PlannedStage, PlanRecord
from kernelgen.grading.verdict import (
    OWN_KERNELS,
    CaseResult,
    Correctness,
    EffectivePrecision,
    KernelUse,
    Launches,
    SanitizerRecord,
    Verdict,
    WorstElement,
)
from kernelgen.report.html.view import Cell, Fact, Fold, Grid, Heading, Part, number
from kernelgen.report.numbers import byte_size, count, error_size, percent, plain
from kernelgen.report.plan import HEADINGS, cut, plan_facts, plan_notes, stage_cells
from kernelgen.report.printable import printable_block
from kernelgen.sandbox.record import Containment

# What a page carries of a log; the JSON report has all of it.
_MOST_LOG = 65_536
_MOST_STAGES = 40
_MOST_FORMULA = 100
_CASES = (
    Heading("case"), Heading("agrees"), number("calls"), number("elements"), number("outside"),
    number("max error"), number("fp32 reference's"), Heading("exact result in"),
    Heading("same inputs again"),
)  # fmt: skip
_WORST = (
    Heading("case"), Heading("worst element"), number("got"), number("expected"), number("error"),
    number("bound"), number("error / bound"),
)  # fmt: skip
_FINDINGS = (
    Heading("tool"), Heading("severity"), Heading("what"), Heading("kernel"), number("reports"),
    Heading("first"),
)  # fmt: skip
_KERNELS = (
    Heading("kernel"), Heading("whose"), number("share"), number("us a call"),
    number("times a call"),
)  # fmt: skip
_PLAN = (
    *(Heading(text) for text in HEADINGS[:3]), number(HEADINGS[3]), number(HEADINGS[4]),
    Heading(HEADINGS[5]), number("of the limit"), number("us expected"),
)  # fmt: skip


def parts_of(verdict: Verdict, plan: PlanRecord | None) -> Iterator[Part]:
    """Yield all that is known of a verdict besides its times; its problem's plan, if there is."""
    if verdict.overrides:
        facts = tuple(Fact(f"--{name}", what) for name, what in verdict.overrides.items())
        yield Part(title="By another rule", wide=False, facts=facts)
    if verdict.correctness is not None:
        yield _errors(verdict.correctness)
        if verdict.correctness.effective_precision or verdict.correctness.precision:
            yield _precision(verdict.correctness)
        if verdict.correctness.parameters:
            yield _parameters(verdict.correctness)
    if plan is not None:
        yield _plan(plan)
    if verdict.kernels:
        yield _kernels(verdict.kernels, verdict.launches)
    if verdict.sanitizer is not None:
        yield _sanitizer(verdict.sanitizer)
    if verdict.containment is not None:
        yield _containment(verdict.containment)
    folds = tuple(_log(verdict))
    if verdict.build is not None or folds:
        facts = tuple(_build(verdict))
        yield Part(title="Build and log", wide=bool(folds), facts=facts, folds=folds)


def _errors(correctness: Correctness) -> Part:
    cases = correctness.cases
    run = {case.name for case in cases}
    not_run = [name for name in correctness.expected_cases if name not in run]
    grids = (
        Grid(
            caption="Distance to the exact result, over all calls of a case",
            headings=_CASES,
            rows=tuple(_case_row(case) for case in cases),
        ),
        Grid(
            caption="The elements furthest outside",
            headings=_WORST,
            rows=tuple(_worst_row(case.name, case.worst) for case in cases if case.worst),
        ),
    )
    return Part(
        title="Errors",
        notes=(f"Not run: {', '.join(not_run)}.",) if not_run else (),
        grids=tuple(grid for grid in grids if grid.rows),
    )


def _case_row(case: CaseResult) -> tuple[str, ...]:
    again = {None: "", True: "same bits", False: "other bits"}[case.deterministic]
    if case.deterministic is False and case.repeat_max_diff is not None:
        again += f", up to {case.repeat_max_diff:.1e} apart"
    return (
        case.name,
        "✓ yes" if case.agreed else "✗ no",
        count(case.calls),
        count(case.elements),
        count(case.wrong),
        error_size(case.max_abs_err),
        error_size(case.ref_max_abs_err),
        case.exact,
        again,
    )


def _worst_row(case: str, worst: WorstElement) -> tuple[str, ...]:
    off = abs(worst.got - worst.expected)
    return (
        case,
        f"{worst.output}[{', '.join(map(str, worst.index))}]",
        plain(worst.got, 7),
        plain(worst.expected, 7),
        error_size(off),
        error_size(worst.bound),
        plain(off / worst.bound, 3) if worst.bound > 0 else "",
    )


def _precision(correctness: Correctness) -> Part:
    effective = correctness.effective_precision
    pins = "\n".join(f"{name}: {value}" for name, value in correctness.precision.items())
    folds = (Fold(title="Settings of torch that were in force", text=pins),) if pins else ()
    if effective is None:
        return Part(title="Precision", wide=False, folds=folds)
    facts = (Fact("looks", f"{effective.name}, on case {effective.case}"),)
    grid = _precision_grid(effective)
    grids = (grid,) if grid.rows else ()
    return Part(title="Precision", wide=False, facts=facts, grids=grids, folds=folds)


def _precision_grid(effective: EffectivePrecision) -> Grid:
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
    return Grid(
        caption=f"Errors of {count(effective.elements)} elements, in units of the signal",
        headings=(Heading("what"), number("root mean square")),
        rows=tuple(rows),
    )


def _parameters(correctness: Correctness) -> Part:
    grid = Grid(
        caption="Which parameter and buffer was given which values",
        headings=(Heading("the solution's"), Heading("the reference's")),
        rows=tuple(correctness.parameters.items()),
    )
    return Part(title="Parameters", wide=False, grids=(grid,))


def _plan(plan: PlanRecord) -> Part:
    """Return the stages, those that cost nothing left out."""
    notes = list(plan_notes(plan))
    stages = [stage for stage in plan.stages if stage.kind != "view"]
    if more := stages[_MOST_STAGES:]:
        notes.append(f"{count(len(more))} more stages follow; JSON has them.")
    grid = Grid(
        caption="What a solution by the plan does in a call of the main case",
        headings=_PLAN,
        rows=tuple(_plan_row(stage, plan) for stage in stages[:_MOST_STAGES]),
    )
    return Part(
        title="Plan",
        notes=tuple(notes),
        facts=() if plan.reason else tuple(Fact(*fact) for fact in plan_facts(plan)),
        grids=(grid,) if grid.rows else (),
    )


def _plan_row(stage: PlannedStage, plan: PlanRecord) -> tuple[Cell, ...]:
    kind, name, *others, _ = stage_cells(stage)
    formula = cut(printable_block(stage.formula), _MOST_FORMULA)
    what = Markup("{} <small>{}</small>") if formula else Markup("{}")
    spent_ms, limit = stage.expected_ms, plan.limit
    return (
        kind,
        what.format(printable_block(name), formula),
        *others,
        "" if spent_ms is None or limit is None else percent(spent_ms / limit.limit_ms),
        "" if spent_ms is None else plain(1e3 * spent_ms, 3),
    )


def _kernels(kernels: tuple[KernelUse, ...], launches: Launches | None) -> Part:
    rows = tuple(
        (
            Markup("<code>{}</code>").format(printable_block(use.name)),
            use.owner,
            percent(use.share),
            plain(use.time_us),
            f"{use.calls:.3g}",
        )
        for use in kernels
    )
    own = sum(use.share for use in kernels if use.owner in OWN_KERNELS)
    ran = "" if launches is None else f", {launches.candidate:.3g} kernels"
    caption = f"What ran in a call of the main case{ran}: {percent(own)} of it the solution's own"
    return Part(title="Kernels", grids=(Grid(caption=caption, headings=_KERNELS, rows=rows),))


def _sanitizer(record: SanitizerRecord) -> Part:
    title, tools = "compute-sanitizer", " and ".join(record.tools) or "no tool"
    if not record.findings:
        note = f"Clean: {tools} on one call of case {record.case}."
        return Part(title=title, wide=False, notes=(note,))
    rows = tuple(
        (f.tool, f.severity, f.what, f.kernel, count(f.count), f.first) for f in record.findings
    )
    caption = f"Findings of {tools} in one call of case {record.case}"
    return Part(title=title, grids=(Grid(caption=caption, headings=_FINDINGS, rows=rows),))


def _containment(found: Containment) -> Part:
    limits = found.limits
    facts = {
        "level": found.level,
        "network": found.network,
        "file system": found.filesystem,
        "processes": found.processes,
        "Landlock": f"version {found.landlock_abi}" if found.landlock_abi else "",
        "limits": ""
        if limits is None
        else f"{byte_size(limits.memory_bytes)} of memory, {byte_size(limits.scratch_bytes)} "
        f"written, {byte_size(limits.file_bytes)} a file, {count(limits.processes)} processes, "
        f"{count(limits.open_files)} open files",
        "missing": "; ".join(found.missing),
    }
    shown = tuple(Fact(name, value) for name, value in facts.items() if value)
    return Part(title="Containment", wide=False, facts=shown)


def _build(verdict: Verdict) -> Iterator[Fact]:
    if verdict.build is not None:
        cached = ", in the build folder of an earlier run" if verdict.build.cached else ""
        yield Fact("built in", f"{plain(verdict.build.seconds, 3)} s{cached}")


def _log(verdict: Verdict) -> Iterator[Fold]:
    text = printable_block(verdict.log).strip("\n")
    title = "The end of what it printed"
    if len(text) > _MOST_LOG:
        title += f"; the last {count(_MOST_LOG)} of {count(len(text))} characters, JSON has all"
    if text:
        yield Fold(title=title, text=text[-_MOST_LOG:], unfolded=not verdict.passed)
