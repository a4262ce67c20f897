"""Numbers of a graph that are sizes of its inputs: `x.size(0)` is 128 in a trace, and not a 128.

A forward is traced again with one size of its inputs twice as large. What is twice as large in that
graph as well is a multiple of the size, and becomes one that is read when the solution runs. Where
forward reads sizes, the least and a large one tell what it decides by them unseen: `1.0 / n > 0.1`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kernelgen.graph.graph import NUMBER, Graph, GraphInput, Node, Reference, SizeOf

_MOST_ADDED = 200  # nodes that a loop over a large size may add to a trace


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs whose dimensions of one size have another.

    Attributes:
        size: that changes.
        to: what it becomes.
        dims: positions of the dimensions that change.
    """

    size: int
    to: int
    dims: tuple[int, ...]

    def changes(self, dim: int, size: int) -> bool:
        """Return whether it changes a dimension of a size."""
        return size == self.size and dim in self.dims

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape with the other size."""
        return tuple(self.to if self.changes(d, s) else s for d, s in enumerate(shape))

    def split(self) -> list[list["Resize"]]:
        """Return changes of fewer dimensions: of each alone, or of the first and all others."""
        ways: list[list[tuple[int, ...]]]
        ways = [[(dim,) for dim in self.dims], [self.dims[:1], self.dims[1:]]]
        return [[msgspec.structs.replace(self, dims=dims) for dims in way] for way in ways]

    def extremes(self, graph: Graph, other: Graph) -> list["Resize"]:
        """Return the changes to the least size, and to a large one that few numbers divide.

        Of a graph whose forward reads no size there are none. Where the other graph, at the changed
        size, has more nodes, forward loops over the size: the large one takes a second, or is left
        out.
        """
        added = len(other.nodes) - len(graph.nodes)
        times = _MOST_ADDED // added if added > 0 else 1000
        sizes = {1, times * self.size + 1} - {self.size} if "sizes" in graph.asked else set[int]()
        return [msgspec.structs.replace(self, to=to) for to in sorted(sizes)]


def resizes_of(graph: Graph) -> list[Resize]:
    """Return how to double each size of a graph's inputs, wherever they have it."""
    dims: dict[int, set[int]] = {}
    for (_, dim), size in dimensions_of(graph).items():
        dims.setdefault(size, set()).add(dim)
    return [
        Resize(size=size, to=2 * size, dims=tuple(sorted(found)))
        for size, found in dims.items()
        if size
    ]


def dimensions_of(graph: Graph) -> dict[tuple[str, int], int]:
    """Return the size of each dimension of a forward's inputs, by input and dimension."""
    upstream = graph.backward.upstream if graph.backward else {}
    return {
        (i.name, dim): size
        for i in graph.inputs
        if i.kind == "input" and i.name not in upstream
        for dim, size in enumerate(i.type.shape)
    }


def with_size(graph: Graph, traced: Graph, other: Graph, resize: Resize) -> Graph | None:
    """Return a graph in which the numbers that follow a size are read from the inputs.

    It is at the main shapes, as it was `traced`, but that numbers which follow other sizes may be
    read already; `other` has another size. None if the two traces differ in anything else, or
    a number follows two sizes.
    """
    found = _Sizes(graph, resize)
    if len(graph.nodes) != len(other.nodes):
        return None
    nodes = [
        found.node(*three) for three in zip(graph.nodes, traced.nodes, other.nodes, strict=True)
    ]
    rest = ("outputs", "returns", "updates", "fixed", "backward")
    if not found.understood or any(getattr(graph, n) != getattr(other, n) for n in rest):
        return None
    return msgspec.structs.replace(
        graph, nodes=tuple(nodes), inputs=(*graph.inputs, *found.inputs.values())
    )


def sizes_like(main: Graph, graph: Graph) -> Graph:
    """Return another case's graph with sizes wherever the main case's graph has them, and fits."""
    sizes = {i.name: i for i in main.inputs if i.size is not None}
    types = {i.name: i.type for i in graph.inputs}
    values = {
        name: types[i.size.input].shape[i.size.dim] * i.size.factor
        for name, i in sizes.items()
        if i.size is not None and i.size.dim < len(types[i.size.input].shape)
    }

    def argument(own: Any, its: Any) -> Any:
        if type(own) is type(its) is tuple and len(own) == len(its):
            return tuple(map(argument, own, its))
        fits = isinstance(own, Reference) and values.get(own.name) == its
        return own if fits else its

    nodes = tuple(
        msgspec.structs.replace(
            its,
            arguments={
                name: argument(own.arguments.get(name), value)
                for name, value in its.arguments.items()
            },
        )
        for own, its in zip(main.nodes, graph.nodes, strict=False)
    )
    rest = graph.nodes[len(nodes) :]
    return msgspec.structs.replace(
        graph, nodes=(*nodes, *rest), inputs=(*graph.inputs, *sizes.values())
    )


class _Sizes:
    """The numbers that follow one size."""

    def __init__(self, graph: Graph, resize: Resize) -> None:
        self.understood = True
        self.inputs: dict[int, GraphInput] = {}
        self._known = {i.name for i in graph.inputs}
        self._resize = resize
        self._source, *others = (
            place for place, size in dimensions_of(graph).items() if resize.changes(place[1], size)
        )
        self._alike = frozenset(others)

    def node(self, own: Node, traced: Node, other: Node) -> Node:
        """Return a node with sizes in place of the numbers that grow with them in another."""
        # Of `x.chunk(n)`, the results follow a size as well.
        forms = [(n.aten, [*n.arguments], len(n.results)) for n in (traced, other)]
        self.understood &= forms[0] == forms[1]
        arguments = {
            name: self._argument(value, traced.arguments[name], other.arguments.get(name))
            for name, value in own.arguments.items()
        }
        # A number that is the default at one of two sizes is not given there.
        return msgspec.structs.replace(own, arguments=arguments, given=max(own.given, other.given))

    def _argument(self, own: Any, traced: Any, other: Any) -> Any:
        if type(own) is type(traced) is type(other) is tuple and len(traced) == len(other):
            return tuple(map(self._argument, own, traced, other))
        if repr(traced) == repr(other):  # a NaN is not equal to itself
            return own
        size, to = self._resize.size, self._resize.to
        # A number that is a reference by now follows another size as well.
        if type(own) is not int or type(other) is not int or other * size != own * to or own % size:
            self.understood = False
            return own
        if own not in self.inputs:
            self.inputs[own] = self._input(own // size)
        return Reference(self.inputs[own].name)

    def _input(self, factor: int) -> GraphInput:
        name, dim = self._source
        wish = f"{name}_size_{dim}" + (f"_times_{factor}" if factor > 1 else "")
        while wish in self._known:
            wish += "_"
        return GraphInput(
            name=wish,
            kind="scalar",
            type=NUMBER,
            size=SizeOf(input=name, dim=dim, factor=factor, alike=self._alike),
        )
