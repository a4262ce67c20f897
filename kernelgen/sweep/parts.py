"""A sweep that was run in parts: which of a file's points are wanted, and the parts as one."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kernelgen.errors import UserError
from kernelgen.sweep.plan import name_of
from kernelgen.sweep.record import Sweep

Point = TypeVar("Point")

# These may differ between two hosts of one GPU, and make no other times.
_FREE = ("platform", "python")
_FREE_WITH_A_GPU = ("cpu", "cpu_threads")
_SAME = ("problem", "problem_sha256", "backend", "series", "x", "device")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def chosen(text: str | None, points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the points that `3-7` or `3` means: counted from 1, both ends included; None is all.

    Raises:
        UserError: it is no such range, or there are fewer points.
    """
    if text is None:
        return points
    match = _RANGE.fullmatch(text)
    first = int(match.group(1)) if match else 0
    last = int(match.group(2) or first) if match else 0
    if not 1 <= first <= last:
        raise UserError(f"--points {text}: write the first and the last point, such as 1-20")
    if last > len(points):
        raise UserError(f"--points {first}-{last}: there are {len(points)} points")
    return points[first - 1 : last]


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
