"""Tables in documents, made from records by cog so that nobody types a number.

In README.md, docs/ and benchmarks/ a comment calls one of these functions, and what it returns
stands below. `make tables` fills them in.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean

import msgspec
from rich.console import Console

from kernelgen.errors import UserError
from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.lint.record import SCHEMA_VERSION, CaseLint, Lint
from kernelgen.problem.record import digest
from kernelgen.report import columns
from kernelgen.report.console import Column
from kernelgen.report.json_report import read_run
from kernelgen.report.printable import printable
from kernelgen.report.progress import progress
from kernelgen.report.suite import baselines_of, mean_speedup

HEADLINES = ("groupnorm", "rmsnorm", "softmax", "matmul", "linear_instancenorm_add_mul")
"""One problem of each family: README.md shows their times, and `make demo` grades them on a CPU."""

_CHANGED = "†"
_GPU: Column[Verdict] = Column(heading="GPU", cell=lambda verdict: verdict.device)
_TIMES = (columns.TIME, columns.VS_EAGER, columns.VS_COMPILE, columns.LIMIT)
_ALL_TIMES = (
    columns.TIME, columns.LIMIT, columns.EAGER, columns.COMPILE, columns.VS_EAGER,
    columns.VS_COMPILE,
)  # fmt: skip
_MOST_CHARACTERS = 160
# Characters that would end a cell or start markup. Brackets stay: intervals are written with them.
_SYNTAX = re.compile(r"([\\|*`<])")


def read_runs(folder: str | Path, pattern: str = "*.json") -> tuple[Run, ...]:
    """Read the recorded runs below a folder that match, in the order of their paths.

    Raises:
        UserError: a file is not the JSON of one run, or has another schema.
    """
    return tuple(read_run(path).run for path in sorted(Path(folder).glob(pattern)))


def headline(runs: Sequence[Run], root: Path = Path()) -> str:
    """Return two commands and a verdict, and the times of `HEADLINES` on every GPU as a table.

    `root` is where solutions' paths start.
    """
    shown = sorted(
        (verdict for verdict in _latest(runs) if verdict.problem in HEADLINES),
        key=lambda verdict: (verdict.device, HEADLINES.index(verdict.problem), verdict.solution),
    )
    printed = io.StringIO()
    with progress(Console(file=printed, width=1000)) as observer:
        observer.begin([shown[0].solution])
        observer.finished(0, shown[0])
    commands = f"$ kernelgen render {shown[0].problem}\n$ kernelgen grade {shown[0].solution}"
    example = f"```console\n{commands}\n{printed.getvalue().rstrip()}\n```"
    return "\n".join([example, "", *_times((_GPU, columns.SOLUTION, *_TIMES), shown, root)])


def results_table(runs: Sequence[Run], root: Path = Path()) -> str:
    """Return one GPU's verdicts in the order of problems; of a solution its last run counts."""
    shown = sorted(_latest(runs), key=lambda verdict: (verdict.problem, verdict.solution))
    return _with_versions(runs, (*_ALL_TIMES, columns.BUILD), shown, root)


def public_table(runs: Sequence[Run], root: Path = Path()) -> str:
    """Return solutions beside public kernels, one problem a run, the fastest first."""

    def by_time(verdict: Verdict) -> tuple[str, bool, float, str]:
        time_ms = 0.0 if verdict.timing is None else verdict.timing.candidate_ms
        return verdict.problem, verdict.timing is None, time_ms, verdict.solution

    shown = sorted((verdict for run in runs for verdict in run.verdicts), key=by_time)
    return _with_versions(runs, _ALL_TIMES, shown, root)


def csv_means(*paths: str | Path) -> str:
    """Return how many rows of `kernelgen report --csv` passed, at which mean, and the others.

    Of a solution the last row counts.
    """
    rows: dict[str, dict[str, str]] = {}
    for path in paths:
        with Path(path).open(newline="", encoding="utf-8") as file:
            rows |= {row["solution"]: row for row in csv.DictReader(file)}
    others: dict[str, list[str]] = {}
    for name, row in rows.items():
        others.setdefault(row["status"].split()[-1], []).append(name.split()[0])
    passed = [row["vs eager [95 %]"] for row in rows.values() if "PASSED" in row["status"]]
    mean = geometric_mean(float(cell.partition("x")[0]) for cell in passed)
    others.pop("PASSED", None)
    told = [f"{status}: {', '.join(names)}." for status, names in sorted(others.items())]
    first = f"{len(passed)} files passed, at {mean:.2f}x eager in the geometric mean."
    return "\n".join([first, *told])


def levels_table(folder: str | Path) -> str:
    """Return a table of each record `level-*.json` below a folder, by what stays in torch.

    Raises:
        UserError: one cannot be read.
    """
    records = sorted(Path(folder).glob("level-*.json"))
    return "\n\n".join("\n".join(_level_lines(path.stem, read_run(path).run)) for path in records)


def lint_table(benchmarks: str | Path) -> str:
    """Return what the records of lints below a folder say, one device after the other.

    Raises:
        UserError: one cannot be read.
    """
    records = map(read_lint, sorted(Path(benchmarks).glob("*/kernelbench/lint*.json")))
    return "\n\n".join("\n".join(_lint_lines(record)) for record in records)


def read_lint(path: Path) -> Lint:
    """Read what `kernelgen lint --json` wrote.

    Raises:
        UserError: it cannot be read, or is no record that this version reads.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Lint)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(
            f"{path}: not a kernelgen lint: {error}; run kernelgen lint again"
        ) from error
    if found.schema != SCHEMA_VERSION:
        raise UserError(f"{path}: has schema {found.schema}, and not {SCHEMA_VERSION}; lint again")
    return found


def _latest(runs: Sequence[Run]) -> tuple[Verdict, ...]:
    """Return the verdict of the last run that has one, of each solution on each device."""
    found = {
        # A file that was refused at sight has no device of its own.
        (v.device or run.environment.get("gpu"), v.problem, v.solution): v
        for run in runs
        for v in run.verdicts
    }
    return tuple(found.values())


def _with_versions(
    runs: Sequence[Run], times: Sequence[Column[Verdict]], shown: Sequence[Verdict], root: Path
) -> str:
    """Return a table below a line that names the GPU and the versions in use."""
    devices = [verdict.device for verdict in shown if verdict.device]
    torch = [f"torch {run.environment['torch']}" for run in runs if "torch" in run.environment]
    # Of packages that solutions were allowed to import.
    imports = [str(run.environment["imports"]) for run in runs if run.environment.get("imports")]
    measured_with = escaped(", ".join(dict.fromkeys([*devices, *torch, *imports])))
    chosen = (columns.PROBLEM, columns.SOLUTION, *times)
    return "\n".join([f"{measured_with}:", "", *_times(chosen, shown, root)])


def _times(
    chosen: Sequence[Column[Verdict]], shown: Sequence[Verdict], root: Path
) -> Iterator[str]:
    """Yield a table: the status in place of a missing time, a mark behind a changed solution."""
    yield row(column.heading.replace("\n", " ") for column in chosen)
    yield rule(numbers=[column.number for column in chosen])
    changed = [_has_changed(verdict, root) for verdict in shown]
    for verdict, mark in zip(shown, changed, strict=True):
        failed = {} if verdict.passed else {columns.TIME: verdict.status.value}
        cells = [escaped(failed.get(column) or column.cell(verdict)) for column in chosen]
        if mark:
            cells[chosen.index(columns.SOLUTION)] += f" {_CHANGED}"
        yield row(cells)
    if any(changed):
        yield f"\n{_CHANGED} The file has changed since it was recorded."


def _has_changed(verdict: Verdict, root: Path) -> bool:
    """Return whether a solution's file differs from the recorded one, or is gone.

    Leading comments do not count: a rendered file lists there all templates that its problem could
    use, even those that contributed nothing.
    """
    file = root / verdict.solution
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    same = text is not None and digest(text) == verdict.solution_sha256
    return not same and (text is None or _code(text) != _code(verdict.source))


def _code(text: str) -> list[str]:
    lines = text.splitlines()
    return list(itertools.dropwhile(lambda line: line.startswith("#") or not line.strip(), lines))


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
    yield rule(numbers=[False, True, True, *(True for _ in baselines)])
    for family, verdicts in {**families, "all": list(run.verdicts)}.items():
        found = [mean_speedup(baseline, verdicts) for baseline in baselines]
        cells = ["-" if mean is None else f"{mean:.2f}x" for mean in found]
        passed = sum(verdict.passed for verdict in verdicts)
        yield row((escaped(family), str(len(verdicts)), str(passed), *cells))
    others: dict[str, list[str]] = {}
    for verdict in run.verdicts:
        if not verdict.passed:
            others.setdefault(verdict.status.value, []).append(escaped(verdict.problem))
    for status, names in others.items():
        yield f"\n{status} ({len(names)}): {', '.join(names)}."


def _stays(plan: PlanRecord | None) -> str:
    """Return the operators of a plan that torch computes."""
    if plan is None:
        return "no plan recorded"
    if plan.reason:
        return "not planned"
    names = sorted({stage.name for stage in plan.stages if stage.kind == "library"})
    return ", ".join(names) or "nothing"


def _lint_lines(record: Lint) -> Iterator[str]:
    found = [(case, "refused", case.reason) for case in record.cases if case.refused]
    refused = len(found)
    found += [(c, "a pass says little", _weak(c)) for c in record.cases if not c.refused]
    told = {case: (what, why) for case, what, why in found if why}
    yield (
        f"On {escaped(record.device)}, of {len(record.cases)} problems "
        f"{len(record.cases) - len(told)} can be graded, {len(told) - refused} let an answer "
        f"without work or without an input pass, {refused} are refused ({record.seconds:.0f} s in "
        f"all).{f' {record.left} were not looked at.' if record.left else ''}"
    )
    if told:
        yield ""
        yield row(("problem", "", "why"))
        yield rule(numbers=[False, False, False])
    for case in record.cases:
        if case in told:
            what, why = told[case]
            line = why.splitlines()[0]
            short = line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
            yield row((escaped(case.file), what, escaped(short)))
    parameters = [c for c in record.cases if any(not i.startswith("inputs[") for i in c.idle)]
    remarks = {
        "A parameter makes no difference, so that a candidate may leave it out": parameters,
        "Compared with float32 results, for want of float64 ones": [
            case for case in record.cases if case.note
        ],
        "Not every input and parameter was tried": [c for c in record.cases if c.untried],
    }
    for text, cases in remarks.items():
        if cases:
            names = ", ".join(escaped(case.file) for case in cases)
            yield f"\n{text} ({len(cases)}): {names}."


def _weak(case: CaseLint) -> str:
    """Return why a pass says little: what passes without work, inputs that make no difference."""
    inputs = [f"{name} makes no difference" for name in case.idle if name.startswith("inputs[")]
    return "; ".join([*(f"{name} passes" for name in case.trivial), *inputs])


def escaped(text: str) -> str:
    """Return text that a cell shows literally."""
    return _SYNTAX.sub(r"\\\1", printable(text))


def row(cells: Iterable[str]) -> str:
    """Return a table row of escaped cells."""
    return f"| {' | '.join(cells)} |"


def rule(*, numbers: Iterable[bool]) -> str:
    """Return the row below the headings, which aligns columns of numbers to the right."""
    return row("---:" if number else "---" for number in numbers)
