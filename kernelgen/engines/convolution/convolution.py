"""A convolution, and what its epilogue makes of each result."""

from collections.abc import Collection, Mapping
from math import prod
from textwrap import wrap

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.convolution.record import (
    CONVOLVED,
    Convolution,
    ConvolutionWay,
    Geometry,
    Three,
)
from kernelgen.engines.convolution.tiling import STAGE_DEPTH, strips_of, tiling_of
from kernelgen.engines.engine import Engine, Target, Work
from kernelgen.engines.epilogue import with_epilogue
from kernelgen.engines.naming import Names, without_overload
from kernelgen.engines.stage import Kernel, Library, Operand, Result, Step, StepValue
from kernelgen.engines.text.finish import OF, finish_names
from kernelgen.engines.text.names import text_of
from kernelgen.engines.text.reading import Reading
from kernelgen.engines.text.stage_text import StageText, definition_of, filled, in_words
from kernelgen.graph.graph import Reference, TensorType

_DIMS = {
    "conv1d.default": 1,
    "conv2d.default": 2,
    "conv3d.default": 3,
    "conv1d.padding": 1,
    "conv2d.padding": 2,
    "conv3d.padding": 3,
    "conv_transpose1d.default": 1,
    "conv_transpose2d.input": 2,
    "conv_transpose3d.input": 3,
}
# About the smallest that were timed. Networks have many smaller ones, whose few tiles leave devices
# idle, and which are over before our launches are.
_LEAST_RESULTS = 1 << 23
_LEAST_TILES = 1 << 11
_MOST_STRIDE = 3
_HOW = {
    "tensor": "tensor cores multiply halves of filters and pixels, as accurately as fp32",
    "direct": "each result is gathered in fp32",
}


class ConvolutionEngine(Engine[Convolution]):
    """Convolutions, in place of torch's where one of our kernels is faster."""

    record = Convolution

    def replacement(
        self,
        stage: Library,
        types: Mapping[str, TensorType],
        weights: Collection[str],
        arch: Architecture | None,
    ) -> Convolution | None:
        """Return a convolution in place of one of torch's, which stays where that is as fast."""
        del weights
        found = _geometry(stage, types) if stage.aten in _DIMS and arch == "sm_90a" else None
        if found is None or (way := _way(found)) is None:
            return None
        (out,) = stage.types
        assert out is not None
        values = [stage.arguments["input"], stage.arguments["weight"]]
        operands = [
            Operand(name=name, value=value.name, type=types[value.name])
            for name, value in zip(("input", "weight"), values, strict=True)
            if isinstance(value, Reference)
        ]
        aten = without_overload(stage.aten)
        beside: tuple[Operand, ...] = ()
        epilogue: tuple[Step, ...] = ()
        if isinstance(bias := stage.arguments.get("bias"), Reference):
            span = (-_DIMS[stage.aten] - 1, -_DIMS[stage.aten])
            added = Operand(
                name="bias", value=bias.name, type=types[bias.name], pattern="along", span=span
            )
            sum_of: dict[str, StepValue] = {"self": CONVOLVED, "other": "bias"}
            beside = (added,)
            epilogue = (Step(name="biased", operator="add", arguments=sum_of, dtype="float32"),)
        return Convolution(
            name=aten,
            aten=aten,
            dims=_DIMS[stage.aten],
            shape=out.shape,
            operands=tuple(operands),
            beside=beside,
            epilogue=epilogue,
            results=(Result(value=stage.name, of="biased" if beside else CONVOLVED, type=out),),
            geometry=found,
            extra=_three(stage.arguments.get("output_padding", 0), _DIMS[stage.aten], 0),
            biased=bool(beside),
            way=way,
        )

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> Kernel | None:
        """Return a convolution with a map of its result."""
        del arch
        whole = isinstance(first, Convolution) and second.result.type.dtype == "float32"
        return with_epilogue(first, second, others) if whole else None

    def work(self, stage: Convolution) -> Work:
        """Return the multiplications and additions."""
        return Work(flops=stage.geometry.flops, halves=stage.way == "tensor")

    def words(self, stage: Convolution) -> str:
        """Return a convolution as a formula of the plan's values."""
        factors = ", ".join(operand.value for operand in stage.operands)
        known = {CONVOLVED: f"{stage.aten}({factors})"}
        return filled(in_words(stage.epilogue, stage.result.of), known)

    def text(self, stage: Convolution, target: Target) -> StageText:
        """Return a convolution as text."""
        tiles = tiling_of(stage.geometry) if stage.way == "tensor" else None
        g, factors = stage.geometry, ", ".join(o.name for o in stage.operands)
        formula = in_words(stage.epilogue, stage.result.of)
        summary = filled(formula, {CONVOLVED: f"{stage.aten}({factors})"})
        what = f"Filters move over {stage.dims} dimension{'s' * (stage.dims > 1)} of the input"
        if stage.epilogue:
            what += f"; each sum of products becomes {filled(formula, {CONVOLVED: 'that'})}"
        plane, columns = prod(g.output), g.groups * g.filters

        def of_column(operand: Reading) -> bool:
            return (operand.inner, operand.size) == (plane, columns)

        def along(operand: Reading) -> str:
            name = f"{OF}{operand.name}"
            main = "kMain" if of_column(operand) else "false"
            return f"along<{main}>(a, at, column, {name}_inner, {name}_size)"

        given = finish_names(stage, CONVOLVED, target.backend, along)
        spread = [f"{OF}{o.name}" for o in given["spread"] if of_column(o)]
        given |= {
            "of_columns": [
                f"{name}_inner == a.plane && {name}_size == a.columns && " for name in spread
            ],
            "name": stage.name,
            "definition": definition_of(stage),
            "summary": summary,
            "what": "\n// ".join(wrap(f"{what}.", 97, break_long_words=False)),
            "g": g,
            "early": tiles is not None
            and len(spread) == len(given["beside_tensors"])
            and 2 * g.filters * tiles.residues > tiles.rows,
            "t": tiles,
            "d": strips_of(g) if stage.way == "direct" else None,
            "way": stage.way,
            "depth": STAGE_DEPTH,
            "dims": stage.dims,
            "extra": stage.extra,
            "bias": stage.beside[0].name if stage.biased else "",
        }
        made = text_of(stage, target.backend, f"{summary}: {_HOW[stage.way]}", given)
        return msgspec.structs.replace(made, features="own" if stage.way == "tensor" else "")


def _geometry(stage: Library, types: Mapping[str, TensorType]) -> Geometry | None:
    """Return the sizes of a convolution of torch's; None if it is of other types."""
    given, dims = stage.arguments, _DIMS[stage.aten]
    inputs = [given["input"], given["weight"]]
    names = [one.name for one in inputs if isinstance(one, Reference) and one.name in types]
    (out,) = stage.types
    if len(names) != len(inputs) or out is None:
        return None
    of, weight = types[names[0]], types[names[1]]
    if any(one.dtype != "float32" or 0 in one.shape for one in (of, weight, out)):
        return None
    transposed = "transpose" in stage.aten
    groups = given.get("groups", 1)
    assert isinstance(groups, int)
    kernel = _three(weight.shape[-dims:], dims, 1)
    dilation = _three(given.get("dilation", 1), dims, 1)
    padding = given.get("padding", 0)
    if padding == "same":
        around = [(size - 1) * far for size, far in zip(kernel, dilation, strict=True)]
        if any(one % 2 for one in around):
            return None  # one more on one side
        padding = tuple(one // 2 for one in around[-dims:])
    elif padding == "valid":
        padding = 0
    channels, filters = weight.shape[:2] if transposed else (weight.shape[1], weight.shape[0])
    return Geometry(
        images=of.shape[0] if len(of.shape) > dims + 1 else 1,
        groups=groups,
        channels=channels // groups if transposed else channels,
        filters=filters if transposed else filters // groups,
        input=_three(of.shape[-dims:], dims, 1),
        kernel=kernel,
        output=_three(out.shape[-dims:], dims, 1),
        stride=_three(given.get("stride", 1), dims, 1),
        padding=_three(padding, dims, 0),
        dilation=dilation,
        transposed=transposed,
    )


def _three(given: object, dims: int, missing: int) -> Three:
    """Return numbers of depth, height and width; one number is that of all dimensions."""
    numbers = given if isinstance(given, tuple) else (given,)
    whole = [int(number) for number in numbers]
    whole = whole * dims if len(whole) == 1 else whole
    three = [missing] * (3 - dims) + whole
    return (three[0], three[1], three[2])


def _way(g: Geometry) -> ConvolutionWay | None:
    """Return the way in which a convolution is done sooner than by torch; None if there is none."""
    if g.images * g.groups * g.filters * prod(g.output) < _LEAST_RESULTS:
        return None
    if strips_of(g) is not None:
        return "direct"
    if g.transposed and g.stride[2] > _MOST_STRIDE:
        return None  # results far apart would be written one by one
    tiling = tiling_of(g)
    if tiling is None or g.groups * tiling.pixel_tiles(g.images) < _LEAST_TILES:
        return None
    return "tensor"
