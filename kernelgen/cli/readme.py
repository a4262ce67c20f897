"""`kernelgen readme`: keep a README's table of results equal to the recorded runs."""

import difflib
from pathlib import Path

import click

from kernelgen.errors import ExitCode, UserError
from kernelgen.report.readme import fill, read_runs, results_table


@click.command("readme", hidden=True)
@click.argument("path", type=click.Path(path_type=Path), default="README.md")
@click.option(
    "--check/--write",
    default=True,
    help="Say how the file differs from the records (the default), or rewrite it.",
)
def command(path: Path, *, check: bool) -> int:
    """Fill PATH's table of results from the records in `benchmarks/` beside it.

    The records are benchmarks/<gpu>/*.json, written by `kernelgen grade --json FILE`. The table
    stands between `<!-- generated: results -->` and `<!-- /generated -->`.
    """
    try:
        present = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    table = results_table(read_runs(path.parent / "benchmarks"), path.parent)
    wanted = fill(present, "results", table, path=path)
    if wanted == present:
        return ExitCode.OK
    if not check:
        path.write_text(wanted, encoding="utf-8")
        click.echo(f"wrote {path}", err=True)
        return ExitCode.OK
    difference = difflib.unified_diff(
        present.splitlines(keepends=True), wanted.splitlines(keepends=True), str(path), "generated"
    )
    click.echo("".join(difference), nl=False)
    click.echo(
        f"{path} is not what the records say; run: kernelgen readme --write {path}", err=True
    )
    return ExitCode.CANDIDATE_FAILED
