"""`kernelgen profile`: a solution's kernels under ncu."""

from pathlib import Path
from typing import Any

import click

from kernelgen.cli import options
from kernelgen.errors import ExitCode
from kernelgen.profile.record import ProfileOptions

_DEFAULTS = ProfileOptions()


@click.command("profile")
@click.argument("path", type=options.PATH, metavar="SOLUTION")
@options.problem("That it solves; else the file's line `# problem: NAME` or its name tells.")
@click.option("--case", metavar="NAME", help="Call it on this case's inputs; else on the main one.")
@options.ALLOW_IMPORT
@click.option(
    "--launches",
    "most_launches",
    type=click.IntRange(min=1),
    default=_DEFAULTS.most_launches,
    show_default=True,
    metavar="N",
    help="Profile at most this many launches, the first ones of the call.",
)
@options.seconds(
    "--timeout",
    _DEFAULTS.timeout_s,
    "For building and calling it, and again for the run under ncu.",
)
@options.sandbox(
    "off runs the solution with all your rights, where counters are for administrators only."
)
@options.QUIET
@options.verbose()
def command(path: Path, problem: str | None, *, quiet: bool, verbose: bool, **given: Any) -> int:
    """Run one call of a solution under ncu, and print its details of every kernel.

    Below them stand the bytes of DRAM that all moved, and the least that the problem needs.

    Needs a GPU, NVIDIA's ncu (Nsight Compute), and the right to read its counters.

    Exit code: 0 it was profiled, 1 the solution fails, 2 a mistake in the command or in a problem
    file, 3 no ncu, no GPU, no counters, or kernelgen's fault, 130 interrupted.
    """
    from kernelgen.grading.verdict import Judged
    from kernelgen.problem.library import load_problem
    from kernelgen.profile.profiling import profile
    from kernelgen.profile.show import show
    from kernelgen.report.console import console_for
    from kernelgen.report.outcome import CODE_BY_OWNER, failure_lines
    from kernelgen.report.progress import progress

    known = None if problem is None else load_problem(problem)
    asked = ProfileOptions(problem=known, **given)
    try:
        with progress(console_for(stderr=True), quiet=quiet, verbose=verbose) as observer:
            observer.begin([str(path)])
            found = profile(path, asked, lambda text: observer.phase(0, text))
    except Judged as judged:
        for line in failure_lines(judged.status, judged.reason):
            click.echo(line, err=True)
        return CODE_BY_OWNER[judged.owner]
    show(found, console_for(stderr=False))
    return ExitCode.OK
