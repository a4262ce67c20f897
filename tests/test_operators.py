"""Each row of the table of operators computes what torch does, over the whole range of float32."""

import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from operator_calls import Call, calls, operands_of, overload, source
from shared_builds import EMULATION, Libraries

from kernelgen.build.toolchain import find_toolkit
from kernelgen.planning.operators import FLOAT_MIN, OPERATORS, REQUIRED, Operator, helpers, literal, operator_for
from kernelgen.rendering.context import Backend

COMPILER = ("c++", "-std=c++17", "-O3", "-march=native", "-fopenmp", "-w", "-shared", "-fPIC")
ROWS = {row.name: row for row in OPERATORS}
# What the sum's terms are, whose rounding cancellation lays bare.
TERMS: dict[str, Callable[..., torch.Tensor]] = {
    "add_scaled": lambda self, other, alpha: self.abs() + abs(alpha * other),
    "sub_scaled": lambda self, other, alpha: self.abs() + abs(alpha * other),
    "rsub_scaled": lambda self, other, alpha: abs(alpha * self) + abs(other),
    "addcmul": lambda self, tensor1, tensor2, value: (
        abs(self) + (abs(value * tensor1) + FLOAT_MIN) * abs(tensor2)
    ),
    "addcdiv": lambda self, tensor1, tensor2, value: (
        abs(self) + (abs(value * tensor1) + FLOAT_MIN) / abs(tensor2)
    ),
    "logaddexp": lambda self, other: torch.maximum(self, other).abs() + torch.exp(-abs(self - other)),
    "lerp": lambda self, end, weight: (self.abs() + abs(end)) * (1 + abs(weight)),
}
TERMS["addcmul_scaled"], TERMS["addcdiv_scaled"] = TERMS["addcmul"], TERMS["addcdiv"]
# Where float64 means another number, such as the largest: torch's own float32 counts.
STEPS = {"div_trunc", "div_floor", "floor_divide", "nan_to_num_finite"}
# Where torch's kernels differ in the sign of a zero, or lose it.
ZEROS = {"relu", "relu6", "maximum", "minimum", "lerp", "elu", "softshrink", "silu"}
# What the CPU computes element by element: functions of the C library.
SCALAR = {
    *("div_floor", "floor_divide", "fmod", "remainder", "hypot", "pow", "exp2", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh"),
}  # fmt: skip


def for_the_cpu(text: str) -> str:
    text = re.sub(r"namespace ptx {.*?}  // namespace ptx\n", "", text, flags=re.DOTALL)
    return f'#include "emulation.h"\nusing std::isfinite, std::isinf, std::isnan;\n{text}'


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    sources = {"cuda": lambda: for_the_cpu(source("cuda")), "cpp": partial(source, "cpp")}
    return Libraries((*COMPILER, f"-I{EMULATION}"), sources, compiled_folder)


def wrong(call: Call, given: dict[str, torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """Return where a result is not what the row promises."""
    row = call.row
    single = call.torch(given, torch.float32)
    if out.dtype != torch.float32:
        assert single.dtype == out.dtype
        return out != single
    exact = call.torch(given, torch.float64).double()
    largest = exact.abs()
    if row.name in TERMS:
        doubles = {n: x.double() for n, x in given.items()}
        values = {n: x for n, x in call.values.items()}
        largest = TERMS[row.name](**{**values, **doubles}).abs()
    bound = row.ulps * 2.0**-23 * largest.clamp(min=row.least)
    good = ((out.double() - exact).abs() <= bound) | (out == exact.float())
    good |= out.isnan() & exact.isnan()
    if row.name == "silu":  # CUDA's quotient overflows where the emulated reciprocal of 1 is more
        good |= exact.float() > 3.402823e38
    # Within the error of overflow, and where float32's own intermediate results overflow.
    good |= out.isinf() & (exact * (1 + row.ulps * 2.0**-23)).float().eq(out)
    good |= ~single.isfinite() & ((out == single) | (out.isnan() & single.isnan()))
    if row.name in STEPS:
        good |= out == single
    if row.name not in ZEROS:
        good &= (exact != 0) | (out != 0) | (out.signbit() == exact.signbit())
    return ~good


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_a_row_computes_what_torch_does(libraries: Libraries, backend: str, row: str) -> None:
    for call in calls()[row]:
        given = operands_of(call)

        out = call.run(libraries[backend], given)

        at = wrong(call, given, out).nonzero().flatten()
        first = [
            ({n: x[i].item() for n, x in given.items()}, out[i].item())
            for i in at[:8]
        ]
        assert len(at) == 0, (call.aten, dict(call.values), len(at), first)
