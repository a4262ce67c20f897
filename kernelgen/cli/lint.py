"""`kernelgen lint`: say what is wrong with a problem before anybody is graded on it."""

from pathlib import Path
from typing import Any

import click

from kernelgen.cli import kernelbench, options
from kernelgen.destination import STDOUT
from kernelgen.errors import ExitCode
from kernelgen.lint.linting import Linting
from kernelgen.lint.record import CaseLint
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Device
from kernelgen.rendering.schedule_table import check_schedules
from kernelgen.report.json_report import write


@click.command("lint")
@click.argument("names", nargs=-1, type=options.ProblemName(), metavar="[NAME|FILE]...")
@options.choice(
    "--device",
    ("cuda", "cpu"),
    "Where the reference runs; on the CPU at the problem's size for one.",
    "cpu",
)
@options.with_options(*kernelbench.PROBLEM_OPTIONS)
@options.jobs("Lint so many problems at once; else one.")
@click.option(
    "--time-limit",
    "limit_s",
    type=options.Number("number of seconds"),
    metavar="SECONDS",
    help="Try the inputs and parameters of a case for no longer [default: try all].",
)
@options.json()
@options.QUIET
def command(  # noqa: PLR0913 - one parameter an option
    names: tuple[str, ...],
    *,
    device: Device,
    jobs: int | None,
    limit_s: float | None,
    json: Path | None,
    quiet: bool,
    **of_kernelbench: Any,
) -> int:
    """Try answers that need no work against problems: where one passes, a pass says little.

    Tried are zeros, ones, the mean, an input as it is, and each input and each parameter ignored.
    Without a NAME, every problem that `kernelgen list` shows, or of KernelBench's checkout.

    Exit code: 0 nothing found, 1 something found, 2 a mistake in the command or in a problem file.
    """

    def phase(text: str) -> None:
        if not quiet:
            click.echo(text, err=True)

    chosen = tuple(load_problem(name) for name in names)
    files = kernelbench.problem_files(**of_kernelbench)
    chosen = (*chosen, *(load_problem(file) for *_, file in files)) or all_problems()
    for problem in chosen:
        check_schedules(problem)
    linting, to_stderr = Linting(chosen, device, phase, limit_s), json == STDOUT
    try:
        linting.run(jobs or 1)
    finally:
        # Of an interrupted run what it found; nothing takes the place of an earlier record.
        linted = linting.record()
        found = sum(len(case.findings) for case in linted.cases)
        try:
            for case in linted.cases:
                _show(case, to_stderr=to_stderr)
            left = f", {linted.left} problems left" if linted.left else ""
            click.echo(f"{len(linted.cases)} cases, {found} findings{left}", err=to_stderr)
        finally:
            # Also where the reader of a pipe has left.
            if json is not None and linted.cases:
                write(linted, json)
    return ExitCode.CANDIDATE_FAILED if found else ExitCode.OK


def _show(case: CaseLint, *, to_stderr: bool) -> None:
    name = f"{case.problem}: {case.case}" if case.case else case.problem
    untried = f" ({case.untried} inputs and parameters not tried)" if case.untried else ""
    if not case.findings:
        click.echo(f"ok     {name}{untried}", err=to_stderr)
    for finding in case.findings:
        click.echo(f"found  {name}{untried}: {finding}", err=to_stderr)
