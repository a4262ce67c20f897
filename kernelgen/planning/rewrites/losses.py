"""Losses as pointwise operators and reductions."""

from collections.abc import Callable, Mapping

import msgspec

from kernelgen.graph.graph import Argument, Graph, Node, Reference
from kernelgen.planning.rewrites.builder import Builder
from kernelgen.planning.rewrites.statistics import norm

_NONE, _MEAN, _SUM = 0, 1, 2  # torch's numbers of reductions
_BOTH = ("self", "other")  # are of one shape
_EPSILON = 1e-12  # of cosine_embedding_loss

Loss = Callable[[Node, Builder], Reference | None]


def _reduced(loss: Loss) -> Loss:
    """Return a loss that ends in the reduction that the call names."""

    def decompose(node: Node, b: Builder) -> Reference | None:
        values = [v for v in node.arguments.values() if isinstance(v, Reference)]
        types = [b.type_of(v).dtype for v in values]
        if node.type.dtype != "float32" or not {*types} <= {"float32", "int64"}:
            return None
        terms = loss(node, b)
        return None if terms is None else _total(b, terms, node.arguments["reduction"])

    return decompose


def _total(b: Builder, terms: Reference, reduction: Argument) -> Reference:
    if reduction == _NONE:
        return terms
    return b.reduce("mean.dim" if reduction == _MEAN else "sum.dim_IntList", terms)


def _mse(node: Node, b: Builder) -> Reference:
    x, y = node.arguments["self"], node.arguments["target"]
    return b.pointwise("square.default", b.pointwise("sub.Tensor", x, y))


def _distance(node: Node, b: Builder) -> Reference:
    x, y = node.arguments["self"], node.arguments["target"]
    return b.pointwise("abs.default", b.pointwise("sub.Tensor", x, y))


def _smooth_l1(node: Node, b: Builder) -> Reference | None:
    distance, beta = _distance(node, b), node.arguments["beta"]
    if not isinstance(beta, int | float):
        return None
    if beta == 0:
        return distance
    square = b.pointwise("mul.Scalar", b.pointwise("square.default", distance), 0.5 / beta)
    line = b.pointwise("sub.Scalar", distance, 0.5 * beta)
    return b.pointwise("where.self", b.pointwise("lt.Scalar", distance, beta), square, line)


def _huber(node: Node, b: Builder) -> Reference | None:
    distance, delta = _distance(node, b), node.arguments["delta"]
    if not isinstance(delta, int | float):
        return None
    square = b.pointwise("mul.Scalar", b.pointwise("square.default", distance), 0.5)
    line = b.pointwise("mul.Scalar", b.pointwise("sub.Scalar", distance, 0.5 * delta), delta)
    return b.pointwise("where.self", b.pointwise("le.Scalar", distance, delta), square, line)


def _kl_div(node: Node, b: Builder) -> Reference:
    x, y = node.arguments["self"], node.arguments["target"]
    if node.arguments["log_target"]:
        return b.pointwise(
            "mul.Tensor", b.pointwise("exp.default", y), b.pointwise("sub.Tensor", y, x)
        )
    # 0 * log 0 is 0 here.
    product = b.pointwise("mul.Tensor", y, b.pointwise("log.default", y))
    product = b.pointwise("masked_fill.Scalar", product, b.pointwise("eq.Scalar", y, 0.0), 0.0)
    return b.pointwise("sub.Tensor", product, b.pointwise("mul.Tensor", y, x))


def _binary_cross_entropy_with_logits(node: Node, b: Builder) -> Reference | None:
    x, y = node.arguments["self"], node.arguments["target"]
    if node.arguments["weight"] is not None or node.arguments["pos_weight"] is not None:
        return None
    product = b.pointwise("mul.Tensor", b.pointwise("rsub.Scalar", y, 1.0), x, whole=_BOTH)
    return b.pointwise("sub.Tensor", product, b.pointwise("log_sigmoid.default", x))


def _triplet_margin(node: Node, b: Builder) -> Reference | None:
    order, margin, eps = (node.arguments[name] for name in ("p", "margin", "eps"))
    if node.arguments["swap"] or not isinstance(order, int | float) or not order > 0:
        return None
    anchor = node.arguments["anchor"]

    def distance(other: Argument) -> Reference:
        apart = b.pointwise("add.Scalar", b.pointwise("sub.Tensor", anchor, other), eps)
        return norm(b, apart, float(order), [-1])

    near, far = distance(node.arguments["positive"]), distance(node.arguments["negative"])
    apart = b.pointwise("add.Scalar", b.pointwise("sub.Tensor", near, far), margin)
    return b.pointwise("clamp_min.default", apart, 0.0)


def _sum_of_products(b: Builder, x: Argument, y: Argument, dim: int) -> Reference:
    return b.reduce("sum.dim_IntList", b.pointwise("mul.Tensor", x, y), [dim])


def _cosine_similarity(node: Node, b: Builder) -> Reference | None:
    x, y, dim, eps = (node.arguments[name] for name in ("x1", "x2", "dim", "eps"))
    if b.type_of(x) != b.type_of(y) or b.type_of(x).dtype != "float32" or not isinstance(dim, int):
        return None
    dot = _sum_of_products(b, x, y, dim)
    lengths = [b.pointwise("clamp_min.default", norm(b, v, 2.0, [dim]), eps) for v in (x, y)]
    return b.pointwise("div.Tensor", dot, b.pointwise("mul.Tensor", *lengths))


def _cosine_embedding(node: Node, b: Builder) -> Reference | None:
    x, y, target, margin = (
        node.arguments[name] for name in ("input1", "input2", "target", "margin")
    )
    if b.type_of(x).shape != b.type_of(y).shape:
        return None
    dot = _sum_of_products(b, x, y, -1)
    squares = [b.pointwise("add.Scalar", _sum_of_products(b, v, v, -1), _EPSILON) for v in (x, y)]
    length = b.pointwise("sqrt.default", b.pointwise("mul.Tensor", *squares))
    cosine = b.pointwise("div.Tensor", dot, length)
    far = b.pointwise("clamp_min.default", b.pointwise("sub.Scalar", cosine, margin), 0.0)
    is_far = b.pointwise("ne.Scalar", target, -1)
    far = b.pointwise("masked_fill.Scalar", far, is_far, 0.0)
    is_near = b.pointwise("eq.Scalar", target, 1)
    return b.pointwise("where.self", is_near, b.pointwise("rsub.Scalar", cosine, 1.0), far)


def _cross_entropy(node: Node, b: Builder) -> Reference | None:
    x, target = node.arguments["self"], node.arguments["target"]
    smoothing = node.arguments["label_smoothing"]
    if not _is_of_positions(node, b) or not isinstance(smoothing, int | float):
        return None
    largest = b.reduce("amax.default", x, [1])
    total = b.reduce("sumexp", x, [1])
    of_target = b.reduce("pick", x, [1], index=target)
    # From the largest first: the differences keep their digits.
    below = b.pointwise("sub.Tensor", largest, of_target)
    if smoothing:
        # That share of the target is every class alike.
        of_all = b.pointwise("sub.Tensor", largest, b.reduce("mean.dim", x, [1]))
        below = b.pointwise("mul.Scalar", below, 1 - smoothing)
        below = b.pointwise("add.Tensor", below, b.pointwise("mul.Scalar", of_all, smoothing))
    loss = b.pointwise("add.Tensor", b.pointwise("log.default", total), below)
    return _of_targets(node, b, loss)


def _nll(node: Node, b: Builder) -> Reference | None:
    if not _is_of_positions(node, b):
        return None
    of_target = b.reduce("pick", node.arguments["self"], [1], index=node.arguments["target"])
    return _of_targets(node, b, b.pointwise("neg.default", of_target))


def _is_of_positions(node: Node, b: Builder) -> bool:
    """Whether targets are positions; those that are probabilities, and weights, stay in torch."""
    types = [b.type_of(node.arguments[name]) for name in ("self", "target")]
    known = [found.dtype for found in types] == ["float32", "int64"] and len(types[0].shape) > 1
    return known and node.arguments["weight"] is None


def _of_targets(node: Node, b: Builder, loss: Reference) -> Reference:
    """Return the loss of all targets, those that are ignored left out, from that of each."""
    target, reduction = node.arguments["target"], node.arguments["reduction"]
    is_ignored = b.pointwise("eq.Scalar", target, node.arguments["ignore_index"])
    loss = b.pointwise("masked_fill.Scalar", loss, is_ignored, 0.0)
    if reduction != _MEAN:
        return _total(b, loss, reduction)
    ones = b.pointwise("where.Scalar", is_ignored, 0.0, 1.0)
    return b.pointwise("div.Tensor", *[_total(b, terms, _SUM) for terms in (loss, ones)])


def with_cross_entropies(graph: Graph) -> Graph:
    """Return a graph in which the loss of logarithms of a softmax is the cross entropy it is.

    So it takes one pass over what the softmax is of, and nobody writes the logarithms.
    """
    made = {node.name: node for node in graph.nodes}
    nodes = (_as_cross_entropy(node, made) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _as_cross_entropy(node: Node, made: Mapping[str, Node]) -> Node:
    if node.aten != "nll_loss_nd.default" or node.arguments["weight"] is not None:
        return node
    source = made.get(node.argument("self"))
    if source is None or source.aten != "log_softmax.int":
        return node
    dim = source.take("dim", int)
    if source.arguments["dtype"] is not None or dim % len(source.type.shape) != 1:
        return node
    arguments = {**node.arguments, "self": source.arguments["self"], "label_smoothing": 0.0}
    return node.calling("cross_entropy_loss.default", **arguments)


LOSSES: dict[str, Loss] = {
    "mse_loss.default": _reduced(_mse),
    "l1_loss.default": _reduced(_distance),
    "smooth_l1_loss.default": _reduced(_smooth_l1),
    "huber_loss.default": _reduced(_huber),
    "kl_div.default": _reduced(_kl_div),
    "binary_cross_entropy_with_logits.default": _reduced(_binary_cross_entropy_with_logits),
    "triplet_margin_loss.default": _reduced(_triplet_margin),
    "cosine_similarity.default": _cosine_similarity,
    "cosine_embedding_loss.default": _reduced(_cosine_embedding),
    "cross_entropy_loss.default": _cross_entropy,
    "nll_loss_nd.default": _nll,
}
