"""Operators of torch that are products of matrices."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kernelgen.engines.architectures import SIMPLE, Architecture
from kernelgen.engines.naming import without_overload
from kernelgen.engines.product.choice import ProductChoice, choose_product
from kernelgen.engines.product.record import MULTIPLIED, Product
from kernelgen.engines.rows import FLOATS
from kernelgen.engines.stage import Library, Operand, Result, Step, step_of
from kernelgen.graph.graph import MATRIX, Argument, Reference, TensorType

# Tensor cores multiply halves of fp32 values several times as fast as torch multiplies in fp32; to
# split the operands costs a little, and more the fewer rows share a weight.
LEAST_ROWS = 512
LEAST_SIZE = 128  # of columns, depth, and rows of a batch
LEAST_PRODUCTS = 1 << 31  # less is over before its kernels are launched
_LEAST_STREAMED = 1 << 23  # elements of the larger factor
_LEAST_MOVED = 1 << 22  # elements of the largest of the three, likewise
# The parameters of operators that are the two factors, and the bias.
_FACTORS: Mapping[str, tuple[str, ...]] = {
    "matmul.default": ("self", "other"),
    "mm.default": ("self", "mat2"),
    "bmm.default": ("self", "mat2"),
    "addmm.default": ("mat1", "mat2", "self"),
    "baddbmm.default": ("batch1", "batch2", "self"),
    "linear.default": ("input", "weight", "bias"),
}


class Factors(NamedTuple):
    """Values that an operator multiplies.

    Attributes:
        values: names of the two factors, and of a bias.
        turned: whether each factor has its last dimensions the other way round.
    """

    values: tuple[str, ...]
    turned: tuple[bool, bool]


def factors_of(stage: Library, types: Mapping[str, TensorType]) -> Factors | None:
    """Return what a stage of torch's multiplies; None if it is no product of tensors."""
    found = _factors(stage)
    values = tuple(one.name for one in found if isinstance(one, Reference) and one.name in types)
    if not found or len(values) != len(found):
        return None
    turned = (False, stage.aten == "linear.default")
    if stage.aten == "einsum.default":
        turned = _turned(str(stage.arguments["equation"])) or turned
    return Factors(values, turned)


def product_of(
    stage: Library, types: Mapping[str, TensorType], arch: Architecture | None
) -> Product | None:
    """Return a stage of torch's as a product, if it is one that a kernel does sooner.

    On a CPU, which has no architecture here, it may be any of float32: torch's library has a CPU's
    own instructions for products of 16 bits.
    """
    found = factors_of(stage, types)
    if found is None:
        return None
    values, turned = found
    (out,) = stage.types
    if out is None:
        return None
    left, right, *bias = (types[value] for value in values)
    if (
        left.dtype not in (FLOATS if arch else ("float32",))
        or any(one.dtype != left.dtype for one in (right, *bias, out))
        or min(len(left.shape), len(right.shape)) < MATRIX
        or any(one.shape != out.shape[-1:] for one in bias)
        or 0 in (*left.shape, *right.shape)
    ):
        return None
    rows = left.transposed() if turned[0] else left
    columns = right if turned[1] else right.transposed()
    # An einsum repeats a dimension of one, along which a product would sum.
    if rows.shape[-1] != columns.shape[-1]:
        return None
    fast = choose_product(rows, columns, arch or "sm_80", adds_up=not bias)
    if arch not in {None, SIMPLE} and not _pays(fast):
        return None
    operands = [
        Operand(name=name, value=value, type=one)
        for name, value, one in zip("ab", values, (left, right), strict=False)
    ]
    beside: tuple[Operand, ...] = ()
    epilogue: tuple[Step, ...] = ()
    if bias:
        added = Operand(name="bias", value=values[-1], type=bias[0])
        if arch is None:  # the C++ has an epilogue alone
            beside = (msgspec.structs.replace(added, pattern="along", span=(-1, 0)),)
            epilogue = (step_of("biased", "add", MULTIPLIED, "bias"),)
        else:
            operands.append(added)
    aten = "matmul" if stage.aten == "einsum.default" else without_overload(stage.aten)
    return Product(
        name=aten,
        aten=aten,
        shape=out.shape,
        turned=turned,
        operands=tuple(operands),
        beside=beside,
        epilogue=epilogue,
        results=(Result(value=stage.name, of="biased" if epilogue else MULTIPLIED, type=out),),
        fast=fast if arch is not None else msgspec.structs.replace(fast, kernel="none", runs=1),
    )


def _factors(stage: Library) -> list[Argument]:
    """Return the factors of a stage's product and its bias; nothing if it is no product."""
    if stage.aten == "einsum.default":
        tensors = stage.arguments["tensors"]
        is_product = _turned(str(stage.arguments["equation"])) is not None
        return [*tensors] if is_product and isinstance(tensors, tuple) else []
    names = _FACTORS.get(stage.aten, ())
    if any(stage.arguments.get(key, 1) != 1 for key in ("alpha", "beta")):
        return []
    return [found for name in names if (found := stage.arguments.get(name)) is not None]


def _turned(equation: str) -> tuple[bool, bool] | None:
    """Return whether an einsum's factors are transposed; None if it is no product of matrices."""
    found = re.fullmatch(r"([a-z]+),([a-z]+)->([a-z]+)", equation.replace(" ", ""))
    if found is None or len(found[3]) < MATRIX:
        return None
    left, right = found[1], found[2]
    *batch, row, column = list(found[3])
    depth = "".join(sorted(set(left) - set(found[3])))
    if len(depth) != 1 or len({*batch, row, column}) != len(found[3]):
        return None
    turned = []
    for letters, first, last in ((left, row, depth), (right, depth, column)):
        *lead, one, other = list(letters.rjust(MATRIX))
        if lead not in ([], batch) or {one, other} != {first, last}:
            return None
        turned.append(one != first)
    return (turned[0], turned[1]) if {*batch} <= {*left, *right} else None


def _pays(p: ProductChoice) -> bool:
    """Whether a product is large enough for its kernel to be sooner done than torch's."""
    match p.kernel:
        case "none":
            return False
        case "skinny":
            # A row alone is as fast in fp32, and a smaller matrix is read before its kernels begin.
            return (
                min(p.rows, p.columns) > 1
                and p.batches * p.depth * max(p.rows, p.columns) >= _LEAST_STREAMED
            )
        case "hopper" | "narrow":
            large = p.batches * p.rows * p.columns * p.depth >= LEAST_PRODUCTS
            # Runs are done at once, as a batch of products is.
            large &= p.batches * p.rows >= LEAST_ROWS
            # Of a batch's rows, and of the columns, tiles are to be full.
            return large and min(p.rows, p.columns, p.depth) >= LEAST_SIZE
        case _:
            largest = max(p.rows * p.depth, p.columns * p.depth, p.rows * p.columns)
            return p.batches * largest >= _LEAST_MOVED
