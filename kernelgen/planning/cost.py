"""Bytes and operations of a plan's stages, and the time that they take at a device's rates.

Bytes are those of each operand once, at its own size, and of each result: what a cache cannot save.
Operations are those of products, a multiply and an add counted as two; any other kernel is held to
its bytes. A product of ours splits its operands into halves first, as many bytes as the values, and
multiplies those three times, as a convolution does that splits them as it goes.
"""

from math import prod
from typing import Literal

import msgspec

from kernelgen.engines.engine import Work
from kernelgen.engines.known import engine_of
from kernelgen.engines.naming import without_overload
from kernelgen.engines.stage import Library, Stage, made_types, operands_of
from kernelgen.graph.graph import Argument, TensorType, references
from kernelgen.hardware.calibration import Calibration, MatrixFormat
from kernelgen.planning.plan import Plan

_FACTORS = {"addmm": "mat1", "baddbmm": "batch1", "linear": "input"}
_PRODUCTS_OF_HALVES = 3
_FORMS: dict[str, MatrixFormat] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
Bound = Literal["", "memory", "arithmetic"]


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and operations of a stage; a view has none.

    Attributes:
        own_bytes: each operand and result once.
        form: of the factors of its products.
        work: its operations; its bytes are read and written before, where a product of ours
            splits its operands.
    """

    own_bytes: int = 0
    form: MatrixFormat = "fp32"
    work: Work = Work()

    @property
    def moved_bytes(self) -> int:
        """Return what it reads and writes."""
        return self.own_bytes + self.work.split_bytes


class PlanCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes and operations of a plan.

    Attributes:
        stages: in the plan's order.
        minimal_bytes: inputs and parameters that are read, and what is returned or updated, once.
        operand_bits: significant bits of the factors of products.
    """

    stages: tuple[StageCost, ...]
    minimal_bytes: int
    operand_bits: int = 24

    @property
    def flops(self) -> int:
        """Return the operations of all products."""
        return sum(stage.work.flops for stage in self.stages)


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """The least time of a stage, and what takes it; "" for one that does nothing."""

    expected_ms: float
    bound: Bound


def costs(plan: Plan) -> PlanCost:
    """Return what a plan moves and computes at its main shapes."""
    types = {source.name: source.type for source in plan.sources}
    begins = [source.type for source in plan.sources if not source.is_number]
    stages = []
    for stage in plan.stages:
        stages.append(_cost(stage, types))
        types.update(made_types(stage))
    returned = dict.fromkeys((*plan.outputs, *plan.updates.values(), *plan.in_place.values()))
    ends = [types[name] for name in returned if name in types]
    return PlanCost(stages=tuple(stages), minimal_bytes=sum(one.bytes for one in (*begins, *ends)))


def stage_times(cost: PlanCost, calibration: Calibration) -> tuple[StageTime, ...]:
    """Return the least time of each stage: the longer of its bytes and its operations.

    Those are of the factors' form, and fp16 ones of halves; a split before takes its own time.
    Launches, and what a kernel does worse than a copy, are not in it.
    """
    return tuple(_time(stage, calibration) for stage in cost.stages)


def _time(stage: StageCost, calibration: Calibration) -> StageTime:
    bytes_per_ms = calibration.copy_gbps.median * 1e6
    splitting_ms = stage.work.split_bytes / bytes_per_ms
    moving_ms = stage.moved_bytes / bytes_per_ms - splitting_ms
    rate = calibration.flops_per_s("fp16" if stage.work.halves else stage.form)
    flops = stage.work.flops * (_PRODUCTS_OF_HALVES if stage.work.halves else 1)
    computing_ms = flops / rate.median * 1e3 if rate else 0.0
    bound: Bound = "arithmetic" if computing_ms > moving_ms else "memory" if moving_ms else ""
    return StageTime(expected_ms=splitting_ms + max(moving_ms, computing_ms), bound=bound)


def _cost(stage: Stage, types: dict[str, TensorType]) -> StageCost:
    made = made_types(stage).values()
    written_bytes = sum(one.bytes for one in made)
    form = next((_FORMS[one.dtype] for one in made if one.dtype in _FORMS), _FORMS["float32"])
    if isinstance(stage, Library):
        if stage.view:
            return StageCost()
        read = set(references(*stage.arguments.values()))
        read_bytes = sum(types[name].bytes for name in read if name in types)
        work = Work(flops=_flops(stage, types))
    else:
        by_value = {one.value: one.type for one in operands_of(stage) if not one.is_number}
        read_bytes = sum(one.bytes for one in by_value.values())
        work = engine_of(stage).work(stage)
    return StageCost(own_bytes=read_bytes + written_bytes, form=form, work=work)


def _flops(stage: Library, types: dict[str, TensorType]) -> int:
    """Return the operations of a product; 0 for one that has no formula here."""
    base = without_overload(stage.aten)
    given = stage.arguments
    out = stage.types[0]
    elements = prod(out.shape) if out is not None else 0

    def shapes(name: str) -> list[tuple[int, ...]]:
        return [types[value].shape for value in references(given[name])]

    def shape(name: str) -> tuple[int, ...]:
        (only,) = shapes(name)
        return only

    match base:
        case "mm" | "bmm" | "matmul" | "addmm" | "baddbmm" | "linear":
            products = elements * shape(_FACTORS.get(base, "self"))[-1]
        case "conv1d" | "conv2d" | "conv3d" | "bilinear":
            products = elements * prod(shape("weight")[1:])
        case "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d":
            products = prod(shape("input")) * prod(shape("weight")[1:])
        case "scaled_dot_product_attention":
            keys, values = shape("key"), shape("value")
            products = prod(shape("query")[:-1]) * keys[-2] * (keys[-1] + values[-1])
        case "einsum":
            products = _einsum_products(given["equation"], shapes("tensors"))
        case "gru" | "lstm":
            # Each weight matrix is one product for each element of the sequences.
            matrices = sum(prod(one) for one in shapes("params") if len(one) == 2)  # noqa: PLR2004
            products = prod(shape("input")[:-1]) * matrices
        case _:
            products = 0
    return 2 * products


def _einsum_products(equation: Argument, shapes: list[tuple[int, ...]]) -> int:
    assert isinstance(equation, str)
    labels = [part.strip() for part in equation.split("->")[0].split(",")]
    if "." in equation or len(labels) != len(shapes) or len(labels) != 2:  # noqa: PLR2004
        return 0
    sizes: dict[str, int] = {}
    for part, one in zip(labels, shapes, strict=True):
        sizes.update(zip(part.replace(" ", ""), one, strict=True))
    return prod(sizes.values())
