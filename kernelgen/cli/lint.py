"""`kernelgen lint`: say what is wrong with a problem before anybody is graded on it.

And the part of `kernelgen show` that needs no candidate either: what a problem takes at least.
"""

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from kernelgen.build.toolchain import cache_folder
from kernelgen.cli import options
from kernelgen.errors import ExitCode
from kernelgen.grading.timing.limit import Work, limit_of
from kernelgen.hardware.calibration import age_of, look_up
from kernelgen.hardware.identity import identity_here
from kernelgen.lint.counting import Uncounted, count_apart
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Device, Problem
from kernelgen.report.printable import printable

if TYPE_CHECKING:
    from kernelgen.lint.linting import CaseLint

_DEVICES: tuple[tuple[Device, str], ...] = (("cuda", "on a GPU"), ("cpu", "on a CPU"))
_NOT_CALIBRATED = "not known: `kernelgen calibrate{}` measures it"


@click.command("lint")
@click.argument("problems", nargs=-1, type=options.ProblemName(), metavar="[NAME|FILE]...")
@click.option(
    "--device",
    type=click.Choice(("cuda", "cpu")),
    default="cpu",
    show_default=True,
    help="Where the reference runs; on the CPU at the problem's size for one.",
)
@options.QUIET
def command(problems: tuple[str, ...], device: Device, *, quiet: bool) -> int:
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
    return ExitCode.CANDIDATE_FAILED if found else ExitCode.OK


def _show(case: "CaseLint") -> None:
    name = f"{case.problem}: {case.case}" if case.case else case.problem
    if not case.findings:
        click.echo(f"ok     {name}")
    for finding in case.findings:
        click.echo(f"found  {name}: {finding}")


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
