"""Views out of the way of the operators beside them, so that one kernel computes all of these.

A group norm looks at its input in another shape: channels as groups of channels. Pointwise
operators before and after it are computed in that shape as well, reductions and pools after it;
what they read is looked at so. What is repeated by a view is repeated by the operator that reads
it.
"""

import msgspec

from kernelgen.planning.graph import Argument, Graph, Node, Reference, TensorType, renamed
from kernelgen.planning.operators import operator_for
from kernelgen.planning.pooling import Window, window_of
from kernelgen.planning.rewrites.builder import broadcast, strides_of

_REDUCTIONS = (
    "sum.dim_IntList",
    "mean.dim",
    "amax.default",
    "amin.default",
    "sumexp",
    "variance",
)
_EXPANSIONS = ("expand.default", "expand_as.default", "broadcast_to.default")
# Where a dimension is in the shape with groups, beside its own place.
_AFTER = {0: (0,), 1: (0, 1)}


class _Groups(msgspec.Struct, frozen=True):
    """Dimension 1 of tensors of `rank` dimensions as `count` groups."""

    count: int
    rank: int

    def place(self, shape: tuple[int, ...]) -> int | None:
        """Return where a shape that is broadcast to these tensors' has that dimension."""
        found = len(shape) - self.rank + 1
        return found if found >= 0 else None

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape with groups."""
        place = self.place(shape)
        if place is None:
            return shape
        channels = shape[place]
        split = (1, 1) if channels == 1 else (self.count, channels // self.count)
        return (*shape[:place], *split, *shape[place + 1 :])


def without_views_between(graph: Graph) -> Graph:
    """Return the graph with views moved from between pointwise operators; nothing reads others."""
    return _Views(graph).graph()


class _Views:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._types = graph.input_types
        self._nodes: dict[str, Node] = {}
        self._in_groups: dict[tuple[str, _Groups], str] = {}
        self._home: dict[str, _Groups] = {}  # of a value that is computed in groups

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            self._keep(self._moved(node))
        return msgspec.structs.replace(self._graph, nodes=tuple(self._nodes.values()))

    def _keep(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._types |= node.types

    def _moved(self, node: Node) -> Node:
        """Return what becomes of a node; nodes that it reads are added before it."""
        if node.aten == "unflatten.groups" and node.argument("self") in self._nodes:
            value = node.argument("self")
            groups = _Groups(node.type.shape[1], len(self._types[value].shape))
            return node.calling("alias.default", self=Reference(self._grouped(value, groups)))
        if node.aten == "flatten.groups":
            shape = self._types[node.argument("self")].shape
            self._home[node.name] = groups = _Groups(shape[1], len(shape) - 1)
            self._in_groups[node.name, groups] = node.argument("self")
        elif operator_for(node.aten, node.arguments) is not None:
            node = self._unexpanded(node)
            homes = [self._home[name] for name in node.reads if name in self._home]
            if homes and len(node.type.shape) == homes[0].rank:
                self._home[node.name] = homes[0]
                return _flattened(node, self._pointwise(node, homes[0]))
        elif node.aten in _REDUCTIONS and node.argument("self") in self._home:
            return self._reduction(node, self._home[node.argument("self")])
        elif (window := window_of(node, self._types)) is not None and window.of in self._home:
            return self._pool(node, window)
        return node

    def _pool(self, node: Node, window: Window) -> Node:
        """Return a pool of a value in the shape with groups, unless it is along these."""
        groups = self._home[window.of]
        if len(window.kernel) > groups.rank - 2:
            return node
        self._home[node.name] = groups
        name = next(key for key, value in node.arguments.items() if value == Reference(window.of))
        arguments = node.arguments | {name: Reference(self._grouped(window.of, groups))}
        return _flattened(node, self._made(node.name, groups, node.aten, arguments, node.type))

    def _reduction(self, node: Node, groups: _Groups) -> Node:
        """Return a reduction over the same elements of a value in the shape with groups."""
        given = node.arguments["dim"]
        dims = given if isinstance(given, tuple) and given else tuple(range(groups.rank))
        places = [d % groups.rank for d in dims if isinstance(d, int)]
        split = tuple(sorted({p + after for p in places for after in _AFTER.get(p, (1,))}))
        of = self._grouped(node.argument("self"), groups)
        arguments = node.arguments | {"self": Reference(of), "dim": split}
        if 1 in places and not node.arguments["keepdim"]:
            return msgspec.structs.replace(node, arguments=arguments)
        kept = _Groups(groups.count, len(node.type.shape))
        self._home[node.name] = kept
        return _flattened(node, self._made(node.name, kept, node.aten, arguments, node.type))

    def _grouped(self, value: str, groups: _Groups) -> str:
        """Return a value in the shape with groups, computed in it where it is computed at all."""
        if (found := self._in_groups.get((value, groups))) is not None:
            return found
        node = self._nodes.get(value)
        if node is not None and operator_for(node.aten, node.arguments) is not None:
            return self._pointwise(node, groups).name
        shape = self._types[value].shape
        place = groups.place(shape)
        if place is None:
            return value
        if shape[place] == 1:
            return self._view(value, groups, "unsqueeze.default", dim=place)
        return self._view(value, groups, "unflatten.groups", dim=place, sizes=(groups.count, -1))

    def _pointwise(self, node: Node, groups: _Groups) -> Reference:
        arguments = {
            key: renamed(argument, lambda value: self._grouped(value, groups))
            for key, argument in node.arguments.items()
        }
        return self._made(node.name, groups, node.aten, arguments, node.type)

    def _view(self, value: str, groups: _Groups, aten: str, **others: Argument) -> str:
        arguments = {"self": Reference(value), **others}
        return self._made(value, groups, aten, arguments, self._types[value]).name

    def _made(
        self,
        value: str,
        groups: _Groups,
        aten: str,
        arguments: dict[str, Argument],
        flat: TensorType,
    ) -> Reference:
        """Add a node that computes a value in the shape with groups."""
        name = f"{value}_grouped_{groups.count}"
        shape = groups.of(flat.shape)
        found = msgspec.structs.replace(flat, shape=shape, strides=strides_of(shape))
        self._keep(
            Node(name=name, aten=aten, arguments=arguments, given=len(arguments), results=(found,))
        )
        self._in_groups[value, groups] = name
        return Reference(name)

    def _unexpanded(self, node: Node) -> Node:
        """Return a pointwise node that reads values as they were before they were repeated."""
        sources = {
            name: other.argument("self")
            for name in node.reads
            if (other := self._nodes.get(name)) is not None and other.aten in _EXPANSIONS
        }
        shapes = [self._types[sources.get(name, name)].shape for name in node.reads]
        if not sources or broadcast(*shapes) != node.type.shape:
            return node
        arguments = {
            key: renamed(argument, lambda value: sources.get(value, value))
            for key, argument in node.arguments.items()
        }
        return msgspec.structs.replace(node, arguments=arguments)


def _flattened(node: Node, grouped: Reference) -> Node:
    """Return a node whose result is one in the shape with groups, looked at without these."""
    return node.calling("flatten.groups", self=grouped, start_dim=1, end_dim=2)
