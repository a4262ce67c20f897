"""`kernelgen show`: one problem, as a person wants to read it."""

from pathlib import Path

import click

from kernelgen.cli import options
from kernelgen.cli.list import in_short
from kernelgen.destination import write_whole
from kernelgen.grading.plan_record import PlanRecord
from kernelgen.hardware.calibration import Calibration, read_calibration
from kernelgen.installation import recorded_calibration
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Case, Problem
from kernelgen.rendering.schedule_table import in_words
from kernelgen.report.console import busy
from kernelgen.report.printable import printable


@click.command()
@click.argument("problem", type=options.ProblemName())
@click.option(
    "--plan",
    is_flag=True,
    help="Also show what a rendered solution does stage by stage, at the sizes for a GPU, and how "
    "long that takes at least; runs the problem's code contained, on no data.",
)
@options.destination("--html", "Write a page that draws the plan: a box for each stage.")
def command(problem: str, *, plan: bool, html: Path | None) -> None:
    """Show a problem, given by its name or by a .yaml or KernelBench .py file."""
    found = load_problem(problem)
    calibration, rates = _rates() if plan or html else (None, "")
    if html is not None:
        from kernelgen.report.html.document import plan_page

        write_whole(plan_page(found, _plan(found, calibration), rates).encode(), html)
        return
    _heading(f"{found.name}: {found.summary}")
    for name, value in _facts(found):
        click.echo(f"  {name:<18} {value}")
    if found.constants:
        _heading("\nConstants")
    for name, constant in found.constants.items():
        on_cpu = found.cpu_constants.get(name)
        note = "" if on_cpu is None else f"   on a CPU: {in_short(on_cpu)}"
        click.echo(f"  {name:<18} {in_short(constant)}{note}")
    if found.cases:
        _heading("\nCases")
        for case in found.cases:
            _case(case)
    if plan:
        _print_plan(_plan(found, calibration), rates)
    _heading("\nReference")
    click.echo(found.module_source or found.reference_source(found.all_cases()[0], "cuda"))


def _plan(problem: Problem, calibration: Calibration | None) -> PlanRecord:
    """Return the plan of a problem's main case, or why all of it stays in torch.

    Raises:
        ProblemError: the problem's code fails.
    """
    from kernelgen.report.planned import plan_of
    from kernelgen.tracing.capture import NoGraphError

    try:
        with busy(f"{problem.name}: torch traces its Model"):
            return plan_of(problem, "cuda", calibration)
    except NoGraphError as error:
        return PlanRecord(problem=problem.name, device="", reason=error.why)


def _print_plan(plan: PlanRecord, rates: str) -> None:
    from kernelgen.report.plan import plan_lines

    if plan.reason:
        _heading("\nPlan")
        click.echo(f"  {'all stays in torch':<18} {printable(plan.reason)}")
        return
    _heading(f"\nPlan, {rates}")
    for line in plan_lines(plan):
        click.echo(printable(line))


def _rates() -> tuple[Calibration | None, str]:
    """Return the rates of this machine's GPU, else those recorded of an H200; and whose."""
    from kernelgen.report.planned import rates_here

    if (here := rates_here("cuda")) is not None:
        return here, f"timed by the rates of this machine's {printable(here.device.name)}"
    recorded = read_calibration(recorded_calibration())
    if recorded is None:
        return None, "not timed: `kernelgen calibrate` measures the rates"
    day = recorded.measured.date()
    return recorded, f"timed by the rates of an {recorded.device.name}, recorded on {day}"


def _heading(text: str) -> None:
    click.secho(text, bold=True)


def _facts(problem: Problem) -> list[tuple[str, str]]:
    facts = [
        ("file", str(problem.path)),
        ("tolerance", f"{problem.tolerance:g}"),
        ("precision", problem.precision),
        ("gradients", "compared" if problem.gradients else "not asked for"),
        ("cases", str(len(problem.all_cases()))),
        ("batch independent", "yes" if problem.batch_independent else "no"),
        ("require", problem.require),
        ("libraries", problem.libraries),
        ("buffers", problem.buffers),
    ]
    if problem.kernelbench:
        facts.append(("KernelBench", problem.kernelbench))
    for arch, entry in problem.schedules.items():
        facts.append((f"schedule, {arch}", in_words(entry.numbers)))
    for where, minimal in (("", problem.minimal), (", on a CPU", problem.cpu_minimal)):
        counts = (("bytes", minimal.bytes), ("flops", minimal.flops))
        declared = [f"{count} {name}" for name, count in counts if count is not None]
        if declared:
            facts.append((f"minimal{where}", " and ".join(declared)))
    if problem.allowed_imports is not None:
        facts.append(("allowed imports", ", ".join(problem.allowed_imports) or "none"))
    return facts


def _case(case: Case) -> None:
    click.echo(f"  {case.name:<18} {case.why}".rstrip())
    given = [f"{name}={in_short(value)}" for name, value in sorted(case.constants.items())]
    if case.get_inputs is not None:
        given.append("inputs of its own")
    click.echo(f"  {'':<18} {', '.join(given)}")
