"""What a sweep found: frozen records, which `--json` writes; docs/sweep.md has every field."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.timing.times import Speedup
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.problem.record import Backend
from kernelgen.report import json_report
from kernelgen.report.details import time_remarks
from kernelgen.sweep.plan import name_of

SCHEMA_VERSION = 1
Point = TypeVar("Point")

# These may differ between two hosts of one GPU, and make no other times.
_FREE = ("platform", "python")
_FREE_WITH_A_GPU = ("cpu", "cpu_threads")
_SAME = ("problem", "problem_sha256", "backend", "series", "x", "device")


class PointTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times at one point; medians in ms.

    Attributes:
        solution_ms: of the solution.
        baselines_ms: name of a baseline -> its time.
        speedup: name of a baseline -> its time over the solution's.
        minimal_bytes: inputs, parameters and outputs once each.
        gbps: minimal_bytes over solution_ms, in 1e9 bytes a second.
        limit_ms: the least time that the point takes at the device's measured rates; absent if
            these are not known.
        fraction: limit_ms over solution_ms; may exceed 1 where all of it fits a cache.
        bound: which rate the limit rests on.
    """

    solution_ms: float
    baselines_ms: dict[str, float] = {}
    speedup: dict[str, Speedup] = {}
    minimal_bytes: int | None = None
    gbps: float | None = None
    limit_ms: float | None = None
    fraction: float | None = None
    bound: Literal["memory", "arithmetic"] | None = None


class SweepPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One size of the problem, and what grading its solution found.

    Attributes:
        labels: what it is called -> bytes.
        constants: that the file gives it.
        solution_sha256: of the rendered solution.
        status: how grading ended.
        owner: whose doing that is.
        reason: what is wrong, unless it passed.
        time: present if it passed and was timed.
        remarks: what should be known of the times, and the verdict's warnings.
    """

    labels: dict[str, int]
    constants: dict[str, Any]
    solution_sha256: str
    status: Status
    owner: Owner
    reason: str = ""
    time: PointTime | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.status is not Status.PASSED and (self.time is not None or not self.reason):
            raise ValueError(f"{self.status.value} needs a reason, and cannot carry times")
        if not all(size > 0 for size in self.labels.values()):
            raise ValueError("a label is a number of bytes above 0")

    @property
    def passed(self) -> bool:
        """Whether the solution passed."""
        return self.status is Status.PASSED


class Sweep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem's rendered solution at many sizes.

    Attributes:
        schema: version of this form.
        environment: versions, and facts about the device.
        problem: its name.
        problem_sha256: of its file.
        backend: of the solutions.
        series: the label that all points of a line of the plot share.
        x: the label along the horizontal axis.
        planned: how many points the file has.
        points: those that were graded, in the order of the file.
        device: name of the device, or "".
        method: how the times were taken, one line.
    """

    schema: int
    environment: dict[str, Any]
    problem: str
    problem_sha256: str
    backend: Backend
    series: str
    x: str
    planned: int
    points: tuple[SweepPoint, ...]
    device: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        names = {self.series, self.x}
        if any(point.labels.keys() != names for point in self.points):
            raise ValueError(f"every point has the labels {self.series!r} and {self.x!r}")

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the baselines that were timed at any point."""
        times = [point.time for point in self.points if point.time is not None]
        return tuple(dict.fromkeys(name for time in times for name in time.speedup))


def graded_point(labels: dict[str, int], constants: dict[str, Any], verdict: Verdict) -> SweepPoint:
    """Return a point with what the verdict on its solution says."""
    time, timing = None, verdict.timing
    if timing is not None:
        subjects, limit = timing.subjects, timing.limit
        time = PointTime(
            solution_ms=timing.candidate_ms,
            baselines_ms={
                name: one.median_ms for name, one in subjects.items() if name in timing.speedup
            },
            speedup=timing.speedup,
            minimal_bytes=timing.minimal_bytes,
            gbps=timing.gbps,
            limit_ms=None if limit is None else limit.limit_ms,
            fraction=None if limit is None else limit.fraction,
            bound=None if limit is None else limit.bound,
        )
    return SweepPoint(
        labels=labels,
        constants=constants,
        solution_sha256=verdict.solution_sha256,
        status=verdict.status,
        owner=verdict.owner,
        reason=verdict.reason,
        time=time,
        remarks=(*time_remarks(timing), *verdict.warnings),
    )


def read_sweep(path: Path) -> Sweep:
    """Read what `kernelgen sweep --json` wrote, or standard input where the path is `-`.

    Raises:
        UserError: it cannot be read, or is no record of a sweep that this version reads.
    """
    return json_report.read_form(path, Sweep, version=SCHEMA_VERSION, name="sweep", command="sweep")


def chosen(numbers: frozenset[int] | None, points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the points of these numbers, counted from 1; None is all.

    Raises:
        UserError: there are fewer points.
    """
    if numbers is None:
        return points
    beyond = sorted(numbers.difference(range(1, len(points) + 1)))
    if beyond:
        raise UserError(f"--points {beyond[0]}: there are {len(points)} points, counted from 1")
    return tuple(point for number, point in enumerate(points, 1) if number in numbers)


def as_one(parts: Sequence[tuple[Path, Sweep]]) -> Sweep:
    """Return parts of one sweep as one, their points in the order in which they are given.

    Raises:
        UserError: they are of other problems, devices or versions, or have a point in common.
    """
    (first_path, first), *others = parts
    points = list(first.points)
    environment = dict(first.environment)
    for path, other in others:
        different = _difference(first, other)
        if different:
            raise UserError(f"{path}: no part of the sweep in {first_path}: {different}")
        known = [point.labels for point in points]
        twice = next((point for point in other.points if point.labels in known), None)
        if twice is not None:
            raise UserError(f"{path}: {name_of(twice.labels)} is in an earlier file as well")
        points += other.points
        environment = {k: v for k, v in environment.items() if other.environment.get(k) == v}
    planned = max(part.planned for _, part in parts)
    return msgspec.structs.replace(
        first, points=tuple(points), environment=environment, planned=max(planned, len(points))
    )


def _difference(one: Sweep, other: Sweep) -> str:
    """Return the first thing that has to be the same and is not, or ""."""
    pairs = [(name, getattr(one, name), getattr(other, name)) for name in _SAME]
    keys = dict.fromkeys((*one.environment, *other.environment))
    free = (*_FREE, *_FREE_WITH_A_GPU) if "gpu" in keys else _FREE
    pairs += [
        (key, one.environment.get(key), other.environment.get(key))
        for key in keys
        if key not in free
    ]
    return next((f"{name} is {b}, there {a}" for name, a, b in pairs if a != b), "")
