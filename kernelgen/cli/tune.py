"""`kernelgen tune`: search a problem's schedule on this machine, and record the winner."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kernelgen.cli.durations import Duration
from kernelgen.cli.parameters import ProblemName
from kernelgen.errors import ExitCode, KernelgenFault, UserError
from kernelgen.rendering.context import Backend

if TYPE_CHECKING:
    from kernelgen.tuning.record import TuneRun
    from kernelgen.tuning.search import PresentFails
    from kernelgen.tuning.target import Target

_PATH = click.Path(path_type=Path)
_BUDGET_S = 600.0


class TuneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `kernelgen tune`, parsed."""

    name: str
    backend: Backend
    budget: float
    dry_run: bool
    json: Path | None
    quiet: bool
    verbose: bool


@click.command("tune")
@click.argument("name", type=ProblemName(), metavar="NAME|FILE")
@click.option(
    "--backend",
    type=click.Choice(["cuda", "cpp"]),
    default="cuda",
    show_default=True,
    help="Tune for the first GPU of this machine, or for its CPU.",
)
@click.option(
    "--budget",
    type=Duration(),
    default=_BUDGET_S,
    show_default=True,
    metavar="SECONDS",
    help="Begin no further trial after this; six grades for a fair comparison follow.",
)
@click.option("--dry-run", is_flag=True, help="Record nothing, print what would be recorded.")
@click.option(
    "--json",
    type=_PATH,
    metavar="FILE|-",
    help="Write all that was measured here; - is stdout, and then the table goes to stderr.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Every phase on stderr, a line each.")
def command(**given: Any) -> None:
    """Search the schedule of a problem's solution on this machine, and record the winner.

    Each schedule is rendered, graded and timed as by `kernelgen grade`. One that is faster beyond
    doubt goes into NAME.schedules.json beside the problem, from which `kernelgen render` takes it.

    Exit code: 0 the search is over, 1 the present schedule fails, 2 a mistake in the command or in
    the problem file, 3 no GPU or the grader's fault, 130 interrupted, and nothing is recorded.
    """
    request = TuneRequest(**given)
    click.get_current_context().exit(_run(request))


def _run(request: TuneRequest) -> int:
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import write
    from kernelgen.tuning.record import Outcome
    from kernelgen.tuning.report import show
    from kernelgen.tuning.search import PresentFails

    target = _target(request)
    try:
        run = _search(request, target)
    except PresentFails as failing:
        return _tell(failing)
    try:
        if run.entry is not None:
            run = _recorded(request, target, run, run.entry)
    finally:
        # What was measured is shown even if it cannot be recorded.
        on_stdout = request.json is not None and str(request.json) == "-"
        try:
            show(run, console_for(stderr=on_stdout))
        finally:
            if request.json is not None:
                write(run, request.json)
    if run.outcome is Outcome.RECORDED:
        _tell_what_is_stale(request, target)
    return ExitCode.OK


def _target(request: TuneRequest) -> "Target":
    from kernelgen.destination import check_destination
    from kernelgen.problem.library import load_problem
    from kernelgen.problem.schedules import tuned_file
    from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES, check_schedules
    from kernelgen.tuning.target import Target

    if request.quiet and request.verbose:
        raise UserError("--quiet and --verbose exclude each other; leave one of them out")
    problem = load_problem(request.name)
    if problem.template is None:
        raise UserError(f"{problem.name}: no template in {problem.path.name}, so nothing to tune")
    check_schedules(problem)
    if request.json is not None:
        check_destination(request.json)
    if not request.dry_run:
        check_destination(tuned_file(problem.path))
    cpu = request.backend == "cpp"
    arch = DEFAULT_ARCHITECTURES["cpp"] if cpu else _architecture()
    return Target(problem=problem, backend=request.backend, arch=arch)


def _architecture() -> str:
    """Return the compute capability of the GPU that solutions are graded on."""
    from kernelgen.hardware.device import survey_gpus

    survey = survey_gpus()
    if not survey.devices:
        mend = "--backend cpp tunes for the CPU"
        raise KernelgenFault(f"there is no GPU to tune for: {survey.reason}; {mend}")
    major, minor = survey.devices[0].compute_capability
    return f"sm_{major}{minor}"


def _search(request: TuneRequest, target: "Target") -> "TuneRun":
    from kernelgen.report.console import console_for
    from kernelgen.report.progress import Verbosity
    from kernelgen.tuning.report import progress
    from kernelgen.tuning.search import tune
    from kernelgen.tuning.target import grader

    verbosity = Verbosity.of(quiet=request.quiet, verbose=request.verbose)
    console = console_for(stderr=True)
    with grader(target) as grade, progress(grade, console, verbosity, request.budget) as measure:
        return tune(target, measure, request.budget)


def _recorded(
    request: TuneRequest, target: "Target", run: "TuneRun", entry: dict[str, int]
) -> "TuneRun":
    from kernelgen.problem.library import load_problem
    from kernelgen.problem.schedules import write_tuned
    from kernelgen.tuning.record import Outcome

    if request.dry_run:
        return msgspec.structs.replace(run, outcome=Outcome.DRY_RUN)
    path = target.problem.path
    if load_problem(path) != target.problem:
        message = "or its tuned schedules changed during the search; nothing is recorded"
        raise UserError(f"{path}: {message}, run it again")
    write_tuned(target.problem, target.arch, entry)
    return msgspec.structs.replace(run, outcome=Outcome.RECORDED)


def _tell_what_is_stale(request: TuneRequest, target: "Target") -> None:
    from kernelgen.problem.library import load_problem
    from kernelgen.problem.schedules import tuned_file
    from kernelgen.rendering.files import stale_solutions
    from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES

    problem = load_problem(target.problem.path)
    click.echo(f"{tuned_file(problem.path)}: written", err=True)
    for stale in stale_solutions(problem, request.name):
        click.echo(f"{stale.path}: stale now; render it again: {stale.command}", err=True)
    if target.arch != DEFAULT_ARCHITECTURES[target.backend]:
        command = f"kernelgen render {request.name} --arch {target.arch} -o FILE"
        click.echo(f"for {target.arch}: {command}", err=True)


def _tell(failing: "PresentFails") -> int:
    """Say how the present schedule fails, and return the exit code that goes with it."""
    from kernelgen.report.outcome import code_of
    from kernelgen.report.printable import printable_lines

    lines = printable_lines(failing.result.reason)
    status = failing.result.status.value
    click.echo(f"the present schedule fails: {status}: {lines[0] if lines else ''}", err=True)
    for line in lines[1:]:
        click.echo(f"  {line}", err=True)
    return code_of(failing.result.owner)
