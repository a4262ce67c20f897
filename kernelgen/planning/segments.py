"""Fusion of a reduction with the map after it, where a chip holds what both of them read."""

from math import prod

import msgspec

from kernelgen.planning.graph import references
from kernelgen.planning.naming import SUMS
from kernelgen.planning.plan import (
    Library,
    Map,
    Operand,
    Plan,
    Reduce,
    Result,
    Segment,
    Stage,
    Step,
    StepValue,
)

_KINDS = frozenset(("sum", "mean", "max", "min", "sumexp", "variance"))
_ROW = 8192  # values that the threads of a block hold
_COLUMN = 128  # values that a thread holds


def with_segments(plan: Plan) -> Plan:
    """Return a plan in which a reduction and a map are one stage where one read of memory does."""
    stages = list(plan.stages)
    for first in plan.stages:
        if not isinstance(first, Reduce) or not _fits(first):
            continue
        made = {result.value for result in first.results}
        readers = [stage for stage in stages if made.intersection(_reads(stage))]
        if len(readers) != 1 or made & {*plan.outputs, *plan.updates.values()}:
            continue
        (second,) = readers
        if isinstance(second, Map) and (segment := _segment(first, second)) is not None:
            stages[stages.index(second)] = segment
            stages.remove(first)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _fits(stage: Reduce) -> bool:
    """Whether a chip holds what is reduced, in registers."""
    first, last = stage.dims[0] if stage.dims else 0, stage.dims[-1] if stage.dims else -1
    length, inner = prod(stage.shape[d] for d in stage.dims), prod(stage.shape[last + 1 :])
    held = sum(operand.pattern == "each" for operand in stage.operands) * length
    return (
        stage.dims == tuple(range(first, last + 1))
        and length > 1
        and 0 < held <= (_ROW if inner == 1 else _COLUMN)
        and not stage.beside
        and all(a.kind in _KINDS for a in stage.accumulators)
    )


def _segment(first: Reduce, second: Map) -> Segment | None:
    """Return both as one stage; None if they go over other elements."""
    results = {result.value: result for result in first.results}
    reduced = tuple(1 if d in first.dims else n for d, n in enumerate(first.shape))
    kept = [operand for operand in first.operands if operand.pattern == "each"]
    read = {operand.value: operand for operand in second.operands}
    result, *others = second.results
    if (
        others
        or first.shape != second.shape
        or any(result.type.shape != reduced for result in first.results)
        or any(o.value not in read or o.is_number or o.type.dtype != "float32" for o in kept)
    ):
        return None
    names, held = _Renaming(first, second, shared=True), ""
    gathered = {accumulator.of for accumulator in first.accumulators}
    of = {names.new(result.of), *(v for step in names.steps for v in step.arguments.values())}
    known = {*(step.name for step in first.steps), *(operand.name for operand in kept)}
    shared = gathered | of & known
    if len(shared) == 1 and shared <= {step.name for step in first.steps}:
        held = str(*shared)
    else:
        names = _Renaming(first, second, shared=False)
    return Segment(
        name=first.name,
        shape=first.shape,
        dims=first.dims,
        operands=(*first.operands, *names.further),
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
    """Names in a map that unlike ones in the reduction before it do not have."""

    def __init__(self, first: Reduce, second: Map, *, shared: bool) -> None:
        """Give each operand and step its name; operands that both read have the first one's.

        Args:
            first: the reduction.
            second: the map.
            shared: steps that both do have the first one's name, too, and are not done again.
        """
        known = {operand.value: operand.name for operand in first.operands}
        self._taken = {SUMS, *known.values(), *(a.name for a in first.accumulators)}
        self._taken |= {step.name for step in (*first.steps, *first.epilogue)}
        self._new: dict[str, str] = {}
        made = {result.value for result in first.results}
        further: list[Operand] = []
        for operand in second.operands:
            name = known.get(operand.value) or self._fresh(operand.name)
            self._new[operand.name] = name
            if operand.value not in known and operand.value not in made:
                further.append(msgspec.structs.replace(operand, name=name))
        done = {_key(step.operator, step.arguments): step.name for step in first.steps}
        steps: list[Step] = []
        for step in second.steps:
            arguments = {key: self.new(value) for key, value in step.arguments.items()}
            same = done.get(_key(step.operator, arguments)) if shared else None
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


def _reads(stage: Stage) -> list[str]:
    if isinstance(stage, Library):
        return [name for value in stage.arguments.values() for name in references(value)]
    beside = stage.beside if isinstance(stage, Reduce) else ()
    return [operand.value for operand in (*stage.operands, *beside)]
