"""Which schedule a problem is rendered with: the defaults, and its table's numbers over them."""

from collections.abc import Mapping

import msgspec

from kernelgen.engines.architectures import DEFAULT_ARCHITECTURE, architecture
from kernelgen.engines.known import schedule_of
from kernelgen.engines.schedule import Schedule
from kernelgen.errors import ProblemError, UserError
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import MAIN, Backend, Problem, ScheduleEntry, device_of
from kernelgen.problem.schedules import CPU
from kernelgen.rendering.overrides import did_you_mean

# Fixed, so that what is rendered never depends on the machine that renders it.
DEFAULT_ARCHITECTURES: dict[Backend, str] = {"cuda": DEFAULT_ARCHITECTURE, "cpp": CPU}
_NO_SCHEDULE = "its Model has not one product or long norm, and other kernels have no schedule"


def default_schedule(problem: Problem, backend: Backend, arch: str) -> Schedule:
    """Return the schedule of a problem whose table says nothing.

    Raises:
        ProblemError: its code fails, or its forward has no graph.
        UserError: it has not one product or long norm, and other kernels have no schedule.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    found = _default_schedule(problem, backend, arch)
    if found is None:
        raise UserError(f"{problem.name}: {_NO_SCHEDULE}")
    return found


def _default_schedule(problem: Problem, backend: Backend, arch: str) -> Schedule | None:
    named = architecture(arch) if backend == "cuda" else DEFAULT_ARCHITECTURE
    alone = msgspec.structs.replace(problem, cases=())
    found = plan_of_problem(alone, MAIN, device_of(backend), named)
    return schedule_of(found.plan.all_stages, arch)


def schedule_for(
    problem: Problem, backend: Backend, arch: str, base: Schedule | None = None
) -> Schedule:
    """Return the schedule that a problem is rendered with for an architecture.

    Its table's entry is taken; `base` are the defaults at another size, None at the problem's
    own. Where they are another kernel's, the table's numbers are not for it.

    Raises:
        ProblemError: the table's entry for it has unknown names, or makes an illegal schedule.
        UserError: as of `default_schedule`.
    """
    entry = None if problem.gradients else problem.schedules.get(arch)
    if entry is None and base is not None:
        return base
    own = default_schedule(problem, backend, arch)
    base = own if base is None else base
    if entry is None or type(base) is not type(own):
        return base
    return _from_entry(problem, arch, entry, base)


def check_schedules(problem: Problem) -> None:
    """Check every entry of a problem's table, whatever is being rendered, but gradients.

    The numbers are those of forward alone, which has other kernels then.

    Raises:
        ProblemError: as `schedule_for`, or there is no schedule that the numbers could be of.
    """
    for arch in () if problem.gradients else problem.schedules:
        backend: Backend = "cpp" if arch == CPU else "cuda"
        if _default_schedule(problem, backend, arch) is None:
            raise _error(problem, arch, None, f"{_NO_SCHEDULE}; remove the key")
        schedule_for(problem, backend, arch)


def changed_numbers(schedule: Schedule, base: Schedule) -> dict[str, int]:
    """Return those numbers of a schedule in which it differs from another of its kind."""
    known, numbers = msgspec.structs.asdict(base), msgspec.structs.asdict(schedule)
    return {name: value for name, value in numbers.items() if value != known[name]}


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
        # The first number that is illegal by itself; none if only all of them together are.
        alone = ((name, replaced(base, {name: value})) for name, value in entry.numbers.items())
        culprit = next((name for name, schedule in alone if schedule is None), None)
        raise _error(problem, arch, culprit, str(error)) from error


def _error(problem: Problem, arch: str, name: str | None, message: str) -> ProblemError:
    lines = problem.schedules[arch].lines
    key = f"schedules.{arch}" if name is None else f"schedules.{arch}.{name}"
    line = min(lines.values(), default=None) if name is None else lines[name]
    return ProblemError(problem.path, line, key, message)
