"""Calls of each row of kernelgen's table of operators, as C functions and as torch's."""

import ctypes
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
import torch

from kernelgen.engines.operators import FLOAT_MIN, OPERATORS, REQUIRED, Operator
from kernelgen.engines.text.functions import helpers
from kernelgen.problem.record import Backend

C_TYPES = {torch.float32: "float", torch.bool: "bool", torch.int64: "int64_t"}
NARROW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
IN_C = C_TYPES | NARROW
RESULTS = {"float": torch.float32, "bool": torch.bool, "int64": torch.int64}
RESULTS |= {name: kind for kind, name in NARROW.items()}
# Arguments that a call passes where ATen has no default, or another value than the default.
VALUES: dict[str, object] = {
    "alpha": 1,
    "end": 1.25,
    "exponent": 2.7,
    "fill_value": 0.3,
    "max": 1.5,
    "min": -0.7,
    "nan": 7.0,
    "neginf": -8.0,
    "other": 0.75,
    "p": 0.5,
    "posinf": 9.0,
    "self": 1.7,
    "threshold": 0.1,
    "train": True,
    "value": 20.0,
    "weight": 0.3,
}
SCALED: list[dict[str, Any]] = [{"alpha": 0.7}, {"alpha": -3}]
CASES: dict[str, list[dict[str, Any]]] = {
    "add_scaled": SCALED,
    "sub_scaled": SCALED,
    "rsub_scaled": SCALED,
    "addcmul": [{"value": 1}],
    "addcmul_scaled": [{"value": 0.3}],
    "addcdiv": [{"value": 1}],
    "addcdiv_scaled": [{"value": -1.9}],
    "lerp": [{"weight": 0.3}, {"weight": 0.8}, {"weight": -2.0}],
    "pow": [{"exponent": n} for n in (2.7, 4, -3, 0.3, 0)],
    "clamp": [{}, {"min": 1.0, "max": -1.0}, {"min": 0, "max": float("inf")}],
    "leaky_relu": [{}, {"negative_slope": -0.2}, {"negative_slope": 0}],
    "elu": [{}, {"alpha": 1.3}, {"alpha": -0.4}],
    "celu": [{}, {"alpha": 1.3}, {"alpha": 0.4}],
    "hardtanh": [{}, {"min_val": -2.5, "max_val": 0.3}],
    "hardshrink": [{}, {"lambd": 0.3}, {"lambd": 0}],
    "softshrink": [{}, {"lambd": 0.3}, {"lambd": 0}],
    "softplus": [{}, {"beta": 0.7}, {"beta": 2, "threshold": 5}, {"threshold": 80}],
    "masked_fill": [{"value": float("-inf")}, {"value": 0}],
    "to_dtype_layout": [{"dtype": None}],
    "_to_copy": [{"dtype": None}],
}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one of a row's ATen operators.

    Attributes:
        tensors: which arguments are tensors, and of which type; the others are in `values`.
    """

    name: str
    row: Operator
    aten: str
    tensors: Mapping[str, torch.dtype]
    values: Mapping[str, Any]

    @property
    def result(self) -> torch.dtype:
        """Return the type of the result."""
        if self.row.result != "like":
            return RESULTS[self.row.result]
        named = [kind for name, kind in self.tensors.items() if name not in {"condition", "mask"}]
        return named[0] if named else torch.float32

    def function(self, backend: Backend) -> str:
        """Return a C function of the call, in one line but for its loop."""
        values = {name: x for name, x in self.values.items() if isinstance(x, int | float)}
        text = self.row.expression(backend, {**values, **{n: f"{n}[i]" for n in self.tensors}})
        tensors = [f"const {C_TYPES[kind]}* {name}, " for name, kind in self.tensors.items()]
        return (
            f'extern "C" void {self.name}({"".join(tensors)}{IN_C[self.result]}* out, long n) {{'
            f"\n#pragma omp simd\n  for (long i = 0; i < n; ++i) out[i] = {text};\n}}\n"
        )

    def run(self, library: ctypes.CDLL, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what the C function computes."""
        count = next(iter(given.values())).numel()
        out = torch.empty(count, dtype=self.result)
        pointers = [ctypes.c_void_p(given[name].data_ptr()) for name in self.tensors]
        library[self.name](*pointers, ctypes.c_void_p(out.data_ptr()), ctypes.c_long(count))
        return out

    def torch(self, given: Mapping[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        """Return what torch computes, with floats of a type."""
        tensors = {
            name: x.to(dtype) if x.is_floating_point() else x
            for name, x in given.items()
            if name in self.tensors
        }
        values = dict(self.values)
        if isinstance(values.get("dtype"), str):
            values["dtype"] = getattr(torch, values["dtype"])
        if self.aten.startswith("contiguous"):
            values["memory_format"] = torch.contiguous_format
        if self.aten == "masked_fill.Tensor":
            tensors["value"] = tensors["value"][0]
        whole = {**values, **tensors}
        arguments = schema(self.aten)
        positional = [whole[each.name] for each in arguments if not each.kwarg_only]
        named = {each.name: whole[each.name] for each in arguments if each.kwarg_only}
        result = overload(self.aten)(*positional, **named)
        assert isinstance(result, torch.Tensor)
        return result


def overload(aten: str) -> Any:
    name, which = aten.split(".")
    return getattr(getattr(torch.ops.aten, name), which)


def schema(aten: str) -> Any:
    return overload(aten)._schema.arguments  # noqa: SLF001 - torch shows it nowhere else


def nearest(value: Any) -> Any:
    """Return a float as float32 has it, so that torch means the same in float64."""
    if isinstance(value, float):
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


def calls_of(row: Operator) -> Iterator[Call]:
    """Yield a call for each ATen operator, each case and each type of operands."""
    kinds = {"float": [torch.float32], "bool": [torch.bool], "any": list(C_TYPES)}[row.takes]
    for aten in row.aten:
        declared = {each.name: each.type for each in schema(aten)}
        optional = {n for n, kind in declared.items() if str(kind) == "Optional[Tensor]"}
        wanted = {n for n in optional if f"{{{n}}}" in row.cuda}
        tensors = {n for n, kind in declared.items() if str(kind) == "Tensor"} | wanted
        for kind in kinds:
            for case in CASES.get(row.name, [{}]):
                types = {
                    n: torch.bool if n in {"condition", "mask"} else kind
                    for n in declared
                    if n in tensors
                }
                values = {}
                for name, default in row.parameters.items():
                    value = VALUES.get(name) if default in {None, REQUIRED} else default
                    value = row.when.get(name, case.get(name, value))
                    values[name] = nearest(value)
                name = f"{row.name}_{aten}_{len(values)}".replace(".", "_")
                yield Call(
                    name=name, row=row, aten=aten, tensors=types,
                    values={n: x for n, x in values.items() if n not in types},
                )  # fmt: skip


@cache
def calls() -> dict[str, list[Call]]:
    """Return all calls by the name of their row, each with a name of its own."""
    found = {row.name: list(calls_of(row)) for row in OPERATORS}
    return {
        name: [msgspec.structs.replace(call, name=f"{name}_{n}_") for n, call in enumerate(each)]
        for name, each in found.items()
    }


def source(backend: Backend) -> str:
    """Return one source of all calls."""
    functions = [call.function(backend) for each in calls().values() for call in each]
    includes = "".join(f"#include <{n}>\n" for n in ("algorithm", "cmath", "cstdint", "cstring"))
    return includes + helpers([row.name for row in OPERATORS], backend) + "\n".join(functions)


EDGES = (
    *(0.0, 1e-45, 1e-40, FLOAT_MIN, 1e-30, 1e-20, 1e-10, 1e-7, 1e-5, 1e-3, 0.1, 0.3, 0.5, 0.7, 1.0),
    *(1.5, 2.0, 2.5, 3.0, 5.0, 6.0, 8.0, 9.0, 10.0, 17.0, 20.0, 30.0, 80.0, 87.3, 88.0, 88.4, 88.7),
    *(88.73, 89.0, 100.0, 104.0, 127.0, 128.0, 150.0, 8388608.0, 16777216.0, 1e10, 1e19, 1e30),
    *(1.7e38, 3.4028235e38, float("inf"), float("nan")),
)


@cache
def samples(dtype: torch.dtype, operands: int) -> tuple[torch.Tensor, ...]:
    """Return operands that together meet all edges, and the whole range at random."""
    random = torch.Generator().manual_seed(29)
    if dtype != torch.float32:
        highest = 2 if dtype == torch.bool else 7
        drawn = torch.randint(0, highest, (operands, 1001), generator=random)
        return tuple((drawn if dtype == torch.bool else drawn - 3).to(dtype))
    edges = torch.tensor(EDGES)
    infinity = torch.tensor(float("inf"))
    near = torch.cat([edges, edges.nextafter(infinity), edges.nextafter(-infinity)])
    near = torch.cat([near, -near])
    bits = torch.arange(-(2**31), 2**31, 60013 if operands == 1 else 90001).to(torch.int32)
    whole = bits.view(torch.float32)
    some = edges[::3] if operands == 3 else near if operands == 1 else torch.cat([edges, -edges])
    met = torch.cartesian_prod(*[torch.cat([some, -some])] * operands).view(-1, operands).T
    parts = [met]
    parts += [torch.randn((operands, 20_001), generator=random) * n for n in (1.0, 30.0)]
    order = [torch.randperm(len(whole), generator=random) for _ in range(operands)]
    parts.append(torch.stack([whole[each] for each in order]))
    return tuple(each.contiguous() for each in torch.cat(parts, dim=1))


def operands_of(call: Call) -> dict[str, torch.Tensor]:
    kinds = list(call.tensors.values())
    main = next((kind for kind in reversed(kinds) if kind != torch.bool), torch.bool)
    drawn = samples(main, len(kinds))
    given = dict(zip(call.tensors, drawn, strict=True))
    if call.result == torch.int64 and main == torch.float32:  # elsewhere C++ says nothing
        given = {n: x[x.abs() < 2.0**62] for n, x in given.items()}
    if call.aten == "masked_fill.Tensor":
        given["value"] = torch.full_like(given["value"], 0.6)  # torch wants one value
    return {
        n: x > 0 if kind != x.dtype else x
        for (n, x), kind in zip(given.items(), kinds, strict=True)
    }
