"""What rendering and grading KernelBench's levels came to, as a generated section of a document."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.markdown import escaped, row, rule
from kernelgen.report.reading import read_run
from kernelgen.report.suite import baselines_of, suite_figures

_RECORDS = "kernelbench/level-*.json"


def levels_table(folder: Path) -> str:
    """Return what the records below a GPU's folder say: a table of each, by what stays in torch.

    Raises:
        UserError: one cannot be read.
    """
    records = sorted(folder.glob(_RECORDS))
    if not records:
        return "No record is committed yet."
    return "\n\n".join("\n".join(_lines(path.stem, read_run(path).run)) for path in records)


def _lines(name: str, run: Run) -> Iterator[str]:
    plans = {plan.problem: plan for plan in run.plans}
    families: dict[str, list[Verdict]] = {}
    for verdict in run.verdicts:
        families.setdefault(_stays(plans.get(verdict.problem)), []).append(verdict)
    families = dict(sorted(families.items(), key=lambda pair: (-len(pair[1]), pair[0])))
    baselines = baselines_of(run)
    devices = ", ".join(dict.fromkeys(v.device for v in run.verdicts if v.device))
    yield f"{name}, {escaped(devices)}; speedups are geometric means over what passed:"
    yield ""
    yield row(("stays in torch", "files", "passed", *(f"vs {b}" for b in baselines)))
    yield rule(numbers=(False, True, True, *(True for _ in baselines)))
    for family, verdicts in {**families, "all": list(run.verdicts)}.items():
        figures = suite_figures(msgspec.structs.replace(run, verdicts=tuple(verdicts)))
        means = {b.baseline: b.geometric_mean for b in figures.solutions.baselines}
        passed = sum(verdict.passed for verdict in verdicts)
        cells = [_mean(means.get(baseline)) for baseline in baselines]
        yield row((escaped(family), str(len(verdicts)), str(passed), *cells))
    others = [verdict for verdict in run.verdicts if not verdict.passed]
    if others:
        yield ""
        told = ", ".join(f"{escaped(v.problem)} ({v.status.value})" for v in others)
        yield f"Not passed: {told}."


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _stays(plan: PlanRecord | None) -> str:
    """Return the operators of a plan that torch computes."""
    if plan is None or plan.reason:
        return "not planned"
    if plan.template:
        return f"nothing: template {plan.template}"
    names = sorted({stage.name for stage in plan.stages if stage.kind == "library"})
    return ", ".join(names) or "nothing"
