"""`kernelgen lint`: say what is wrong with a problem before anybody is graded on it."""

from typing import TYPE_CHECKING

import click

from kernelgen.cli.parameters import ProblemName
from kernelgen.errors import ExitCode
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Device

if TYPE_CHECKING:
    from kernelgen.lint.linting import CaseLint


@click.command("lint")
@click.argument("problems", nargs=-1, type=ProblemName(), metavar="[NAME|FILE]...")
@click.option(
    "--device",
    type=click.Choice(("cuda", "cpu")),
    default="cpu",
    show_default=True,
    help="Where the reference runs; on the CPU at the problem's size for one.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(problems: tuple[str, ...], device: Device, *, quiet: bool) -> None:
    """Try answers that need no work against problems: where one passes, a pass says little.

    Tried are zeros, ones, the mean, an input as it is, and each input and each parameter ignored.
    Without a NAME, every problem that `kernelgen list` shows.

    Exit code: 0 nothing found, 1 something found, 2 a mistake in the command or in a problem file.
    """
    from kernelgen.lint.linting import lint
    from kernelgen.rendering.schedule_table import check_schedules

    def phase(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    chosen = tuple(load_problem(name) for name in problems) or all_problems()
    for problem in chosen:
        check_schedules(problem)
    cases = lint(chosen, device, phase)
    for case in cases:
        _show(case)
    found = sum(len(case.findings) for case in cases)
    click.echo(f"{len(cases)} cases, {found} findings")
    click.get_current_context().exit(ExitCode.CANDIDATE_FAILED if found else ExitCode.OK)


def _show(case: "CaseLint") -> None:
    name = f"{case.problem}: {case.case}" if case.case else case.problem
    if not case.findings:
        click.echo(f"ok     {name}")
    for finding in case.findings:
        click.echo(f"found  {name}: {finding}")
