"""Norms and softmax as reductions and pointwise operators.

An operator that has forward change a buffer as well is replaced by `with_running_statistics`, the
others by their row of NORMS.
"""

from collections.abc import Sequence
from math import prod

from kernelgen.graph.graph import RUNNING, Argument, Graph, Named, Node, Reference
from kernelgen.planning.rewrites.builder import Builder, rewritten

# Norms with running statistics, and what says that they take the input's own.
_KEEPING = {"batch_norm.default": "training", "instance_norm.default": "use_input_stats"}
_SEVERAL = 2  # values of a channel, at least, or torch refuses to take its statistics
FLOAT_EPS = 2.0**-23  # of float32: what an nn.RMSNorm without an eps has


def _group_norm(node: Node, b: Builder) -> Reference | None:
    x, groups = node.arguments["input"], node.take("num_groups", int)
    shape = b.type_of(x).shape
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    # `groups` in place of an overload: the sizes are a layer's, whatever shape x has.
    x = b.emit("unflatten.groups", {"self": x, "dim": 1, "sizes": (groups, -1)}, split)
    y = _normalised(b, x, range(2, len(split)), node)
    y = _scaled(b, y, node, (groups, -1, *(1,) * len(shape[2:])), "view.groups")
    return b.emit("flatten.groups", {"self": y, "start_dim": 1, "end_dim": 2}, shape)


def _norm_of_channels(node: Node, b: Builder) -> Reference | None:
    x = node.arguments["input"]
    if node.arguments[_KEEPING[node.aten]] is not True:
        return _with_statistics_kept(b, node)
    if node.arguments["running_mean"] is not None:
        return None
    return _scaled_by_channel(b, _normalised(b, x, _dims(b, node), node), node)


def _layer_norm(node: Node, b: Builder) -> Reference | None:
    y = _normalised(b, node.arguments["input"], _trailing(node, b), node)
    return _scaled(b, y, node)


def _rms_norm(node: Node, b: Builder) -> Reference | None:
    x, eps = node.arguments["input"], node.arguments["eps"]
    squares = b.pointwise("square.default", x)
    mean = b.reduce("mean.dim", squares, _trailing(node, b), keepdim=True)
    y = b.pointwise("mul.Tensor", x, _inverse_root(b, mean, FLOAT_EPS if eps is None else eps))
    return _scaled(b, y, node)


def _softmax(node: Node, b: Builder) -> Reference | None:
    x, dim = node.arguments["self"], node.take("dim", int)
    if node.arguments["dtype"] not in {None, Named("float32")} or not b.type_of(x).shape:
        return None
    return shares_of(b, x, dim, log=node.aten.startswith("log"))


def shares_of(b: Builder, x: Argument, dim: int, *, log: bool = False) -> Reference:
    """Add a softmax along a dimension, or its logarithm."""
    largest = b.reduce("amax.default", x, [dim], keepdim=True)
    total = b.reduce("sumexp", x, [dim], keepdim=True)
    distance = b.pointwise("sub.Tensor", x, largest)
    if log:
        return b.pointwise("sub.Tensor", distance, b.pointwise("log.default", total))
    return b.pointwise("div.Tensor", b.pointwise("exp.default", distance), total)


NORMS = {
    "group_norm.default": _group_norm,
    "instance_norm.default": _norm_of_channels,
    "layer_norm.default": _layer_norm,
    "rms_norm.default": _rms_norm,
    "batch_norm.default": _norm_of_channels,
    "softmax.int": _softmax,
    "log_softmax.int": _softmax,
}


def with_running_statistics(graph: Graph) -> Graph:
    """Return a graph in which the running statistics that norms leave are computed.

    Of a norm that stays in torch they are what torch has written into their memory.
    """
    left: dict[Argument, dict[str, Reference]] = {}  # by a norm's result, then by what they are

    def become(node: Node, builder: Builder) -> list[Node]:
        for key, aten in RUNNING.items():
            if node.aten == aten:
                found = left[node.arguments["norm"]].get(key)
                if found is None:
                    return [node.calling("alias.default", self=node.arguments["self"])]
                last = len(builder.types[found.name].shape) - 1
                return [node.calling("flatten.using_ints", self=found, start_dim=0, end_dim=last)]
        if node.aten not in _KEEPING:
            return [node]
        made, left[Reference(node.name)] = _with_updates(builder, node)
        return made

    return rewritten(graph, become)


def keeps_known_statistics(node: Node) -> bool:
    """Whether a norm changes running statistics of its own, by a momentum that is known."""
    kept = all(isinstance(node.arguments[key], Reference) for key in RUNNING)
    return kept and isinstance(node.arguments["momentum"], int | float)


def _with_updates(b: Builder, node: Node) -> tuple[list[Node], dict[str, Reference]]:
    """Return the nodes that a norm becomes, and its running statistics after it, not yet flat."""
    arguments = node.arguments
    x, momentum = arguments["input"], arguments["momentum"]
    if arguments[_KEEPING[node.aten]] is not True or b.type_of(x).dtype != "float32":
        return [node], {}
    if not (keeps_known_statistics(node) and isinstance(momentum, int | float)):
        return [node], {}
    dims = _dims(b, node)
    mean = b.reduce("mean.dim", x, dims, keepdim=True)
    y = _normalised(b, x, dims, node, mean)
    y = _scaled_by_channel(b, y, node)
    unbiased = b.reduce("variance", x, dims, keepdim=True, correction=1.0)
    updated: dict[str, Reference] = {}
    for key, found in (("running_mean", mean), ("running_var", unbiased)):
        ones = (1,) * (len(b.type_of(x).shape) - 2)
        old = _by_channel(b, arguments[key], (1, -1, *ones))
        # As torch sums it: a difference of infinities, as lerp takes it, would be a NaN.
        old = b.pointwise("mul.Tensor", old, 1.0 - momentum)
        new = b.pointwise("add.Tensor", old, found, float(momentum))
        if 0 not in dims:  # those of the samples, on an average
            new = b.reduce("mean.dim", new, [0], keepdim=True, fewest=1)
        updated[key] = new
    return [*b.nodes, node.calling("alias.default", self=y)], updated


def _normalised(
    b: Builder, x: Argument, dims: Sequence[int], node: Node, mean: Reference | None = None
) -> Reference:
    mean = mean or b.reduce("mean.dim", x, dims, keepdim=True)
    fewest = _SEVERAL if node.aten in _KEEPING else 0
    variance = b.reduce("variance", x, dims, keepdim=True, correction=0.0, fewest=fewest)
    distance = b.pointwise("sub.Tensor", x, mean)
    return b.pointwise("mul.Tensor", distance, _inverse_root(b, variance, node.arguments["eps"]))


def _inverse_root(b: Builder, variance: Argument, eps: Argument) -> Reference:
    return b.pointwise("rsqrt.default", b.pointwise("add.Tensor", variance, eps))


def _with_statistics_kept(b: Builder, node: Node) -> Reference:
    """Return a norm by running statistics, all of it pointwise."""
    x = node.arguments["input"]
    sizes = (-1, *(1,) * (len(b.type_of(x).shape) - 2))
    mean = _by_channel(b, node.arguments["running_mean"], sizes)
    variance = _by_channel(b, node.arguments["running_var"], sizes)
    root = _inverse_root(b, variance, node.arguments["eps"])
    y = b.pointwise("mul.Tensor", b.pointwise("sub.Tensor", x, mean), root)
    return _scaled_by_channel(b, y, node)


def _scaled_by_channel(b: Builder, y: Reference, node: Node) -> Reference:
    return _scaled(b, y, node, (-1, *(1,) * (len(b.type_of(y).shape) - 2)))


def _scaled(
    b: Builder, y: Reference, node: Node, sizes: tuple[int, ...] = (-1,), aten: str = "view.default"
) -> Reference:
    """Return y times a norm's weight plus its bias, if it has them, each viewed in a shape."""
    for key, operator in (("weight", "mul.Tensor"), ("bias", "add.Tensor")):
        factor = node.arguments.get(key)
        if factor is None:
            continue
        factor = _by_channel(b, factor, sizes, aten)
        y = b.pointwise(operator, y, factor)
    return y


def _by_channel(
    b: Builder, value: Argument, sizes: tuple[int, ...], aten: str = "view.default"
) -> Argument:
    """Return a value for each channel in a shape that goes with the others'."""
    if sizes == (-1,):
        return value
    (count,) = b.type_of(value).shape
    shape = tuple(-count // prod(sizes) if size == -1 else size for size in sizes)
    return b.emit(aten, {"self": value, "size": sizes}, shape)


def _dims(b: Builder, node: Node) -> list[int]:
    """Return the dimensions over which a norm of channels takes its statistics."""
    rank = len(b.type_of(node.arguments["input"]).shape)
    of_samples = [] if node.aten == "instance_norm.default" else [0]
    return [*of_samples, *range(2, rank)]


def _trailing(node: Node, b: Builder) -> list[int]:
    """Return the dimensions that a norm of rows goes along."""
    normalized = node.take("normalized_shape", tuple)
    rank = len(b.type_of(node.arguments["input"]).shape)
    return list(range(rank - len(normalized), rank))
