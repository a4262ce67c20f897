"""Nodes that stand in place of one, with the types that tracing would give them."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import OPERATORS, operator_for
from kernelgen.engines.rows import DTYPES
from kernelgen.graph.graph import (
    Argument,
    Graph,
    Node,
    Reference,
    TensorType,
    broadcast,
    call_of,
    contiguous,
    references,
)

_PARAMETERS = {aten: tuple(row.parameters) for row in OPERATORS for aten in row.aten}


class Builder:
    """The nodes that an operator becomes.

    Attributes:
        nodes: so far, in order; their names start with that of the operator's result.
        types: of the values before the operator, to which those of new ones are added.
        own: the Model's parameters and the like, whose sizes are those of every call.
    """

    def __init__(self, node: Node, types: dict[str, TensorType], own: frozenset[str]) -> None:
        """Take the operator, types of values, and the Model's own."""
        self.nodes: list[Node] = []
        self._node, self.own = node, own
        self.types = types

    def type_of(self, value: Argument) -> TensorType:
        """Return the type of a value of the graph, of before or from here."""
        assert isinstance(value, Reference)
        return self.types[value.name]

    def emit(
        self,
        aten: str,
        arguments: Mapping[str, Argument],
        shape: Sequence[int],
        dtype: str = "float32",
        **others: tuple[str, ...],
    ) -> Reference:
        """Add a node of one contiguous result, and return that."""
        name = f"{self._node.name}_{without_overload(aten)}_{len(self.nodes) + 1}"
        found = contiguous(shape, dtype)
        module = self._node.module
        self.nodes.append(call_of(name, aten, dict(arguments), found, module=module, **others))
        self.types[name] = found
        return Reference(name)

    def pointwise(self, aten: str, *values: Argument, whole: tuple[str, ...] = ()) -> Reference:
        """Add an operator of the table, its arguments in order; they decide shape and dtype."""
        arguments = dict(zip(_PARAMETERS[aten], values, strict=False))
        found = operator_for(aten, arguments)
        assert found is not None, f"{aten} has no row for {arguments}"
        read = [self.types[name] for name in references(*arguments.values())]
        kind = found[0].result
        like = arguments.get("self")
        if kind != "like":
            dtype = DTYPES[kind]
        else:
            dtype = self.type_of(like).dtype if isinstance(like, Reference) else "float32"
        shape = broadcast(*(one.shape for one in read))
        return self.emit(aten, arguments, shape, dtype, whole=whole)

    def reduce(
        self,
        aten: str,
        value: Argument,
        dims: Sequence[int] | None = None,
        *,
        keepdim: bool = False,
        **others: Argument,
    ) -> Reference:
        """Add a reduction over some dimensions, from the front or the end, or over all.

        It is such as `sum.dim_IntList`; `sumexp`, `variance` (with `correction`, and perhaps
        `fewest`), and `pick` (with `index`, of the result's shape) are the planner's own.
        """
        shape = self.type_of(value).shape
        rank = len(shape)  # of 0, with a dimension named all the same
        reduced = range(rank) if dims is None or not rank else sorted(d % rank for d in dims)
        left = [
            1 if d in reduced else n for d, n in enumerate(shape) if keepdim or d not in reduced
        ]
        arguments = {"self": value, "dim": tuple(reduced), "keepdim": keepdim, **others}
        return self.emit(aten, arguments, left)


def rewritten(graph: Graph, become: Callable[[Node, Builder], Sequence[Node]]) -> Graph:
    """Return a graph in which each node is what it becomes."""
    types, own = graph.input_types, frozenset(i.name for i in graph.inputs if i.kind != "input")
    nodes: list[Node] = []
    for node in graph.nodes:
        made = become(node, Builder(node, types, own))
        nodes += made
        for each in made:
            types |= each.types
    return msgspec.structs.replace(graph, nodes=tuple(nodes))
