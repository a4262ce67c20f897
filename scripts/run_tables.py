"""Tables of times in documents, made from recorded runs so that nobody types a number."""

import io
from collections.abc import Sequence
from pathlib import Path

from markdown_tables import CHANGED, escaped, has_changed, row, rule
from rich.console import Console

from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.columns import (
    BUILD,
    COMPILE,
    EAGER,
    LIMIT,
    PROBLEM,
    SOLUTION,
    TIME,
    VS_COMPILE,
    VS_EAGER,
)
from kernelgen.report.progress import Verbosity, progress
from kernelgen.report.reading import read_run
from kernelgen.report.table import Column

HEADLINES = ("groupnorm", "rmsnorm", "softmax", "matmul", "linear_instancenorm_add_mul")
"""One problem of each family: README.md shows their times, and `make demo` grades them on a CPU."""

_NOTHING = "No run on a GPU has been recorded yet."
_NOTHING_PUBLIC = "No public kernel has been timed on this GPU yet."
_CHANGED_NOTE = f"{CHANGED} The file has changed since it was recorded."
_GPU: Column[Verdict] = Column(heading="GPU", cell=lambda verdict: verdict.device)
_HEADLINE_COLUMNS = (_GPU, SOLUTION, TIME, VS_EAGER, VS_COMPILE, LIMIT)
_COLUMNS = (PROBLEM, SOLUTION, TIME, LIMIT, EAGER, COMPILE, VS_EAGER, VS_COMPILE)


def read_runs(folder: Path, pattern: str = "*.json") -> tuple[Run, ...]:
    """Read the recorded runs that match, in the order of their paths.

    The pattern is of paths below the folder; one that does not exist holds no records.

    Raises:
        UserError: a file is not the JSON of one run, or has another schema.
    """
    return tuple(read_run(path).run for path in sorted(folder.glob(pattern)))


def headline(runs: tuple[Run, ...], root: Path) -> str:
    """Return two commands and a verdict, and the times of `HEADLINES` on every GPU as a table.

    Without a record of these problems it is a sentence. `root` is where solutions' paths start.
    """
    shown = sorted(
        (verdict for verdict in _latest(runs) if verdict.problem in HEADLINES),
        key=lambda verdict: (verdict.device, HEADLINES.index(verdict.problem), verdict.solution),
    )
    if not shown:
        return _NOTHING
    return "\n".join([*_example(shown[0]), "", *_table(_HEADLINE_COLUMNS, shown, root)])


def _example(verdict: Verdict) -> list[str]:
    """Return a console's text: how a solution is rendered and graded, and what that printed."""
    printed = io.StringIO()
    with progress(Console(file=printed, width=1000), Verbosity.NORMAL) as observer:
        observer.begin([verdict.solution])
        observer.finished(0, verdict)
    return [
        "```console",
        f"$ kernelgen render {verdict.problem}",
        f"$ kernelgen grade {verdict.solution}",
        printed.getvalue().rstrip(),
        "```",
    ]


def results_table(runs: tuple[Run, ...], root: Path) -> str:
    """Return one GPU's verdicts as a Markdown table in the order of problems, or a sentence.

    Of a solution, the last run that has it counts.
    """
    shown = sorted(_latest(runs), key=lambda verdict: (verdict.problem, verdict.solution))
    return _with_versions(runs, (*_COLUMNS, BUILD), shown, root) if shown else _NOTHING


def _latest(runs: tuple[Run, ...]) -> tuple[Verdict, ...]:
    """Return the verdict of the last run that has one, of each solution on each device."""
    found = {
        # What was refused at sight has no device of its own.
        (v.device or run.environment.get("gpu"), v.problem, v.solution): v
        for run in runs
        for v in run.verdicts
    }
    return tuple(found.values())


def public_table(runs: tuple[Run, ...], root: Path) -> str:
    """Return solutions beside public kernels on one GPU, the fastest first, or a sentence.

    Each run holds one problem with all that was timed on it.
    """
    shown = sorted((verdict for run in runs for verdict in run.verdicts), key=_by_time)
    return _with_versions(runs, _COLUMNS, shown, root) if shown else _NOTHING_PUBLIC


def _by_time(verdict: Verdict) -> tuple[str, bool, float, str]:
    time_ms = 0.0 if verdict.timing is None else verdict.timing.candidate_ms
    return verdict.problem, verdict.timing is None, time_ms, verdict.solution


def _with_versions(
    runs: tuple[Run, ...],
    columns: Sequence[Column[Verdict]],
    verdicts: Sequence[Verdict],
    root: Path,
) -> str:
    """Return a table below a line that names the GPU and the versions in use."""
    devices = dict.fromkeys(verdict.device for verdict in verdicts if verdict.device)
    versions = dict.fromkeys(text for run in runs for text in _versions(run))
    measured_with = escaped(", ".join([*devices, *versions]))
    return "\n".join([f"{measured_with}:", "", *_table(columns, verdicts, root)])


def _versions(run: Run) -> list[str]:
    """Return torch's version, and those of what solutions were allowed to import beside it."""
    torch, imports = run.environment.get("torch"), run.environment.get("imports")
    return [*([f"torch {torch}"] if torch else []), *([str(imports)] if imports else [])]


def _table(
    columns: Sequence[Column[Verdict]], verdicts: Sequence[Verdict], root: Path
) -> list[str]:
    heading = row(column.heading.replace("\n", " ") for column in columns)
    below = rule(numbers=(column.number for column in columns))
    changed = [has_changed(root / v.solution, v.solution_sha256, v.source) for v in verdicts]
    rows = [
        row(_cell(column, verdict, changed=mark) for column in columns)
        for verdict, mark in zip(verdicts, changed, strict=True)
    ]
    return [heading, below, *rows, *(("", _CHANGED_NOTE) if any(changed) else ())]


def _cell(column: Column[Verdict], verdict: Verdict, *, changed: bool) -> str:
    """Return an entry: the status in place of a missing time, a mark behind a changed solution."""
    failed = column is TIME and not verdict.passed
    text = escaped(verdict.status.value if failed else column.cell(verdict))
    return f"{text} {CHANGED}" if column is SOLUTION and changed else text
