"""KernelBench's problems, as linted, rendered and graded: generated sections of documents."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from markdown_tables import escaped, row, rule

from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.lint.record import SCHEMA_VERSION, CaseLint, Lint
from kernelgen.report.json_report import read_form
from kernelgen.report.reading import read_run
from kernelgen.report.suite import baselines_of, suite_figures

_MOST_CHARACTERS = 160


def levels_table(folder: Path) -> str:
    """Return what the records below a GPU's folder say: a table of each, by what stays in torch.

    Raises:
        UserError: one cannot be read.
    """
    records = sorted(folder.glob("kernelbench/level-*.json"))
    if not records:
        return "No record is committed yet."
    return "\n\n".join("\n".join(_level_lines(path.stem, read_run(path).run)) for path in records)


def _level_lines(name: str, run: Run) -> Iterator[str]:
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
    others: dict[str, list[str]] = {}
    for verdict in run.verdicts:
        if not verdict.passed:
            others.setdefault(verdict.status.value, []).append(escaped(verdict.problem))
    for status, names in others.items():
        yield ""
        yield f"{status} ({len(names)}): {', '.join(names)}."


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _stays(plan: PlanRecord | None) -> str:
    """Return the operators of a plan that torch computes."""
    if plan is None:
        return "no plan recorded"
    if plan.reason:
        return "not planned"
    if plan.template:
        return f"nothing: template {plan.template}"
    names = sorted({stage.name for stage in plan.stages if stage.kind == "library"})
    return ", ".join(names) or "nothing"


def lint_table(benchmarks: Path) -> str:
    """Return what the records below a folder say, one device after the other.

    Raises:
        UserError: one cannot be read.
    """
    records = [read_lint(path) for path in sorted(benchmarks.glob("*/kernelbench/lint*.json"))]
    if not records:
        return "No record is committed yet, so nothing is said here of any problem."
    return "\n\n".join("\n".join(_lint_lines(record)) for record in records)


def read_lint(path: Path) -> Lint:
    """Read what `kernelgen lint --json` wrote.

    Raises:
        UserError: it cannot be read, or is no record that this version reads.
    """
    return read_form(path, Lint, version=SCHEMA_VERSION, name="lint", command="lint")


def _lint_lines(record: Lint) -> Iterator[str]:
    refused = [case for case in record.cases if case.refused]
    weak = [case for case in record.cases if not case.refused and _weak(case)]
    good = len(record.cases) - len(refused) - len(weak)
    yield (
        f"On {escaped(record.device)}, of {len(record.cases)} problems {good} can be graded, "
        f"{len(weak)} let an answer without work or without an input pass, {len(refused)} are "
        f"refused ({record.seconds:.0f} s in all)."
        + (f" {record.left} were not looked at." if record.left else "")
    )
    if refused or weak:
        yield ""
        yield row(("problem", "", "why"))
        yield rule(numbers=(False, False, False))
    for case in record.cases:
        if case.refused:
            yield row((escaped(case.file), "refused", _short(case.reason)))
        elif _weak(case):
            why = "; ".join(map(escaped, _weak(case)))
            yield row((escaped(case.file), "a pass says little", why))
    yield from _remarks(record.cases)


def _weak(case: CaseLint) -> tuple[str, ...]:
    """Return why a pass says little: what passes without work, inputs that make no difference."""
    inputs = [f"{name} makes no difference" for name in case.idle if name.startswith("inputs[")]
    return (*(f"{name} passes" for name in case.trivial), *inputs)


def _remarks(cases: Sequence[CaseLint]) -> Iterator[str]:
    parameters = [c for c in cases if any(not name.startswith("inputs[") for name in c.idle)]
    remarks = {
        "A parameter makes no difference, so that a candidate may leave it out": parameters,
        "Compared with float32 results, for want of float64 ones": [c for c in cases if c.note],
        "Not every input and parameter was tried": [c for c in cases if c.untried],
    }
    for text, found in remarks.items():
        if found:
            names = ", ".join(escaped(case.file) for case in found)
            yield ""
            yield f"{text} ({len(found)}): {names}."


def _short(reason: str) -> str:
    line = next(iter(reason.splitlines()), "")
    cut = line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
    return escaped(cut)
