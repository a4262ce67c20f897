"""Floats of 16 bits, computed with as float32: widened where they are read, rounded where made."""

import msgspec

from kernelgen.engines.operators import operator_for
from kernelgen.engines.rows import NARROW
from kernelgen.graph.graph import Argument, Graph, Named, Node, Reference, TensorType, renamed
from kernelgen.planning.rewrites.builder import Builder, rewritten

_CAST = "_to_copy.default"


def with_wide_floats(graph: Graph, known: frozenset[str]) -> Graph:
    """Return a graph in which kernels compute with no floats of 16 bits, but for casts.

    Torch computes an operator on these in float32 as well, and rounds its result.

    Args:
        graph: as it was traced.
        known: names of the operators that kernels compute beside those of the table.
    """
    types = graph.input_types
    for node in graph.nodes:
        types |= node.types
    narrow = {name for name, found in types.items() if found.dtype in NARROW}

    def become(node: Node, b: Builder) -> list[Node]:
        is_known = node.aten in known or operator_for(node.aten, node.arguments) is not None
        read = [name for name in node.reads if name in narrow]
        if not is_known or node.aten == _CAST or not read:
            return [node]
        wide = {name: _cast(b, Reference(name), b.types[name], "float32").name for name in read}
        arguments: dict[str, Argument] = {
            name: renamed(value, lambda one: wide.get(one, one))
            for name, value in node.arguments.items()
        }
        if len(node.results) > 1 or isinstance(arguments.get("dtype"), Named):
            return [node]
        (found,) = node.results
        if found is None or found.dtype not in NARROW:
            return [*b.nodes, msgspec.structs.replace(node, arguments=arguments)]
        made = msgspec.structs.replace(
            node,
            name=f"wide_{node.name}",
            arguments=arguments,
            results=(msgspec.structs.replace(found, dtype="float32"),),
        )
        dtype, wide_result = Named(found.dtype), Reference(made.name)
        return [*b.nodes, made, node.calling(_CAST, self=wide_result, dtype=dtype)]

    return rewritten(graph, become) if narrow else graph


def _cast(b: Builder, value: Reference, found: TensorType, dtype: str) -> Reference:
    return b.emit(_CAST, {"self": value, "dtype": Named(dtype)}, found.shape, dtype)
