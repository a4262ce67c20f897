"""A convolution that gathers the pixels of its images, and what reads that in place of them all."""

from collections.abc import Iterable, Mapping
from math import prod

import msgspec

from kernelgen.engines.convolution.few import few_of
from kernelgen.engines.convolution.record import (
    CONVOLVED,
    COUNT,
    MEAN,
    MOMENTS,
    VARIANCE,
    Convolution,
    Moments,
    is_of_channels,
)
from kernelgen.engines.convolution.tiling import tiling_of
from kernelgen.engines.epilogue import Renaming
from kernelgen.engines.map import Map
from kernelgen.engines.naming import Names
from kernelgen.engines.pool.record import POOLED
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.stage import (
    Accumulation,
    Accumulator,
    Kernel,
    Library,
    Operand,
    Result,
    Stage,
    Step,
    StepValue,
    Views,
    operands_of,
    reads,
    step_of,
)
from kernelgen.graph.graph import Argument, Reference, contiguous

_KINDS = frozenset(("sum", "mean", "variance"))
_LEAST_FILLED = 0.75  # of a tile's lines


def with_moments(
    first: Convolution, second: Kernel, views: Views, others: Names
) -> tuple[Stage, ...]:
    """Return a convolution that gathers, and a reduction of what it has gathered; () if it can't.

    Each filter's pixels of an image are gathered: their mean and, where that is asked for, their
    variance and number. Pixels of images or of neighbouring filters together are the reduction's.
    """
    if first.way == "direct" or first.tail is not None:
        return ()
    if not isinstance(second, Reduce) or not _gathers_pixels(first, second, views):
        return ()
    named = {o.name for o in (*operands_of(first), *second.beside)}
    if named.intersection(MOMENTS):
        return ()
    operands = [_of_channels(o, first, second, views) for o in second.operands]
    taken = [*(o.name for o in operands_of(first)), *(step.name for step in first.epilogue)]
    known = {first.result.value: str(first.result.of)} | {o.value: o.name for o in first.beside}
    whole = msgspec.structs.replace(second, operands=tuple(o for o in operands if o is not None))
    names = Renaming(whole, known, (CONVOLVED, *MOMENTS, POOLED, *taken))
    if len(whole.operands) < len(operands):
        return ()
    moments = Moments(steps=names.steps, of=names.new(second.accumulators[0].of))
    if first.moments is not None and first.moments != moments:
        return ()
    stored = first.results[: len(first.handed_on)]
    made = {str(result.of): result for result in first.results[len(stored) :]}
    gathered = {of: made.get(of) or _gathered(first, of) for of in _wanted(second)}
    seen, operands_then = _seen(gathered.values(), first, second, views)
    name = first.name
    name = others.kernel((name, "moments"), name) if first.moments is None else name
    both = msgspec.structs.replace(
        first,
        name=name,
        beside=(*first.beside, *names.further),
        moments=moments,
        results=(*stored, *(made | gathered).values()),
    )
    return (both, *seen, *_of_moments(second, operands_then))


def _wanted(second: Reduce) -> tuple[str, ...]:
    """Return what a reduction needs to know of the pixels of an image."""
    kinds = {a.kind for a in second.accumulators}
    counts = "sum" in kinds or any(a.correction for a in second.accumulators)
    return (MEAN, *((VARIANCE,) if "variance" in kinds else ()), *((COUNT,) if counts else ()))


def _gathered(first: Convolution, of: str) -> Result:
    shape = (*first.shape[: -first.dims], *(1,) * first.dims)
    return Result(value=f"{first.result.value}_{of}", of=of, type=contiguous(shape))


def _gathers_pixels(first: Convolution, second: Reduce, views: Views) -> bool:
    """Whether a stage gathers pixels of what is one value of each, and tiles have few images."""
    tiles = [of(first.geometry) for of in (tiling_of, few_of)]
    rank, pixels = len(second.shape), first.shape[-first.dims :]
    return (
        # Lines without a filter take as long, longer than reading what is stored.
        all(is_of_channels(o, first) for o in first.beside)
        and (_fills_tiles(first) or not _is_stored(first, views))
        and all(of is None or of.image_pixels >= of.columns for of in tiles)
        and second.shape[-first.dims :] == pixels
        and prod(second.shape) == prod(first.shape)
        and set(range(rank - first.dims, rank)) <= set(second.dims)
        and {a.kind for a in second.accumulators} <= _KINDS
        and len({a.of for a in second.accumulators}) == 1
        and all(
            view.aten.startswith("unflatten")
            for o in second.operands
            if views.looked_at(o.value) == first.result.value
            for view in views.behind(o.value)
        )
    )


def _fills_tiles(first: Convolution) -> bool:
    g, tiling = first.geometry, tiling_of(first.geometry) if first.way == "tensor" else None
    return tiling is None or g.filters * tiling.residues >= _LEAST_FILLED * tiling.rows


def _is_stored(first: Convolution, views: Views) -> bool:
    """Whether something reads the results of a convolution in place of what is gathered of them."""
    return any(
        isinstance(stage, Kernel)
        and not isinstance(stage, Reduce)
        and any(views.looked_at(value) == first.result.value for value in reads(stage))
        for stage in views.stages
    )


def _of_channels(
    operand: Operand, first: Convolution, second: Reduce, views: Views
) -> Operand | None:
    """Return an operand of the reduction as one of the convolution's; None if it has many values.

    What has one for each channel is that in some of the views that it is.
    """
    channels, plane = first.geometry.groups * first.geometry.filters, first.shape[-first.dims :]
    if views.looked_at(operand.value) == first.result.value:
        of = msgspec.structs.replace(operand, value=first.result.value, type=first.result.type)
        return of if operand.pattern == "each" else None
    if operand.is_number or (operand.pattern == "along" and operand.span == (0, 0)):
        return operand
    begin, end = (len(second.shape) + at for at in operand.span)
    if (
        operand.pattern != "along"
        or prod(second.shape[begin:end]) != channels
        or prod(second.shape[end:]) != prod(plane)
    ):
        return None
    behind = views.behind(operand.value)
    for value in (operand.value, *(reads(view)[0] for view in behind)):
        if views.types[value].shape == (channels, *(1,) * first.dims):
            span = (-first.dims - 1, -first.dims)
            return msgspec.structs.replace(operand, value=value, type=views.types[value], span=span)
    return None


def _seen(
    gathered: Iterable[Result], first: Convolution, second: Reduce, views: Views
) -> tuple[list[Library], dict[str, Operand]]:
    """Return what is gathered as the reduction sees pixels: views of it, and operands."""
    (pixels,) = (o.value for o in second.operands if views.looked_at(o.value) == first.result.value)
    stages: list[Library] = []
    operands: dict[str, Operand] = {}
    for result in gathered:
        value, found = result.value, result.type
        for view in reversed(views.behind(pixels)):
            shape = (*views.types[view.results[0]].shape[: -first.dims], *(1,) * first.dims)
            name, found = f"{value}_grouped", contiguous(shape)
            while views.types.get(name, found) != found:
                name += "_2"
            if name not in views.types:
                stages.append(
                    msgspec.structs.replace(
                        view,
                        name=name,
                        arguments={**view.arguments, "self": Reference(value)},
                        results=(name,),
                        types=(found,),
                    )
                )
            value = name
        operands[str(result.of)] = Operand(name=str(result.of), value=value, type=found)
    return stages, operands


def _of_moments(second: Reduce, gathered: Mapping[str, Operand]) -> tuple[Stage, ...]:
    """Return a reduction of pixels as one of what is gathered of them, or as a map of that."""
    shape = gathered[MEAN].type.shape
    totals = _Totals(alone=all(shape[d] == 1 for d in second.dims))
    known = {a.name: totals.of(a) for a in second.accumulators}

    def new(value: StepValue) -> StepValue:
        return known.get(value, value) if isinstance(value, str) else value

    steps = totals.after + [
        msgspec.structs.replace(
            one, arguments={key: new(value) for key, value in one.arguments.items()}
        )
        for one in second.epilogue
    ]
    results = tuple(msgspec.structs.replace(r, of=new(r.of)) for r in second.results)
    read = {str(v) for one in (*totals.before, *steps) for v in one.arguments.values()}
    read |= {str(a.of) for a in totals.accumulators} | {str(r.of) for r in results}
    operands = tuple(o for name, o in gathered.items() if name in read)
    if totals.alone:
        return _mapped(second, operands, (*totals.before, *steps), results)
    made = msgspec.structs.replace(
        second,
        shape=shape,
        operands=operands,
        steps=tuple(totals.before),
        accumulators=tuple(totals.accumulators),
        epilogue=tuple(steps),
        results=results,
    )
    return (made,)


class _Totals:
    """Outcomes over all pixels, from those of parts of as many pixels each.

    With means m and variances v of these, the variance of all is mean(v) + variance(m).

    Attributes:
        alone: there is one part, whose outcomes these are.
        before, accumulators, after: steps of a part, what is gathered of parts, and steps then.
    """

    def __init__(self, *, alone: bool) -> None:
        self.alone = alone
        self.before: list[Step] = []
        self.accumulators: list[Accumulator] = []
        self.after: list[Step] = []

    def of(self, a: Accumulator) -> StepValue:
        """Return the name of an accumulator's outcome."""
        if a.kind == "mean":
            return self._over("mean", MEAN)
        if a.kind == "sum":
            self.before.append(step_of(f"part_of_{a.name}", "mul", MEAN, COUNT))
            return self._over("sum", self.before[-1].name)
        found = self._over("mean", VARIANCE)
        if not self.alone:
            found = self._step("add", found, self._over("variance", MEAN))
        if a.correction:
            count = self._over("sum", COUNT)
            total, left = self._step("mul", found, count), self._step("sub", count, a.correction)
            found = self._step("div_exact", total, left)
        return found

    def _step(self, operator: str, left: StepValue, right: StepValue) -> str:
        self.after.append(step_of(f"of_all_{len(self.after) + 1}", operator, left, right))
        return self.after[-1].name

    def _over(self, kind: Accumulation, of: StepValue) -> StepValue:
        if self.alone:
            return of
        made = Accumulator(name=f"{kind}_of_{of}", kind=kind, of=of)
        if made not in self.accumulators:
            self.accumulators.append(made)
        return made.name


def _mapped(
    second: Reduce,
    operands: tuple[Operand, ...],
    steps: tuple[Step, ...],
    results: tuple[Result, ...],
) -> tuple[Stage, ...]:
    """Return a map to results of a reduction, whose shape may lack dimensions of one element.

    Without steps, what is gathered is the result, seen in its shape, or rounded to 16 bits.
    """
    shape = results[0].type.shape
    as_gathered = not steps and results[0].type.dtype == "float32"
    flat: list[Stage] = []
    seen: list[Operand] = []
    for o in operands:
        value = o.value
        if o.type.shape != shape or as_gathered:
            value = results[0].value if as_gathered else f"{o.value}_flat"
            first = 0 if o.type.shape == shape else len(shape) - 1
            last = len(o.type.shape) - len(shape) + first
            arguments: dict[str, Argument] = {"self": Reference(o.value)}
            arguments |= {"start_dim": first, "end_dim": last}
            flat.append(Library.calling(value, "flatten.using_ints", arguments, contiguous(shape)))
        seen.append(msgspec.structs.replace(o, value=value, type=contiguous(shape)))
    if as_gathered:
        return tuple(flat)
    made = Map(
        name=second.name,
        shape=shape,
        operands=(*seen, *second.beside),
        steps=steps,
        results=results,
    )
    return (*flat, made)
