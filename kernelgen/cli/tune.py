"""`kernelgen tune`: search a problem's schedule on this machine, and record the winner."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kernelgen.cli import options
from kernelgen.destination import check_destination
from kernelgen.errors import ExitCode, KernelgenFault, UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Backend
from kernelgen.problem.schedules import architecture_of, tuned_file, write_tuned
from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES, check_schedules
from kernelgen.tuning.record import Outcome, Result, TuneRun

if TYPE_CHECKING:
    from kernelgen.tuning.search import Target

_BUDGET_S = 600.0


@click.command("tune")
@click.argument("name", type=options.ProblemName(), metavar="NAME|FILE")
@click.option(
    "--backend",
    type=click.Choice(["cuda", "cpp"]),
    default="cuda",
    show_default=True,
    help="Tune for the first GPU of this machine, or for its CPU.",
)
@options.seconds(
    "--budget",
    "budget_s",
    _BUDGET_S,
    "Begin no further trial after this; six grades for a fair comparison follow.",
)
@click.option("--dry-run", is_flag=True, help="Record nothing, print what would be recorded.")
@options.json("all that was measured")
@options.QUIET
@options.VERBOSE
def command(  # noqa: PLR0913 - one parameter an option
    name: str,
    *,
    backend: Backend,
    budget_s: float,
    dry_run: bool,
    json: Path | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Search the schedule of a problem's solution on this machine, and record the winner.

    Each schedule is rendered, graded and timed as by `kernelgen grade`. One that is faster beyond
    doubt goes into NAME.schedules.json beside the problem, from which `kernelgen render` takes it.

    Exit code: 0 the search is over, 1 the present schedule fails, 2 a mistake in the command or in
    the problem file, 3 no GPU or the grader's fault, 130 interrupted, and nothing is recorded.
    """
    from kernelgen.report.console import console_for, show_and_write
    from kernelgen.report.outcome import CODE_BY_OWNER, failure_lines
    from kernelgen.report.progress import Verbosity
    from kernelgen.tuning.report import progress, show
    from kernelgen.tuning.search import Target, grader, tune

    verbosity = Verbosity.of(quiet=quiet, verbose=verbose)
    problem = load_problem(name)
    check_schedules(problem)
    if not dry_run:
        check_destination(tuned_file(problem.path))
    arch = DEFAULT_ARCHITECTURES["cpp"] if backend == "cpp" else _architecture()
    target = Target(problem=problem, backend=backend, arch=arch)
    _ = target.schedule  # a problem without one is refused before a process is started
    console = console_for(stderr=True)
    with grader(target) as grade, progress(grade, console, verbosity, budget_s) as measure:
        run = tune(target, measure, budget_s)
    if isinstance(run, Result):
        first, *others = failure_lines(run.status, run.reason)
        for line in (f"the present schedule fails: {first}", *others):
            click.echo(line, err=True)
        return CODE_BY_OWNER[run.owner]
    try:
        if run.entry is not None:
            run = _recorded(target, run, run.entry, dry_run=dry_run)
    finally:
        # What was measured is shown even if it cannot be recorded.
        show_and_write(run, lambda console: show(run, console), json)
    if run.outcome is Outcome.RECORDED:
        _tell_what_is_stale(name, target)
    return ExitCode.OK


def _architecture() -> str:
    """Return what the GPU that solutions are graded on takes."""
    from kernelgen.hardware.device import survey_gpus

    survey = survey_gpus()
    if not survey.devices:
        mend = "--backend cpp tunes for the CPU"
        raise KernelgenFault(f"there is no GPU to tune for: {survey.reason}; {mend}")
    return architecture_of(survey.devices[0].compute_capability)


def _recorded(target: "Target", run: TuneRun, entry: dict[str, int], *, dry_run: bool) -> TuneRun:
    if dry_run:
        return msgspec.structs.replace(run, outcome=Outcome.DRY_RUN)
    path = target.problem.path
    if load_problem(path) != target.problem:
        message = "or its tuned schedules changed during the search; nothing is recorded"
        raise UserError(f"{path}: {message}, run it again")
    write_tuned(target.problem, target.arch, entry)
    return msgspec.structs.replace(run, outcome=Outcome.RECORDED)


def _tell_what_is_stale(name: str, target: "Target") -> None:
    from kernelgen.rendering.files import stale_solutions

    problem = load_problem(target.problem.path)
    click.echo(f"{tuned_file(problem.path)}: written", err=True)
    for stale in stale_solutions(problem, name):
        click.echo(f"{stale.path}: stale now; render it again: {stale.command}", err=True)
    if target.arch != DEFAULT_ARCHITECTURES[target.backend]:
        command = f"kernelgen render {name} --arch {target.arch} -o FILE"
        click.echo(f"for {target.arch}: {command}", err=True)
