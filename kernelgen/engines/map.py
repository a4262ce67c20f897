"""A map: results computed element by element."""

from itertools import groupby
from math import prod
from typing import Any

import msgspec

from kernelgen.engines.engine import Engine, Target
from kernelgen.engines.stage import Kernel, Operand, StepValue
from kernelgen.engines.text.names import gathered_names, named_results, parts_of, text_of
from kernelgen.engines.text.reading import VECTOR, Reading, index_of
from kernelgen.engines.text.stage_text import StageText, in_words
from kernelgen.problem.record import Backend


class Map(Kernel, frozen=True, kw_only=True, tag="map"):
    """Results are computed element by element, all of one shape."""

    @property
    def roots(self) -> tuple[StepValue, ...]:
        """Values that are written."""
        return tuple(result.of for result in self.results)

    @property
    def spread(self) -> tuple[Operand, ...]:
        """Operands of which the kernel's Python needs no other shape than where they repeat."""
        return () if parts_of(self) else tuple(o for o in self.operands if o.pattern == "along")

    @property
    def replaceable(self) -> tuple[Operand, ...]:
        """Operands that have an element for each."""
        return tuple(operand for operand in self.operands if operand.pattern == "each")


class MapEngine(Engine[Map]):
    """Pointwise operators, which wait until one of their values is needed in memory."""

    record = Map

    def words(self, stage: Map) -> str:
        """Return a map as a formula for each result."""
        return "; ".join(in_words(stage.steps, result.of) for result in stage.results)

    def text(self, stage: Map, target: Target) -> StageText:
        """Return a map as text."""
        return _text(stage, target.backend, told_sizes=False)

    def shared_text(self, stage: Map, target: Target) -> StageText:
        """Return a map as text whose kernel is told sizes of operands that repeat."""
        return _text(stage, target.backend, told_sizes=True)


def _text(stage: Map, backend: Backend, *, told_sizes: bool) -> StageText:
    """Return a map as text.

    With `told_sizes`, the fast CUDA kernel has no sizes of operands that repeat: it is told them
    when it is launched, so that stages of several sizes can share it.
    """
    given = gathered_names(stage, backend, stage.roots, in_32_bits=True)
    given |= _told(given["operands"]) if told_sizes and backend == "cuda" else {"told": []}
    can = not given["told"] or all(o.reading != "none" for o in given["operands"])
    vectors = any(operand.reading == "vector" for operand in given["operands"])
    given |= {
        "results": named_results(stage, given["values"]),
        "fast": can and vectors and prod(stage.shape) % VECTOR == 0,
    }
    return text_of(stage, backend, f"{given['formula']}, element by element", given)


def _told(operands: list[Reading]) -> dict[str, Any]:
    """Return operands that are read at indices which a kernel computes from sizes it is told.

    Operands that repeat along the same dimensions share an index.
    """

    def way(o: Reading) -> tuple[str, str, int, int]:
        return o.pattern, o.reading, o.first, o.last

    spread = sorted((o for o in operands if o.repeats), key=way)
    told: list[dict[str, Any]] = []
    at: dict[str, str] = {}
    for number, (_, members) in enumerate(groupby(spread, way), 1):
        first, *others = members
        place = index_of(first.pattern, f"inner_{number}", f"size_{number}", "unsigned")
        fits = f"a.{first.name}_inner % {VECTOR} == 0"
        if first.pattern == "along" and first.reading == "one":
            fits = f"({fits} || a.{first.name}_size == 1)"
        elif first.pattern == "along":
            fits = f"a.{first.name}_inner == 1 && a.{first.name}_size % {VECTOR} == 0"
        at |= {o.name: f"at_{number}" for o in (first, *others)}
        told.append({"name": first.name, "at": place, "fits": fits, "others": others})
    named = [msgspec.structs.replace(o, at=at.get(o.name, o.at)) for o in operands]
    return {"operands": named, "told": told}
