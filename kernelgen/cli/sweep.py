"""`kernelgen sweep`: a problem's rendered solution at many sizes, as a table and as a plot."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from kernelgen.cli import options
from kernelgen.destination import STDOUT, write_whole
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.report.console import console_for
from kernelgen.report.json_report import write
from kernelgen.report.outcome import code_of_failures
from kernelgen.report.progress import Verbosity, progress
from kernelgen.sweep.plan import read_plan
from kernelgen.sweep.plot import check_plot, plot
from kernelgen.sweep.record import as_one, chosen, read_sweep
from kernelgen.sweep.table import show


@click.command("sweep")
@click.argument("file", required=False, type=options.PATH, metavar="[FILE]")
@click.option(
    "--from",
    "recorded",
    multiple=True,
    type=options.PATH,
    metavar="RUN.json",
    help="Show this record again, which --json wrote; repeatable for the parts of a sweep.",
)
@click.option(
    "--points",
    type=options.numbers_of,
    metavar="1-10,23",
    help="Only these points of the file, counted from 1, or with --from of the record.",
)
@click.option(
    "--backend",
    type=click.Choice(("cuda", "cpp")),
    help="Of the solutions; else cuda where there is a GPU, and cpp where there is none.",
)
@options.BASELINE
@options.timing_budget("point")
@options.CALL_TIMEOUT
@options.sandbox()
@options.json()
@options.destination(
    "--svg", "Draw the share of the limit over the size here, with matplotlib; - as for --json."
)
@options.QUIET
@options.VERBOSE
def command(  # noqa: PLR0913 - one parameter an option
    file: Path | None,
    *,
    recorded: tuple[Path, ...],
    points: frozenset[int] | None,
    backend: Literal["cuda", "cpp"] | None,
    json: Path | None,
    svg: Path | None,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Grade and time a problem's rendered solution at the sizes that a YAML file lists.

    With --from, a recorded sweep is shown again, and nothing is graded.

    Exit code: 0 every point passed, 1 one did not, 2 a mistake in the command or in a file, 3 the
    grader's fault or nothing could be graded, 130 interrupted; with --from 0 whatever the points
    are.
    """
    if (file is None) == (not recorded):
        raise UserError("give either a sweep's FILE, or a record with --from RUN.json")
    verbosity = Verbosity.of(quiet=quiet, verbose=verbose)
    options.refuse_one_place({"--json": json, "--svg": svg})
    if svg is not None:
        check_plot()
    code = 0
    if file is None:
        found = as_one([(path, read_sweep(path)) for path in recorded])
        found = msgspec.structs.replace(found, points=chosen(points, found.points))
    else:
        from kernelgen.hardware.device import has_gpu_driver
        from kernelgen.sweep.running import sweep

        plan = read_plan(file, backend or ("cuda" if has_gpu_driver() else "cpp"))
        plan = msgspec.structs.replace(plan, points=chosen(points, plan.points))
        asked = GradeOptions(**given)
        with progress(console_for(stderr=True), verbosity) as observer:
            found, stopped = sweep(plan, asked, observer)
        code = stopped or code_of_failures({one.owner for one in found.points if not one.passed})
        if stopped is not None:
            graded = f"{len(found.points)} of {len(plan.points)} points graded before it"
            click.echo(f"interrupted; {graded}", err=True)
    # None is lost if another cannot be written; they run from the last to the first.
    with ExitStack() as writers:
        if svg is not None:
            writers.callback(lambda place: write_whole(plot(found), place), svg)
        if json is not None:
            writers.callback(write, found, json)
        show(found, console_for(stderr=STDOUT in (json, svg)))
    return code
