"""Losses and norms as the operators they are made of, products as linear layers, biases apart."""

from collections.abc import Callable, Mapping
from math import prod

import msgspec

from kernelgen.engines.convolution.record import CONVOLUTIONS, geometry_of
from kernelgen.engines.gathers import REDUCTIONS
from kernelgen.engines.operators import operator_for
from kernelgen.engines.pool.window import POOLINGS
from kernelgen.graph.graph import FILLS, MATRIX, Argument, Graph, Node, Reference
from kernelgen.planning.rewrites.attention import wide_attention
from kernelgen.planning.rewrites.builder import Builder, rewritten
from kernelgen.planning.rewrites.loops import with_loops
from kernelgen.planning.rewrites.losses import LOSSES, with_cross_entropies
from kernelgen.planning.rewrites.narrow import with_views_before_casts, with_wide_floats
from kernelgen.planning.rewrites.norms import NORMS, with_running_statistics
from kernelgen.planning.rewrites.scans import SCANS
from kernelgen.planning.rewrites.statistics import STATISTICS
from kernelgen.planning.rewrites.views import without_views_between

# Adds nodes and returns the values that the operator's results are; None: it stays what it is.
Decomposition = Callable[[Node, Builder], Reference | tuple[Reference, ...] | None]


def _filled(node: Node, builder: Builder) -> Reference | None:
    """Return a tensor of one number."""
    value = node.arguments["value"]
    if isinstance(value, Reference):
        return None
    given = {"self": node.arguments["self"], "fill_value": value}
    return builder.emit("full_like.default", given, node.type.shape, node.type.dtype)


def _copied(node: Node, builder: Builder) -> Reference | None:
    """Return what is copied over a tensor of its own shape and dtype: no value is left of that."""
    target, source = node.arguments["self"], node.arguments["src"]
    if not isinstance(source, Reference) or node.results[0] is None:
        return None
    found, wanted = builder.type_of(source), node.results[0]
    if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return None
    if target == source or node.argument("self") in builder.own:
        return source
    given = {"self": source, "other": target}
    return builder.emit("expand_as.default", given, found.shape, found.dtype)


def _takes_floats(node: Node, builder: Builder) -> bool:
    """Whether an operator's first argument, where it is a tensor, is of float32."""
    x = next(iter(node.arguments.values()))
    return not isinstance(x, Reference) or builder.type_of(x).dtype == "float32"


_OF_FLOATS = {*NORMS, *STATISTICS}  # the others see to it themselves
_TABLE: Mapping[str, Decomposition] = {
    **LOSSES,
    **NORMS,
    **STATISTICS,
    **dict.fromkeys(FILLS, _filled),
    "copy.default": _copied,
    "scaled_dot_product_attention.default": wide_attention,
}


# Of floats of 16 bits as well.
_COMPUTED = frozenset((*LOSSES, *NORMS, *POOLINGS, *REDUCTIONS, *SCANS, *STATISTICS))


def prepared(graph: Graph) -> Graph:
    """Return a graph with loops over steps as one operator, products, and biases apart."""
    products = _with_products_of_groups(_with_linear_layers(with_wide_floats(graph, _COMPUTED)))
    return _with_biases_apart(with_loops(products))


def decomposed(graph: Graph) -> Graph:
    """Return a graph in which each of these operators is several simpler ones."""
    graph = with_cross_entropies(with_running_statistics(graph))
    parts: dict[tuple[str, Argument], Reference] = {}  # of results that are several

    def become(node: Node, builder: Builder) -> list[Node]:
        if node.aten == "getitem":
            part = parts.get((node.argument("value"), node.arguments["index"]))
            return [node if part is None else node.calling("alias.default", self=part)]
        decompose = _TABLE.get(node.aten)
        if node.aten in _OF_FLOATS and not _takes_floats(node, builder):
            return [node]
        results = None if decompose is None else decompose(node, builder)
        if results is None:
            return [node]
        if isinstance(results, Reference):
            return [*builder.nodes, node.calling("alias.default", self=results)]
        parts.update({(node.name, index): value for index, value in enumerate(results)})
        return builder.nodes

    return without_views_between(with_views_before_casts(rewritten(graph, become)))


def _with_linear_layers(graph: Graph) -> Graph:
    """Return a graph in which a product with a weight's transpose is a linear layer."""
    weights = {source.name for source in graph.inputs if source.path}
    transposed = {
        node.name: node.arguments["self"]
        for node in graph.nodes
        if node.transposes and node.argument("self") in weights and len(node.type.shape) == MATRIX
    }

    def become(node: Node, _: Builder) -> list[Node]:
        if node.aten not in ("matmul.default", "mm.default"):
            return [node]
        left, right = node.arguments.values()
        assert isinstance(right, Reference)
        weight = transposed.get(right.name)
        if weight is None:
            return [node]
        return [node.calling("linear.default", input=left, weight=weight, bias=None)]

    return rewritten(graph, become)


def _with_products_of_groups(graph: Graph) -> Graph:
    """Return a graph in which a convolution of one tap is a product of each group.

    On a GPU torch turns the groups around and back, one after the other.
    """

    def become(node: Node, b: Builder) -> list[Node]:
        found, rank = node.results[0], CONVOLUTIONS.get(node.aten)
        g = found and rank and geometry_of(node.aten, node.arguments, found, b.types)
        if not g or not rank or g.transposed or g.groups == 1 or min(g.channels, g.filters) == 1:
            return [node]
        if g.kernel != (1, 1, 1) or g.stride != (1, 1, 1) or g.input != g.output:
            return [node]
        x, weight, bias = (node.arguments.get(name) for name in ("input", "weight", "bias"))
        *lead, _ = (shape := b.type_of(x).shape)[:-rank]
        pixels, ones = shape[-rank:], (1,) * rank

        def seen(aten: str, value: Argument, to: tuple[int, ...], **given: Argument) -> Reference:
            return b.emit(aten, {"self": value, **given}, to)

        groups = (*lead, g.groups, g.channels)
        x = seen("unflatten.int", x, (*groups, *pixels), dim=-1 - rank, sizes=groups[-2:])
        x = seen("flatten.using_ints", x, (*groups, prod(pixels)), start_dim=-rank, end_dim=-1)
        factor = (g.groups, g.filters, g.channels)
        weight = seen("view.default", weight, factor, size=factor)
        made = (*lead, *factor[:2], prod(pixels))
        value = b.emit("matmul.default", {"self": weight, "other": x}, made)
        made = (*lead, prod(factor[:2]), made[-1])
        value = seen("flatten.using_ints", value, made, start_dim=-3, end_dim=-2)
        if rank > 1:
            value = seen("unflatten.int", value, (*made[:-1], *pixels), dim=-1, sizes=pixels)
        if bias is not None:
            bias = seen("view.default", bias, (made[-2], *ones), size=(made[-2], *ones))
            value = b.pointwise("add.Tensor", value, bias)
        return [*b.nodes, node.calling("alias.default", self=value)]

    return rewritten(graph, become)


def _with_biases_apart(graph: Graph) -> Graph:
    """Return a graph in which a convolution's bias is added where each reader is a kernel.

    That makes the addition in passing; torch adds a bias in a kernel of its own, which reads and
    writes the whole result.
    """
    kept = {*graph.outputs, *graph.updates.values()}
    for node in graph.nodes:
        known = node.aten in _TABLE or node.aten in POOLINGS or node.aten in REDUCTIONS
        if not known and operator_for(node.aten, node.arguments) is None:
            kept.update(node.reads)

    def become(node: Node, b: Builder) -> list[Node]:
        bias, rank = node.arguments.get("bias"), CONVOLUTIONS.get(node.aten)
        found = node.results[0]
        if node.name in kept or rank is None or bias is None:
            return [node]
        if found is None or found.dtype != "float32":
            return [node]
        name, ones = f"unbiased_{node.name}", (1,) * rank
        (channels,) = b.type_of(bias).shape
        bias = b.emit("view.default", {"self": bias, "size": (-1, *ones)}, (channels, *ones))
        unbiased = node.arguments | {"bias": None}
        product = msgspec.structs.replace(node, name=name, arguments=unbiased)
        return [product, *b.nodes, node.calling("add.Tensor", self=Reference(name), other=bias)]

    return rewritten(graph, become)
