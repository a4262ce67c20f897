"""Stages of a plan put together, or in torch's place, where an engine is faster so."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.engine import Before
from kernelgen.engines.known import ENGINES, engine_of
from kernelgen.engines.naming import Names
from kernelgen.engines.stage import Kernel, Library, Result, Stage, Views, made_types, reads, writes
from kernelgen.planning.in_place import with_updates_in_place
from kernelgen.planning.plan import Plan


def with_engines(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan whose stages are as fast as engines are; a CPU has no architecture here."""
    found = _with_torch_replaced(_without_unread_results(plan), arch)
    plan = _without_unread_results(with_updates_in_place(_with_stages_fused(found, arch)))
    stages = (engine_of(s).with_way(s, arch) if isinstance(s, Kernel) else s for s in plan.stages)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _without_unread_results(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, stages=tuple(_without_unread(plan, plan.stages)))


def _without_unread(plan: Plan, stages: Iterable[Stage]) -> list[Stage]:
    """Return stages that something reads, or that draw; such results beside others have no name."""
    read = {*plan.outputs, *plan.updates.values()}
    kept: list[Stage] = []
    for stage in reversed(list(stages)):
        made: Stage | None = stage
        if isinstance(stage, Kernel):
            results = tuple(r for r in stage.results if r.value in read or r.into)
            made = msgspec.structs.replace(stage, results=results) if results else None
        elif _only_makes(stage) and not read.intersection(stage.results):
            made = None
        elif stage.results[1:]:
            names = tuple(name if name in read else "_" for name in stage.results)
            made = msgspec.structs.replace(stage, results=names)
        if made is not None:
            kept.append(made)
            read.update(reads(made))
    return kept[::-1]


def _only_makes(stage: Library) -> bool:
    """Whether a stage is a view, or a product that takes no random numbers."""
    return stage.view or (stage.computes and not stage.arguments.get("dropout_p"))


def _with_torch_replaced(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan in which operators of torch are kernels, where these are faster."""
    types = {source.name: source.type for source in plan.sources}
    weights = {source.name for source in plan.sources if source.path}
    makers = {value: stage for stage in plan.stages for value in writes(stage)}
    counts = Counter(value for stage in plan.stages for value in reads(stage))
    counts.update((*plan.outputs, *plan.updates.values()))
    before = Before(types, weights, makers, counts)
    names = Names(*(s.name for s in plan.stages if isinstance(s, Kernel)))
    stages: list[Stage] = []
    waiting = [*plan.stages][::-1]
    while waiting:
        stage = waiting.pop()
        if isinstance(stage, Library):
            offers = (engine.replacement(stage, before, arch) for engine in ENGINES)
            if found := next(filter(None, offers), ()):
                waiting += [with_name(one, names) for one in reversed(found)]
                continue
        stages.append(stage)
        types |= made_types(stage)
    return msgspec.structs.replace(plan, stages=tuple(_without_unread(plan, stages)))


def with_name(stage: Stage, names: Names) -> Stage:
    """Return a stage whose kernel has a name of its own."""
    if isinstance(stage, Library):
        return stage
    return msgspec.structs.replace(stage, name=names.kernel((stage.name,), stage.name))


def _with_stages_fused(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan in which stages are one with what alone reads them, where that moves less.

    Later ones come first, so that what gathers has its map when something is fused with it.
    """
    stages = list(plan.stages)
    for stage in reversed(plan.stages):
        first: Stage | None = stage
        while isinstance(first, Kernel):
            first = _fuse(plan, stages, first, arch)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _fuse(
    plan: Plan, stages: list[Stage], first: Kernel, arch: Architecture | None
) -> Kernel | None:
    """Fuse a stage with its only reader; return what both became, None if nothing."""

    def names(second: Stage) -> Names:
        return Names(*(stage.name for stage in stages if stage not in (first, second)))

    views = Views(stages, {source.name: source.type for source in plan.sources})
    for second in stages:
        if not isinstance(second, Kernel):
            continue
        if not any(views.looked_at(value) in first.handed_on for value in reads(second)):
            continue
        gathered = (engine.gathered(first, second, views, names(second)) for engine in ENGINES)
        if both := next(filter(None, gathered), ()):
            at = stages.index(second)
            stages[at : at + 1] = both[1:]
            stages[stages.index(first)] = both[0]
            stages[:] = _without_unread(plan, _in_order(stages))
            return next(s for s in stages if isinstance(s, Kernel) and s.name == both[0].name)
    made = set(first.handed_on)
    readers = [stage for stage in stages if made.intersection(reads(stage))]
    if len(readers) != 1 or made & {*plan.updates.values()}:
        return None
    (second,) = readers
    if not isinstance(second, Kernel) or len(second.results) > 1:
        return None
    beside = set(writes(first)) - made
    if beside and second in _behind(stages, beside):
        return None
    offers = (engine.fused(first, second, names(second), arch) for engine in ENGINES)
    fused = next(filter(None, offers), ())
    known = {source.name for source in plan.sources}.union(*map(writes, stages)) - beside
    new = set().union(*map(writes, fused)) - set(writes(second))
    returned = [r for r in first.results if r.value in made.intersection(plan.outputs)]
    fused = _with_left(fused, returned)
    if not fused or new & known:
        return None
    at = stages.index(second)
    stages[at : at + 1] = fused
    stages.remove(first)
    return fused[0]


def _with_left(fused: tuple[Kernel, ...], results: list[Result]) -> tuple[Kernel, ...]:
    """Return fused stages that leave results which the plan returns; () if they cannot."""
    if not fused or not results:
        return fused
    leaving = engine_of(fused[0]).leaving(fused[0], results)
    return () if leaving is None else (leaving, *fused[1:])


def _in_order(stages: list[Stage]) -> list[Stage]:
    """Return stages each after those that make what it reads, as near to where it was as can be."""
    missing = set().union(*map(writes, stages))
    ordered: list[Stage] = []
    while stages:
        late: list[Stage] = []
        for stage in stages:
            if missing.intersection(reads(stage)):
                late.append(stage)
            else:
                ordered.append(stage)
                missing.difference_update(writes(stage))
        stages = late
    return ordered


def _behind(stages: Iterable[Stage], values: set[str]) -> list[Stage]:
    """Return the stages that read values, or what was made of them."""
    known, found = set(values), []
    for stage in stages:
        if known.intersection(reads(stage)):
            found.append(stage)
            known.update(writes(stage))
    return found
