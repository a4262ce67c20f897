"""`kernelgen doctor`: what this machine can do, what is missing, and the mend."""

from collections.abc import Mapping

import click
import msgspec

from kernelgen.cli import machine_checks
from kernelgen.cli.machine_checks import Check, TorchFacts
from kernelgen.destination import STDOUT
from kernelgen.errors import ExitCode
from kernelgen.report.json_report import write
from kernelgen.report.printable import printable

_SCHEMA = 2
_BUILDS_CPP = ("python", "torch", "c++ compiler", "ninja", "temporary folder")
_BUILDS_CUDA = (*_BUILDS_CPP, "nvcc")
_GRADES_GPU = (*_BUILDS_CUDA, "gpu", "cuda ipc")


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings, and what follows from them; the JSON of `kernelgen doctor` is this record.

    Attributes:
        schema: version of this form.
        checks: one a thing that was looked for.
        can_build_cuda, can_grade_cpu, can_grade_gpu: what this machine can do.
    """

    schema: int
    checks: tuple[Check, ...]
    can_build_cuda: bool
    can_grade_cpu: bool
    can_grade_gpu: bool

    @property
    def sentence(self) -> str:
        """Return what this machine can do, in one sentence."""
        # Rendering needs only kernelgen itself, which runs.
        able = ["render"]
        able += ["build CUDA solutions"] * self.can_build_cuda
        able += ["grade on the CPU"] * self.can_grade_cpu
        able += ["grade on the GPU"] * self.can_grade_gpu
        listed = able[0] if len(able) == 1 else f"{', '.join(able[:-1])} and {able[-1]}"
        return f"This machine can {listed}."


def examine() -> Diagnosis:
    """Look at this machine, for a few seconds; torch is imported in a process of its own."""
    torch_check, torch = machine_checks.probe_torch()
    return diagnose(
        (
            machine_checks.check_python(),
            torch_check,
            machine_checks.check_cpu(),
            machine_checks.check_gpu(torch),
            machine_checks.check_nvcc(torch),
            machine_checks.check_compiler(),
            machine_checks.check_ninja(),
            machine_checks.check_ipc(torch),
            machine_checks.check_sandbox(),
            machine_checks.check_tool("ncu", "to profile kernels"),
            machine_checks.check_tool("compute-sanitizer", "to find memory errors"),
            machine_checks.check_calibration(),
            machine_checks.check_cache(),
            machine_checks.check_temporary(),
        ),
        torch,
    )


def diagnose(checks: tuple[Check, ...], torch: TorchFacts | None) -> Diagnosis:
    """Return what follows from findings."""
    states: Mapping[str, str] = {check.name: check.state for check in checks}
    return Diagnosis(
        schema=_SCHEMA,
        checks=checks,
        # A toolkit that does not fit torch still compiles; only torch refuses to build with it.
        can_build_cuda=all(states[name] != "missing" for name in _BUILDS_CUDA),
        can_grade_cpu=all(states[name] != "missing" for name in _BUILDS_CPP),
        can_grade_gpu=torch is not None
        and torch.available
        and all(states[name] == "ok" for name in _GRADES_GPU if name != "temporary folder"),
    )


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Write the findings to stdout as JSON.")
def command(*, as_json: bool) -> int:
    """Say what this machine can do and what is missing, with the mend.

    Exit code: 0 if it can grade something, 3 if it cannot.
    """
    found = examine()
    if as_json:
        write(found, STDOUT)
    else:
        _show(found)
    able = found.can_grade_cpu or found.can_grade_gpu
    return ExitCode.OK if able else ExitCode.GRADER_FAULT


def _show(found: Diagnosis) -> None:
    width = max(len(check.name) for check in found.checks)
    for check in found.checks:
        mend = f" -> {check.mend}" if check.mend else ""
        click.echo(f"{check.state:7}  {check.name:{width}}  {printable(check.found)}{mend}")
    click.echo(found.sentence)
