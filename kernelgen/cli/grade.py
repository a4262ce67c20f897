"""`kernelgen grade`: judge solutions, and say so to people, to scripts and to the shell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kernelgen.cli.durations import Duration
from kernelgen.cli.grade_request import GradeRequest, options_of
from kernelgen.cli.parameters import ProblemName, bytes_of
from kernelgen.cli.report import DOCUMENT_OPTIONS, Documents
from kernelgen.errors import ExitCode, UserError
from kernelgen.grading.options import BASELINES, GradeOptions
from kernelgen.report.order import ORDERS

_Command = Callable[..., None]

_DEFAULTS = GradeOptions()
_PATH = click.Path(path_type=Path)
# The interval of a median of fewer samples than this says nothing.
_SAMPLES = click.IntRange(min=3)


def _seconds(name: str, default: float, text: str) -> Callable[[_Command], _Command]:
    return click.option(
        name, type=Duration(), default=default, show_default=True, metavar="SECONDS", help=text
    )


_PROBLEM_OPTIONS = (
    click.option(
        "--problem",
        type=ProblemName(),
        metavar="NAME|FILE",
        help="Grade on this problem; else a file's line `# problem: NAME` or its name tells.",
    ),
    click.option(
        "--reference",
        type=_PATH,
        metavar="FILE.py",
        help="Grade on this KernelBench file: Model, get_inputs, get_init_inputs.",
    ),
    click.option(
        "--device",
        type=click.Choice(("auto", "cuda", "cpu")),
        default=_DEFAULTS.device,
        show_default=True,
        help="auto takes the device that a file is written for.",
    ),
    click.option(
        "--allow-import",
        multiple=True,
        metavar="NAME",
        help="A module beyond torch and the standard library that may be imported; repeatable.",
    ),
)

_SANITIZE_OPTIONS = (
    click.option(
        "--sanitize",
        is_flag=True,
        help="Also look for memory errors and races with compute-sanitizer, on a small case.",
    ),
)

_TIMING_OPTIONS = (
    click.option(
        "--baseline",
        multiple=True,
        type=click.Choice(tuple(BASELINES)),
        help="What to compare times with; repeatable. Else eager and compile, on a CPU eager.",
    ),
    click.option("--no-baseline", is_flag=True, help="Time the solution alone."),
    click.option("--no-timing", is_flag=True, help="Judge correctness alone."),
    _seconds(
        "--timing-budget", _DEFAULTS.timing_budget_s, "Wall time of one solution's timed calls."
    ),
    click.option(
        "--precision",
        type=click.FloatRange(min=0, max=100),
        default=100 * _DEFAULTS.precision,
        show_default=True,
        metavar="PERCENT",
        help="Stop timing once every speedup is known to within this; 0 uses up the budget.",
    ),
    click.option(
        "--samples",
        type=_SAMPLES,
        default=_DEFAULTS.max_samples,
        show_default=True,
        metavar="N",
        help="At most this many timed calls of the solution and of each baseline.",
    ),
)

_LIMIT_OPTIONS = (
    click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Build and check so many solutions at once; each is timed while the others wait.",
    ),
    _seconds(
        "--build-timeout",
        _DEFAULTS.build_timeout_s,
        "For importing and constructing a solution, compilation included.",
    ),
    _seconds("--call-timeout", _DEFAULTS.call_timeout_s, "For one call of a solution."),
    click.option(
        "--memory-limit",
        type=bytes_of,
        metavar="SIZE",
        help="Act as if the GPU had this much memory, such as 24GB or 24GiB.",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(("auto", "require", "off")),
        default=_DEFAULTS.sandbox,
        show_default=True,
        help="auto contains solutions as far as this machine can; require refuses to grade less.",
    ),
    click.option(
        "--build-cache",
        type=_PATH,
        metavar="DIR",
        help="Keep compiled extensions here for later runs; else every run builds afresh.",
    ),
)

_REPORT_OPTIONS = (
    click.option(
        "--json",
        type=_PATH,
        metavar="FILE|-",
        help="Write all that was found here; - is stdout, and then the table goes to stderr.",
    ),
    click.option(
        "--sort",
        type=click.Choice(ORDERS),
        default=ORDERS[0],
        show_default=True,
        help="Order of the table's rows; by problem, passes and short times come first.",
    ),
    *DOCUMENT_OPTIONS,
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="The details of passes too; every phase on stderr, a line each.",
    ),
)


def _with_options(command: _Command) -> _Command:
    options = (
        *_PROBLEM_OPTIONS,
        *_SANITIZE_OPTIONS,
        *_TIMING_OPTIONS,
        *_LIMIT_OPTIONS,
        *_REPORT_OPTIONS,
    )
    # Decorators apply from the last to the first: this is the order of the help text.
    for option in reversed(options):
        command = option(command)
    return command


@click.command("grade")
@click.argument("paths", nargs=-1, required=True, type=_PATH, metavar="PATH...")
@_with_options
def command(**given: Any) -> None:
    """Grade solutions: build them, check every case at the problem's tolerance, time them.

    PATH is a Python file that defines ModelNew, or a folder of such files.

    Exit code: 0 all passed, 1 a solution failed, 2 a mistake in the command or in a problem file,
    3 the grader's fault or nothing could be graded, 130 interrupted.
    """
    request = GradeRequest(**given)
    code = _grade_and_report(request, options_of(request))
    click.get_current_context().exit(code)


def _grade_and_report(request: GradeRequest, options: GradeOptions) -> ExitCode:
    from kernelgen.grading.supervisor.grade import Interrupted, grade
    from kernelgen.report.console import console_for
    from kernelgen.report.outcome import exit_code
    from kernelgen.report.progress import Verbosity, progress
    from kernelgen.report.reading import Recorded
    from kernelgen.report.run_table import show

    documents = Documents(json=request.json, html=request.html, junit=request.junit)
    documents.check()
    stderr = console_for(stderr=True)
    verbosity = Verbosity.of(quiet=request.quiet, verbose=request.verbose)
    interrupted = False
    with progress(stderr, verbosity) as observer:
        try:
            run = grade(request.paths, options=options, observer=observer, jobs=request.jobs)
        except Interrupted as stop:
            # What is known by now is reported like any other result.
            run, interrupted = stop.run, True
    if interrupted:
        click.echo(f"interrupted; {len(run.verdicts)} graded before it", err=True)
        if not run.verdicts:
            return ExitCode.INTERRUPTED
    if not run.verdicts:
        given = ", ".join(str(path) for path in request.paths)
        raise UserError(f"{given}: nothing to grade; a solution is a *.py file")
    # None is lost if another cannot be written: the disk is full, the reader of a pipe left.
    try:
        console = stderr if documents.on_stdout else console_for(stderr=False)
        show(run, console, order=request.sort, verbose=request.verbose)
    finally:
        documents.write([Recorded(name="", run=run)])
    return ExitCode.INTERRUPTED if interrupted else exit_code(run)
