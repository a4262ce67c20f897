"""Means of what is linear in an x that is gathered as well, as the statistics of norms are.

The mean of a * x + b, of which a and b are the same along its dimensions, is a * mean(x) + b. Then
what makes x may gather it for both.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kernelgen.engines.gathers import REDUCTIONS, gathers_of
from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import operator_for
from kernelgen.engines.pool.window import window_of
from kernelgen.graph.graph import Argument, Graph, Node, Reference, references
from kernelgen.planning.rewrites.builder import Builder, rewritten

_LINEAR = {
    **dict.fromkeys(("add", "sub", "mul"), ("self", "other")),
    **dict.fromkeys(("div", "div_exact"), ("self",)),
}


class Early(NamedTuple):
    """A mean that is taken earlier.

    Attributes:
        dims: along which the mean is; `first` are those along which it is taken earlier.
        links: names of the nodes that are linear, the last first, each with the argument it is
            linear in.
        operators: of these, for a reader.
    """

    dims: frozenset[int]
    first: frozenset[int]
    links: tuple[tuple[str, str], ...]
    operators: tuple[str, ...]


class _Mean(NamedTuple):
    """A mean of a value along dimensions, or of `windows` along these."""

    of: str
    dims: frozenset[int]
    windows: bool


def with_means_first(
    graph: Graph, early: Mapping[str, Early] | None = None
) -> tuple[Graph, dict[str, Early]]:
    """Return a graph in which means, also of windows, come before what is linear, and these.

    Where the means of another graph of the Model are given, the same ones do: of one element along
    a dimension, it cannot be told what differs along it.
    """
    means = _Means(graph, early)
    return rewritten(graph, means.become), means.early


class _Means:
    def __init__(self, graph: Graph, early: Mapping[str, Early] | None) -> None:
        self.early = dict(early or {})
        self._decides = early is None
        self._nodes = {node.name: node for node in graph.nodes}
        self._types = graph.types
        read = (name for n in graph.nodes if n.aten in REDUCTIONS for name in n.reads)
        self._gathered = Counter(read)

    def become(self, node: Node, b: Builder) -> list[Node]:
        """Return the nodes in place of one."""
        if self._decides:
            self._decide(node)
        early = self.early.get(node.name)
        known = early is not None and all(name in self._nodes for name, _ in early.links)
        made = self._after(node, b, early) if early is not None and known else [node]
        for each in made:
            self._nodes[each.name] = each
            self._types |= each.types
        return made

    def _decide(self, node: Node) -> None:
        mean = self._mean(node)
        # A value that others gather as well is computed anyway.
        if mean is None or self._gathered[mean.of] != int(not mean.windows):
            return
        links, first = self._chain(mean)
        if links:
            operators = tuple(without_overload(self._nodes[name].aten) for name, _ in links[::-1])
            self.early[node.name] = Early(mean.dims, first, tuple(links), operators)

    def _mean(self, node: Node) -> _Mean | None:
        gathers = gathers_of(node, self._types) if node.aten.startswith("mean.") else []
        if gathers and gathers[0].dims:
            return _Mean(gathers[0].of, frozenset(gathers[0].dims), windows=False)
        window = window_of(node, self._types)
        if window is None or window.kind != "mean" or window.ceil_mode or window.divisor:
            return None
        rank = len(self._types[window.of].shape)
        dims = frozenset(range(rank - len(window.kernel), rank))
        return None if any(window.padding) else _Mean(window.of, dims, windows=True)

    def _chain(self, mean: _Mean) -> tuple[list[tuple[str, str]], frozenset[int]]:
        """Return what is linear in a value, the last first, and the dimensions it is linear along.

        It ends with a value of which something else is gathered as well; nothing if it does not.
        """
        links: list[tuple[str, str]] = []
        of, dims = mean.of, mean.dims
        while (node := self._nodes.get(of)) is not None and not (links and self._gathered[of]):
            if node.aten == "alias.default":
                of = node.argument("self")
                continue
            key, along = self._linear(node, dims)
            if not along or (mean.windows and along != dims):
                break
            links.append((node.name, key))
            of, dims = node.argument(key), along
        return (links if self._gathered[of] else []), dims

    def _linear(self, node: Node, dims: frozenset[int]) -> tuple[str, frozenset[int]]:
        """Return the argument in which a node is linear along some dimensions, and these."""
        row = operator_for(node.aten, node.arguments)
        shape = node.type.shape if node.types else ()
        for key in _LINEAR.get(row[0].name, ()) if row is not None else ():
            if not isinstance(node.arguments[key], Reference):
                continue
            value = self._types[node.argument(key)]
            names = references(*(v for name, v in node.arguments.items() if name != key))
            others = [self._types[name] for name in names]
            varying = {
                d
                for other in others
                for d, size in enumerate(other.shape, len(shape) - len(other.shape))
                if size > 1
            }
            plain = {one.dtype for one in (value, *others)} == {"float32"}
            if value.shape == shape and plain and dims - varying:
                return key, dims - varying
        return "", frozenset()

    def _after(self, node: Node, b: Builder, early: Early) -> list[Node]:
        """Return the nodes of an early mean, of what is linear in it, and of the mean of that."""
        links = [(self._nodes[name], key) for name, key in early.links]
        last, key = links[-1]
        value: Argument = last.arguments[key]
        if node.aten.startswith("mean."):
            value = b.reduce("mean.dim", value, sorted(early.first), keepdim=True)
        else:
            value = b.emit(node.aten, {**node.arguments, "self": value}, node.type.shape)
        for link, key in reversed(links):
            given = {**link.arguments, key: value}
            value = b.pointwise(link.aten, *given.values())
        dims = tuple(sorted(early.dims))
        end = node.calling("squeeze.dims", self=value, dim=dims)
        if early.dims != early.first:
            keepdim = bool(node.arguments.get("keepdim", False))
            end = node.calling("mean.dim", self=value, dim=dims, keepdim=keepdim)
        elif b.type_of(value).shape == node.type.shape:
            end = node.calling("alias.default", self=value)
        return [*b.nodes, end]
