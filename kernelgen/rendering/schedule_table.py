"""Which schedule a problem is rendered with: the defaults, and its table's numbers over them."""

from collections.abc import Mapping

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.record import Problem, ScheduleEntry
from kernelgen.problem.schedules import CPU
from kernelgen.rendering.context import Backend
from kernelgen.rendering.parameters import did_you_mean
from kernelgen.rendering.schedule import (
    CppProductSchedule,
    CppSchedule,
    CudaProductSchedule,
    CudaSchedule,
    Schedule,
)

# Fixed, so that what is rendered never depends on the machine that renders it.
DEFAULT_ARCHITECTURES: dict[Backend, str] = {"cuda": "sm_90", "cpp": CPU}


def default_schedule(problem: Problem, backend: Backend) -> Schedule:
    """Return the schedule of a problem whose table says nothing."""
    if problem.template is not None and problem.template.name == "matrix_product":
        return CudaProductSchedule() if backend == "cuda" else CppProductSchedule()
    return CudaSchedule() if backend == "cuda" else CppSchedule()


def schedule_for(problem: Problem, backend: Backend, arch: str) -> Schedule:
    """Return the schedule that a problem is rendered with for an architecture.

    Raises:
        ProblemError: the table's entry for it has unknown names, or makes an illegal schedule.
    """
    base = default_schedule(problem, backend)
    entry = problem.schedules.get(arch)
    return base if entry is None else _from_entry(problem, arch, entry, base)


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
