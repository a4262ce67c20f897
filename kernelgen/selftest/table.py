"""What a selftest found, for a person: the rows that matter, why, and the sums."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from kernelgen.report.details import Line
from kernelgen.report.printable import printable, printable_lines
from kernelgen.report.table import print_line, shorten
from kernelgen.selftest.classes import CLASSES, ExploitClass, Family
from kernelgen.selftest.corpus import Candidate, Kind
from kernelgen.selftest.record import Outcome, Result, SelftestRun
from kernelgen.selftest.signs import mark, style

_GAP = "  "
_REASON_LINES = 6
_LEAST_NAME_CELLS = 12
_TELLING = (Outcome.MISS, Outcome.KNOWN_GAP, Outcome.CLOSED_GAP)


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column; a terminal that is too narrow loses those of the highest `rank` first."""

    heading: str
    cell: Callable[[Result], str]
    rank: int = 0
    number: bool = False


_FILE = _Column(heading="file", cell=lambda result: result.file)
_COLUMNS = (
    _FILE,
    _Column(heading="result", cell=lambda result: result.outcome.value),
    _Column(heading="class", cell=lambda result: " ".join(result.exploit), rank=3),
    _Column(heading="expected", cell=lambda result: result.expected.value, rank=1),
    _Column(heading="got", cell=lambda result: result.got),
    _Column(
        heading="s",
        cell=lambda result: "" if result.seconds is None else f"{result.seconds:.1f}",
        rank=2,
        number=True,
    ),
)


def show(run: SelftestRun, console: Console, *, verbose: bool) -> None:
    """Print a selftest.

    Args:
        run: what was found.
        console: a terminal, to whose width the table is fitted, or a pipe, which gets all of it.
        verbose: print every result, not only those that are not as expected.
    """
    rows = sorted(run.results, key=lambda result: (result.round, result.file))
    if not verbose:
        rows = [result for result in rows if result.outcome in _TELLING]
    if rows:
        _print_rows(rows, console)
        console.print()
    for result in rows:
        _print_lines(_details(result, console.options.ascii_only), console)
    for heading, sums in (("kind", _by_kind(run)), ("attacks on", _by_family(run))):
        if sums:
            head = (heading, "runs", *(outcome.value for outcome in Outcome))
            _print_grid([head, *sums], console)
            console.print()
    _print_lines(_closing(run), console)


def show_classes(corpus: Sequence[Candidate], console: Console) -> None:
    """Print every class of attack, with the candidates that stand for it or why there is none."""
    ascii_only = console.options.ascii_only
    for family in Family:
        print_line(Line(lead="", folded_lead="  ", text=family.value, style="bold"), console)
        for one in CLASSES.values():
            if one.family is family:
                text = printable(f"{one.name}: {_cover(one, corpus)}", ascii_only=ascii_only)
                print_line(Line(lead=f"  {one.id}  ", folded_lead=" " * 7, text=text), console)


def _cover(one: ExploitClass, corpus: Sequence[Candidate]) -> str:
    files = [candidate.name for candidate in corpus if one.id in candidate.exploit]
    if files:
        return ", ".join(files)
    return f"not applicable. {one.outside}" if one.outside else "no candidate"


def _print_rows(rows: Sequence[Result], console: Console) -> None:
    ascii_only = console.options.ascii_only

    def text(column: _Column, result: Result) -> str:
        return printable(column.cell(result), ascii_only=ascii_only) or "-"

    columns = [c for c in _COLUMNS if not c.rank or any(c.cell(result) for result in rows)]
    widths = {
        column.heading: max(len(column.heading), *(cell_len(text(column, row)) for row in rows))
        for column in columns
    }
    if console.is_interactive:
        columns = _fitting(columns, widths, console.width)
    for result in (None, *rows):
        line = Text()
        for column in columns:
            cell = column.heading if result is None else text(column, result)
            cell = shorten(cell, widths[column.heading], ascii_only=ascii_only)
            width = widths[column.heading]
            padded = cell.rjust(width) if column.number else set_cell_size(cell, width)
            is_outcome = result is not None and column.heading == "result"
            line.append(padded, style=style(result.outcome) if result and is_outcome else "")
            line.append(_GAP)
        line.rstrip()
        console.print(line, soft_wrap=True, style="bold" if result is None else "")


def _fitting(columns: list[_Column], widths: dict[str, int], room: int) -> list[_Column]:
    """Return the columns that fit, and make the one of the files narrower where that is needed."""

    def excess() -> int:
        return sum(widths[c.heading] for c in columns) + len(_GAP) * (len(columns) - 1) - room

    while excess() > 0 and any(column.rank for column in columns):
        least = max(column.rank for column in columns)
        columns = [column for column in columns if column.rank != least]
    if excess() > 0:
        widths[_FILE.heading] = max(_LEAST_NAME_CELLS, widths[_FILE.heading] - excess())
    return columns


def _details(result: Result, ascii_only: bool) -> Iterator[Line]:  # noqa: FBT001
    """Yield the lines about a result that is not as expected; none for any other."""
    if result.outcome not in _TELLING:
        return
    sign = mark(result.outcome, ascii_only=ascii_only)
    name = printable(result.file, ascii_only=ascii_only)
    heading = f"{name}: {result.outcome.value}"
    yield Line(lead=f"{sign} ", folded_lead="  ", text=heading, style=style(result.outcome))
    texts = list(result.misses)
    if result.outcome is Outcome.CLOSED_GAP:
        texts.append("it got the verdict that its header names: take its `gap:` line out")
    if result.note:
        texts.append(f"gap: {result.note}")
    reason = "" if result.verdict is None else result.verdict.reason
    told = printable_lines(reason, ascii_only=ascii_only)[:_REASON_LINES]
    for text in texts:
        yield _indented(printable(text, ascii_only=ascii_only))
    if result.misses:
        yield from (_indented(f"| {line}", "dim") for line in told)
    yield Line(lead="", folded_lead="", text="")


def _indented(text: str, shade: str = "") -> Line:
    return Line(lead="    ", folded_lead="    ", text=text, style=shade)


def _by_kind(run: SelftestRun) -> list[tuple[str, ...]]:
    return [
        _sums(kind.value, [result for result in run.results if result.kind is kind])
        for kind in Kind
        if any(result.kind is kind for result in run.results)
    ]


def _by_family(run: SelftestRun) -> list[tuple[str, ...]]:
    aimed = {
        family: [
            result
            for result in run.results
            if any(CLASSES[one].family is family for one in result.exploit)
        ]
        for family in Family
    }
    return [_sums(family.value, results) for family, results in aimed.items() if results]


def _sums(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    counts = Counter(result.outcome for result in results)
    return (name, str(len(results)), *(str(counts[outcome] or "-") for outcome in Outcome))


def _print_grid(rows: Sequence[Sequence[str]], console: Console) -> None:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        name, *numbers = row
        cells = [set_cell_size(name, widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        console.print(Text(_GAP.join(cells)), soft_wrap=True)


def _closing(run: SelftestRun) -> Iterator[Line]:
    """Yield what was not run, and a line that says it all."""
    idle = Counter(r.note for r in run.results if r.outcome is Outcome.NOT_RUN)
    for note, count in idle.items():
        yield _line(f"not run, and so neither caught nor accepted: {count} ({note})", "yellow")
    graded = [result for result in run.results if result.outcome is not Outcome.NOT_RUN]
    good = sum(r.outcome in (Outcome.AS_EXPECTED, Outcome.CLOSED_GAP) for r in graded)
    told = [
        f"{run.count(outcome)} {word}"
        for outcome, word in (
            (Outcome.MISS, "missed"),
            (Outcome.KNOWN_GAP, "known gaps"),
            (Outcome.NOT_RUN, "not run"),
        )
        if run.count(outcome)
    ]
    devices = dict.fromkeys(r.verdict.device for r in graded if r.verdict and r.verdict.device)
    line = f"{good} of {len(graded)} as expected"
    line += f" ({', '.join(told)})" if told else ""
    line += " on " + " and ".join(map(printable, devices)) if devices else ""
    line += f", in {run.seconds:.0f} s, {run.jobs} at once; --seed {run.seed} repeats the order"
    yield _line(line, "bold")


def _line(text: str, shade: str) -> Line:
    return Line(lead="", folded_lead="  ", text=printable(text), style=shade)


def _print_lines(lines: Iterator[Line], console: Console) -> None:
    for line in lines:
        print_line(line, console)
