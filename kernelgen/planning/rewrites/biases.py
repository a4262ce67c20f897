"""A convolution's bias as an addition of its own, which a kernel behind it makes in passing.

torch adds it in a kernel of its own, which reads and writes the whole result.
"""

from collections.abc import Callable

import msgspec

from kernelgen.planning.graph import Argument, Graph, Node, Reference, references
from kernelgen.planning.rewrites.builder import Builder

# The dimensions that a window moves over.
_CONVOLUTIONS = {
    "conv1d.default": 1,
    "conv2d.default": 2,
    "conv3d.default": 3,
    "conv_transpose1d.default": 1,
    "conv_transpose2d.input": 2,
    "conv_transpose3d.input": 3,
}


def with_biases_apart(graph: Graph, is_computed: Callable[[Node], bool]) -> Graph:
    """Return a graph in which biases are added where each reader `is_computed` by a kernel."""
    kept = {*graph.outputs, *graph.updates.values()}
    for node in graph.nodes:
        if not is_computed(node):
            kept |= {name for value in node.arguments.values() for name in references(value)}
    types = {i.name: i.type for i in graph.inputs}
    nodes: list[Node] = []
    for node in graph.nodes:
        made = [node] if node.name in kept else _apart(node, Builder(node, types))
        nodes += made
        types |= {each.name: found for each in made if (found := each.results[0]) is not None}
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _apart(node: Node, b: Builder) -> list[Node]:
    bias, rank = node.arguments.get("bias"), _CONVOLUTIONS.get(node.aten)
    (found, *_) = node.results
    if rank is None or bias is None or found is None or found.dtype != "float32":
        return [node]
    name, without = f"unbiased_{node.name}", node.arguments | {"bias": None}
    ones = (1,) * rank
    (channels,) = b.type_of(bias).shape
    bias = b.emit("view.default", {"self": bias, "size": (-1, *ones)}, (channels, *ones))
    terms: dict[str, Argument] = {"self": Reference(name), "other": bias}
    return [
        msgspec.structs.replace(node, name=name, arguments=without),
        *b.nodes,
        msgspec.structs.replace(node, aten="add.Tensor", arguments=terms, given=2),
    ]
