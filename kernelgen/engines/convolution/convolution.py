"""A convolution, and what its epilogue makes of each result."""

from math import prod
from textwrap import wrap
from typing import Literal

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.convolution.few import few_of
from kernelgen.engines.convolution.moments import with_moments
from kernelgen.engines.convolution.record import (
    CONVOLUTIONS,
    CONVOLVED,
    Convolution,
    ConvolutionWay,
    Geometry,
    geometry_of,
    three,
)
from kernelgen.engines.convolution.tails import tail_names, with_tail
from kernelgen.engines.convolution.tiling import strips_of, tiling_of
from kernelgen.engines.engine import Before, Engine, Target, Work
from kernelgen.engines.epilogue import with_epilogue
from kernelgen.engines.map import Map
from kernelgen.engines.naming import Names, without_overload
from kernelgen.engines.pool.record import POOLED
from kernelgen.engines.rows import FLOATS
from kernelgen.engines.stage import Kernel, Library, Operand, Result, Stage, Step, Views, step_of
from kernelgen.engines.text.finish import OF, finish_names
from kernelgen.engines.text.names import text_of
from kernelgen.engines.text.reading import Reading
from kernelgen.engines.text.stage_text import C_TYPES, StageText, body_of, filled, in_words
from kernelgen.graph.graph import Reference

_LEAST_RESULTS = 1 << 20  # about the smallest that were timed
_LEAST_TILES = 1 << 11  # enough for a device, whatever a tile takes
# A second, of large convolutions on an H200, in fp32 and in 16 bits.
_FLOPS_OF_TORCH, _FLOPS_IN_16_BITS = 40e12, 300e12
_MOST_STRIDE = 3
_HOW = {
    "tensor": "tensor cores multiply halves of filters and pixels, as accurately as fp32",
    "narrow": "tensor cores multiply values of 16 bits as they are, and sum in fp32",
    "few": "threads hold all filters of a pixel, in fp32",
    "direct": "each result is gathered in fp32",
}


class ConvolutionEngine(Engine[Convolution]):
    """Convolutions, in place of torch's where one of our kernels is faster."""

    record = Convolution

    def replacement(
        self, stage: Library, before: Before, arch: Architecture | None
    ) -> tuple[Convolution, ...]:
        """Return a convolution in place of one of torch's, which stays where that is as fast."""
        (out,) = stage.types if arch == "sm_90a" and len(stage.types) == 1 else (None,)
        if out is None:
            return ()
        dims = CONVOLUTIONS.get(stage.aten)
        found = dims and geometry_of(stage.aten, stage.arguments, out, before.types, FLOATS)
        way = way_of(found) if found else None
        if not dims or not found or way is None:
            return ()
        values = [stage.arguments[name] for name in ("input", "weight")]
        operands = [
            Operand(name=name, value=value.name, type=before.types[value.name])
            for name, value in zip(("input", "weight"), values, strict=True)
            if isinstance(value, Reference)
        ]
        aten = without_overload(stage.aten)
        beside: tuple[Operand, ...] = ()
        epilogue: tuple[Step, ...] = ()
        if isinstance(bias := stage.arguments.get("bias"), Reference):
            channel, kind = (-dims - 1, -dims), before.types[bias.name]
            added = Operand(
                name="bias", value=bias.name, type=kind, pattern="along", span=channel, flat=True
            )
            beside = (added,)
            epilogue = (step_of("biased", "add", CONVOLVED, "bias"),)
        made = Convolution(
            name=aten,
            aten=aten,
            dims=dims,
            shape=out.shape,
            operands=tuple(operands),
            beside=beside,
            epilogue=epilogue,
            results=(Result(value=stage.name, of="biased" if beside else CONVOLVED, type=out),),
            geometry=found,
            extra=three(stage.arguments.get("output_padding", 0), dims, 0),
            way=way,
        )
        return (made,)

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> tuple[Kernel, ...]:
        """Return a convolution with a map of its result, or with a gathering."""
        del arch
        if not isinstance(first, Convolution):
            return ()
        if second.result.type.dtype not in {"float32", first.geometry.dtype}:
            return ()
        if not isinstance(second, Map):
            return with_tail(first, second, others)
        return with_epilogue(first, second, others) if first.tail is None else ()

    def gathered(
        self, first: Kernel, second: Kernel, views: Views, others: Names
    ) -> tuple[Stage, ...]:
        """Return a convolution that gathers its pixels for a reduction of them."""
        return with_moments(first, second, views, others) if isinstance(first, Convolution) else ()

    def work(self, stage: Convolution) -> Work:
        """Return the multiplications and additions."""
        halves = stage.way == "tensor" and not stage.geometry.is_narrow
        return Work(flops=stage.geometry.flops, halves=halves)

    def words(self, stage: Convolution) -> str:
        """Return a convolution as a formula of the plan's values."""
        factors = ", ".join(operand.value for operand in stage.operands)
        return filled(_formula(stage), {CONVOLVED: f"{stage.aten}({factors})"})

    def text(self, stage: Convolution, target: Target) -> StageText:
        """Return a convolution as text."""
        moments = stage.moments
        if moments is not None and not stage.handed_on:
            stage = msgspec.structs.replace(stage, epilogue=(*stage.epilogue, *moments.steps))
        g, factors = stage.geometry, ", ".join(o.name for o in stage.operands)
        formula, tail = _formula(stage), stage.tail
        together = tail is not None and not tail.kind
        few = few_of(g) if stage.way == "few" else None
        tiling = None
        if stage.way == "tensor":
            stored = bool(stage.handed_on)
            tiling = tiling_of(g, stage.window, all_filters=together, stored=stored)
        summary = filled(formula, {CONVOLVED: f"{stage.aten}({factors})"})
        what = f"Filters move over {stage.dims} dimension{'s' * (stage.dims > 1)} of the input"
        if stage.all_steps or tail is not None:
            what += f"; each sum of products becomes {filled(formula, {CONVOLVED: 'that'})}"
        out = tuple(size // one for size, one in zip(g.output, stage.window, strict=True))
        columns = g.groups * g.filters

        def main_at(operand: Reading) -> str:
            """Return where each element finds its own in the main case, "" if that takes long."""
            if operand.pattern != "along":
                return ""
            is_late = tail is not None and operand.name in tail.late
            plane = prod(out if is_late else g.output)
            of_columns = (operand.inner, operand.size) == (plane, columns)
            return "column" if of_columns else "0" if operand.size == 1 else ""

        def along(operand: Reading) -> str:
            name, at = f"{OF}{operand.name}", main_at(operand)
            text = f"along(a, at, column, {name}_inner, {name}_size)"
            return f"(kMain ? {at} : {text})" if at else text

        late = () if tail is None else tail.late
        given = finish_names(stage, CONVOLVED, target.backend, along, late)
        spread = [o for o in given["spread"] if main_at(o)]
        if tail is not None:
            given |= tail_names(stage, tail, given["elements"], target.backend)
        if moments is not None:
            body = body_of(
                (*stage.epilogue, *moments.steps), [moments.of], target.backend, given["elements"]
            )
            given |= {"moment_lines": body.lines, "moment_value": body.values[0]}
        known = [str(result.of) for result in stage.results[len(stage.handed_on) :]]
        given |= {
            "stored": bool(stage.handed_on),
            "moments": known,
            "outs": ["out"] * len(stage.handed_on) + known,
            "of_columns": [
                f"{OF}{o.name}_inner == {o.inner} && " * (o.size > 1)
                + f"{OF}{o.name}_size == {o.size} && "
                for o in spread
            ],
            "late": late,
            "out": out,
            "keeps": len(stage.result.type.shape) == len(stage.shape),
            "summary": summary,
            "what": "\n// ".join(wrap(f"{what}.", 97, break_long_words=False)),
            "g": g,
            "early": tail is not None
            or not stage.handed_on
            or len(spread) == len(given["beside_tensors"]),
            "t": tiling,
            "f": few,
            "tiles": few or tiling,
            "d": strips_of(g) if stage.way == "direct" else None,
            "narrow": g.is_narrow,
            "factor_type": C_TYPES[g.dtype],
            "factor_dtype": g.dtype,
        }
        how = _HOW["narrow" if tiling is not None and g.is_narrow else stage.way]
        made = text_of(stage, target.backend, f"{summary}: {how}", given)
        features: Literal["own", ""] = "own" if stage.way == "tensor" else ""
        kinds = {a.kind for a in stage.accumulators} | {"" if tail is None else tail.kind}
        compared = ("maximum",) * bool(kinds & {"max", "sumexp"}) + ("minimum",) * ("min" in kinds)
        operators = (*made.operators, *compared)
        return msgspec.structs.replace(made, features=features, operators=operators)


def _formula(stage: Convolution) -> str:
    """Return results as formulas of the sum of products."""
    formulas = [_result_in_words(stage)] if stage.handed_on else []
    if stage.moments is not None:
        of = in_words((*stage.epilogue, *stage.moments.steps), stage.moments.of)
        formulas += [f"{r.of}({of})" for r in stage.results[len(stage.handed_on) :]]
    return "; ".join(formulas)


def _result_in_words(stage: Convolution) -> str:
    tail = stage.tail
    if tail is None:
        return in_words(stage.epilogue, stage.result.of)
    before = in_words(stage.epilogue, tail.of)
    if tail.kind:
        window = "x".join(map(str, tail.window[-stage.dims :]))
        pooled = f"{tail.kind} of {window}({before})"
        return filled(in_words(tail.steps, stage.result.of), {POOLED: pooled})
    gathered = {a.name: f"{a.kind}({before})" for a in stage.accumulators}
    if not tail.held:
        return filled(in_words(tail.steps, stage.result.of), gathered)
    known = {name: filled(in_words(tail.steps, of), gathered) for name, of in tail.outcome.items()}
    return filled(in_words(tail.after, stage.result.of), known | {tail.held: before})


def way_of(g: Geometry) -> ConvolutionWay | None:
    """Return the way in which a convolution is done sooner than by torch; None if there is none."""
    has_many = g.images * g.groups * g.filters * prod(g.output) >= _LEAST_RESULTS
    if strips_of(g) is not None:
        return "direct" if has_many else None
    if (not g.transposed or max(g.stride) == 1) and few_of(g) is not None:
        return "few" if has_many else None
    if g.transposed and g.stride[2] > _MOST_STRIDE:
        return None  # results far apart would be written one by one
    tiling = tiling_of(g)
    if tiling is None:
        return None
    if g.groups * tiling.pixel_tiles(g.images) >= _LEAST_TILES:
        return "tensor"
    # Few tiles leave devices idle, and few channels take longer than their products do.
    rate = _FLOPS_IN_16_BITS if g.is_narrow else _FLOPS_OF_TORCH
    is_sooner = tiling.seconds(g.images, g.groups) < g.flops / rate
    return "tensor" if tiling.chunk > 1 and is_sooner else None
