"""Each row of the table of operators computes what torch does, over the whole range of float32."""

import ctypes
import math
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path

import msgspec
import pytest
import torch
from operator_calls import IN_C, Call, calls, operands_of, schema, source
from shared_builds import EMULATION, Libraries

from kernelgen.build.toolchain import find_toolkit
from kernelgen.engines.body import Apply, Body, Waiting
from kernelgen.engines.operators import FLOAT_MIN, OPERATORS, REQUIRED, operator_for
from kernelgen.engines.rows import kernel_row
from kernelgen.engines.text.functions import helpers
from kernelgen.engines.text.stage_text import body_of
from kernelgen.graph.graph import Named, Node, Reference, TensorType
from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

COMPILER = ("c++", "-std=c++17", "-O3", "-march=native", "-fopenmp", "-w", "-shared", "-fPIC")
ROWS = {row.name: row for row in OPERATORS}
# Terms of the sum, whose rounding cancellation lays bare.
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
    "logaddexp": lambda self, other: (
        torch.maximum(self, other).abs() + torch.exp(-abs(self - other))
    ),
    "lerp": lambda self, end, weight: (self.abs() + abs(end)) * (1 + abs(weight)),
}
TERMS["addcmul_scaled"], TERMS["addcdiv_scaled"] = TERMS["addcmul"], TERMS["addcdiv"]
# Where float64 means another number, such as the largest: torch's own float32 counts.
STEPS = {"div_trunc", "div_floor", "floor_divide", "nan_to_num_finite"}
# Where torch's kernels differ in the sign of a zero, or lose it.
ZEROS = {"relu", "relu6", "maximum", "minimum", "lerp", "elu", "softshrink", "silu"}


def for_the_cpu(text: str) -> str:
    text = re.sub(r"namespace ptx {.*?}  // namespace ptx\n", "", text, flags=re.DOTALL)
    return f'#include "emulation.h"\nusing std::isfinite, std::isinf, std::isnan;\n{text}'


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    sources: dict[str, Callable[[], str]] = {
        "cuda": lambda: for_the_cpu(source("cuda")),
        "cpp": partial(source, "cpp"),
    }
    return Libraries((*COMPILER, f"-I{EMULATION}"), sources, compiled_folder)


def wrong(call: Call, given: dict[str, torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    """Return where a result is not what the row promises."""
    row = call.row
    single = call.torch(given, torch.float32)
    if out.dtype != torch.float32:
        assert single.dtype == out.dtype
        return (out != single) & ~(out.isnan() & single.isnan())
    exact = call.torch(given, torch.float64).double()
    largest = exact.abs()
    if row.name in TERMS:
        doubles = {n: x.double() for n, x in given.items()}
        values = dict(call.values)
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
        first = [({n: x[i].item() for n, x in given.items()}, out[i].item()) for i in at[:8]]
        assert len(at) == 0, (call.aten, dict(call.values), len(at), first)


@pytest.mark.parametrize("row", ROWS)
def test_parameters_are_those_of_the_schema(row: str) -> None:
    found = ROWS[row]
    for aten in found.aten:
        arguments = schema(aten)
        names = [each.name for each in arguments]
        defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
        assert list(found.parameters) == names
        assert {n: x for n, x in found.parameters.items() if x is not REQUIRED} == defaults
    assert found.when.keys() <= found.parameters.keys()


@pytest.mark.parametrize("row", ROWS)
def test_calls_are_answered_by_their_row_alone(row: str) -> None:
    found = ROWS[row]
    others = [
        other.name
        for other in OPERATORS
        if other is not found and other.when == found.when and set(other.aten) & set(found.aten)
    ]
    assert others == []
    for call in calls()[row]:
        answer = operator_for(call.aten, {**call.values, **{n: object() for n in call.tensors}})
        assert answer is not None
        divides = row in {"div", "div_exact"} and "other" in call.values
        assert answer[0].name == ("mul" if divides else row)


@pytest.mark.parametrize("by", [6.0, -3, 1.5e-38, 2e38, 0.0, math.inf, 1e-40, True])
def test_a_division_by_a_number_is_a_product_where_the_inverse_is_a_float(by: float) -> None:
    given = torch.tensor([-math.inf, -2.5, -0.0, 0.0, 1e-30, 3.0, math.inf, math.nan])
    answer = operator_for("div.Tensor", {"self": object(), "other": by})
    assert answer is not None
    if answer[0].name == "mul":
        inverse = answer[1]["other"]
        assert isinstance(inverse, float)
        torch.testing.assert_close(given * inverse, given / by, equal_nan=True)
    else:
        assert not FLOAT_MIN < abs(by) < 1 / FLOAT_MIN


@pytest.mark.parametrize("row", ROWS)
def test_accuracy_is_within_what_is_asked_of_all(row: str) -> None:
    assert ROWS[row].ulps * 2.0**-23 <= 4e-6
    assert ROWS[row].least <= 1e-8


@pytest.mark.parametrize("row", ROWS)
def test_an_expression_names_a_parameter_once(row: str) -> None:
    for text in (ROWS[row].cuda, ROWS[row].cpp):
        places = re.findall(r"\{(\w+)\}", text)
        assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("row", "arguments", "text"),
    [
        ("add", {"self": "x * scale", "other": "shift"}, "x * scale + shift"),
        ("add", {"self": "x", "other": -1}, "x - 1.0f"),
        ("sub", {"self": "a", "other": "b - c"}, "a - (b - c)"),
        ("mul", {"self": "a + b", "other": "x[i + 1]"}, "(a + b) * x[i + 1]"),
        ("mul", {"self": "c ? a : b", "other": 0.01}, "(c ? a : b) * 0.01f"),
        ("neg", {"self": "-x"}, "-(-x)"),
        ("logical_not", {"self": "a > b"}, "!(a > b)"),
        ("clamp", {"self": "a + b", "min": 0, "max": 6}, "clamp(a + b, 0.0f, 6.0f)"),
        ("where", {"condition": "a > b", "self": "a", "other": "b"}, "a > b ? a : b"),
        ("masked_fill", {"self": "x", "mask": "m", "value": -float("inf")}, "m ? -INFINITY : x"),
    ],
)
def test_an_expression_has_the_parentheses_it_needs(
    row: str, arguments: dict[str, str | float], text: str
) -> None:
    assert ROWS[row].expression("cuda", arguments) == text


def test_no_row_suits_what_the_table_lacks() -> None:
    assert operator_for("conv2d.default", {}) is None
    assert operator_for("clamp.default", {"self": "x"}) is None
    assert operator_for("dropout.default", {"input": "x", "p": 0.5, "train": True}) is None
    assert operator_for("relu.default", {}) is None


def test_what_a_comment_names_is_no_function_that_is_called() -> None:
    assert "tanh(log(1 + e^x))" in helpers(["mish"], "cuda")
    assert "float tanh(" not in helpers(["mish"], "cuda")


@pytest.mark.nvcc
def test_nvcc_compiles_all_rows(tmp_path: Path) -> None:
    functions = [
        call.function("cuda").replace('extern "C"', "__global__").replace("#pragma omp simd\n", "")
        for each in calls().values()
        for call in each[:1]
    ]
    text = (
        "#include <cmath>\n#include <cstdint>\n#include <math.h>\n"
        + helpers(ROWS, "cuda")
        + "\n".join(functions)
    )
    (tmp_path / "all.cu").write_text(text)
    # With the host's pass, whose headers have other functions than the device's.
    command = [str(find_toolkit().nvcc), "-std=c++17", "-arch=sm_80", "-c", "all.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


KINDS = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32)
WHOLE = (-3, -2, -1, 0, 1, 2, 3, 5, 16777216, 16777217, 2**31, 2**40 + 1, -(2**53) - 1, 2**62 + 1)
SOME = {
    torch.bool: torch.tensor([False, True]),
    torch.uint8: torch.tensor([0, 1, 2, 3, 7, 200, 255], dtype=torch.uint8),
    torch.int32: torch.tensor([-3, -1, 0, 1, 2, 5, 16777217, -(2**31) + 1], dtype=torch.int32),
    torch.int64: torch.tensor(WHOLE),
    torch.float16: torch.tensor([-2.5, -1, 0, 0.5, 1, 3], dtype=torch.float16),
    torch.float32: torch.tensor([-2.5, -1, 0, 0.5, 1, 3, 16777216, 1e9]),
}


class Typed(msgspec.Struct, frozen=True):
    """A call with operands of some types, as a kernel computes it and as torch does."""

    name: str
    call: Call
    given: dict[str, torch.Tensor]
    wanted: torch.Tensor

    def node(self) -> Node:
        """Return the call as a graph has it."""
        values = {**self.call.row.parameters, **self.call.values}
        values |= {name: Reference(name) for name in self.given}
        arguments = {
            n: Named(x) if n == "dtype" and x is not None else x for n, x in values.items()
        }
        found = type_of(self.wanted)
        return Node(
            name="made", aten=self.call.aten, arguments=arguments, given=1, results=(found,)
        )

    def function(self, backend: Backend) -> str:
        """Return a C function of the call; "" where it stays in torch."""
        types = {name: type_of(x) for name, x in self.given.items()}
        found = kernel_row(self.node(), types)
        if found is None:
            return ""
        waiting = Waiting({**types, "made": type_of(self.wanted)})
        waiting.steps["made"] = Apply(operator=found[0], arguments=found[1])
        body = Body(waiting, tuple(self.wanted.shape), {})
        made = body.value("made")
        names = {o.name: f"{o.value}[i]" for o in body.operands}
        # Read twice, it has a variable of its own.
        text = body_of(body.steps, [made, made], backend, names)
        read = names.get(made, made)  # an operand, where only the type in memory changes
        c = {name: IN_C[x.dtype] for name, x in self.given.items()}
        tensors = "".join(f"const {kind}* {name}, " for name, kind in c.items())
        return (
            f'extern "C" void {self.name}({tensors}{IN_C[self.wanted.dtype]}* out, long n) {{\n'
            f"  for (long i = 0; i < n; ++i) {{ {' '.join(text.lines)} out[i] = {read}; }}\n}}\n"
        )


def type_of(x: torch.Tensor) -> TensorType:
    return TensorType(shape=tuple(x.shape), strides=x.stride(), dtype=str(x.dtype)[6:])


def typed_calls_of(row: str) -> Iterator[Typed]:
    """Yield calls of a row with operands of all types, alike or beside float32's, as torch does."""
    for number, call in enumerate({call.aten: call for call in calls()[row]}.values()):
        names = list(call.tensors)
        alike = [dict.fromkeys(names, kind) for kind in KINDS]
        beside = [{**kinds, names[0]: torch.float32} for kinds in alike] if names[1:] else []
        beside += [{**kinds, names[-1]: torch.float32} for kinds in alike] if names[1:] else []
        free = call.values.keys() - call.row.when.keys()
        drawn = [n for n in call.values if n in free and type(call.values[n]) is float]
        for kinds, put in product([*alike, *beside], (None, 2, 16777217, True)):
            if put is not None and not drawn:
                continue
            kinds |= {n: torch.bool for n in names if n in {"condition", "mask"}}
            places = torch.cartesian_prod(*(torch.arange(len(SOME[kinds[n]])) for n in names))
            columns = places.view(-1, len(names)).T
            given = {n: SOME[kinds[n]][at] for n, at in zip(names, columns, strict=True)}
            values = {
                n: put if put is not None and n in drawn else x for n, x in call.values.items()
            }
            typed = msgspec.structs.replace(call, tensors=kinds, values=values)
            floats = torch.float16 if torch.float16 in kinds.values() else torch.float32
            if call.aten == "masked_fill.Tensor":
                given["value"] = given["value"][:1].expand_as(given["mask"]).contiguous()
            try:
                wanted = typed.torch(given, floats)
            except (RuntimeError, NotImplementedError):
                continue  # torch has no such call
            kind = "_".join(str(x)[6:] for x in kinds.values())
            yield Typed(f"{row}_{number}_{kind}_{put}", typed, given, wanted)


@cache
def typed_calls() -> dict[str, list[Typed]]:
    return {row: list({t.name: t for t in typed_calls_of(row)}.values()) for row in ROWS}


def typed_source(backend: Backend) -> str:
    functions = [each.function(backend) for typed in typed_calls().values() for each in typed]
    includes = "".join(f"#include <{n}>\n" for n in ("algorithm", "cmath", "cstdint", "cstring"))
    text = includes + helpers(list(ROWS), backend) + "\n".join(functions)
    return for_the_cpu(text) if backend == "cuda" else text


@pytest.fixture(scope="session")
def typed_libraries(compiled_folder: Path) -> Libraries:
    sources = {"cuda": partial(typed_source, "cuda"), "cpp": partial(typed_source, "cpp")}
    quick = [flag for flag in COMPILER if flag not in {"-O3", "-fopenmp"}]
    return Libraries([*quick, f"-I{EMULATION}"], sources, compiled_folder)


@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_operands_of_any_type_give_what_torch_gives(
    typed_libraries: Libraries, backend: Backend
) -> None:
    """Bools are added as bools, whole numbers as such; what no kernel does so stays in torch."""
    ran, wrong_ones = 0, []
    for typed in (each for calls_of_row in typed_calls().values() for each in calls_of_row):
        if not typed.function(backend):
            continue
        ran += 1
        out = torch.empty_like(typed.wanted, memory_format=torch.contiguous_format)
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (*typed.given.values(), out)]
        typed_libraries[backend][typed.name](*pointers, ctypes.c_long(out.numel()))
        near = torch.isclose(out, typed.wanted, rtol=1e-5, atol=1e-6, equal_nan=True)
        if not near.all():
            at = int((~near).nonzero()[0])
            operands = [x[at].item() for x in typed.given.values()]
            wrong_ones.append((typed.name, operands, out[at].item(), typed.wanted[at].item()))
    assert wrong_ones == []
    assert ran > len(ROWS)
