"""A convolution and what gathers its results, in windows or over channels, as one stage."""

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec

from kernelgen.engines.convolution.few import few_of
from kernelgen.engines.convolution.record import (
    CONVOLVED,
    MOMENTS,
    Convolution,
    Geometry,
    Tail,
    Three,
    is_of_channels,
    three,
)
from kernelgen.engines.convolution.tiling import RESULT_CYCLES, tiling_of
from kernelgen.engines.epilogue import Renaming
from kernelgen.engines.naming import Names
from kernelgen.engines.pool.record import POOLED, Pool
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Kernel, Operand, Result, Step, StepValue, operands_of
from kernelgen.engines.text.stage_text import body_of
from kernelgen.graph.graph import contiguous
from kernelgen.problem.record import Backend

_KINDS = frozenset(("sum", "mean", "max", "min", "sumexp"))
_WIDTHS = (2, 4)  # of windows, which are a power of two as tiles are


def with_tail(first: Convolution, second: Kernel, others: Names) -> tuple[Kernel, ...]:
    """Return a convolution that gathers its results, and a stage for what is left; () if it can't.

    What a tile holds is gathered: all channels of a pixel, or a window. Of a window over several
    lines, those of a line are, and a pool gathers the rest.
    """
    if first.way == "direct" or first.tail is not None or second.shape != first.shape:
        return ()
    parts = _windows(first, second) if isinstance(second, Pool) else (second,)
    if not parts or not (isinstance(parts[0], Pool) or _gathers_channels(first, parts[0])):
        return ()
    fused = _fused(first, parts[0], others)
    return (fused, *parts[1:]) if fused is not None else ()


def _windows(first: Convolution, pool: Pool) -> tuple[Pool, ...]:
    """Return the pool of what a tile holds, and that of the rest; () if it holds no window."""
    w, g = pool.window, first.geometry
    ones = (1,) * len(w.kernel)
    plain = w.kernel == w.stride and w.dilation == ones and not any(w.padding) and not w.divisor
    if not plain or w.ceil_mode or len(w.kernel) != first.dims:
        return ()
    few, window = few_of(g), three(w.kernel, first.dims, 1)
    if g.transposed and max(g.stride) > 1:
        is_whole = few.steps == window if few is not None else _has_neighbours(g, window)
        return (pool,) if is_whole else ()
    return _of_lines(first, pool) if few is None and w.kernel[-1] in _WIDTHS else ()


def _has_neighbours(g: Geometry, window: Three) -> bool:
    """Whether tiles have windows of neighbours of out, in less than it takes to read results again.

    Taps that some of the neighbours lack are products with zeros.
    """
    apart, together = tiling_of(g), tiling_of(g, window)
    if window != g.stride or apart is None or together is None:
        return False
    if together.residues != prod(window):
        return False
    results = together.columns * g.filters * prod(window)
    return together.cycles - apart.cycles <= 2 * results * RESULT_CYCLES


def _of_lines(first: Convolution, pool: Pool) -> tuple[Pool, ...]:
    """Return a pool along the width, and that of what it makes along the other dimensions."""
    w = pool.window
    ones = (1,) * len(w.kernel)
    if w.kernel[:-1] == ones[:-1]:
        return (pool,)
    across, along = (*ones[:-1], w.kernel[-1]), (*w.kernel[:-1], 1)
    shape = (*first.shape[:-1], first.shape[-1] // w.kernel[-1])
    between = contiguous(shape)
    name = f"{pool.result.value}_lines"
    lines = msgspec.structs.replace(
        pool,
        beside=(),
        epilogue=(),
        results=(Result(value=name, of=POOLED, type=between),),
        window=msgspec.structs.replace(w, kernel=across, stride=across),
    )
    rest = msgspec.structs.replace(
        pool,
        shape=shape,
        operands=(Operand(name="lines", value=name, type=between),),
        steps=(),
        window=msgspec.structs.replace(w, of="lines", kernel=along, stride=along),
    )
    return lines, rest


def _gathers_channels(first: Convolution, second: Kernel) -> bool:
    """Whether a stage gathers all channels of a pixel, and a tile has them."""
    if not isinstance(second, Reduce | Segment) or first.geometry.groups > 1:
        return False
    if (isinstance(second, Segment) and second.extent is not None) or first.moments is not None:
        return False
    of_channels = second.dims == (len(first.shape) - first.dims - 1,)
    if not of_channels or any(a.kind not in _KINDS for a in second.accumulators):
        return False
    if few_of(first.geometry) is not None:
        return True
    # A result for each channel is written as neighbours, of which a tile may not have all filters.
    tiling = tiling_of(first.geometry, all_filters=isinstance(second, Reduce))
    return tiling is not None and tiling.filter_tiles == 1


def _fused(first: Convolution, second: Kernel, others: Names) -> Convolution | None:
    """Return both as one stage; None if that would read more than an element for each channel."""
    known = {first.result.value: str(first.result.of)} | {o.value: o.name for o in first.beside}
    taken = [*(o.name for o in operands_of(first)), *(step.name for step in first.all_steps)]
    taken += [CONVOLVED, *MOMENTS, POOLED, *(a.name for a in second.accumulators)]
    before = Renaming(second, known, taken)
    accumulators = tuple(
        msgspec.structs.replace(a, of=before.new(a.of)) for a in second.accumulators
    )
    gathered = {a.of for a in accumulators}
    held, window = "", (1, 1, 1)
    outcome: dict[str, StepValue] = {}
    mapped = second.after if isinstance(second, Segment) else ()
    if isinstance(second, Pool):
        gathered = {before.new(second.window.of)}
        window = three(second.window.kernel, first.dims, 1)
    if isinstance(second, Segment):
        # The map reads the very value that is gathered.
        held = second.held or next(o.name for o in second.operands if o.value == first.result.value)
        if gathered != {before.new(held)} or (second.steps and not second.held):
            return None
        outcome = second.outcome
    if len(gathered) != 1:
        return None
    read = {str(value) for step in mapped for value in step.arguments.values()}
    late = [o for o in second.operands if o.name in read and o.value != first.result.value]
    late += second.beside
    known |= {o.value: o.name for o in before.further}
    taken += [*known.values(), *(step.name for step in before.steps), held, *outcome]
    steps = (*second.epilogue, *mapped)
    # A result has another place than what is gathered, unless both are elements of one shape.
    same = known if isinstance(second, Segment) else {}
    names = Renaming(msgspec.structs.replace(second, operands=late, steps=steps), same, taken)
    by_channel = [*first.beside, *before.further]
    by_channel += [] if isinstance(second, Reduce) else names.further
    if not all(
        is_of_channels(o, first) and (o.span == (0, 0) or o in by_channel or o.is_number)
        for o in (*by_channel, *names.further)
    ):
        return None
    count = len(second.epilogue)
    return msgspec.structs.replace(
        first,
        name=others.kernel((first.name, second.name), first.name),
        beside=(*first.beside, *before.further, *names.further),
        epilogue=(*first.epilogue, *before.steps),
        way="few" if few_of(first.geometry) is not None else first.way,
        accumulators=accumulators,
        results=(
            msgspec.structs.replace(second.result, of=names.new(second.result.of)),
            *first.results[len(first.handed_on) :],
        ),
        tail=Tail(
            of=gathered.pop(),
            kind=second.window.kind if isinstance(second, Pool) else "",
            window=window,
            steps=names.steps[:count],
            outcome={name: names.new(of) for name, of in outcome.items()},
            held=held,
            after=names.steps[count:],
            late=tuple(names.name(o) for o in late),
        ),
    )


def tail_names(
    stage: Convolution, tail: Tail, elements: Mapping[str, str], backend: Backend
) -> dict[str, Any]:
    """Return a template's names for what is gathered; `elements` are expressions of operands."""
    names = {**elements, POOLED: POOLED}
    wanted = list(tail.outcome.values()) if tail.held else [stage.result.of]
    outcome = body_of(tail.steps, wanted, backend, names)
    names |= {name: f"known.{name}" for name in tail.outcome} | {tail.held: tail.held}
    # A division for each channel is a product with the inverse, which is known of the pixel.
    divisors = [name for name in map(_divisor, tail.after) if name in tail.outcome]
    inverses = {name: f"{name}_inverse" for name in divisors}
    names |= {inverse: f"known.{inverse}" for inverse in inverses.values()}
    steps = [
        msgspec.structs.replace(
            step,
            operator="mul",
            arguments={**step.arguments, "other": inverses[_divisor(step)]},
        )
        if _divisor(step) in inverses
        else step
        for step in tail.after
    ]
    after = body_of(steps, [stage.result.of], backend, names)
    values = dict(zip(tail.outcome or ["result"], outcome.values, strict=True))
    kinds = {a.kind: a.name for a in stage.accumulators}
    return {
        "accumulators": stage.accumulators,
        "most": kinds.get("max", "most"),
        "outcomes": [*values, *inverses.values()],
        "outcome_lines": outcome.lines,
        "outcome_values": [*values.values(), *(f"1.0f / ({values[name]})" for name in inverses)],
        "after_lines": after.lines,
        "after_value": after.values[0],
    }


def _divisor(step: Step) -> str:
    """Return the name of what a step divides by; "" if it does not."""
    return str(step.arguments["other"]) if step.operator in {"div", "div_exact"} else ""
