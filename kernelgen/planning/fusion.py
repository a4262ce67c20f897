"""Stages of a plan put together, or in torch's place, where an engine is faster so."""

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.known import ENGINES, engine_of
from kernelgen.engines.map import Map
from kernelgen.engines.naming import Names
from kernelgen.engines.stage import Kernel, Library, Stage, made_types, reads
from kernelgen.planning.plan import Plan


def with_engines(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan whose stages are as fast as engines are; a CPU has no architecture here."""
    return _with_ways(_with_maps_fused(_with_torch_replaced(plan, arch), arch), arch)


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


def _with_maps_fused(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan in which a map is one stage with what it alone reads, where that moves less."""
    stages = list(plan.stages)
    for first in plan.stages:
        if not isinstance(first, Kernel):
            continue
        made = {result.value for result in first.results}
        readers = [stage for stage in stages if made.intersection(reads(stage))]
        if len(readers) != 1 or made & {*plan.outputs, *plan.updates.values()}:
            continue
        (second,) = readers
        if isinstance(second, Map) and len(second.results) == 1:
            names = [stage.name for stage in stages if stage not in (first, second)]
            offers = (engine.fused(first, second, Names(*names), arch) for engine in ENGINES)
            if (fused := next(filter(None, offers), None)) is not None:
                stages[stages.index(second)] = fused
                stages.remove(first)
    return msgspec.structs.replace(plan, stages=tuple(stages))


def _with_ways(plan: Plan, arch: Architecture | None) -> Plan:
    stages = (engine_of(s).with_way(s, arch) if isinstance(s, Kernel) else s for s in plan.stages)
    return msgspec.structs.replace(plan, stages=tuple(stages))
