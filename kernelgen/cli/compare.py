"""`kernelgen compare`: what got faster, slower, broke or was mended between two runs."""

import math
from pathlib import Path
from typing import Any

import click

from kernelgen.errors import ExitCode

_PATH = click.Path(path_type=Path)


class _Percent(click.FloatRange):
    """A percentage from 0 up; `nan`, which Python takes for a number, is none."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        percent = float(super().convert(value, param, ctx))
        if not math.isfinite(percent):
            self.fail(f"{value} is not a percentage", param, ctx)
        return percent


@click.command("compare")
@click.argument("old", type=_PATH, metavar="OLD.json")
@click.argument("new", type=_PATH, metavar="NEW.json")
@click.option(
    "--bound",
    type=_Percent(),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="By how much more time a solution may surely take before it counts as a regression.",
)
@click.option(
    "--across-devices",
    is_flag=True,
    help="Compare although the device, torch or CUDA is not the same.",
)
@click.option(
    "--json",
    type=_PATH,
    metavar="FILE|-",
    help="Write all that was found here; - is stdout, and then the table goes to stderr.",
)
@click.option(
    "-q", "--quiet", is_flag=True, help="Only rows that are a reason to fail, and the sums."
)
def command(  # noqa: PLR0913 - one parameter an option
    old: Path, new: Path, *, bound: float, across_devices: bool, json: Path | None, quiet: bool
) -> int:
    """Compare two reports that `kernelgen grade --json` wrote.

    A solution got slower or faster only where its time says so and its speedup over a baseline that
    both runs timed says so too: a machine that is slower today is not taken for a slower solution.

    Exit code: 0 nothing got worse, 1 a solution broke or is slower by more than the bound, 2 a
    mistake in the command or runs that cannot be compared, 3 a solution that passed could not be
    judged again.
    """
    from kernelgen.comparison.comparing import compare
    from kernelgen.comparison.table import show
    from kernelgen.destination import STDOUT, check_destination
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import write
    from kernelgen.report.reading import read_run

    if json is not None:
        check_destination(json)
    found = compare(
        read_run(old), read_run(new), bound_percent=bound, across_devices=across_devices
    )
    # Neither is lost if the other cannot be written: the disk is full, the reader of a pipe left.
    try:
        show(found, console_for(stderr=json == STDOUT), quiet=quiet)
    finally:
        if json is not None:
            write(found, json)
    return ExitCode(found.exit_code)
