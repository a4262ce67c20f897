"""`kernelgen lint`: say what is wrong with a problem before anybody is graded on it.

And the part of `kernelgen show` that needs no candidate either: what a problem takes at least.
"""

from collections.abc import Collection
from datetime import datetime, timezone
from pathlib import Path

import click

from kernelgen.build.toolchain import cache_folder
from kernelgen.cli import kernelbench, options
from kernelgen.destination import STDOUT
from kernelgen.errors import ExitCode
from kernelgen.grading.timing.limit import Work, limit_of
from kernelgen.hardware.calibration import age_of, look_up
from kernelgen.hardware.identity import identity_here
from kernelgen.lint.counting import Uncounted, count_apart
from kernelgen.lint.linting import Linting
from kernelgen.lint.record import CaseLint
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Device, Problem
from kernelgen.rendering.schedule_table import check_schedules
from kernelgen.report.json_report import write
from kernelgen.report.printable import printable

_DEVICES: tuple[tuple[Device, str], ...] = (("cuda", "on a GPU"), ("cpu", "on a CPU"))
_NOT_CALIBRATED = "not known: `kernelgen calibrate{}` measures it"


@click.command("lint")
@click.argument("names", nargs=-1, type=options.ProblemName(), metavar="[NAME|FILE]...")
@click.option(
    "--device",
    type=click.Choice(("cuda", "cpu")),
    default="cpu",
    show_default=True,
    help="Where the reference runs; on the CPU at the problem's size for one.",
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
    path: Path | None,
    levels: Collection[int] | None,
    problems: Collection[int] | None,
    jobs: int | None,
    limit_s: float | None,
    json: Path | None,
    quiet: bool,
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
    chosen += tuple(
        load_problem(file) for *_, file in kernelbench.problem_files(path, levels, problems)
    )
    chosen = chosen or all_problems()
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


def show_least(problem: Problem) -> None:
    """Print bytes and operations at the sizes for a GPU and for a CPU, and the limits.

    Raises:
        KernelgenFault: torch is not there, or the counting failed.
    """
    counted = count_apart(problem, tuple(device for device, _ in _DEVICES))
    for (device, heading), work in zip(_DEVICES, counted, strict=True):
        if isinstance(work, Uncounted):
            reason = f"cannot be counted without running it: {work.reason}"
            click.echo(f"  {heading:<18} {printable(reason)}")
            continue
        rows = (
            (heading, f"{_amount(work.minimal_bytes, 'bytes', declared=work.bytes_declared)}"),
            ("", f"{_amount(work.flops, 'flops', declared=work.flops_declared)}"),
            ("", f"limit: {_limit(work, device)}"),
        )
        for name, text in rows:
            click.echo(f"  {name:<18} {text}")


def _amount(count: int, unit: str, *, declared: bool) -> str:
    return f"{count} {unit}, {'declared' if declared else 'counted'}"


def _limit(work: Work, device: Device) -> str:
    identity = identity_here(device)
    if isinstance(identity, str):
        return f"not known: {identity}"
    cached = look_up(cache_folder(), identity)
    if cached.calibration is None:
        found = "" if not cached.warning else f" ({printable(cached.warning)})"
        return _NOT_CALIBRATED.format(" --device cpu" if device == "cpu" else "") + found
    # A time of 1 ms: only the limit is of interest.
    limit = limit_of(1.0, work, cached.calibration)
    if limit is None:
        return "none: nothing has to be moved"
    by = f"{limit.copy_gbps:.4g} GB/s" if limit.bound == "memory" else ""
    if limit.flops_per_s is not None and limit.bound == "arithmetic":
        by = f"{limit.flops_per_s / 1e12:.4g} TFLOP/s, {limit.rate}"
    age = age_of(cached.calibration, datetime.now(timezone.utc))
    return f"{limit.limit_ms:.4g} ms on {printable(identity.name)} ({by}; measured {age})"
