"""The pointwise operators: one table, of which a row says how C computes an ATen operator.

A new operator is one row of OPERATORS, with a function in templates/functions/activations.*.jinja where its
formula is long; tests/test_operators.py holds each row to torch.
"""

# ruff: noqa: E501 - a row of the table is a line

import ctypes
import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from kernelgen.engines.precedence import fill
from kernelgen.problem.record import Backend

REQUIRED: Final = object()  # stands for the default of a parameter that has none
FLOAT_MIN: Final = 2.0**-126
NARROW: Final[tuple[Literal["bfloat16", "float16"], ...]] = ("bfloat16", "float16")
Number: TypeAlias = float | int | bool


class Operator(msgspec.Struct, frozen=True):
    """A pointwise operator: a row of the table.

    An expression names each parameter at most once, so that expressions nest without growing.

    Attributes:
        name: its own, unlike any other's.
        called: what ATen calls it, with spaces; not in place, which is normalised before.
        parameters: ATen's, in its order, with their defaults.
        cuda: an expression of `{parameter}`.
        own_cpp: the same for C++, where it is not CUDA's with the functions of <cmath>.
        when: values that parameters must have for this row; of rows that suit, that with the most.
        takes: "float" where operands are to be float32 (a bool is 0 or 1), "bool" where all are
            bool, "any" where they are float32, bool or int64.
        result: its type; "like" is the type that its operands share.
        ulps, least: the error against float64 is at most `ulps` * 2^-23 of the exact result, of
            `least` where that is smaller. With several terms, of the largest of them.
    """

    name: str
    called: str
    parameters: Mapping[str, object]
    cuda: str
    own_cpp: str = ""
    when: Mapping[str, object] = {}
    takes: Literal["float", "bool", "any"] = "float"
    result: Literal["float", "bool", "int64", "bfloat16", "float16", "like"] = "float"
    ulps: int = 1
    least: float = FLOAT_MIN

    @property
    def aten(self) -> list[str]:
        """The parameter's name in ATen."""
        return self.called.split()

    @property
    def cpp(self) -> str:
        """An expression of `{parameter}` in C++."""
        return self.own_cpp or _STANDARD.sub(lambda m: f"std::{m[1] or m[2]}(", self.cuda)

    def expression(
        self, backend: Backend, arguments: Mapping[str, str | Number], *, double: bool = False
    ) -> str:
        """Return the C expression; text among the arguments is C, numbers become literals.

        With `double`, CUDA's functions are those for doubles; C++'s take either.
        """
        whole = self.takes == "any"  # or not a float
        texts = {
            n: v if isinstance(v, str) else literal(v, whole=whole) for n, v in arguments.items()
        }
        cuda = _OF_FLOATS.sub(r"\1(", self.cuda) if double else self.cuda
        return fill(cuda if backend == "cuda" else self.cpp, texts)

    def reads(self, parameter: str) -> bool:
        """Return whether a parameter stands in an expression."""
        return f"{{{parameter}}}" in self.cuda + self.cpp

    def suits(self, arguments: Mapping[str, object]) -> bool:
        """Return whether the row is for arguments with these values, defaults filled in."""
        return (
            arguments.keys() == self.parameters.keys()
            and not any(value is REQUIRED for value in arguments.values())
            and all(_equal(arguments[name], value) for name, value in self.when.items())
            and not any(arguments[name] is None for name in _PLACE.findall(self.cuda))
        )


def is_cast(name: str) -> bool:
    """Whether a row only changes the type of floats."""
    return name.startswith("to_") and name.endswith(("float", "bfloat16", "float16"))


def operator_for(
    aten: str, arguments: Mapping[str, object]
) -> tuple[Operator, dict[str, object]] | None:
    """Return the row for an ATen operator, and its arguments with the defaults filled in.

    Args:
        aten: name and overload, such as "gelu.default".
        arguments: by ATen's names; what is neither a number, text nor None is opaque.

    A division by a number is a product with its inverse, as on torch's CUDA devices: the branches
    of a division keep a thread from doing several at once.
    """
    for row in _ROWS.get(aten, ()):
        whole = {**row.parameters, **arguments}
        if row.suits(whole):
            by = whole.get("other") if row.name in {"div", "div_exact"} else None
            if isinstance(by, int | float) and FLOAT_MIN < abs(by) < 1 / FLOAT_MIN:
                return BY_NAME["mul"], {"self": whole["self"], "other": 1 / by}
            return row, whole
    return None


def literal(value: Number, *, whole: bool = False) -> str:
    """Return a number as C writes it: the shortest text of the nearest float32, or a bool.

    With `whole`, an int stays one, of at most 64 bits.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if whole and isinstance(value, int):
        return "INT64_MIN" if value == -(2**63) else str(value)
    if math.isnan(value):
        return "NAN"
    nearest = _float32(value)
    if math.isinf(nearest):
        return "INFINITY" if nearest > 0 else "-INFINITY"
    texts = (repr(float(f"{nearest:.{digits}g}")) for digits in range(1, 10))
    return next(text for text in texts if _float32(float(text)) == nearest) + "f"


def _float32(value: float) -> float:
    return ctypes.c_float(value).value


def _equal(value: object, wanted: object) -> bool:
    """Compare what has a value; a dtype by its name."""
    if isinstance(wanted, str):
        return str(value).removeprefix("torch.") == wanted
    return isinstance(value, int | float | None) and value == wanted


_PLACE = re.compile(r"\{(\w+)\}")
_STANDARD = re.compile(
    r"\b(fabs|sqrt|pow|exp2|sin|cos|tan|asin|acos|atan|atan2|sinh|cosh|floor|ceil|trunc|rint|fmod"
    r"|copysign|hypot)f\(|\b(isnan|isinf|isfinite)\("
)
_OF_FLOATS = re.compile(r"\b(?!isinf)([a-z]\w*)f\(")
X: Final = {"self": REQUIRED}
XY: Final = {"self": REQUIRED, "other": REQUIRED}
_TENSOR = {"dtype": None, "layout": None, "device": None, "pin_memory": None}


def _casts() -> Iterable[Operator]:
    layout = {"non_blocking": False, "copy": False, "memory_format": None}
    copied: dict[str, object] = {**X, **_TENSOR, "non_blocking": False, "memory_format": None}
    forms: dict[str, dict[str, object]] = {
        "to.dtype": {**X, "dtype": REQUIRED, **layout},
        "to.dtype_layout": {**X, **_TENSOR, **layout},
        "_to_copy.default": copied,
    }
    texts: dict[Literal["float", "bool", "int64", "bfloat16", "float16"], str] = {
        "float": "float({self})", "bool": "{self} != 0.0f", "int64": "int64_t({self})",
        "bfloat16": "float(bfloat16({self}))", "float16": "float(float16({self}))",
    }  # fmt: skip
    for aten, parameters in forms.items():
        stem = aten.removesuffix(".default").replace(".", "_").strip("_")
        for result, text in texts.items():
            when = {"dtype": "float32" if result == "float" else result}
            yield Operator(
                f"{stem}_{result}", aten, parameters, text, when=when, takes="any", result=result
            )
        if aten != "to.dtype":
            yield Operator(
                stem, aten, parameters, "{self}", when={"dtype": None}, takes="any", result="like"
            )
    for stored in NARROW:
        mark: dict[str, object] = {"dtype": stored, "non_blocking": True}
        name, aten = f"stored_{stored}", "_to_copy.default"
        yield Operator(name, aten, copied, "{self}", when=mark, result=stored)


MEMORY: dict[str, object] = {"memory_format": None}
LIKE: dict[str, object] = {**X, **_TENSOR, **MEMORY}
ALPHA = {**XY, "alpha": 1}
ROUNDED = {**XY, "rounding_mode": REQUIRED}
POWER = {**X, "exponent": REQUIRED}
CLAMP = {**X, "min": None, "max": None}
ELU = {**X, "alpha": 1, "scale": 1, "input_scale": 1}
WHERE = {"condition": REQUIRED, **XY}
TERMS = {**X, "tensor1": REQUIRED, "tensor2": REQUIRED, "value": 1}
NAN_TO_NUM = {**X, "nan": None, "posinf": None, "neginf": None}

# fmt: off
OPERATORS: Final[tuple[Operator, ...]] = (
    # Operators that change nothing, or only where it lies.
    Operator("identity", "alias.default detach.default lift_fresh_copy.default", X, "{self}", takes="any", result="like"),
    Operator("clone", "clone.default", {**X, **MEMORY}, "{self}", takes="any", result="like"),
    Operator("contiguous", "contiguous.default", {**X, "memory_format": 0}, "{self}", takes="any", result="like"),
    *_casts(),
    Operator("zeros_like", "zeros_like.default", LIKE, "0.0f", when={"dtype": None}),
    Operator("ones_like", "ones_like.default", LIKE, "1.0f", when={"dtype": None}),
    Operator("full_like", "full_like.default", {**X, "fill_value": REQUIRED, **_TENSOR, **MEMORY}, "{fill_value}", when={"dtype": None}),
    # Arithmetic.
    Operator("add", "add.Tensor add.Scalar", ALPHA, "{self} + {other}", when={"alpha": 1}),
    Operator("add_scaled", "add.Tensor add.Scalar", ALPHA, "{self} + {alpha} * {other}", ulps=2),
    Operator("sub", "sub.Tensor sub.Scalar subtract.Tensor subtract.Scalar", ALPHA, "{self} - {other}", when={"alpha": 1}),
    Operator("sub_scaled", "sub.Tensor sub.Scalar subtract.Tensor subtract.Scalar", ALPHA, "{self} - {alpha} * {other}", ulps=2),
    Operator("rsub", "rsub.Tensor rsub.Scalar", ALPHA, "{other} - {self}", when={"alpha": 1}),
    Operator("rsub_scaled", "rsub.Tensor rsub.Scalar", ALPHA, "{other} - {alpha} * {self}", ulps=2),
    Operator("mul", "mul.Tensor mul.Scalar multiply.Tensor multiply.Scalar", XY, "{self} * {other}"),
    Operator("div", "div.Tensor div.Scalar divide.Tensor divide.Scalar true_divide.Tensor true_divide.Scalar", XY, "{self} / {other}"),
    Operator("div_exact", "div.Tensor_mode div.Scalar_mode divide.Tensor_mode divide.Scalar_mode", ROUNDED, "{self} / {other}", when={"rounding_mode": None}),
    Operator("div_trunc", "div.Tensor_mode div.Scalar_mode divide.Tensor_mode divide.Scalar_mode", ROUNDED, "truncf({self} / {other})", when={"rounding_mode": "trunc"}),
    Operator("div_floor", "div.Tensor_mode div.Scalar_mode divide.Tensor_mode divide.Scalar_mode", ROUNDED, "floor_divide({self}, {other})", when={"rounding_mode": "floor"}),
    Operator("floor_divide", "floor_divide.default floor_divide.Scalar", XY, "floor_divide({self}, {other})"),
    Operator("fmod", "fmod.Tensor fmod.Scalar", XY, "fmodf({self}, {other})"),
    Operator("remainder", "remainder.Tensor remainder.Scalar", XY, "floor_remainder({self}, {other})", ulps=2),
    Operator("addcmul", "addcmul.default", TERMS, "{self} + {tensor1} * {tensor2}", when={"value": 1}, ulps=2),
    Operator("addcmul_scaled", "addcmul.default", TERMS, "{self} + {value} * {tensor1} * {tensor2}", ulps=3),
    Operator("addcdiv", "addcdiv.default", TERMS, "{self} + {tensor1} / {tensor2}", when={"value": 1}, ulps=2),
    Operator("addcdiv_scaled", "addcdiv.default", TERMS, "{self} + {value} * {tensor1} / {tensor2}", ulps=3),
    Operator("lerp", "lerp.Scalar lerp.Tensor", {**X, "end": REQUIRED, "weight": REQUIRED}, "interpolate({self}, {end}, {weight})", ulps=4),
    Operator("neg", "neg.default negative.default", X, "-{self}"),
    Operator("abs", "abs.default absolute.default", X, "fabsf({self})"),
    Operator("sign", "sign.default sgn.default", X, "sign({self})"),
    Operator("reciprocal", "reciprocal.default", X, "1.0f / {self}"),
    Operator("square", "square.default", X, "square({self})"),
    Operator("sqrt", "sqrt.default", X, "sqrtf({self})"),
    Operator("rsqrt", "rsqrt.default", X, "rsqrtf({self})", "1.0f / std::sqrt({self})", ulps=2),
    Operator("hypot", "hypot.default", XY, "hypotf({self}, {other})", ulps=3),
    # Powers.
    Operator("pow_1", "pow.Tensor_Scalar", POWER, "{self}", when={"exponent": 1}),
    Operator("pow_2", "pow.Tensor_Scalar", POWER, "square({self})", when={"exponent": 2}),
    Operator("pow_3", "pow.Tensor_Scalar", POWER, "cube({self})", when={"exponent": 3}, ulps=2),
    Operator("pow_half", "pow.Tensor_Scalar", POWER, "sqrtf({self})", when={"exponent": 0.5}),
    Operator("pow_minus_half", "pow.Tensor_Scalar", POWER, "rsqrtf({self})", "1.0f / std::sqrt({self})", when={"exponent": -0.5}, ulps=2),
    Operator("pow_minus_1", "pow.Tensor_Scalar", POWER, "1.0f / {self}", when={"exponent": -1}),
    Operator("pow_minus_2", "pow.Tensor_Scalar", POWER, "1.0f / square({self})", when={"exponent": -2}, ulps=3, least=1e-30),
    Operator("pow", "pow.Tensor_Scalar pow.Scalar pow.Tensor_Tensor", POWER, "powf({self}, {exponent})", ulps=8),
    # Exponentials and logarithms.
    Operator("exp", "exp.default", X, "expf({self})", "full_exp({self})", ulps=4),
    Operator("exp2", "exp2.default", X, "exp2f({self})", ulps=2),
    Operator("expm1", "expm1.default", X, "expm1f({self})", "fast_expm1({self})", ulps=6),
    Operator("log", "log.default", X, "logf({self})", "fast_log({self})", ulps=2),
    Operator("log2", "log2.default", X, "log2f({self})", "fast_log({self}) * 1.44269504f", ulps=3),
    Operator("log10", "log10.default", X, "log10f({self})", "fast_log({self}) * 0.434294482f", ulps=3),
    Operator("log1p", "log1p.default", X, "log1pf({self})", "fast_log1p({self})", ulps=3),
    Operator("logaddexp", "logaddexp.default", XY, "logaddexp({self}, {other})", ulps=4, least=1e-30),
    Operator("log_sigmoid", "log_sigmoid.default", X, "log_sigmoid({self})", ulps=6, least=1e-30),
    Operator("sigmoid", "sigmoid.default", X, "sigmoid({self})", ulps=4, least=1e-30),
    Operator("softplus", "softplus.default", {**X, "beta": 1, "threshold": 20}, "softplus({self}, {beta}, {threshold})", ulps=32, least=1e-25),
    # Trigonometry and hyperbolic functions.
    Operator("sin", "sin.default", X, "sinf({self})", ulps=2),
    Operator("cos", "cos.default", X, "cosf({self})", ulps=2),
    Operator("tan", "tan.default", X, "tanf({self})", ulps=4),
    Operator("asin", "asin.default arcsin.default", X, "asinf({self})", ulps=2),
    Operator("acos", "acos.default arccos.default", X, "acosf({self})", ulps=2),
    Operator("atan", "atan.default arctan.default", X, "atanf({self})", ulps=2),
    Operator("atan2", "atan2.default arctan2.default", XY, "atan2f({self}, {other})", ulps=3),
    Operator("sinh", "sinh.default", X, "sinhf({self})", ulps=3),
    Operator("cosh", "cosh.default", X, "coshf({self})", ulps=2),
    Operator("tanh", "tanh.default", X, "fast_tanh({self})", ulps=5),
    Operator("erf", "erf.default special_erf.default", X, "erff({self})", "fast_erf({self})", ulps=3),
    Operator("erfc", "erfc.default special_erfc.default", X, "erfcf({self})", "fast_erfc({self})", ulps=24, least=1e-20),
    # Activations.
    Operator("relu", "relu.default", X, "relu({self})"),
    Operator("relu6", "relu6.default", X, "clamp({self}, 0.0f, 6.0f)"),
    Operator("leaky_relu", "leaky_relu.default", {**X, "negative_slope": 0.01}, "leaky_relu({self}, {negative_slope})"),
    Operator("elu", "elu.default", ELU, "elu({self}, {alpha})", when={"scale": 1, "input_scale": 1}, ulps=5),
    Operator("celu", "celu.default", {**X, "alpha": 1.0}, "celu({self}, {alpha})", ulps=8),
    Operator("selu", "selu.default", X, "selu({self})", ulps=6),
    Operator("silu", "silu.default", X, "silu({self})", ulps=5, least=1e-30),
    Operator("mish", "mish.default", X, "mish({self})", ulps=8, least=1e-30),
    Operator("gelu", "gelu.default", {**X, "approximate": "none"}, "gelu_erfc({self})", when={"approximate": "none"}, ulps=32, least=1e-9),
    Operator("gelu_tanh", "gelu.default", {**X, "approximate": "none"}, "gelu_tanh({self})", when={"approximate": "tanh"}, ulps=32, least=1e-8),
    Operator("hardtanh", "hardtanh.default", {**X, "min_val": -1, "max_val": 1}, "clamp({self}, {min_val}, {max_val})"),
    Operator("hardsigmoid", "hardsigmoid.default", X, "clamp({self} + 3.0f, 0.0f, 6.0f) * 0.16666667f", ulps=2),
    Operator("hardswish", "hardswish.default", X, "hardswish({self})", ulps=3),
    Operator("hardshrink", "hardshrink.default", {**X, "lambd": 0.5}, "hardshrink({self}, {lambd})"),
    Operator("softshrink", "softshrink.default", {**X, "lambd": 0.5}, "softshrink({self}, {lambd})"),
    Operator("threshold", "threshold.default", {**X, "threshold": REQUIRED, "value": REQUIRED}, "threshold({self}, {threshold}, {value})"),
    # Bounds and rounding.
    Operator("clamp", "clamp.default clip.default", CLAMP, "clamp({self}, {min}, {max})"),
    Operator("clamp_tensor", "clamp.Tensor clip.Tensor", CLAMP, "minimum(maximum({self}, {min}), {max})"),
    Operator("clamp_only_min", "clamp.default clamp.Tensor clip.default clip.Tensor", CLAMP, "maximum({self}, {min})", when={"max": None}),
    Operator("clamp_only_max", "clamp.default clamp.Tensor clip.default clip.Tensor", CLAMP, "minimum({self}, {max})", when={"min": None}),
    Operator("clamp_min", "clamp_min.default clamp_min.Tensor", {**X, "min": REQUIRED}, "maximum({self}, {min})"),
    Operator("clamp_max", "clamp_max.default clamp_max.Tensor", {**X, "max": REQUIRED}, "minimum({self}, {max})"),
    Operator("maximum", "maximum.default max.other", XY, "maximum({self}, {other})"),
    Operator("minimum", "minimum.default min.other", XY, "minimum({self}, {other})"),
    Operator("floor", "floor.default", X, "floorf({self})"),
    Operator("ceil", "ceil.default", X, "ceilf({self})"),
    Operator("trunc", "trunc.default fix.default", X, "truncf({self})"),
    Operator("round", "round.default", X, "rintf({self})"),
    Operator("frac", "frac.default", X, "frac({self})"),
    # Choices, comparisons and logic.
    Operator("where", "where.self where.ScalarSelf where.ScalarOther where.Scalar", WHERE, "{condition} ? {self} : {other}", result="like"),
    Operator("masked_fill", "masked_fill.Scalar masked_fill.Tensor", {**X, "mask": REQUIRED, "value": REQUIRED}, "{mask} ? {value} : {self}", result="like"),
    Operator("nan_to_num", "nan_to_num.default", NAN_TO_NUM, "nan_to_num({self}, {nan}, {posinf}, {neginf})"),
    Operator("nan_to_num_finite", "nan_to_num.default", NAN_TO_NUM, "nan_to_num({self}, 0.0f, 3.40282347e+38f, -3.40282347e+38f)", when={"nan": None, "posinf": None, "neginf": None}),
    Operator("eq", "eq.Tensor eq.Scalar", XY, "{self} == {other}", takes="any", result="bool"),
    Operator("ne", "ne.Tensor ne.Scalar not_equal.Tensor not_equal.Scalar", XY, "{self} != {other}", takes="any", result="bool"),
    Operator("lt", "lt.Tensor lt.Scalar less.Tensor less.Scalar", XY, "{self} < {other}", takes="any", result="bool"),
    Operator("le", "le.Tensor le.Scalar less_equal.Tensor less_equal.Scalar", XY, "{self} <= {other}", takes="any", result="bool"),
    Operator("gt", "gt.Tensor gt.Scalar greater.Tensor greater.Scalar", XY, "{self} > {other}", takes="any", result="bool"),
    Operator("ge", "ge.Tensor ge.Scalar greater_equal.Tensor greater_equal.Scalar", XY, "{self} >= {other}", takes="any", result="bool"),
    Operator("logical_and", "logical_and.default", XY, "{self} && {other}", takes="any", result="bool"),
    Operator("logical_or", "logical_or.default", XY, "{self} || {other}", takes="any", result="bool"),
    Operator("logical_xor", "logical_xor.default", XY, "bool({self}) != bool({other})", takes="any", result="bool"),
    Operator("logical_not", "logical_not.default", X, "!{self}", takes="any", result="bool"),
    Operator("bitwise_and", "bitwise_and.Tensor __and__.Tensor", XY, "{self} && {other}", takes="bool", result="bool"),
    Operator("bitwise_or", "bitwise_or.Tensor __or__.Tensor", XY, "{self} || {other}", takes="bool", result="bool"),
    Operator("bitwise_xor", "bitwise_xor.Tensor __xor__.Tensor", XY, "{self} != {other}", takes="bool", result="bool"),
    Operator("bitwise_not", "bitwise_not.default", X, "!{self}", takes="bool", result="bool"),
    Operator("isnan", "isnan.default", X, "isnan({self})", result="bool"),
    Operator("isinf", "isinf.default", X, "isinf({self})", result="bool"),
    Operator("isfinite", "isfinite.default", X, "isfinite({self})", result="bool"),
)
# fmt: on
BY_NAME: Final = {operator.name: operator for operator in OPERATORS}
_ROWS: dict[str, list[Operator]] = {}
for _operator in sorted(OPERATORS, key=lambda row: -len(row.when)):
    for _aten in _operator.aten:
        _ROWS.setdefault(_aten, []).append(_operator)
