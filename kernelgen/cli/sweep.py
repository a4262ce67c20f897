"""`kernelgen sweep`: a problem's rendered solution at many sizes, as a table and as a plot."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
import msgspec

from kernelgen.cli.durations import Duration
from kernelgen.destination import STDOUT, check_destination
from kernelgen.errors import UserError
from kernelgen.grading.options import BASELINES, GradeOptions
from kernelgen.sandbox.record import Mode

if TYPE_CHECKING:
    from kernelgen.sweep.plan import Plan
    from kernelgen.sweep.record import Sweep

_Point = TypeVar("_Point")
_DEFAULTS = GradeOptions()
_PATH = click.Path(path_type=Path)
_OPTIONS = (
    click.option(
        "--from",
        "recorded",
        multiple=True,
        type=_PATH,
        metavar="RUN.json",
        help="Show this record again, which --json wrote; repeatable for the parts of a sweep.",
    ),
    click.option(
        "--points",
        metavar="FIRST-LAST",
        help="Only these points of the file, counted from 1, or with --from of the record.",
    ),
    click.option(
        "--backend",
        type=click.Choice(("cuda", "cpp")),
        help="Of the solutions; else cuda where there is a GPU, and cpp where there is none.",
    ),
    click.option(
        "--baseline",
        multiple=True,
        type=click.Choice(tuple(BASELINES)),
        help="What to compare times with; repeatable. Else eager and compile, on a CPU eager.",
    ),
    click.option(
        "--timing-budget",
        type=Duration(),
        default=_DEFAULTS.timing_budget_s,
        show_default=True,
        metavar="SECONDS",
        help="Wall time of one point's timed calls.",
    ),
    click.option(
        "--call-timeout",
        type=Duration(),
        default=_DEFAULTS.call_timeout_s,
        show_default=True,
        metavar="SECONDS",
        help="For one call of a solution.",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(("auto", "require", "off")),
        default=_DEFAULTS.sandbox,
        show_default=True,
        help="auto contains solutions as far as this machine can; require refuses to grade less.",
    ),
    click.option(
        "--json",
        type=_PATH,
        metavar="FILE|-",
        help="Write all that was found here; - is stdout, and then the table goes to stderr.",
    ),
    click.option(
        "--svg",
        type=_PATH,
        metavar="FILE|-",
        help="Draw the share of the limit over the size here, with matplotlib; - as for --json.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    click.option("-v", "--verbose", is_flag=True, help="Every phase on stderr, a line each."),
)


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """The command line, parsed."""

    file: Path | None
    recorded: tuple[Path, ...]
    points: str | None
    backend: Literal["cuda", "cpp"] | None
    baseline: tuple[str, ...]
    timing_budget: float
    call_timeout: float
    sandbox: Mode
    json: Path | None
    svg: Path | None
    quiet: bool
    verbose: bool


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("sweep")
@click.argument("file", required=False, type=_PATH, metavar="[FILE]")
@_with_options
def command(**given: Any) -> None:
    """Grade and time a problem's rendered solution at the sizes that a YAML file lists.

    With --from, a recorded sweep is shown again, and nothing is graded.

    Exit code: 0 every point passed, 1 one did not, 2 a mistake in the command or in a file, 3 the
    grader's fault or nothing could be graded, 130 interrupted; with --from 0 whatever the points
    are.
    """
    request = _Request(**given)
    _check(request)
    if request.recorded:
        from kernelgen.sweep.parts import as_one
        from kernelgen.sweep.record import read_sweep

        found = as_one([(path, read_sweep(path)) for path in request.recorded])
        _report(request, msgspec.structs.replace(found, points=_chosen(request, found.points)))
        return
    click.get_current_context().exit(_sweep(request))


def _check(request: _Request) -> None:
    if (request.file is None) == (not request.recorded):
        raise UserError("give either a sweep's FILE, or a record with --from RUN.json")
    if request.quiet and request.verbose:
        raise UserError("--quiet and --verbose exclude each other; leave one of them out")
    places = [place for place in (request.json, request.svg) if place is not None]
    for place in places:
        check_destination(place)
    if len({place if place == STDOUT else place.resolve() for place in places}) < len(places):
        raise UserError(f"--json and --svg both name {request.json}; name two files")
    if request.svg is not None:
        from kernelgen.sweep.plot import check_plot

        check_plot()


def _sweep(request: _Request) -> int:
    from kernelgen.report.console import console_for
    from kernelgen.report.outcome import code_of_failures
    from kernelgen.report.progress import Verbosity, progress
    from kernelgen.sweep.running import SweepInterrupted, sweep

    plan = _plan(request)
    options = GradeOptions(
        baselines=tuple(dict.fromkeys(request.baseline)) or None,
        timing_budget_s=request.timing_budget,
        call_timeout_s=request.call_timeout,
        sandbox=request.sandbox,
    )
    verbosity = Verbosity.of(quiet=request.quiet, verbose=request.verbose)
    with progress(console_for(stderr=True), verbosity) as observer:
        try:
            found = sweep(plan, options, observer)
        except SweepInterrupted as stop:
            # What is known by now is reported like any other result.
            found, code = stop.found, stop.exit_code
        else:
            code = code_of_failures({point.owner for point in found.points if not point.passed})
    if len(found.points) < len(plan.points):
        graded = f"{len(found.points)} of {len(plan.points)} points graded before it"
        click.echo(f"interrupted; {graded}", err=True)
    _report(request, found)
    return code


def _plan(request: _Request) -> "Plan":
    from kernelgen.hardware.device import has_gpu_driver
    from kernelgen.sweep.plan import read_plan

    if request.file is None:
        raise UserError("a sweep needs a FILE")
    plan = read_plan(request.file, request.backend or ("cuda" if has_gpu_driver() else "cpp"))
    return msgspec.structs.replace(plan, points=_chosen(request, plan.points))


def _chosen(request: _Request, points: tuple[_Point, ...]) -> tuple[_Point, ...]:
    """Return those of a file's or a record's points that --points asks for."""
    from kernelgen.sweep.parts import chosen

    return points if request.points is None else chosen(points, request.points)


def _report(request: _Request, found: "Sweep") -> None:
    from contextlib import ExitStack

    from kernelgen.destination import write_whole
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import write
    from kernelgen.sweep.plot import plot
    from kernelgen.sweep.table import show

    # None is lost if another cannot be written; they run from the last to the first.
    with ExitStack() as writers:
        if request.svg is not None:
            writers.callback(lambda place: write_whole(plot(found), place), request.svg)
        if request.json is not None:
            writers.callback(write, found, request.json)
        show(found, console_for(stderr=STDOUT in (request.json, request.svg)))
