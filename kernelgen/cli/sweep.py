"""`kernelgen sweep`: a problem's rendered solution, graded at many settings."""

from pathlib import Path
from typing import Any, Literal

import click

from kernelgen.cli import options
from kernelgen.cli.report import until_stopped
from kernelgen.grading.options import GradeOptions


@click.command("sweep")
@click.argument("file", type=options.PATH, metavar="FILE")
@options.backend("Of the solutions; else cuda where there is a GPU, and cpp where there is none.")
@options.BASELINE
@options.timing_budget("point")
@options.CALL_TIMEOUT
@options.sandbox()
@options.json()
@options.QUIET
@options.verbose()
def command(
    file: Path,
    *,
    backend: Literal["cuda", "cpp"] | None,
    json: Path | None,
    quiet: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Grade and time a problem's rendered solution at the settings that a YAML file lists.

    The table has the fastest point first; `kernelgen report` and `kernelgen compare` take the JSON.

    Exit code: 0 every point passed, 1 one did not, 2 a mistake in the command or in a file, 3 the
    grader's fault or nothing could be graded, 130 interrupted.
    """
    from kernelgen.hardware.device import has_gpu_driver
    from kernelgen.report.console import console_for, show_and_write
    from kernelgen.report.outcome import exit_code
    from kernelgen.report.progress import progress
    from kernelgen.report.run_table import show
    from kernelgen.sweep.variants import read_sweep, sweep

    backend = backend or ("cuda" if has_gpu_driver() else "cpp")
    variants = read_sweep(file, backend, GradeOptions(**given))
    observer = progress(console_for(stderr=True), quiet=quiet, verbose=verbose)
    run, stopped = until_stopped(lambda told: sweep(variants, told), observer)
    show_and_write(run, lambda console: show(run, console, verbose=verbose), json)
    return stopped or exit_code(run)
