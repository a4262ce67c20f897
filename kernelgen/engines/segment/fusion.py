"""A reduction and a map of the same elements as one segment."""

from collections.abc import Sequence
from math import prod

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.body import operand_of
from kernelgen.engines.epilogue import Renaming
from kernelgen.engines.map import Map
from kernelgen.engines.naming import SUMS, Names
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.rows import FLOATS
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.segment.ways import ROW, way_of
from kernelgen.engines.stage import Result, read_by
from kernelgen.engines.text.alike import names_in

_KINDS = frozenset(("sum", "mean", "max", "min", "sumexp", "variance"))
_COLUMN = 128  # values that a thread holds


def segment_of_both(first: Reduce, second: Map, arch: Architecture | None) -> Segment | None:
    """Return a reduction and a map as one stage; None if a chip does not hold what both read."""
    if not _is_segment(first):
        return None
    if first.beside:
        first, second = _with_late_epilogue(first, second)
    segment = _segment(first, second)
    return segment if segment is not None and _fits(segment, arch) else None


def with_numbers_left(segment: Segment, results: Sequence[Result]) -> Segment | None:
    """Return a segment whose kernel, of the way `held`, leaves numbers of the outcome as well."""
    made = {*(a.name for a in segment.accumulators), *(step.name for step in segment.epilogue)}
    known = {of: name for name, of in segment.outcome.items()}
    names = Names(SUMS, *names_in(segment))
    outcome, left = dict(segment.outcome), list(segment.results)
    for result in results:
        if result.of not in made or result.type.dtype != "float32":
            return None
        name = known.get(result.of) or names.local(result.value)
        outcome[name] = result.of
        left.append(msgspec.structs.replace(result, of=name))
    both = msgspec.structs.replace(segment, outcome=outcome, results=tuple(left))
    return both if _fits(both, None) else None


def _is_segment(stage: Reduce) -> bool:
    """Whether it gathers neighbours in memory, or what is as far apart."""
    first, last = stage.dims[0] if stage.dims else 0, stage.dims[-1] if stage.dims else -1
    return (
        stage.dims == tuple(range(first, last + 1))
        and prod(stage.shape[d] for d in stage.dims) > 1
        and all(a.kind in _KINDS for a in stage.accumulators)
    )


def _with_late_epilogue(first: Reduce, second: Map) -> tuple[Reduce, Map]:
    """Return a reduction to its accumulators, and a map that computes the epilogue as well.

    A segment's own epilogue reads nothing in memory.
    """
    alone = first.result
    made = tuple(
        Result(value=f"{alone.value}.{one.name}", of=one.name, type=alone.type)
        for one in first.accumulators
    )
    given = [(str(one.of), one.value, one.type) for one in made]
    given += [(one.name, one.value, one.type) for one in first.beside]
    operands = tuple(operand_of(name, value, of, first.shape) for name, value, of in given)
    known = {one.value: str(one.of) for one in first.results}
    known |= {operand.value: operand.name for operand in operands}
    names = Renaming(second, known, names_in((*operands, *first.epilogue)))
    mapped = msgspec.structs.replace(
        second,
        operands=(*operands, *names.further),
        steps=(*first.epilogue, *names.steps),
        results=(msgspec.structs.replace(second.result, of=names.new(second.result.of)),),
    )
    return msgspec.structs.replace(first, beside=(), epilogue=(), results=made), mapped


def _fits(segment: Segment, arch: Architecture | None) -> bool:
    """Whether a chip holds what is gathered and mapped."""
    held = len(segment.kept) * segment.length
    fits = 0 < held <= (ROW if segment.inner == 1 else _COLUMN)
    return fits or way_of(segment, arch) != "held"


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
        or any(o.value not in read or o.is_number or o.type.dtype not in FLOATS for o in kept)
    ):
        return None
    known = {operand.value: operand.name for operand in first.operands}
    taken = (SUMS, *names_in(first))
    names, held = Renaming(second, known, taken, done=first.steps), ""
    gathered = {accumulator.of for accumulator in first.accumulators}
    of = {names.new(result.of), *read_by(names.steps)}
    both = {*(step.name for step in first.steps), *(operand.name for operand in kept)}
    shared = gathered | of & both
    if len(shared) == 1 and shared <= {step.name for step in first.steps}:
        held = str(*shared)
    else:
        names = Renaming(second, known, taken)
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
        results=(Result(value=result.value, of=names.new(result.of), type=result.type),),
    )
