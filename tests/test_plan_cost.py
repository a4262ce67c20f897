"""Bytes and times of a plan, counted by hand; no torch."""

import subprocess
import sys

import pytest
from calibrations import calibration

from kernelgen.engines.map import Map
from kernelgen.engines.product.choice import choose_product
from kernelgen.engines.product.record import Product
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.stage import Accumulator, Library, Operand, Result, Stage
from kernelgen.graph.graph import Argument, Graph, GraphInput, Reference, TensorType
from kernelgen.hardware.calibration import MatrixFormat
from kernelgen.planning.cost import StageCost, costs, stage_times
from kernelgen.planning.plan import Plan


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return TensorType(shape=shape, strides=tuple(strides[: len(shape)]), dtype=dtype)


NUMBER = TensorType(shape=(), strides=(), dtype="float64")


def operand(value: str, found: TensorType) -> Operand:
    return Operand(name=value, value=value, type=found)


def plan(stages: list[Stage], outputs: tuple[str, ...], **sources: TensorType) -> Plan:
    inputs = tuple(
        GraphInput(name=name, type=found, kind="scalar" if found is NUMBER else "input")
        for name, found in sources.items()
    )
    graph = Graph(arguments=tuple(sources), inputs=inputs, nodes=(), outputs=outputs, returns="")
    return Plan(graph=graph, sources=inputs, stages=tuple(stages), outputs=outputs)


def library(aten: str, out: TensorType, **given: Argument) -> Library:
    return Library.calling("out", f"{aten}.default", given, out)


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (tensor(4, 8), 128),
        (tensor(4, 8, dtype="bool"), 32),
        (tensor(4, 8, dtype="int64"), 256),
        (tensor(4, 8, dtype="bfloat16"), 64),
        (tensor(4, 8, dtype="float8_e4m3fn"), 32),
        (tensor(), 4),
        (tensor(0, 8), 0),
        (TensorType(shape=(4, 8), strides=(0, 1), dtype="float32"), 32),
    ],
)
def test_the_bytes_of_a_tensor(found: TensorType, count: int) -> None:
    assert found.bytes == count


def test_operands_count_once_at_their_own_size_and_numbers_not() -> None:
    x, bias = tensor(64, 8), tensor(8)
    stage = Map(
        name="add",
        shape=x.shape,
        operands=(operand("x", x), operand("bias", bias), operand("s", NUMBER)),
        steps=(),
        results=(Result(value="y", of="x", type=x),),
    )
    found = costs(plan([stage], ("y",), x=x, bias=bias, s=NUMBER))

    assert found.stages == (StageCost(own_bytes=2048 + 32 + 2048),)
    assert found.minimal_bytes == found.stages[0].moved_bytes == 2 * 2048 + 32


def test_what_two_stages_hand_over_moves_twice() -> None:
    x, y, total = tensor(64, 8), tensor(64, 8), tensor(64)
    squares = Map(
        name="square",
        shape=x.shape,
        operands=(operand("x", x),),
        steps=(),
        results=(Result(value="y", of="x", type=y),),
    )
    sums = Reduce(
        name="sum",
        shape=y.shape,
        dims=(1,),
        keepdim=False,
        operands=(operand("y", y),),
        steps=(),
        accumulators=(Accumulator(name="sum", kind="sum", of="y"),),
        beside=(operand("total", total),),
        epilogue=(),
        results=(Result(value="z", of="sum", type=total),),
    )
    found = costs(plan([squares, sums], ("z",), x=x, total=total))

    assert [one.moved_bytes for one in found.stages] == [4096, 2048 + 256 + 256]
    assert found.minimal_bytes == 2048 + 256 + 256


def test_a_view_costs_nothing() -> None:
    x = tensor(64, 8)
    view = library("transpose", tensor(8, 64), self=Reference("x"))
    found = costs(plan([view], ("out",), x=x))

    assert found.stages == (StageCost(),)


R = Reference
PRODUCTS: list[tuple[Library, dict[str, TensorType], int]] = [
    (
        library("linear", tensor(3, 5), input=R("x"), weight=R("w"), bias=R("b")),
        {"x": tensor(3, 7), "w": tensor(5, 7), "b": tensor(5)},
        2 * 3 * 5 * 7,
    ),
    (
        library("addmm", tensor(3, 5), self=R("b"), mat1=R("x"), mat2=R("w")),
        {"x": tensor(3, 7), "w": tensor(7, 5), "b": tensor(5)},
        2 * 3 * 5 * 7,
    ),
    (
        library("matmul", tensor(2, 3, 5), self=R("x"), other=R("w")),
        {"x": tensor(2, 3, 7), "w": tensor(7, 5)},
        2 * 2 * 3 * 5 * 7,
    ),
    (
        library("matmul", tensor(), self=R("x"), other=R("w")),
        {"x": tensor(7), "w": tensor(7)},
        2 * 7,
    ),
    (
        library("conv2d", tensor(2, 8, 7, 7), input=R("x"), weight=R("w"), bias=None),
        {"x": tensor(2, 6, 9, 9), "w": tensor(8, 3, 3, 3)},
        2 * (2 * 8 * 7 * 7) * (3 * 3 * 3),
    ),
    (
        library("conv_transpose2d", tensor(2, 4, 11, 11), input=R("x"), weight=R("w")),
        {"x": tensor(2, 6, 9, 9), "w": tensor(6, 4, 3, 3)},
        2 * (2 * 6 * 9 * 9) * (4 * 3 * 3),
    ),
    (
        library(
            "scaled_dot_product_attention",
            tensor(2, 4, 9, 6),
            query=R("q"),
            key=R("k"),
            value=R("v"),
        ),
        {"q": tensor(2, 4, 9, 8), "k": tensor(2, 4, 5, 8), "v": tensor(2, 4, 5, 6)},
        2 * 2 * 4 * 9 * 5 * (8 + 6),
    ),
    (
        library("einsum", tensor(2, 3, 5), equation="bik,kj->bij", tensors=(R("x"), R("w"))),
        {"x": tensor(2, 3, 7), "w": tensor(7, 5)},
        2 * 2 * 3 * 5 * 7,
    ),
    (
        library("gru", tensor(4, 2, 8), input=R("x"), params=(R("w"), R("u"), R("b"))),
        {"x": tensor(4, 2, 6), "w": tensor(24, 6), "u": tensor(24, 8), "b": tensor(24)},
        2 * 4 * 2 * (24 * 6 + 24 * 8),
    ),
    (
        library("linalg_inv", tensor(4, 4), A=R("x")),
        {"x": tensor(4, 4)},
        0,
    ),
]


@pytest.mark.parametrize(
    ("stage", "sources", "flops"), PRODUCTS, ids=[stage.aten for stage, _, _ in PRODUCTS]
)
def test_the_operations_of_products(
    stage: Library, sources: dict[str, TensorType], flops: int
) -> None:
    found = costs(plan([stage], ("out",), **sources))

    assert found.flops == flops
    assert found.stages[0].moved_bytes == found.minimal_bytes


def test_a_stage_takes_the_longer_of_its_two_times() -> None:
    rates = calibration(copy_gbps=1000.0, rates={"fp32": 1e12})
    x, w = tensor(1024, 1024), tensor(1024, 1024)
    product = library("matmul", tensor(1024, 1024), self=R("x"), other=R("w"))
    copy = Map(
        name="copy",
        shape=x.shape,
        operands=(operand("out", x),),
        steps=(),
        results=(Result(value="y", of="out", type=x),),
    )
    first, second = stage_times(costs(plan([product, copy], ("y",), x=x, w=w)), rates)

    assert (first.bound, second.bound) == ("arithmetic", "memory")
    assert first.expected_ms == pytest.approx(2 * 1024**3 / 1e9)
    assert second.expected_ms == pytest.approx(2 * 4 * 1024**2 / 1e9)


def test_a_product_of_our_own_splits_its_operands_and_multiplies_halves() -> None:
    rates = calibration(copy_gbps=1000.0, rates={"fp32": 1e12, "fp16": 8e12})
    x, w, bias = tensor(1024, 512), tensor(2048, 512), tensor(2048)
    out = tensor(1024, 2048)
    own = Product(
        name="linear",
        aten="linear",
        shape=out.shape,
        operands=tuple(
            Operand(name=name, value=value, type=found)
            for name, value, found in (("a", "x", x), ("b", "w", w), ("bias", "b", bias))
        ),
        turned=(False, True),
        results=(Result(value="out", of="multiplied", type=out),),
        fast=choose_product(x, w, "sm_90a"),
    )
    found = costs(plan([own], ("out",), x=x, w=w, b=bias))
    (time,) = stage_times(found, rates)

    splits = 2 * 4 * (1024 + 2048) * 512
    assert found.stages[0].moved_bytes == found.minimal_bytes + splits
    assert time.bound == "arithmetic"
    flops = 2 * 1024 * 2048 * 512
    assert time.expected_ms == pytest.approx(splits / 1e9 + 3 * flops / 8e9)


@pytest.mark.parametrize(("dtype", "form"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_a_product_in_16_bits_is_one_in_its_own_form(dtype: str, form: MatrixFormat) -> None:
    rates = calibration(copy_gbps=1000.0, rates={"fp32": 1e12, form: 8e12})
    x, y, out = (tensor(4096, 4096, dtype=dtype) for _ in range(3))
    own = Product(
        name="mm",
        aten="mm",
        shape=out.shape,
        operands=tuple(Operand(name=n, value=v, type=x) for n, v in (("a", "x"), ("b", "y"))),
        turned=(False, False),
        results=(Result(value="out", of="multiplied", type=out),),
        fast=choose_product(x, y, "sm_90a"),
    )
    assert own.fast.kernel == "narrow"
    for stage in own, library("mm", out, self=R("x"), mat2=R("y")):
        found = costs(plan([stage], ("out",), x=x, y=y))
        (time,) = stage_times(found, rates)
        assert found.stages[0].moved_bytes == found.minimal_bytes
        assert time.expected_ms == pytest.approx(2 * 4096**3 / 8e9)


def test_planning_a_cost_imports_no_torch() -> None:
    script = "import sys, kernelgen.planning.cost, kernelgen.tracing.capture; "
    script += "assert 'torch' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
