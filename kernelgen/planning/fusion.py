"""Stages of a plan put together, or in torch's place, where an engine is faster so."""

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.known import ENGINES, engine_of
from kernelgen.engines.naming import Names
from kernelgen.engines.stage import Kernel, Library, Stage, made_types, reads, writes
from kernelgen.planning.plan import Plan


def with_engines(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan whose stages are as fast as engines are; a CPU has no architecture here."""
    found = _with_torch_replaced(_without_unread_results(plan), arch)
    return _with_ways(_with_stages_fused(found, arch), arch)


def _without_unread_results(plan: Plan) -> Plan:
    """Return a plan whose kernels write no result beside others that nothing reads."""
    read = {*plan.outputs, *plan.updates.values()}.union(*map(reads, plan.stages))
    stages: list[Stage] = []
    for stage in plan.stages:
        made = stage
        if isinstance(stage, Kernel):
            kept = tuple(result for result in stage.results if result.value in read)
            made = msgspec.structs.replace(stage, results=kept or stage.results)
        stages.append(made)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _with_torch_replaced(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan in which operators of torch are kernels, where these are faster."""
    types = {source.name: source.type for source in plan.sources}
    weights = {source.name for source in plan.sources if source.path}
    names = Names(*(s.name for s in plan.stages if isinstance(s, Kernel)))
    stages: list[Stage] = []
    for stage in plan.stages:
        made: Stage = stage
        if isinstance(stage, Library):
            offers = (engine.replacement(stage, types, weights, arch) for engine in ENGINES)
            if (found := next(filter(None, offers), None)) is not None:
                name = names.kernel((found.name,), found.name)
                made = msgspec.structs.replace(found, name=name)
        stages.append(made)
        types |= made_types(made)
    return msgspec.structs.replace(plan, stages=tuple(stages))


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
    made = set(writes(first))
    readers = [stage for stage in stages if made.intersection(reads(stage))]
    if len(readers) != 1 or made & {*plan.outputs, *plan.updates.values()}:
        return None
    (second,) = readers
    if not isinstance(second, Kernel) or len(second.results) > 1:
        return None
    names = [stage.name for stage in stages if stage not in (first, second)]
    offers = (engine.fused(first, second, Names(*names), arch) for engine in ENGINES)
    fused = next(filter(None, offers), ())
    known = {source.name for source in plan.sources}.union(*map(writes, stages))
    new = set().union(*map(writes, fused)) - set(writes(second))
    if not fused or new & known:
        return None
    at = stages.index(second)
    stages[at : at + 1] = fused
    stages.remove(first)
    return fused[0]


def _with_ways(plan: Plan, arch: Architecture | None) -> Plan:
    stages = (engine_of(s).with_way(s, arch) if isinstance(s, Kernel) else s for s in plan.stages)
    return msgspec.structs.replace(plan, stages=tuple(stages))
