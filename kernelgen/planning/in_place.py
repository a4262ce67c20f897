"""Updates of buffers in place: the stage that makes a value writes it there, without a copy."""

from collections.abc import Iterable

import msgspec

from kernelgen.engines.stage import Library, Stage, Views, reads, writes
from kernelgen.graph.graph import Argument, GraphInput, Reference, strides_of
from kernelgen.planning.plan import Plan

# Operators of torch that leave their result in their first argument where they end in `_`.
_OPERATORS = frozenset(("add.Tensor", "sub.Tensor", "mul.Tensor"))
_SUMMANDS = 2


def with_updates_in_place(plan: Plan) -> Plan:
    """Return a plan whose stages write the buffers that they are the last to read."""
    stages, in_place = list(plan.stages), dict[str, str]()
    views = Views(stages, {source.name: source.type for source in plan.sources})
    for source in plan.sources:
        if source.path not in plan.updates or source.path in plan.attributes:
            continue
        made = views.looked_at(plan.updates[source.path])
        at = next((n for n, stage in enumerate(stages) if made in writes(stage)), None)
        old, new = (_perhaps_in(value, stages) for value in (source.name, made))
        # A stage that reads the buffer in another way as well may read new values.
        if at is None or sum(value in old for value in reads(stages[at])) != 1:
            continue
        held = {*plan.outputs, *(v for path, v in plan.updates.items() if path != source.path)}
        looks = (s for s in stages[at + 1 :] if not (isinstance(s, Library) and s.view))
        read = {value for stage in looks for value in reads(stage)}
        changed = _written(stages[at], made, source, views)
        if changed is not None and old.isdisjoint(held | read) and new.isdisjoint(held):
            stages[at], in_place[source.path] = changed, made
    updates = {path: value for path, value in plan.updates.items() if path not in in_place}
    later = _counted_together(stages, {*plan.outputs, *updates.values()})
    return msgspec.structs.replace(plan, stages=later, updates=updates, in_place=in_place)


def _counted_together(stages: list[Stage], held: set[str]) -> tuple[Stage, ...]:
    """Return stages with one for all sums of a buffer and the same number, such as batches' counts.

    A launch for each would take the host as long as a norm's.
    """
    read = held.union(*map(reads, stages))
    sums: dict[object, list[Library]] = {}
    for stage in stages:
        if isinstance(stage, Library) and stage.in_place and stage.aten == "add.Tensor":
            number = stage.arguments["other"]
            alone = read.isdisjoint(stage.results) and stage.given == _SUMMANDS
            if alone and isinstance(number, int | float):
                sums.setdefault((type(number), number), []).append(stage)
    left = list(stages)
    for *others, last in sums.values():
        if others:
            found = (*others, last)
            arguments: dict[str, Argument] = {
                "self": tuple(Reference(reads(one)[0]) for one in found),
                "scalar": last.arguments["other"],
            }
            left[left.index(last)] = msgspec.structs.replace(
                last,
                aten="_foreach_add.Scalar",
                arguments=arguments,
                results=tuple(name for one in found for name in one.results),
                types=tuple(of for one in found for of in one.types),
            )
            left = [stage for stage in left if stage not in others]
    return tuple(left)


def _written(stage: Stage, made: str, source: GraphInput, views: Views) -> Stage | None:
    """Return a stage that leaves a result in a buffer; None where it cannot."""
    of = source.type
    if isinstance(stage, Library):
        first, *others = stage.arguments.values()
        fits = stage.types == (of,) and stage.aten in _OPERATORS and bool(others)
        fits = fits and first == Reference(source.name)
        return msgspec.structs.replace(stage, in_place=True) if fits else None
    found = [o for o in stage.replaceable if views.looked_at(o.value) == source.name]
    if not found or of.strides != strides_of(of.shape):
        return None
    (operand,) = found
    (result,) = (one for one in stage.results if one.value == made)
    if (operand.type.dtype, operand.type.shape) != (result.type.dtype, result.type.shape):
        return None
    changed = msgspec.structs.replace(result, into=operand.name)
    results = tuple(changed if one is result else one for one in stage.results)
    return msgspec.structs.replace(stage, results=results)


def _perhaps_in(value: str, stages: Iterable[Stage]) -> set[str]:
    """Return what may lie in a value's memory: views of it, and what torch makes of it."""
    found = {value}
    for stage in stages:
        if isinstance(stage, Library) and found.intersection(reads(stage)):
            found.update(stage.results)
    return found
