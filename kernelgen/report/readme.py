"""The README's table of results, made from recorded runs so that nobody types a number."""

import re
from collections.abc import Iterable
from pathlib import Path

from kernelgen.errors import UserError
from kernelgen.grading.verdict import Run, Verdict
from kernelgen.problem.record import digest
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
from kernelgen.report.printable import printable
from kernelgen.report.reading import read_run

_NOTHING = "No run on a GPU has been recorded yet."
_CHANGED = "†"
_CHANGED_NOTE = (
    f"{_CHANGED} Recorded with an earlier state of this file, not the one that is here now."
)
_GPU = Column(heading="GPU", cell=lambda verdict: verdict.device, number=False)
_COLUMNS = (_GPU, PROBLEM, SOLUTION, TIME, EAGER, COMPILE, VS_EAGER, VS_COMPILE, BUILD)
# What would end a cell or start markup; brackets stay, for the intervals are written with them.
_MARKDOWN_SYNTAX = re.compile(r"([\\|*`<])")


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
    heading = _row(column.heading for column in _COLUMNS)
    rule = _row("---:" if column.number else "---" for column in _COLUMNS)
    rows = [_row(_cell(column, verdict, root) for column in _COLUMNS) for verdict in verdicts]
    changed = any(_has_changed(verdict, root) for verdict in verdicts)
    return "\n".join([heading, rule, *rows, *(("", _CHANGED_NOTE) if changed else ())])


def fill(text: str, name: str, body: str, *, path: Path) -> str:
    """Replace what stands between `<!-- generated: NAME -->` and the next `<!-- /generated -->`.

    Args:
        text: a Markdown document.
        name: of the section.
        body: its new content, without the markers.
        path: the document's, for the error's message.

    Raises:
        UserError: the document does not hold the pair of markers exactly once.
    """
    opening, closing = f"<!-- generated: {name} -->", "<!-- /generated -->"
    before, *rest = text.split(opening)
    if len(rest) != 1 or closing not in rest[0]:
        raise UserError(
            f"{path}: expected one line '{opening}' and after it a line '{closing}'; "
            "put both where the generated text belongs"
        )
    after = rest[0].partition(closing)[2]
    return f"{before}{opening}\n{body.strip()}\n{closing}{after}"


def _cell(column: Column, verdict: Verdict, root: Path) -> str:
    shown = STATUS if column is TIME and not verdict.passed else column
    text = _MARKDOWN_SYNTAX.sub(r"\\\1", printable(shown.cell(verdict)))
    return f"{text} {_CHANGED}" if column is SOLUTION and _has_changed(verdict, root) else text


def _has_changed(verdict: Verdict, root: Path) -> bool:
    """Return whether the solution's file is not the one that was recorded, or is not there."""
    try:
        return digest((root / verdict.solution).read_bytes()) != verdict.solution_sha256
    except OSError:
        return True


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
