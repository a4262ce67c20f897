"""Losses, norms and the like as the operators that they are made of."""

from collections.abc import Callable, Mapping

import msgspec

from kernelgen.planning.graph import Argument, Graph, Node, Reference, TensorType
from kernelgen.planning.operators import operator_for
from kernelgen.planning.pooling import POOLINGS
from kernelgen.planning.reductions import REDUCTIONS
from kernelgen.planning.rewrites.biases import with_biases_apart
from kernelgen.planning.rewrites.builder import Builder
from kernelgen.planning.rewrites.losses import LOSSES, with_cross_entropies
from kernelgen.planning.rewrites.norms import NORMS, with_running_statistics
from kernelgen.planning.rewrites.statistics import STATISTICS
from kernelgen.planning.rewrites.views import without_views_between

# Adds nodes and returns the values that the operator's results are; None: it stays what it is.
Decomposition = Callable[[Node, Builder], Reference | tuple[Reference, ...] | None]


def _copied(node: Node, builder: Builder) -> Reference | None:
    """Return what is copied over a tensor of its own shape and dtype: nothing is left of that."""
    source = node.arguments["src"]
    if not isinstance(source, Reference) or node.results[0] is None:
        return None
    found, wanted = builder.type_of(source), node.results[0]
    return source if (found.shape, found.dtype) == (wanted.shape, wanted.dtype) else None


_TABLE: Mapping[str, Decomposition] = {
    **LOSSES,
    **NORMS,
    **STATISTICS,
    "copy.default": _copied,
}


def decomposed(graph: Graph) -> Graph:
    """Return a graph in which each of these operators is several simpler ones."""
    graph = with_biases_apart(graph, _is_computed)
    graph = with_cross_entropies(with_running_statistics(graph))
    types: dict[str, TensorType] = {i.name: i.type for i in graph.inputs}
    parts: dict[tuple[str, Argument], Reference] = {}  # of results that are several
    nodes: list[Node] = []
    for node in graph.nodes:
        made: list[Node] = [node]
        if node.aten == "getitem":
            part = parts.get((node.argument("value"), node.arguments["index"]))
            made = [node if part is None else _alias(node, part)]
        elif (decompose := _TABLE.get(node.aten)) is not None:
            builder = Builder(node, types)
            results = decompose(node, builder)
            if isinstance(results, Reference):
                made = [*builder.nodes, _alias(node, results)]
            elif results is not None:
                made = builder.nodes
                parts |= {(node.name, index): value for index, value in enumerate(results)}
        for one in made:
            nodes.append(one)
            types |= dict(_types(one))
    return without_views_between(msgspec.structs.replace(graph, nodes=tuple(nodes)))


def _is_computed(node: Node) -> bool:
    known = node.aten in _TABLE or node.aten in POOLINGS or node.aten in REDUCTIONS
    return known or operator_for(node.aten, node.arguments) is not None


def _alias(node: Node, value: Reference) -> Node:
    """Return a node that gives a value the name of another node's result."""
    return msgspec.structs.replace(node, aten="alias.default", arguments={"self": value}, given=1)


def _types(node: Node) -> list[tuple[str, TensorType]]:
    (first,) = node.results if len(node.results) == 1 else (None,)
    return [] if first is None else [(node.name, first)]
