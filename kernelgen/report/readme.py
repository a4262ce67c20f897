"""The README's table of results, made from recorded runs so that nobody types a number."""

from pathlib import Path

from kernelgen.grading.verdict import Run, Verdict
from kernelgen.report.columns import (
    BUILD,
    COMPILE,
    EAGER,
    PROBLEM,
    SOLUTION,
    STATUS,
    TIME,
    VS_COMPILE,
    VS_EAGER,
    Column,
)
from kernelgen.report.markdown import CHANGED, escaped, has_changed, row, rule
from kernelgen.report.reading import read_run

_NOTHING = "No run on a GPU has been recorded yet."
_CHANGED_NOTE = (
    f"{CHANGED} Recorded with an earlier state of this file, not the one that is here now."
)
_GPU = Column(heading="GPU", cell=lambda verdict: verdict.device, number=False)
_COLUMNS = (_GPU, PROBLEM, SOLUTION, TIME, EAGER, COMPILE, VS_EAGER, VS_COMPILE, BUILD)


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
    if not verdicts:
        return _NOTHING
    heading = row(column.heading for column in _COLUMNS)
    below = rule(numbers=(column.number for column in _COLUMNS))
    rows = [row(_cell(column, verdict, root) for column in _COLUMNS) for verdict in verdicts]
    changed = any(_changed(verdict, root) for verdict in verdicts)
    return "\n".join([heading, below, *rows, *(("", _CHANGED_NOTE) if changed else ())])


def _cell(column: Column, verdict: Verdict, root: Path) -> str:
    shown = STATUS if column is TIME and not verdict.passed else column
    text = escaped(shown.cell(verdict))
    return f"{text} {CHANGED}" if column is SOLUTION and _changed(verdict, root) else text


def _changed(verdict: Verdict, root: Path) -> bool:
    return has_changed(root / verdict.solution, verdict.solution_sha256, verdict.source)
