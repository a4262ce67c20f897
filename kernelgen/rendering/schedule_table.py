"""Which schedule a problem is rendered with: the defaults, and its table's numbers over them."""

from collections.abc import Mapping

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.planning.capture import graph_of
from kernelgen.problem.record import MAIN_CASE, Backend, Case, Device, Problem, ScheduleEntry
from kernelgen.problem.schedules import CPU
from kernelgen.rendering.choose import (
    DEFAULT_ARCHITECTURE,
    Architecture,
    Choice,
    architecture,
    choose,
)
from kernelgen.rendering.layers import solution_layers
from kernelgen.rendering.parameters import did_you_mean, template_parameters
from kernelgen.rendering.reference_model import read_model
from kernelgen.rendering.schedule import CppProductSchedule, CppSchedule, Schedule

# Fixed, so that what is rendered never depends on the machine that renders it.
DEFAULT_ARCHITECTURES: dict[Backend, str] = {"cuda": DEFAULT_ARCHITECTURE, "cpp": CPU}
_MAIN = Case(name=MAIN_CASE)


def default_schedule(problem: Problem, backend: Backend, arch: str) -> Schedule:
    """Return the schedule of a problem whose table says nothing.

    Raises:
        UserError: the problem has no template, or it does not suit the problem.
    """
    if backend == "cpp":
        is_product = problem.template is not None and problem.template.name == "matrix_product"
        return CppProductSchedule() if is_product else CppSchedule()
    return own_choice(problem, architecture(arch)).schedule


def own_choice(problem: Problem, arch: Architecture) -> Choice:
    """Return the kernels of a problem as it is, nothing overridden.

    Raises:
        UserError: the problem has no template, it does not suit the problem, or that has no graph.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    if problem.template is None:
        raise UserError(f"{problem.name}: no template in {problem.path.name}, so nothing to render")
    device: Device = "cuda"
    model = read_model(problem)
    parameters = template_parameters(problem, problem.template)
    layers = solution_layers(problem, model, parameters)
    return choose(parameters, layers, model.inputs, graph_of(problem, _MAIN, device), arch)


def schedule_for(
    problem: Problem, backend: Backend, arch: str, base: Schedule | None = None
) -> Schedule:
    """Return the schedule that a problem is rendered with for an architecture.

    Args:
        problem: whose table is read.
        backend: that is rendered for.
        arch: whose entry is taken.
        base: the defaults at another size; where they are another kernel's, the table's numbers are
            not for it. None is the problem's own size.

    Raises:
        ProblemError: the table's entry for it has unknown names, or makes an illegal schedule.
        UserError: the problem has no template, or it does not suit the problem.
    """
    own = default_schedule(problem, backend, arch)
    base = own if base is None else base
    entry = problem.schedules.get(arch)
    if entry is None or type(base) is not type(own):
        return base
    return _from_entry(problem, arch, entry, base)


def check_schedules(problem: Problem) -> None:
    """Check every entry of a problem's table, whatever is being rendered.

    Raises:
        ProblemError: as `schedule_for`.
    """
    for arch in problem.schedules:
        schedule_for(problem, "cpp" if arch == CPU else "cuda", arch)


def numbers_of(schedule: Schedule) -> dict[str, int]:
    """Return a schedule's numbers by name, in the order in which the class has them."""
    return msgspec.structs.asdict(schedule)


def changed_numbers(schedule: Schedule, base: Schedule) -> dict[str, int]:
    """Return those numbers of a schedule in which it differs from another of its kind."""
    known = numbers_of(base)
    return {name: value for name, value in numbers_of(schedule).items() if value != known[name]}


def in_words(numbers: Mapping[str, int]) -> str:
    """Return numbers as `threads=256 items=8`."""
    return " ".join(f"{name}={value}" for name, value in numbers.items())


def replaced(schedule: Schedule, numbers: Mapping[str, int]) -> Schedule | None:
    """Return a schedule with some numbers replaced, or None if that is no legal one."""
    try:
        return msgspec.structs.replace(schedule, **numbers)
    except ValueError:
        return None


def _from_entry(problem: Problem, arch: str, entry: ScheduleEntry, base: Schedule) -> Schedule:
    fields = base.__struct_fields__
    for name in entry.numbers:
        if name not in fields:
            hint = did_you_mean(name, fields) or f"; there are {', '.join(fields)}"
            raise _error(problem, arch, name, f"unknown number of a schedule{hint}")
    try:
        return msgspec.structs.replace(base, **entry.numbers)
    except ValueError as error:
        raise _error(problem, arch, _culprit(entry, base), str(error)) from error


def _culprit(entry: ScheduleEntry, base: Schedule) -> str | None:
    """Return the first number that is illegal by itself; None if only all of them together are."""
    alone = ((name, replaced(base, {name: value})) for name, value in entry.numbers.items())
    return next((name for name, schedule in alone if schedule is None), None)


def _error(problem: Problem, arch: str, name: str | None, message: str) -> ProblemError:
    lines = problem.schedules[arch].lines
    key = f"schedules.{arch}" if name is None else f"schedules.{arch}.{name}"
    line = min(lines.values()) if name is None else lines[name]
    return ProblemError(problem.schedules[arch].path, line, key, message)
