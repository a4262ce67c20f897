"""Views out of the way of the operators beside them, so that one kernel computes all of these.

A group norm looks at its input in another shape: channels as groups of channels. Pointwise
operators before and after it are computed in that shape as well, reductions and pools after it;
what they read is looked at so. The same goes for what is computed, looked at with dimensions merged
(`x.view(b, c, -1)`) and computed further: dimensions stay apart. What is repeated by a view is
repeated by the operator that reads it.
"""

from math import prod

import msgspec

from kernelgen.engines.operators import operator_for
from kernelgen.engines.pool.record import Window
from kernelgen.engines.pool.window import window_of
from kernelgen.graph.graph import (
    NUMBER,
    Argument,
    Graph,
    Node,
    Reference,
    broadcast,
    call_of,
    contiguous,
    items_of,
    renamed,
)

_REDUCTIONS = (
    "sum.dim_IntList",
    "mean.dim",
    "amax.default",
    "amin.default",
    "sumexp",
    "variance",
)
EXPANSIONS = ("expand.default", "expand_as.default", "broadcast_to.default")
_MERGES = ("view.default", "reshape.default", "flatten.using_ints", "squeeze.dim", "squeeze.dims")
_SPLITS = ("view.default", "reshape.default", "unflatten.int")


class _Split(msgspec.Struct, frozen=True):
    """Dimension `dim` of tensors of `rank` dimensions as several, of these sizes.

    Attributes:
        merged: the several ones were there first; else they are groups of the one.
    """

    dim: int
    sizes: tuple[int, ...]
    rank: int
    merged: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that it becomes."""
        return tuple(range(self.dim, self.dim + len(self.sizes)))

    def place(self, shape: tuple[int, ...]) -> int | None:
        """Return where a shape that is broadcast to these tensors' has that dimension."""
        found = len(shape) - self.rank + self.dim
        return found if found >= 0 else None

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape with the dimension split."""
        place = self.place(shape)
        if place is None:
            return shape
        split = (1,) * len(self.sizes) if shape[place] == 1 else self.sizes
        return (*shape[:place], *split, *shape[place + 1 :])


def _merge(shape: tuple[int, ...], merged: tuple[int, ...]) -> _Split | None:
    """Return which neighbours of a shape are one dimension of another one, if that is all.

    Ones are taken to those after them, so that what else is read is looked at without a size.
    """
    count = len(shape) - len(merged) + 1
    for dim, size in reversed([*enumerate(merged)]):
        sizes = shape[dim : dim + count]
        around = (*shape[:dim], size, *shape[dim + count :])
        if count > 1 and size > 1 and around == merged and prod(sizes) == size:
            return _Split(dim=dim, sizes=sizes, rank=len(merged), merged=True)
    return None


def without_views_between(graph: Graph) -> Graph:
    """Return the graph with views moved from between pointwise operators; nothing reads others."""
    return _Views(graph).graph()


class _Views:
    def __init__(self, graph: Graph) -> None:
        self._graph, self._asked = graph, graph.asked
        self._types = graph.types
        self._nodes: dict[str, Node] = {}
        self._in_parts: dict[tuple[str, _Split], str] = {}
        self._home: dict[str, _Split] = {}  # of a value that is computed in parts
        self._readers = graph.readers
        # Views and torch's operators may ask how these lie in memory.
        self._laid_out = {*graph.outputs, *graph.updates.values()}
        for node in graph.nodes:
            known = operator_for(node.aten, node.arguments) is not None
            self._laid_out.update(() if known or node.aten in _REDUCTIONS else node.reads)

    def graph(self) -> Graph:
        for node in self._graph.nodes:
            self._keep(self._moved(node))
        nodes = tuple(self._nodes.values())
        return msgspec.structs.replace(self._graph, nodes=nodes, asked=self._asked)

    def _keep(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._types |= node.types

    def _moved(self, node: Node) -> Node:
        """Return what becomes of a node; nodes that it reads are added before it."""
        if node.aten == "unflatten.groups" and node.argument("self") in self._nodes:
            value = node.argument("self")
            split = _Split(dim=1, sizes=node.type.shape[1:3], rank=len(self._types[value].shape))
            return node.calling("alias.default", self=Reference(self._parted(value, split)))
        if node.aten == "flatten.groups":
            shape = self._types[node.argument("self")].shape
            split = _Split(dim=1, sizes=shape[1:3], rank=len(shape) - 1)
            self._lives(node.name, split, node.argument("self"))
        elif operator_for(node.aten, node.arguments) is not None:
            node = self._expanded_later(self._unexpanded(node))
            homes = [self._home[name] for name in node.reads if name in self._home]
            if homes and self._can(node, homes[0]):
                self._home[node.name] = homes[0]
                return _merged(node, homes[0], self._pointwise(node, homes[0]))
        elif node.aten in _REDUCTIONS and node.argument("self") in self._home:
            return self._reduction(node, self._home[node.argument("self")])
        elif (window := window_of(node, self._types)) is not None and window.of in self._home:
            return self._pool(node, window)
        elif node.aten in {*_MERGES, *_SPLITS}:
            return self._view(node)
        return node

    def _lives(self, value: str, split: _Split, parts: str) -> None:
        self._home[value] = split
        self._in_parts[value, split] = parts

    def _view(self, node: Node) -> Node:
        """Note what a view merges of a value that nothing else reads, or take that back."""
        value = node.argument("self")
        home = self._home.get(value)
        if home is not None and home.of(self._types[value].shape) == node.type.shape:
            return node.calling("alias.default", self=Reference(self._in_parts[value, home]))
        if home is not None and home.merged and self._readers[value] == 1:
            # One view of what a view of it looks at.
            whole = self._in_parts[value, home]
            if (split := _merge(self._types[whole].shape, node.type.shape)) is not None:
                self._lives(node.name, split, whole)
                return node
        computed = self._nodes.get(value)
        if computed is not None and _takes_more(computed):
            split = _merge(computed.type.shape, node.type.shape)
            if split is not None and node.aten in _MERGES and self._readers[value] == 1:
                self._lives(node.name, split, value)
                # From here on, a dimension that was counted from the last one is from the first.
                if any(isinstance(i, int) and i < 0 for i in items_of(*node.arguments.values())):
                    self._asked |= {"rank"}
        return node

    def _can(self, node: Node, split: _Split) -> bool:
        """Return whether all that a pointwise node reads is there in parts or broadcast to them."""
        if len(node.type.shape) != split.rank:
            return False
        return not split.merged or all(
            (name, split) in self._in_parts
            or prod(split.sizes[:-1]) == 1
            or (place := split.place(shape := self._types[name].shape)) is None
            or shape[place] == 1
            for name in node.reads
        )

    def _pool(self, node: Node, window: Window) -> Node:
        """Return a pool of a value in parts, unless it is along these."""
        split = self._home[window.of]
        if len(window.kernel) >= split.rank - split.dim:
            return node
        name = next(key for key, value in node.arguments.items() if value == Reference(window.of))
        arguments = node.arguments | {name: Reference(self._parted(window.of, split))}
        self._home[node.name] = split
        return _merged(node, split, self._made(node, split, arguments))

    def _reduction(self, node: Node, split: _Split) -> Node:
        """Return a reduction over the same elements of a value in parts."""
        given, keepdim = node.arguments["dim"], node.arguments["keepdim"]
        dims = given if isinstance(given, tuple) and given else tuple(range(split.rank))
        places = sorted(d % split.rank for d in dims if isinstance(d, int))
        more = len(split.sizes) - 1
        before = [d for d in places if d < split.dim]
        reduced = (*before, *split.dims) if split.dim in places else (*before,)
        reduced += tuple(d + more for d in places if d > split.dim)
        of = self._parted(node.argument("self"), split)
        arguments = node.arguments | {"self": Reference(of), "dim": reduced}
        if split.dim in places and not keepdim:
            return msgspec.structs.replace(node, arguments=arguments)
        kept = msgspec.structs.replace(
            split,
            dim=split.dim if keepdim else split.dim - len(before),
            rank=len(node.type.shape),
        )
        self._home[node.name] = kept
        return _merged(node, kept, self._made(node, kept, arguments))

    def _parted(self, value: str, split: _Split) -> str:
        """Return a value in parts, computed so where it is computed at all."""
        if (found := self._in_parts.get((value, split))) is not None:
            return found
        node = self._nodes.get(value)
        computed = node is not None and operator_for(node.aten, node.arguments) is not None
        if node is not None and computed and not split.merged:
            return self._pointwise(node, split).name
        shape, place = self._types[value].shape, split.place(self._types[value].shape)
        if place is None:
            return value
        if shape[place] > 1:
            sizes = (*split.sizes[:-1], -1)
            return self._look(value, split, "unflatten.groups", dim=place, sizes=sizes)
        if len(split.sizes) == 2:  # noqa: PLR2004 - one dimension more
            return self._look(value, split, "unsqueeze.default", dim=place)
        ones = (1,) * len(split.sizes)
        return self._look(value, split, "unflatten.groups", dim=place, sizes=ones)

    def _pointwise(self, node: Node, split: _Split) -> Reference:
        arguments = renamed(node, lambda value: self._parted(value, split))
        return self._made(node, split, arguments)

    def _look(self, value: str, split: _Split, aten: str, **others: Argument) -> str:
        arguments = {"self": Reference(value), **others}
        whole = call_of(value, aten, arguments, self._types[value])
        return self._made(whole, split, arguments).name

    def _made(self, node: Node, split: _Split, arguments: dict[str, Argument]) -> Reference:
        """Add a node that computes another's value in parts."""
        name = f"{node.name}_grouped_{split.sizes[0]}"
        if split.merged:
            name = f"{node.name}_apart"
            while name in self._nodes:
                name += "_2"
        found = contiguous(split.of(node.type.shape), node.type.dtype)
        changed = {"name": name, "arguments": arguments, "results": (found,), "layer": ""}
        self._keep(msgspec.structs.replace(node, **changed))
        self._in_parts[node.name, split] = name
        return Reference(name)

    def _unexpanded(self, node: Node) -> Node:
        """Return a pointwise node that reads values as they were before they were repeated."""
        sources = {
            name: other.argument("self")
            for name in node.reads
            if (other := self._nodes.get(name)) is not None and other.aten in EXPANSIONS
        }
        shapes = [self._types[sources.get(name, name)].shape for name in node.reads]
        arguments = renamed(node, lambda value: sources.get(value, value))
        whole = [
            key
            for key, one in node.arguments.items()
            if isinstance(one, Reference) and one.name not in sources
            if self._types[one.name].shape == node.type.shape
        ]
        # At other sizes, one that is not repeated here may be: another operand has to say it.
        said = whole or all(
            self._types[source].shape != node.type.shape for source in sources.values()
        )
        if not sources or not said or broadcast(*shapes) != node.type.shape:
            return node
        return msgspec.structs.replace(node, arguments=arguments, whole=(*node.whole, *whole))

    def _expanded_later(self, node: Node) -> Node:
        """Return the repetition of a pointwise node that reads nothing but a repeated value.

        What autograd gives a sum's input is repeated first, and divided by the count after that.
        Each element of such a repetition has no memory of its own.
        """
        read = {name for name in node.reads if self._types[name] != NUMBER}
        repeated = self._nodes.get(next(iter(read), ""))
        if repeated is None or len(read) > 1 or node.name in self._laid_out:
            return node
        if repeated.aten not in EXPANSIONS:
            return node
        source = repeated.argument("self")
        shape = self._types[source].shape
        if shape == node.type.shape or repeated.type.shape != node.type.shape:
            return node
        arguments = renamed(node, lambda value: source if value in read else value)
        once = f"{node.name}_once"
        while once in self._types:
            once += "_2"
        made = contiguous(shape, node.type.dtype)
        changed = {"name": once, "arguments": arguments, "results": (made,), "whole": ()}
        self._keep(msgspec.structs.replace(node, **changed))
        arguments = repeated.arguments | {"self": Reference(once)}
        changed = {"name": node.name, "arguments": arguments, "results": node.results}
        return msgspec.structs.replace(repeated, **changed)


def _takes_more(node: Node) -> bool:
    """Whether the kernel that computes a node can compute pointwise operators after it."""
    is_norm = node.aten.startswith("segment.")
    return is_norm or operator_for(node.aten, node.arguments) is not None


def _merged(node: Node, split: _Split, parts: Reference) -> Node:
    """Return a node whose result is one in parts, looked at without these."""
    first, last = split.dims[0], split.dims[-1]
    return node.calling("flatten.groups", self=parts, start_dim=first, end_dim=last)
