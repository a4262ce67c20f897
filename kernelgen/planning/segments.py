"""Fusion of a reduction, a norm, a pool or a product with the map after it.

A reduction and a map of the same elements are one stage where a chip holds what both of them read;
a norm, a pool or a product and a map of its result always are.
"""

from collections.abc import Iterable, Mapping
from math import prod

import msgspec

from kernelgen.planning.naming import SUMS, Names
from kernelgen.planning.norms.ways import ROW, way_of
from kernelgen.planning.plan import (
    Map,
    Operand,
    Plan,
    Pool,
    Product,
    Reduce,
    Result,
    Segment,
    Stage,
    Step,
    StepValue,
    reads,
    results_of,
)
from kernelgen.planning.products.choice import Architecture

_KINDS = frozenset(("sum", "mean", "max", "min", "sumexp", "variance"))
_COLUMN = 128  # values that a thread holds
# Operators of tens of instructions. Of three in a product's epilogue, one of 0.7 ms took 0.85 on an
# H200, and a pass of its own takes 0.02.
_COSTLY = frozenset(
    """
    acos asin atan atan2 celu cos cosh div_floor elu erf erfc exp exp2 expm1 floor_divide fmod gelu
    gelu_tanh hypot log log10 log1p log2 log_sigmoid logaddexp mish pow remainder selu sigmoid silu
    sin sinh softplus tan tanh
    """.split()  # noqa: SIM905 - a list of words reads best as words
)


def with_maps_fused(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan in which a map is one stage with what it alone reads, where that moves less.

    Segments are held as suits a GPU of that architecture; a CPU has none.
    """
    stages = list(plan.stages)
    for first in plan.stages:
        if not isinstance(first, Reduce | Segment | Pool | Product):
            continue
        made = {result.value for result in results_of(first)}
        readers = [stage for stage in stages if made.intersection(reads(stage))]
        if len(readers) != 1 or made & {*plan.outputs, *plan.updates.values()}:
            continue
        (second,) = readers
        if isinstance(second, Map) and (fused := _fused(first, second, stages, arch)):
            stages[stages.index(second)] = fused
            stages.remove(first)
    held = (
        msgspec.structs.replace(stage, way=way_of(stage, arch))
        if isinstance(stage, Segment)
        else stage
        for stage in stages
    )
    return msgspec.structs.replace(plan, stages=tuple(held))


def _fused(
    first: Reduce | Segment | Pool | Product,
    second: Map,
    stages: Iterable[Stage],
    arch: Architecture | None,
) -> Stage | None:
    """Return a stage and the map that alone reads its results as one; None if that cannot be."""
    if len(second.results) > 1:
        return None
    if not isinstance(first, Reduce):
        others = Names(*(stage.name for stage in stages if stage not in (first, second)))
        return _with_epilogue(first, second, others)
    segment = _segment(first, second) if _is_segment(first) else None
    return segment if segment is not None and _fits(segment, arch) else None


def _with_epilogue(first: Segment | Pool | Product, second: Map, others: Names) -> Stage | None:
    """Return a stage whose results are mapped before they are written; `others` are kernels."""
    (result,) = second.results
    if second.shape != first.result.type.shape or not _takes(first, second):
        return None
    made = str(first.result.of)
    known = {first.result.value: made}
    steps = (*first.steps, *first.epilogue)
    if isinstance(first, Segment):
        steps += first.after
        known |= {o.value: o.name for o in first.operands if o.name in first.kept}
    taken = [*(o.name for o in first.operands), *(step.name for step in steps)]
    taken += [a.name for a in getattr(first, "accumulators", ())]
    names = _Renaming(second, known, taken=(made, SUMS, *taken))
    changed = {
        "name": others.kernel((first.name, second.name), first.name),
        "result": msgspec.structs.replace(result, of=names.new(result.of)),
    }
    if isinstance(first, Segment):
        operands, after = (*first.operands, *names.further), (*first.after, *names.steps)
        return msgspec.structs.replace(first, operands=operands, after=after, **changed)
    return msgspec.structs.replace(first, beside=names.further, epilogue=names.steps, **changed)


def _takes(first: Segment | Pool | Product, second: Map) -> bool:
    """Whether a stage is done as soon with a map as without."""
    if isinstance(first, Segment):
        kinds = {o.type.dtype for o in second.operands if not o.is_number}
        kinds.add(second.results[0].type.dtype)
        return kinds == {"float32"} or first.length <= ROW
    if isinstance(first, Pool):
        return True
    product = first  # whose tensor cores wait meanwhile
    costly = sum(step.operator in _COSTLY for step in second.steps)
    # With several runs, their sum would be mapped.
    whole = product.fast.runs == 1 and second.results[0].type.dtype == "float32"
    return whole and costly <= 1


def _is_segment(stage: Reduce) -> bool:
    """Whether it gathers neighbours in memory, or what is as far apart."""
    first, last = stage.dims[0] if stage.dims else 0, stage.dims[-1] if stage.dims else -1
    return (
        stage.dims == tuple(range(first, last + 1))
        and prod(stage.shape[d] for d in stage.dims) > 1
        and not stage.beside
        and all(a.kind in _KINDS for a in stage.accumulators)
    )


def _fits(segment: Segment, arch: Architecture | None) -> bool:
    """Whether a chip holds what is gathered and mapped."""
    held = len(segment.kept) * segment.length
    if 0 < held <= (ROW if segment.inner == 1 else _COLUMN):
        return True
    return way_of(segment, arch) != "held"


def _segment(first: Reduce, second: Map) -> Segment | None:
    """Return both as one stage; None if they go over other elements."""
    results = {result.value: result for result in first.results}
    reduced = tuple(1 if d in first.dims else n for d, n in enumerate(first.shape))
    kept = [operand for operand in first.operands if operand.pattern == "each"]
    read = {operand.value: operand for operand in second.operands}
    (result,) = second.results
    if (
        first.shape != second.shape
        or any(result.type.shape != reduced for result in first.results)
        or any(o.value not in read or o.is_number or o.type.dtype != "float32" for o in kept)
    ):
        return None
    known = {operand.value: operand.name for operand in first.operands}
    taken = (SUMS, *known.values(), *(a.name for a in first.accumulators))
    taken += tuple(step.name for step in (*first.steps, *first.epilogue))
    names, held = _Renaming(second, known, taken, done=first.steps), ""
    gathered = {accumulator.of for accumulator in first.accumulators}
    of = {names.new(result.of), *(v for step in names.steps for v in step.arguments.values())}
    both = {*(step.name for step in first.steps), *(operand.name for operand in kept)}
    shared = gathered | of & both
    if len(shared) == 1 and shared <= {step.name for step in first.steps}:
        held = str(*shared)
    else:
        names = _Renaming(second, known, taken)
    return Segment(
        name=first.name,
        shape=first.shape,
        dims=first.dims,
        operands=(*first.operands, *(o for o in names.further if o.value not in results)),
        kept=tuple(operand.name for operand in kept),
        steps=first.steps,
        held=held,
        accumulators=first.accumulators,
        epilogue=first.epilogue,
        outcome={names.name(o): results[v].of for v, o in read.items() if v in results},
        after=names.steps,
        result=Result(value=result.value, of=names.new(result.of), type=result.type),
    )


class _Renaming:
    """Names in a map that unlike ones in the stage before it do not have.

    Attributes:
        steps: of the map, but for those that are `done` before it, which keep their names.
        further: its operands that are not `known`, under their names now; none is among `taken`.
    """

    def __init__(
        self,
        second: Map,
        known: Mapping[str, str],
        taken: Iterable[str],
        done: Iterable[Step] = (),
    ) -> None:
        self._taken = set(taken)
        self._new: dict[str, str] = {}
        further: list[Operand] = []
        for operand in second.operands:
            self._new[operand.name] = name = known.get(operand.value) or self._fresh(operand.name)
            if operand.value not in known:
                further.append(msgspec.structs.replace(operand, name=name))
        before = {_key(step.operator, step.arguments): step.name for step in done}
        steps: list[Step] = []
        for step in second.steps:
            arguments = {key: self.new(value) for key, value in step.arguments.items()}
            same = before.get(_key(step.operator, arguments))
            self._new[step.name] = name = same or self._fresh(step.name)
            if same is None:
                steps.append(msgspec.structs.replace(step, name=name, arguments=arguments))
        self.steps = tuple(steps)
        self.further = tuple(further)

    def name(self, operand: Operand) -> str:
        """Return what an operand of the map is called now."""
        return self._new[operand.name]

    def new(self, value: StepValue) -> StepValue:
        """Return a value that the map reads by its name now; a number stays."""
        return self._new.get(value, value) if isinstance(value, str) else value

    def _fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name.rstrip('_')}_{number}"
        self._taken.add(found)
        return found


def _key(operator: str, arguments: dict[str, StepValue]) -> object:
    return operator, tuple(sorted((name, repr(value)) for name, value in arguments.items()))
