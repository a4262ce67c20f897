"""`kernelgen report`: show recorded runs to people and to CI services."""

from pathlib import Path

import click

from kernelgen.cli.documents import DOCUMENT_OPTIONS, Documents
from kernelgen.errors import ExitCode, UserError


def _with_documents(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(DOCUMENT_OPTIONS):
        command = option(command)
    return command


@click.command("report")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN.json..."
)
@_with_documents
@click.option("-v", "--verbose", is_flag=True, help="With the table, the details of passes too.")
def command(
    paths: tuple[Path, ...], *, html: Path | None, junit: Path | None, verbose: bool
) -> int:
    """Show recorded runs: as a page, as JUnit XML, or else as a table.

    RUN.json is what `kernelgen grade --json FILE` wrote; - is standard input. Several are shown as
    one, by device.

    Exit code: 0 whatever the verdicts are, 2 a file cannot be read or written.
    """
    from kernelgen.report.console import console_for
    from kernelgen.report.reading import as_one, read_run
    from kernelgen.report.run_table import show

    documents = Documents(html=html, junit=junit)
    documents.check()
    if len(set(paths)) < len(paths):
        raise UserError("a RUN.json is named twice; name each once")
    recorded = [read_run(path) for path in paths]
    if documents.wanted:
        documents.write(recorded)
    else:
        show(as_one(recorded), console_for(stderr=False), verbose=verbose)
    return ExitCode.OK
