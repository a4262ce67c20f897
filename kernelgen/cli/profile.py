"""`kernelgen profile`: a solution's kernels under ncu, in words."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelgen.cli.durations import Duration
from kernelgen.cli.parameters import ProblemName
from kernelgen.errors import ExitCode, UserError
from kernelgen.profile.record import Profile, ProfileOptions

if TYPE_CHECKING:
    from kernelgen.grading.judged import Judged

_PATH = click.Path(path_type=Path)
_DEFAULTS = ProfileOptions()


@click.command("profile")
@click.argument("path", type=_PATH, metavar="SOLUTION")
@click.option(
    "--problem",
    type=ProblemName(),
    metavar="NAME|FILE",
    help="That it solves; else the file's line `# problem: NAME` or its name tells.",
)
@click.option("--case", metavar="NAME", help="Call it on this case's inputs; else on the main one.")
@click.option(
    "--allow-import",
    "allow_imports",
    multiple=True,
    metavar="NAME",
    help="A module beyond torch and the standard library that may be imported; repeatable.",
)
@click.option(
    "--launches",
    "most_launches",
    type=click.IntRange(min=1),
    default=_DEFAULTS.most_launches,
    show_default=True,
    metavar="N",
    help="Profile at most this many launches, the first ones of the call.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(),
    default=_DEFAULTS.timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="For building and calling it, and again for the run under ncu.",
)
@click.option(
    "--sandbox",
    type=click.Choice(("auto", "require", "off")),
    default=_DEFAULTS.sandbox,
    show_default=True,
    help="off runs the solution with all your rights, where counters are for administrators only.",
)
@click.option(
    "--json",
    type=_PATH,
    metavar="FILE|-",
    help="Write all that was counted here; - is stdout, and then the table goes to stderr.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Every phase on stderr, a line each.")
def command(
    path: Path, problem: str | None, json: Path | None, *, quiet: bool, verbose: bool, **given: Any
) -> int:
    """Run one call of a solution under ncu, and say what its kernels do and what ncu advises.

    Needs a GPU, NVIDIA's ncu (Nsight Compute), and the right to read its counters.

    Exit code: 0 it was profiled, 1 the solution fails, 2 a mistake in the command or in a problem
    file, 3 no ncu, no GPU, no counters, or kernelgen's fault, 130 interrupted.
    """
    from kernelgen.destination import STDOUT, check_destination
    from kernelgen.grading.judged import Judged
    from kernelgen.problem.library import load_problem
    from kernelgen.profile.profiling import profile
    from kernelgen.profile.sentences import show
    from kernelgen.report.console import console_for
    from kernelgen.report.json_report import write
    from kernelgen.report.progress import Verbosity, progress

    if quiet and verbose:
        raise UserError("--quiet and --verbose exclude each other; leave one of them out")
    if json is not None:
        check_destination(json)
    options = ProfileOptions(
        problem=None if problem is None else load_problem(problem), copy_gbps=_copy_gbps(), **given
    )
    stderr = console_for(stderr=True)
    with progress(stderr, Verbosity.of(quiet=quiet, verbose=verbose)) as observer:
        observer.begin([str(path)])
        found: Profile | Judged
        try:
            found = profile(path, options, lambda text: observer.phase(0, text))
        except Judged as judged:
            found = judged
    if isinstance(found, Judged):
        return _tell(found)
    # Neither is lost if the other cannot be written.
    try:
        show(found, stderr if json == STDOUT else console_for(stderr=False))
    finally:
        if json is not None:
            write(found, json)
    return ExitCode.OK


def _copy_gbps() -> float | None:
    """Return the rate of copies on the GPU that CUDA takes first, if it was ever measured."""
    from kernelgen.build.toolchain import cache_folder
    from kernelgen.hardware.calibration import look_up
    from kernelgen.hardware.identity import first_gpu

    gpu = first_gpu()
    if isinstance(gpu, str):
        return None
    calibration = look_up(cache_folder(), gpu).calibration
    return None if calibration is None else calibration.copy_gbps.median


def _tell(judged: "Judged") -> int:
    """Say how a solution fails, and return the exit code that goes with whose doing it is."""
    from kernelgen.report.outcome import code_of
    from kernelgen.report.printable import printable_lines

    lines = printable_lines(judged.reason)
    click.echo(f"{judged.status.value}: {lines[0] if lines else ''}", err=True)
    for line in lines[1:]:
        click.echo(f"  {line}", err=True)
    return code_of(judged.owner)
