"""Norms of vectors, variances and the logarithm of a sum of exponentials, as simpler operators."""

import math
from collections.abc import Callable

from kernelgen.graph.graph import Argument, Node, Reference
from kernelgen.planning.rewrites.builder import Builder

_INF = "isinf.default"
_VECTOR_NORMS = (
    "linalg_vector_norm.default",
    "norm.Scalar",
    "norm.ScalarOpt_dim",
    "frobenius_norm.dim",
)
Results = Reference | tuple[Reference, ...] | None


def _dims(given: Argument) -> list[int] | None:
    if isinstance(given, tuple):
        return [d for d in given if isinstance(d, int)] or None
    return None if given is None or not isinstance(given, int) else [given]


def _vector_norm(node: Node, b: Builder) -> Results:
    x = node.arguments["self"]
    order = node.arguments.get("ord", node.arguments.get("p"))
    order = 2 if order is None else order
    if node.arguments.get("dtype") is not None:
        return None
    if not isinstance(order, int | float) or not order > 0:
        return None
    keep, dims = bool(node.arguments.get("keepdim", False)), _dims(node.arguments.get("dim"))
    return norm(b, x, float(order), dims, keepdim=keep)


def norm(
    b: Builder, x: Argument, order: float, dims: list[int] | None, *, keepdim: bool = False
) -> Reference:
    """Add the norm of vectors along dimensions; `order` is positive, infinity included."""
    if order == 2:  # noqa: PLR2004
        squares = b.reduce(
            "sum.dim_IntList", b.pointwise("square.default", x), dims, keepdim=keepdim
        )
        return b.pointwise("sqrt.default", squares)
    sizes = b.pointwise("abs.default", x)
    if math.isinf(order):
        return b.reduce("amax.default", sizes, dims, keepdim=keepdim)
    if order == 1:
        return b.reduce("sum.dim_IntList", sizes, dims, keepdim=keepdim)
    powers = b.pointwise("pow.Tensor_Scalar", sizes, order)
    total = b.reduce("sum.dim_IntList", powers, dims, keepdim=keepdim)
    return b.pointwise("pow.Tensor_Scalar", total, 1 / order)


def _variance(*, root: bool, mean: bool) -> Callable[[Node, Builder], Results]:
    def decompose(node: Node, b: Builder) -> Results:
        x = node.arguments["self"]
        correction = node.arguments.get("correction", node.arguments.get("unbiased", True))
        correction = 1 if correction is None else correction
        if not isinstance(correction, int | float):
            return None
        dims, keep = _dims(node.arguments.get("dim")), bool(node.arguments.get("keepdim", False))
        result = b.reduce("variance", x, dims, keepdim=keep, correction=float(correction))
        if root:
            result = b.pointwise("sqrt.default", result)
        if not mean:
            return result
        # Torch's mean is of the same pass, which takes inf from inf; of one value, its own.
        of_all = b.reduce("mean.dim", x, dims, keepdim=keep)
        return result, b.pointwise("where.self", b.pointwise(_INF, of_all), result, of_all)

    return decompose


def _logsumexp(node: Node, b: Builder) -> Results:
    x = node.arguments["self"]
    dims, keep = _dims(node.arguments["dim"]), bool(node.arguments["keepdim"])
    largest = b.reduce("amax.default", x, dims, keepdim=keep)
    total = b.reduce("sumexp", x, dims, keepdim=keep)
    result = b.pointwise("add.Tensor", b.pointwise("log.default", total), largest)
    # e^(inf - inf) is NaN; the logarithm of a sum with an infinite term is not.
    return b.pointwise("where.self", b.pointwise(_INF, largest), largest, result)


def _broadcast_tensors(node: Node, b: Builder) -> Results:
    """Return the tensors themselves, if they have one shape."""
    given = node.take("tensors", tuple)
    tensors = tuple(one for one in given if isinstance(one, Reference))
    return tensors if len({b.type_of(one).shape for one in tensors}) == 1 else None


STATISTICS = {
    "broadcast_tensors.default": _broadcast_tensors,
    **dict.fromkeys(_VECTOR_NORMS, _vector_norm),
    **{
        f"{name}{pair}.{overload}": _variance(root=name == "std", mean=bool(pair))
        for name in ("var", "std")
        for pair in ("", "_mean")
        for overload in ("default", "dim", "correction")
    },
    "logsumexp.default": _logsumexp,
}
