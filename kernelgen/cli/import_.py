"""`kernelgen import`: KernelBench files as YAML problems."""

from pathlib import Path

import click

from kernelgen.cli import options
from kernelgen.destination import STDOUT
from kernelgen.errors import ExitCode, UserError
from kernelgen.kernelbench.yaml_form import yaml_form
from kernelgen.problem.library import load_problem
from kernelgen.rendering.files import current_text, write_if_different


@click.command("import")
@click.argument("file", type=options.PATH, metavar="FILE.py")
@options.path("--output", "FILE|-", "Write here, - for stdout [default: problems/NAME.yaml].", "-o")
@options.flag("--force", "Write over a file that is there.")
def command(file: Path, *, output: Path | None, force: bool) -> int:
    """Write a KernelBench file as a YAML problem, ready for cases or a tolerance.

    Its Model, get_inputs and get_init_inputs become blocks, with all that they use; the scalars
    and tuples that it names become constants. Nothing of it is run.
    """
    if file.suffix != ".py":
        raise UserError(f"{file}: expected a KernelBench file, which ends in .py")
    destination = output or Path("problems") / f"{load_problem(file).name}.yaml"
    if destination == STDOUT:
        click.echo(yaml_form(file, Path(f"{load_problem(file).name}.yaml")), nl=False)
        return ExitCode.OK
    if destination.suffix not in (".yaml", ".yml"):
        raise UserError(f"{destination}: expected a name that ends in .yaml")
    text = yaml_form(file, destination)
    if not force and current_text(destination) not in (None, text):
        raise UserError(f"{destination}: is there already; --force writes over it")
    written = write_if_different(destination, text)
    click.echo(f"{destination}: {'written' if written else 'unchanged'}", err=True)
    return ExitCode.OK
