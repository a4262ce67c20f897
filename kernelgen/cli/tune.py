"""`kernelgen tune`: search a problem's schedule on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kernelgen.cli import options
from kernelgen.errors import ExitCode
from kernelgen.grading.queue.job import versions
from kernelgen.grading.verdict import SCHEMA_VERSION, UNKNOWN_TIME, Run, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Backend
from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES, check_schedules

if TYPE_CHECKING:
    from rich.console import Console

_BUDGET_S = 600.0


@click.command("tune")
@click.argument("name", type=options.ProblemName(), metavar="NAME|FILE")
@options.backend("Tune for the first GPU of this machine, or for its CPU.", "cuda")
@options.seconds(
    "--budget",
    _BUDGET_S,
    "Begin no further trial after this; two grades for a fair comparison follow.",
)
@options.json("all that was measured")
@options.QUIET
@options.verbose()
def command(  # noqa: PLR0913 - one parameter an option
    name: str,
    *,
    backend: Backend,
    budget_s: float,
    json: Path | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Search the schedule of a problem's solution on this machine.

    Each schedule is rendered, graded and timed as by `kernelgen grade`. Of one that is faster
    beyond doubt it says what to write into the problem's file, from which `kernelgen render` takes
    it.

    Exit code: 0 the search is over, 1 the present schedule fails, 2 a mistake in the command or in
    the problem file, 3 no GPU or the grader's fault, 130 interrupted.
    """
    from kernelgen.report.console import Line, console_for, print_line, show_and_write
    from kernelgen.report.outcome import CODE_BY_OWNER, failure_lines
    from kernelgen.report.progress import Said, progress, verdict_said
    from kernelgen.report.run_table import show
    from kernelgen.tuning.search import Target, closing, grader, tune

    problem = load_problem(name)
    check_schedules(problem)
    arch = DEFAULT_ARCHITECTURES["cpp"]
    if backend == "cuda":
        arch = options.native_architecture("--backend cpp tunes for the CPU")
    target = Target(problem=problem, backend=backend, arch=arch)
    _ = target.schedule  # a problem without one is refused before a process is started
    console = console_for(stderr=True)

    def said(verdict: Verdict) -> Said:
        return msgspec.structs.replace(verdict_said(verdict), expected=False)

    told = progress(console, said, quiet=quiet, verbose=verbose, brief=True)
    with told as reporter, grader(target, reporter) as grade:
        found = tune(target, grade, budget_s)
    first = found.verdicts[0]
    if first.timing is None:
        unknown = (text for text in first.warnings if text.startswith(UNKNOWN_TIME))
        lines = failure_lines(first.status, first.reason or next(unknown, ""))
        click.echo("\n".join([f"the present schedule fails: {lines[0]}", *lines[1:]]), err=True)
        return CODE_BY_OWNER[first.owner]
    run = Run(schema=SCHEMA_VERSION, environment=versions(), verdicts=found.verdicts)

    def shown(console: "Console") -> None:
        show(run, console)
        for text in closing(found, target, budget_s):
            print_line(Line(text=text, style="bold"), console)

    show_and_write(run, shown, json)
    return ExitCode.OK
