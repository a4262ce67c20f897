"""`kernelgen report`: show recorded runs to people and to CI services."""

import csv
import io
import pkgutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from kernelgen.build.toolchain import cache_folder
from kernelgen.cli import options
from kernelgen.destination import STDOUT, write_whole
from kernelgen.errors import ExitCode, UserError
from kernelgen.grading.verdict import Run
from kernelgen.report.json_report import Recorded, as_one, read_run, schema_text, write

Told = TypeVar("Told")

DOCUMENT_OPTIONS = (
    options.destination("--html", "Write a page for people here: one file that needs no network."),
    options.destination("--junit", "Write JUnit XML for a CI service here."),
    options.destination("--csv", "Write the table here, with commas."),
    options.destination("--markdown", "Write the table here as Markdown."),
)


class Documents(msgspec.Struct, frozen=True, kw_only=True):
    """Where each document goes; `-` is stdout, None is nowhere. No two go to one place."""

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None

    def __post_init__(self) -> None:
        names: dict[Path, str] = {}
        for name, place in msgspec.structs.asdict(self).items():
            if place is not None:
                other = names.setdefault(place if place == STDOUT else place.resolve(), name)
                if other != name:
                    raise UserError(f"--{other} and --{name} both name {place}; name two files")

    @property
    def on_stdout(self) -> bool:
        """Whether one goes to stdout, so that the table goes to stderr."""
        return STDOUT in msgspec.structs.astuple(self)

    def write(self, recorded: Sequence[Recorded]) -> None:
        """Write each that is wanted, all of it or nothing; each is tried whatever others come to.

        Raises:
            UserError: a file cannot be written.
            OSError: the disk is full.
        """
        from kernelgen.report.junit import junit
        from kernelgen.report.run_table import sheet

        # They run from the last to the first.
        with ExitStack() as writers:
            for place, text_of in ((self.markdown, _markdown), (self.csv, _csv)):
                if place is not None:
                    writers.callback(write_whole, text_of(sheet(as_one(recorded))).encode(), place)
            if self.junit is not None:
                writers.callback(lambda place: write_whole(junit(recorded), place), self.junit)
            if self.html is not None:
                from kernelgen.report.html.document import page

                writers.callback(lambda at: write_whole(page(recorded).encode(), at), self.html)
            if self.json is not None:
                writers.callback(write, as_one(recorded), self.json)


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _markdown(rows: list[list[str]]) -> str:
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *body])


def until_stopped(
    grading: Callable[[Told], Run], progress: AbstractContextManager[Told]
) -> tuple[Run, int]:
    """Grade while an observer tells how far it is.

    Returns:
        What was found, and 0; or, where ^C or SIGTERM ended it, what was found by then, and the
        program's exit code.

    Raises:
        Exit: it was ended before anything was found.
    """
    from kernelgen.grading.supervisor.grade import Interrupted

    try:
        with progress as observer:
            return grading(observer), 0
    except Interrupted as stop:
        graded = len(stop.run.verdicts)
        click.echo(f"interrupted; {graded} graded before it", err=True)
        if not graded:
            raise click.exceptions.Exit(stop.code) from None
        return stop.run, stop.code


def keep_last(run: Run) -> None:
    """Keep a run for `kernelgen report`, or say why it cannot be kept, which fails nothing."""
    try:
        _last_run().parent.mkdir(parents=True, exist_ok=True)
        write(run, _last_run())
    except (OSError, UserError) as error:
        click.echo(f"not kept for `kernelgen report`: {error}", err=True)


def _last_run() -> Path:
    return cache_folder() / "last_run.json"


WRITTEN = {
    "grade": "kernelgen.grading.verdict:Run",
    "selftest": "kernelgen.grading.verdict:Run",
    "compare": "kernelgen.comparison.record:Comparison",
    "sweep": "kernelgen.grading.verdict:Run",
    "tune": "kernelgen.grading.verdict:Run",
    "lint": "kernelgen.lint.record:Lint",
    "calibrate": "kernelgen.hardware.calibration:Calibration",
    "build": "kernelgen.cli.build:BuildReport",
    "doctor": "kernelgen.cli.doctor:Diagnosis",
}
"""The record that each command's --json writes."""


def _print_schema(context: click.Context, _: click.Parameter, written_by: str | None) -> None:
    if written_by is not None:
        record = pkgutil.resolve_name(WRITTEN[written_by])
        click.echo(schema_text(record, f"Written by kernelgen {written_by} --json"), nl=False)
        context.exit()


@click.command("report")
@click.option(
    "--schema",
    type=click.Choice(tuple(WRITTEN)),
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of what this command writes with --json, and do nothing else.",
)
@click.argument("paths", nargs=-1, type=options.PATH, metavar="[RUN.json]...")
@options.with_options(*DOCUMENT_OPTIONS)
@options.verbose("With the table, the details of passes too.")
def command(paths: tuple[Path, ...], *, verbose: bool, **places: Path | None) -> int:
    """Show recorded runs: as documents, or else as a table on the console.

    RUN.json is what `kernelgen grade --json FILE` wrote; - is standard input. Several are shown as
    one, by device. Without any it is your last run.

    Exit code: 0 whatever the verdicts are, 2 a file cannot be read or written.
    """
    from kernelgen.report.console import console_for
    from kernelgen.report.run_table import show

    documents = Documents(**places)
    if not paths and not _last_run().is_file():
        raise UserError("no run is kept yet; give RUN.json, or grade something first")
    if len(set(paths)) < len(paths):
        raise UserError("a RUN.json is named twice; name each once")
    recorded = [read_run(path) for path in paths or [_last_run()]]
    if any(places.values()):
        documents.write(recorded)
    else:
        show(as_one(recorded), console_for(stderr=False), verbose=verbose)
    return ExitCode.OK
