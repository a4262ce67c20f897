"""Keep the tables in documents equal to the records that they are made from.

python scripts/document_tables.py           say how README.md and the others differ from the records
python scripts/document_tables.py --write   rewrite them
"""

import sys
from collections.abc import Callable
from pathlib import Path

import click
from kernelbench_tables import levels_table, lint_table
from markdown_tables import fill, opening
from run_tables import headline, public_table, read_runs, results_table

from kernelgen.errors import UserError
from kernelgen.rendering.files import difference


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[FILE]...")
@click.option("--check/--write", default=True, help="Say how they differ, or rewrite them.")
def command(paths: tuple[Path, ...], *, check: bool) -> None:
    """Fill the tables of documents from records: FILEs, or all that have some.

    Those are README.md, docs/kernelbench.md and benchmarks/<gpu>/results.md, public.md and
    kernelbench.md. A table stands between
    `<!-- generated: NAME -->` and `<!-- /generated -->`, where NAME is one of:

    `headline`, in README.md: a verdict, and the times of one problem of each family, from the
    records benchmarks/<gpu>/*.json, which `kernelgen grade --json FILE` writes.

    `results`, in benchmarks/<gpu>/: the times of every solution, from the records beside it.

    `public`, in the same folder: solutions and public kernels for the same problems, from the
    runs in public/.

    `levels`, in the same folder: KernelBench's levels, rendered and graded, from the records in
    kernelbench/.

    `kernelbench`, in docs/: KernelBench's problems that cannot be graded well, and why, from the
    records benchmarks/<gpu>/kernelbench/lint*.json, which `kernelgen lint --json FILE` writes.
    """
    tables = [path for name in _TABLES for path in sorted(Path().glob(name))]
    try:
        filled = [_fill(path, check=check) for path in paths or (Path("README.md"), *tables)]
    except UserError as error:
        raise click.UsageError(str(error)) from error
    sys.exit(not all(filled))


_SECTIONS: dict[str, Callable[[Path], str]] = {
    "headline": lambda root: headline(read_runs(root / "benchmarks", "*/*.json"), root),
    "results": lambda folder: results_table(read_runs(folder), folder.parent.parent),
    "public": lambda folder: public_table(read_runs(folder / "public"), folder.parent.parent),
    "levels": levels_table,
    "kernelbench": lambda docs: lint_table(docs.parent / "benchmarks"),
}
_TABLES = (
    "docs/kernelbench.md",
    *(f"benchmarks/*/{name}.md" for name in ("results", "public", "kernelbench")),
)


def _fill(path: Path, *, check: bool) -> bool:
    """Return whether a document is what the records say, after writing it if that was asked."""
    try:
        present = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    sections = [name for name in _SECTIONS if opening(name) in present]
    if not sections:
        either = " or ".join(f"'{opening(name)}'" for name in _SECTIONS)
        raise UserError(f"{path}: nothing in it is generated: expected a line {either}")
    wanted = present
    for name in sections:
        wanted = fill(wanted, name, _SECTIONS[name](path.resolve().parent), path=path)
    if wanted == present:
        return True
    if not check:
        path.write_text(wanted, encoding="utf-8")
        click.echo(f"wrote {path}", err=True)
        return True
    click.echo(difference(path, wanted), nl=False)
    click.echo(f"{path} is not what the records say; run this with --write {path}", err=True)
    return False


if __name__ == "__main__":
    command()
