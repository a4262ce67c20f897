"""`kernelgen compare`: what got faster, slower, broke or was mended between two runs."""

from pathlib import Path
from typing import Any

import click

from kernelgen.cli import options
from kernelgen.comparison.comparing import compare
from kernelgen.comparison.table import show, show_models
from kernelgen.errors import ExitCode
from kernelgen.report.console import show_and_write
from kernelgen.report.json_report import read_run


@click.command("compare")
@click.argument("old", type=options.PATH, metavar="OLD.json")
@click.argument("new", type=options.PATH, metavar="NEW.json")
@click.option(
    "--bound",
    "bound_percent",
    type=options.Number("percentage"),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much more time a solution may surely take before it counts as a regression.",
)
@options.flag("--across-devices", "Compare although the device, torch or CUDA is not the same.")
@options.flag(
    "--models", "Two models' answers: the best of each problem, who wins, and their figures."
)
@options.json()
@click.option(
    "-q", "--quiet", is_flag=True, help="Only rows that are a reason to fail, and the sums."
)
def command(
    old: Path, new: Path, *, models: bool, json: Path | None, quiet: bool, **how: Any
) -> int:
    """Compare two reports that `kernelgen grade --json` wrote, of one code or of two models.

    Of a solution that passed in both, the interval of its old time over its new one decides. A
    machine that is slower today slows baselines too: see the speedups, which stand side by side.

    Exit code: 0 nothing got worse, or --models, 1 a solution broke or is slower by more than the
    bound, 2 a mistake in the command or runs that cannot be compared, 3 a solution that passed
    could not be judged again.
    """
    found = compare(read_run(old), read_run(new), models=models, **how)
    if models:
        show_and_write(found, lambda console: show_models(found, console), json)
        return ExitCode.OK
    show_and_write(found, lambda console: show(found, console, quiet=quiet), json)
    return ExitCode(found.exit_code)
