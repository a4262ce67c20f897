"""The tables of times in documents, made from recorded runs so that nobody types a number."""

from collections.abc import Sequence
from pathlib import Path

from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.columns import (
    BUILD,
    COMPILE,
    EAGER,
    LIMIT,
    PROBLEM,
    SOLUTION,
    STATUS,
    TIME,
    VS_COMPILE,
    VS_EAGER,
)
from kernelgen.report.markdown import CHANGED, escaped, has_changed, row, rule
from kernelgen.report.reading import read_run
from kernelgen.report.table import Column

_NOTHING = "No run on a GPU has been recorded yet."
_NOTHING_PUBLIC = "No public kernel has been timed on this GPU yet."
_CHANGED_NOTE = (
    f"{CHANGED} Recorded with an earlier state of this file, not the one that is here now."
)
_GPU: Column[Verdict] = Column(heading="GPU", cell=lambda verdict: verdict.device)
_COLUMNS = (_GPU, PROBLEM, SOLUTION, TIME, EAGER, COMPILE, VS_EAGER, VS_COMPILE, BUILD)
_PUBLIC_COLUMNS = (PROBLEM, SOLUTION, TIME, LIMIT, EAGER, COMPILE, VS_EAGER, VS_COMPILE)


def read_runs(folder: Path) -> tuple[Run, ...]:
    """Read the records `FOLDER/<gpu>/*.json`, in the order of their paths.

    A folder that does not exist holds no records.

    Raises:
        UserError: a file is not the JSON of one run, or of another schema.
    """
    return tuple(read_run(path).run for path in sorted(folder.glob("*/*.json")))


def results_table(runs: tuple[Run, ...], root: Path) -> str:
    """Return every verdict of the runs as a Markdown table, or a sentence where there is none.

    A candidate that did not pass has its status where the time would stand. A solution that is not
    the one that was recorded is marked, for the times are of another text.

    Args:
        runs: recorded.
        root: the folder that the solutions' paths start at.
    """
    verdicts = sorted(
        (verdict for run in runs for verdict in run.verdicts),
        key=lambda verdict: (verdict.device, verdict.problem, verdict.solution),
    )
    return "\n".join(_table(_COLUMNS, verdicts, root)) if verdicts else _NOTHING


def read_public_runs(folder: Path) -> tuple[Run, ...]:
    """Read the records `FOLDER/public/*.json`, in the order of their names.

    Raises:
        UserError: as for `read_runs`.
    """
    return tuple(read_run(path).run for path in sorted((folder / "public").glob("*.json")))


def public_table(runs: tuple[Run, ...], root: Path) -> str:
    """Return solutions beside public kernels, the fastest of a problem first, or a sentence.

    Args:
        runs: of one GPU, as a rule: each a problem's, with all that was timed on it.
        root: the folder that the solutions' paths start at.
    """
    verdicts = sorted((verdict for run in runs for verdict in run.verdicts), key=_by_time)
    if not verdicts:
        return _NOTHING_PUBLIC
    devices = dict.fromkeys(verdict.device for verdict in verdicts if verdict.device)
    versions = dict.fromkeys(text for run in runs for text in _versions(run))
    measured_with = escaped(", ".join([*devices, *versions]))
    return "\n".join([f"{measured_with}:", "", *_table(_PUBLIC_COLUMNS, verdicts, root)])


def _by_time(verdict: Verdict) -> tuple[str, bool, float, str]:
    time_ms = 0.0 if verdict.timing is None else verdict.timing.candidate_ms
    return verdict.problem, verdict.timing is None, time_ms, verdict.solution


def _versions(run: Run) -> list[str]:
    """Return torch's version, and those of what solutions were allowed to import beside it."""
    torch, imports = run.environment.get("torch"), run.environment.get("imports")
    return [*([f"torch {torch}"] if torch else []), *([str(imports)] if imports else [])]


def _table(
    columns: Sequence[Column[Verdict]], verdicts: Sequence[Verdict], root: Path
) -> list[str]:
    heading = row(column.heading.replace("\n", " ") for column in columns)
    below = rule(numbers=(column.number for column in columns))
    rows = [row(_cell(column, verdict, root) for column in columns) for verdict in verdicts]
    changed = any(_changed(verdict, root) for verdict in verdicts)
    return [heading, below, *rows, *(("", _CHANGED_NOTE) if changed else ())]


def _cell(column: Column[Verdict], verdict: Verdict, root: Path) -> str:
    shown = STATUS if column is TIME and not verdict.passed else column
    text = escaped(shown.cell(verdict))
    return f"{text} {CHANGED}" if column is SOLUTION and _changed(verdict, root) else text


def _changed(verdict: Verdict, root: Path) -> bool:
    return has_changed(root / verdict.solution, verdict.solution_sha256, verdict.source)
