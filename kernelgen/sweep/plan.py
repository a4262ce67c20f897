"""A sweep's file: the points at which a problem is timed, and what each of them is labelled with.

Every point is rendered when the file is read, so that a mistake in the last one is told before the
first one is graded.
"""

from pathlib import Path

import msgspec
import yaml

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import (
    MAIN_CASE,
    Backend,
    Case,
    ConstantValue,
    Minimal,
    Problem,
    device_of,
)
from kernelgen.problem.text import read_raw
from kernelgen.problem.yaml_tree import YamlValue, read_tree
from kernelgen.rendering.solution import render
from kernelgen.report.numbers import byte_size

_KEYS = ("problem", "series", "x", "points")
_LARGEST_BYTES = 10**18


class PlannedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One size of the problem.

    Attributes:
        labels: what it is called, in bytes; the same two names at every point.
        constants: that make the problem so large.
        problem: with these constants, and its main case alone.
        source: of the solution, rendered with these constants.
    """

    labels: dict[str, int]
    constants: dict[str, ConstantValue]
    problem: Problem
    source: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep to be run.

    Attributes:
        problem: as its own file has it.
        backend: of the solutions.
        series: the label that all points of a line of the plot share.
        x: the label along the horizontal axis.
        points: in the order of the file.
        of_file: how many points the file has, those included that are not wanted now.
    """

    problem: Problem
    backend: Backend
    series: str
    x: str
    points: tuple[PlannedPoint, ...]
    of_file: int


def name_of(labels: dict[str, int]) -> str:
    """Return a point's name for a person, such as `segment 4 KiB, tensor 1 MiB`."""
    return ", ".join(f"{name} {byte_size(size)}" for name, size in labels.items())


def read_plan(path: Path, backend: Backend) -> Plan:
    """Read a sweep's file, and render the solution of every point.

    Raises:
        ProblemError: the file cannot be read or is wrong, or the problem does not take a point's
            constants; the message names line and key.
        UserError: the problem cannot be rendered at all.
    """
    try:
        fields = read_tree(path, read_raw(path)).fields(_KEYS, _KEYS)
        problem = _problem(fields["problem"])
        series, x = fields["series"].one_line(), fields["x"].one_line()
        if series == x:
            raise fields["x"].error(f"`{x}` is the series already; name the other label")
        points = _points(fields["points"], (series, x), problem, backend)
    except RecursionError as error:
        raise ProblemError(path, None, None, "nested too deeply; a sweep is flat") from error
    return Plan(
        problem=problem, backend=backend, series=series, x=x, points=points, of_file=len(points)
    )


def _problem(value: YamlValue) -> Problem:
    """Return the problem: by name, or by a path that starts at the sweep's own folder."""
    name = value.one_line()
    path = Path(name)
    is_path = len(path.parts) > 1 or path.suffix != ""
    try:
        return load_problem(value.path.parent / path if is_path else name)
    except ProblemError:
        raise
    except UserError as error:
        raise value.error(str(error)) from error


def _points(
    value: YamlValue, labels: tuple[str, str], problem: Problem, backend: Backend
) -> tuple[PlannedPoint, ...]:
    points: list[PlannedPoint] = []
    for item in value.elements():
        fields = item.fields(("labels", "constants"), ("labels", "constants"))
        named = fields["labels"].fields(labels, labels)
        sizes = {name: _size(named[name]) for name in labels}
        if any(point.labels == sizes for point in points):
            raise fields["labels"].error(f"two points are {name_of(sizes)}; remove one of them")
        points.append(_point(fields["constants"], sizes, problem, backend))
    if not points:
        raise value.error("expected a list of points, found an empty one; add a point")
    return tuple(points)


def _size(value: YamlValue) -> int:
    size = value.whole_number()
    if not 0 < size <= _LARGEST_BYTES:
        raise value.error(f"expected bytes from 1 to {_LARGEST_BYTES}, found {size}")
    return size


def _point(
    value: YamlValue, sizes: dict[str, int], problem: Problem, backend: Backend
) -> PlannedPoint:
    given = {name: item.constant() for name, item in value.items()}
    overrides = {f"constants.{name}": _as_yaml(constant) for name, constant in given.items()}
    try:
        source = render(problem, backend, overrides)
    except ProblemError:
        raise
    except UserError as error:
        raise value.error(str(error)) from error
    resized = msgspec.structs.replace(
        problem,
        constants={**problem.constants_for(Case(name=MAIN_CASE), device_of(backend)), **given},
        cpu_constants={},
        cases=(),
        # What it declares of bytes holds for its own size alone.
        minimal=Minimal(),
        cpu_minimal=Minimal(),
    )
    return PlannedPoint(labels=sizes, constants=given, problem=resized, source=source)


def _as_yaml(value: ConstantValue) -> str:
    """Return a constant as `--set` takes it; YAML's own writer, for `1e-05` would be text there."""
    plain = msgspec.to_builtins(value)
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()
