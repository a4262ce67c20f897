"""Means and sums of what is linear in an x, from means of x.

The mean of a * x + b, of which a is the same along its dimensions, is a * mean(x) + mean(b). Where
x is gathered as well, as for the statistics of norms, what makes x may gather it for both; where a
product or convolution makes x, that shrinks.
"""

from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from kernelgen.engines.convolution.record import CONVOLUTIONS
from kernelgen.engines.gathers import REDUCTIONS, gathers_of
from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import operator_for
from kernelgen.engines.pool.record import Window
from kernelgen.engines.pool.window import window_of
from kernelgen.graph.graph import Argument, Graph, Node, Reference, TensorType, references
from kernelgen.planning.rewrites.builder import Builder, rewritten
from kernelgen.planning.rewrites.contractions import dims_of, is_less_before, mean_of, windows_of

_TERMS = frozenset(("add", "sub"))
_LINEAR = {
    **dict.fromkeys(("add", "sub", "mul"), ("self", "other")),
    **dict.fromkeys(("div", "div_exact"), ("self",)),
}


class Early(NamedTuple):
    """A mean or sum that is taken earlier.

    Attributes:
        kind: `mean` or `sum`.
        dims: along which it is; `first` are those along which it is taken earlier.
        links: names of the nodes that are linear, the last first, each with the argument it is
            linear in; "" of a product or convolution, the last of all.
        operators: of these, for a reader.
    """

    kind: str
    dims: frozenset[int]
    first: frozenset[int]
    links: tuple[tuple[str, str], ...]
    operators: tuple[str, ...]


class _Mean(NamedTuple):
    """A mean or sum of a value along dimensions, or a mean of windows along these."""

    kind: str
    of: str
    dims: frozenset[int]
    window: Window | None = None


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
        # Inputs of which pointwise operators make a value; they may get sizes where these have one.
        self._inputs = {one.name: {one.name} for one in graph.inputs if one.kind == "input"}
        read = (name for n in graph.nodes if n.aten in REDUCTIONS for name in n.reads)
        self._gathered = Counter(read)
        self._reads = graph.readers

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
            if operator_for(each.aten, each.arguments) is not None:
                found = (self._inputs.get(name, set()) for name in each.reads)
                self._inputs[each.name] = set[str]().union(*found)
        return made

    def _decide(self, node: Node) -> None:
        mean = self._mean(node)
        # A value that others gather as well is computed anyway.
        if mean is None or self._gathered[mean.of] != int(mean.window is None):
            return
        links, first = self._chain(mean)
        if links:
            operators = tuple(without_overload(self._nodes[name].aten) for name, _ in links[::-1])
            self.early[node.name] = Early(mean.kind, mean.dims, first, tuple(links), operators)

    def _mean(self, node: Node) -> _Mean | None:
        kind = without_overload(node.aten)
        gathers = gathers_of(node, self._types) if kind in {"mean", "sum"} else []
        if gathers and gathers[0].dims:
            return _Mean(kind, gathers[0].of, frozenset(gathers[0].dims))
        window = window_of(node, self._types)
        if window is None or window.kind != "mean" or window.ceil_mode or window.divisor:
            return None
        rank = len(self._types[window.of].shape)
        dims = frozenset(range(rank - len(window.kernel), rank))
        return None if any(window.padding) else _Mean("mean", window.of, dims, window)

    def _chain(self, mean: _Mean) -> tuple[list[tuple[str, str]], frozenset[int]]:
        """Return what is linear in a value, the last first, and the dimensions it is linear along.

        It ends with a product or convolution that nothing else reads, or, of a mean, with a value
        of which something else is gathered as well; nothing if it does not.
        """
        links: list[tuple[str, str]] = []
        of, dims, alone = mean.of, mean.dims, True
        while (node := self._nodes.get(of)) is not None and not (links and self._gathered[of]):
            alone = alone and self._reads[of] == 1
            if alone and (along := self._contracted(node, dims, mean)):
                return [*links, (node.name, "")], along
            if node.aten == "alias.default":
                of = node.argument("self")
                continue
            key, along = self._linear(node, dims, mean)
            if not along or (mean.window is not None and along != dims):
                break
            links.append((node.name, key))
            of, dims = node.argument(key), along
        return (links if self._gathered[of] and mean.kind == "mean" else []), dims

    def _contracted(self, node: Node, dims: frozenset[int], mean: _Mean) -> frozenset[int]:
        """Return the dimensions along which the mean comes before a product or convolution."""
        if mean.window is None:
            if mean.kind == "sum" and node.aten not in CONVOLUTIONS:
                dims &= {len(node.type.shape) - 1}  # of no rows a sum is 0, and a mean NaN
            return dims_of(node, dims, self._types)
        return dims if is_less_before(node, mean.window, self._types) else frozenset()

    def _linear(self, node: Node, dims: frozenset[int], mean: _Mean) -> tuple[str, frozenset[int]]:
        """Return the argument in which a node is linear along some dimensions, and these."""
        row = operator_for(node.aten, node.arguments)
        shape = node.type.shape if node.types else ()
        name = "" if row is None else row[0].name
        for key in _LINEAR.get(name, ()):
            if not isinstance(node.arguments[key], Reference):
                continue
            value = self._types[node.argument(key)]
            names = references(*(v for name, v in node.arguments.items() if name != key))
            others = [self._types[name] for name in names]
            varying = {d for other in others for d in _varying(other, len(shape))}
            small = all(prod(other.shape) < prod(shape) for other in others)
            if name in _TERMS and small and mean.window is None:
                varying = set()  # their means are taken as well
            inputs = (self._types[one] for name in names for one in self._inputs.get(name, ()))
            varying |= {d for one in inputs for d in dims - _varying(one, len(shape))}
            plain = {one.dtype for one in (value, *others)} == {"float32"}
            if value.shape == shape and plain and dims - varying:
                return key, dims - varying
        return "", frozenset()

    def _after(self, node: Node, b: Builder, early: Early) -> list[Node]:
        """Return the nodes of an early mean, of what is linear in it, and of the mean of that."""
        links = [(self._nodes[name], key) for name, key in early.links]
        last, key = links[-1]
        window = window_of(node, self._types)
        value: Argument
        if not key:
            links.pop()
            if window is None:
                value = mean_of(last, early.first, b)
            else:
                value = windows_of(last, window, node.type.shape, b)
        elif node.aten.startswith("mean."):
            value = b.reduce("mean.dim", last.arguments[key], sorted(early.first), keepdim=True)
        else:
            given = {**node.arguments, "self": last.arguments[key]}
            value = b.emit(node.aten, given, node.type.shape)
        for link, key in reversed(links):
            value = self._applied(link, key, value, early.first, b)
        dims = tuple(sorted(early.dims))
        if early.kind == "sum":
            shape = self._types[node.argument("self")].shape
            value = b.pointwise("mul.Tensor", value, prod(shape[d] for d in early.first))
        if early.dims != early.first:
            aten = "mean.dim" if early.kind == "mean" else "sum.dim_IntList"
            value = b.reduce(aten, value, dims, keepdim=True)
        if b.type_of(value).shape == node.type.shape:
            return [*b.nodes, node.calling("alias.default", self=value)]
        return [*b.nodes, node.calling("squeeze.dims", self=value, dim=dims)]

    def _applied(
        self, link: Node, key: str, mean: Argument, dims: frozenset[int], b: Builder
    ) -> Reference:
        """Return what a node makes of the mean of an argument, with those of its other terms."""
        given = {**link.arguments, key: mean}
        rank = len(link.type.shape)
        for name, other in link.arguments.items():
            if name == key or not isinstance(other, Reference):
                continue
            found = b.type_of(other)
            if along := dims & _varying(found, rank):
                own = [d - rank + len(found.shape) for d in sorted(along)]
                given[name] = b.reduce("mean.dim", other, own, keepdim=True)
        return b.pointwise(link.aten, *given.values())


def _varying(found: TensorType, rank: int) -> set[int]:
    """Return the dimensions of a shape of some rank along which a value is not the same."""
    first = rank - len(found.shape)
    return {d for d, size in enumerate(found.shape, first) if size > 1}
