"""Counting a reference's bytes and operations on no data, and where that is not possible."""

import pytest
import torch
from oracle_references import model_source, oracle_reference
from torch import nn

from kernelgen.grading.oracle.flops import products_of, products_or_none
from kernelgen.grading.oracle.reference import Reference
from kernelgen.problem.library import load_problem

# Public KernelBench problems, by level and number: bytes of inputs, parameters and outputs once
# each, and a multiply and an add of each product counted as two. At their own sizes, which cost
# nothing on no data.
KERNELBENCH = {
    "1/1": ("pass", "return x[0] @ x[1]", ["4096, 4096"] * 2, 201326592, 137438953472),
    "1/3": (
        "pass",
        "return torch.bmm(*x)",
        ["128, 512, 1024", "128, 1024, 2048"],
        1879048192,
        274877906944,
    ),
    "1/4": (
        "pass",
        "return x[0] @ x[1]",
        ["2048, 1048576", "1048576, 1"],
        8594137088,
        4294967296,
    ),
    "1/11": (
        "pass",
        "return torch.einsum('bijl,lk->bijk', *x)",
        ["8, 256, 512, 256", "256, 768"],
        4295753728,
        412316860416,
    ),
    "1/23": ("pass", "return x[0].softmax(1)", ["4096, 393216"], 12884901888, 0),
    "1/35": (
        "self.norm = nn.GroupNorm(8, 64)",
        "return self.norm(x[0])",
        ["112, 64, 512, 512"],
        15032386048,
        0,
    ),
    "1/50": (
        "self.conv = nn.Conv2d(3, 96, 11, stride=4, padding=2)",
        "return self.conv(x[0])",
        ["256, 3, 224, 224"],
        451650048,
        53972582400,
    ),
    "1/58": (
        "self.conv = nn.ConvTranspose3d(32, 16, (3, 5, 7), bias=False)",
        "return self.conv(x[0])",
        ["16, 32, 16, 32, 64"],
        113772544,
        56371445760,
    ),
    "1/72": (
        "self.conv = nn.ConvTranspose3d(32, 32, (3, 5, 7), 2, (1, 2, 3), 1, groups=4, bias=False)",
        "return self.conv(x[0])",
        ["8, 32, 12, 24, 48"],
        127509504,
        5945425920,
    ),
    "1/82": (
        "self.conv = nn.Conv2d(64, 64, 3, groups=64, bias=False)",
        "return self.conv(x[0])",
        ["16, 64, 512, 512"],
        2139113728,
        4794163200,
    ),
    "1/97": (
        "pass",
        "return F.scaled_dot_product_attention(*x)",
        ["32, 32, 512, 1024"] * 3,
        8589934592,
        1099511627776,
    ),
    "2/28": (
        "self.bmm, self.norm = nn.Linear(8192, 8192), nn.InstanceNorm2d(8192)",
        "h = self.norm(self.bmm(x[0])[:, None, None])[:, 0, 0]; return (h + x[1]) * x[1]",
        ["1024, 8192"] * 2,
        369131520,
        137438953472,
    ),
    "2/45": (
        "self.one, self.two = nn.Linear(2048, 4096), nn.Linear(4096, 1024)",
        "return torch.logsumexp(self.two(torch.sigmoid(self.one(x[0]))), 1)",
        ["16384, 2048"],
        184635392,
        412316860416,
    ),
}


def source(constructor: str, forward: str, sizes: list[str]) -> str:
    inputs = ", ".join(f"torch.rand({size})" for size in sizes)
    return model_source(forward, inputs, constructor, takes="*x")


def counted(text: str) -> tuple[int, int]:
    """Return the bytes of inputs, parameters and outputs, and the operations."""
    reference = oracle_reference(text)
    found = reference.footprint()
    assert found is not None
    return found.inputs + found.parameters + found.outputs, reference.products().flops


@pytest.mark.parametrize("name", KERNELBENCH)
def test_public_problems_are_counted_as_others_count_them(name: str) -> None:
    constructor, forward, sizes, minimal_bytes, flops = KERNELBENCH[name]
    assert counted(source(constructor, forward, sizes)) == (minimal_bytes, flops)


def test_buffers_are_counted_as_parameters() -> None:
    """KernelBench 1/33 without the running statistics: 8589935104."""
    batch_norm = source(
        "self.norm = nn.BatchNorm2d(64)", "return self.norm(x[0])", ["64, 64, 512, 512"]
    )
    assert counted(batch_norm)[0] == 8589935104 + 2 * 64 * 4 + 8


def test_the_shipped_problems_count_as_the_design_says() -> None:
    problem = load_problem("linear_instancenorm_add_mul")
    main = problem.all_cases()[0]
    cuda = counted(problem.reference_source(main, "cuda"))
    assert cuda == (369131520, 2 * 1024 * 8192 * 8192)
    assert counted(problem.reference_source(main, "cpu"))[1] == 2 * 128 * 512 * 1024


def made(constructor: str, forward: str, inputs: str) -> Reference:
    return oracle_reference(model_source(forward, inputs, constructor, takes="*x"))


def test_only_what_forward_does_is_counted() -> None:
    reference = made(
        "self.weight = nn.Parameter(torch.eye(8) @ torch.eye(8))",
        "return x[0] @ self.weight",
        "torch.rand(4, 16) @ torch.rand(16, 8)",
    )
    assert reference.products().flops == 2 * 4 * 8 * 8


def test_a_reference_that_looks_at_values_is_run_to_be_counted() -> None:
    reference = made(
        "pass",
        "return x[0] @ x[1] if x[0].sum() > -1 else x[0]",
        "torch.rand(4, 4), torch.rand(4, 4)",
    )
    assert reference.footprint() is None
    assert reference.products().flops == 2 * 4 * 4 * 4


@pytest.mark.parametrize(
    ("inputs", "bits"),
    [
        ("torch.rand(4, 4), torch.rand(4, 4)", 24),
        ("torch.rand(4, 4).half(), torch.rand(4, 4).half()", 11),
        ("torch.rand(4, 4).bfloat16(), torch.rand(4, 4).bfloat16()", 8),
        ("torch.rand(4, 4).double(), torch.rand(4, 4).double()", 53),
        ("torch.ones(4, 4, dtype=torch.int64), torch.ones(4, 4, dtype=torch.int64)", 24),
    ],
)
def test_the_narrowest_float_is_found(inputs: str, bits: int) -> None:
    assert made("pass", "return x[0] @ x[1]", inputs).products().operand_bits == bits


def test_a_recurrence_is_counted_on_no_data() -> None:
    reference = made(
        "self.rnn = nn.LSTM(16, 32)", "return self.rnn(x[0])[0]", "torch.rand(10, 4, 16)"
    )
    assert reference.products().flops == 2 * 10 * 4 * (4 * 32 * 16 + 4 * 32 * 32)


def test_what_cannot_be_counted_has_a_note() -> None:
    def no_inputs() -> list[object]:
        raise torch.OutOfMemoryError("no room for 7 GB")

    found = products_or_none(nn.Identity(), no_inputs)
    assert found.flops == 0
    assert "could not be counted" in found.note
    assert "no room for 7 GB" in found.note


def test_a_lost_device_is_not_a_note() -> None:
    def lost() -> list[object]:
        raise RuntimeError("CUDA error: device lost")

    with pytest.raises(RuntimeError, match="device lost"):
        products_or_none(nn.Identity(), lost)


def test_counting_leaves_no_hook_behind() -> None:
    model = nn.Linear(3, 2)
    first = products_of(model, [torch.rand(5, 3)])
    assert first == products_of(model, [torch.rand(5, 3)])
    assert first.flops == 2 * 5 * 3 * 2
