"""Values come to memory: what one is computed from becomes a stage, as far as one stage can."""

from collections import Counter
from collections.abc import Iterable
from math import prod

import msgspec

from kernelgen.engines.body import Apply, Waiting, inputs_of
from kernelgen.engines.engine import Claim
from kernelgen.engines.naming import without_overload
from kernelgen.engines.stage import Library, Stage, reads
from kernelgen.graph.graph import (
    Argument,
    Graph,
    Node,
    Reference,
    broadcast,
    call_of,
    is_contiguous,
    references,
    renamed,
)
from kernelgen.planning.making import Making

# Tensors of a value's size that it is computed from. To read two again costs no more than to write
# the value and to read that.
_MANY = 3
# Operators that depend on where elements lie: the order of random numbers, or new views.
_BY_LAYOUT = frozenset(
    """
    alpha_dropout as_strided bernoulli cauchy dropout exponential feature_alpha_dropout
    feature_dropout geometric log_normal native_dropout normal normal_functional poisson rand_like
    randint_like randn_like random resize rrelu rrelu_with_noise uniform
    """.split()  # noqa: SIM905 - a list of words reads best as words
)


class Placing:
    """The values of a graph, some in memory by now, some waiting, and the stages made so far.

    Attributes:
        types: of all values.
        in_memory: those that are there.
        waiting: operators and reductions whose values are not.
        views: that wait, as what they look at does.
        constants: computed from numbers alone.
        same: another name of the same value.
        parts: of a result of several -> its value.
        stages: that bring values into memory, in their order.
        as_traced: what has the strides that the Model's has, as far as inputs have.
        known: those of them that depend on no operator of torch, whose strides may vary.
        by_layout: what operators read to which it matters where elements lie.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.types = graph.input_types
        self.in_memory = set(self.types)
        self.waiting = Waiting(self.types, frozenset(i.name for i in graph.inputs if i.path))
        self.views: dict[str, Node] = {}
        self.constants: dict[str, Node] = {}
        self.same: dict[str, str] = {}
        self.parts: dict[tuple[str, int], str] = {}
        self.stages: list[Stage] = []
        # Torch may lay out otherwise what forward leaves to backward, and upstream gradients.
        given = {i.name for i in graph.inputs if i.kind != "input" or i.text}
        own = given.union(self.types.keys() & graph.arguments)
        self.as_traced, self.known = own, set(own)
        self.by_layout: set[str] = set()
        self._making = Making(self.waiting, graph.inputs)
        self._readers = graph.readers

    def resolved(self, name: str) -> str:
        """Return the first name of a value."""
        while name in self.same:
            name = self.same[name]
        return name

    def looked_at(self, name: str) -> str:
        """Return the value that views which wait look at."""
        name = self.resolved(name)
        while name in self.views:
            name = self.resolved(self.views[name].argument("self"))
        return name

    def resolved_arguments(self, node: Node) -> dict[str, Argument]:
        """Return a node's arguments, whose values have their first names."""
        return renamed(node, self.resolved)

    def place(self, value: str) -> None:
        """Add the stages that leave a value in memory."""
        if value in self.in_memory:
            return
        self._place_shared(value)
        self._place_views(value)
        if value in self.in_memory:
            return
        if not self.waiting.gathers(value):
            self._done(self._making.map((value,)), value)
        elif self.waiting.pass_of(value) is not None:
            self._reduce((value,))
        else:
            self._place_gathers(value)
            self.place(value)

    def _place_shared(self, value: str) -> None:
        """Put into memory what is read elsewhere too, where each reader would read much for it.

        So is a sum of many layers' outputs, to which each layer adds one.
        """
        needed = self.waiting.computed_from(value)
        steps = [self.waiting.steps[name] for name in needed if name in self.waiting.steps]
        readers = Counter(read for step in steps for read in inputs_of(step))
        for name in reversed(needed[1:]):
            waits = isinstance(self.waiting.steps.get(name), Apply)
            if waits and self._readers[name] > readers[name] and self._reads(name) >= _MANY:
                self.place(name)

    def _reads(self, value: str) -> int:
        """Return how many tensors of its size a value is computed from."""
        size = prod(self.types[value].shape)
        read = self.waiting.computed_from(value, through_gathers=False)
        return sum(name in self.in_memory and prod(self.types[name].shape) == size for name in read)

    def _place_views(self, value: str) -> None:
        """Put into memory the views that a value is computed from."""
        for name in self.waiting.computed_from(value):
            if (view := self.views.pop(name, None)) is not None:
                self.library(view)
        self._place_constant(value)

    def _place_constant(self, value: str) -> None:
        """Leave to torch what reads nothing: a kernel has shape and device from what it reads."""
        names = self.waiting.computed_from(value, through_gathers=False, but_for=self.constants)
        read = [name for name in names if not isinstance(self.waiting.steps.get(name), Apply)]
        has_shape = broadcast(*(self.types[n].shape for n in read)) == self.types[value].shape
        for name in names:
            needed = name == value or not has_shape
            if needed and name in self.constants and name in self.waiting.steps:
                node = self.constants.pop(name)
                for each in node.reads:  # for its shape; a pass that makes it may make this as well
                    self.place(self.resolved(each))
                if name in self.waiting.steps:
                    self.library(node)

    def _place_gathers(self, value: str) -> None:
        """Put into memory what a value reads of reductions, those of one pass at once."""
        found = self.waiting.last_reduced(value, self.types[value].shape)
        for names in self.waiting.together({v: self.waiting.pass_of(v) or v for v in found}):
            if self.waiting.pass_of(names[0]) is None:
                self.place(names[0])
            else:
                self._reduce(tuple(names))

    def in_one_map(self, values: Iterable[str]) -> None:
        """Compute results of one shape together, if nothing else stands between."""
        values = dict.fromkeys(values)
        for value in values:
            self._place_views(value)
        waiting = [v for v in values if v in self.waiting.steps and not self.waiting.gathers(v)]
        for names in self.waiting.together({v: self.types[v].shape for v in waiting}):
            if len(names) > 1:
                self._done(self._making.map(tuple(names)), *names)

    def in_one_reduce(self, values: Iterable[str]) -> None:
        """Compute results of the same pass together."""
        passes = {v: found for v in values if (found := self.waiting.pass_of(v)) is not None}
        for names in self.waiting.together(passes):
            if len(names) > 1:
                for name in names:
                    self._place_views(name)
                self._reduce(tuple(names))

    def _done(self, stage: Stage, *values: str) -> None:
        self.stages.append(stage)
        self.in_memory.update(values)
        if not isinstance(stage, Library):
            self.waiting.origins.update(dict.fromkeys(values, values[0]))
            values_in_order = {v for v in values if is_contiguous(self.types[v])}
            self.as_traced |= values_in_order
            self.known |= values_in_order
        elif self.as_traced.issuperset(reads(stage)):
            self.as_traced.update(values)
            if stage.view and self.known.issuperset(reads(stage)):
                self.known.update(values)
        for value in values:
            self.waiting.steps.pop(value, None)

    def _place_reduced(self, value: str) -> None:
        while gathers := self.waiting.gathers(value):
            same = self.types[value].shape in {self.types[name].shape for name in gathers}
            (self.place if same else self._place_gathers)(value)

    def _reduce(self, values: tuple[str, ...]) -> None:
        """Add the stage whose results these values are, of one pass."""
        values = (*values, *self._beside(values))
        gathers = {name: g for value in values for name, g in self.waiting.gathers(value).items()}
        # Values that others read as well are written, rather than gathered again.
        shared = [name for name in gathers if self._readers[name] > 1 and name not in values]
        values = (*values, *shared)
        for gather in gathers.values():
            self._place_reduced(gather.of)
            self._place_constant(gather.of)
            if gather.at:
                self.place(gather.at)
        # One that another of them, or another pass, is computed from has come there by now.
        values = tuple(value for value in values if value not in self.in_memory)
        gathers = {name: g for value in values for name, g in self.waiting.gathers(value).items()}
        if gathers:
            self._done(self._making.reduce(values, gathers), *values)
        else:
            self.in_one_map(values)

    def _beside(self, values: tuple[str, ...]) -> list[str]:
        """Return what forward leaves in buffers that one pass gathers with these values."""
        passes = self.waiting.pass_of(values[0])
        of = {g.of for value in values for g in self.waiting.gathers(value).values()}
        found: list[str] = []
        for name in self._graph.updates.values():
            value = self.looked_at(name)
            # Or what it is gathered from in turn, as the mean of all samples' variances.
            inner = [
                each
                for g in self.waiting.gathers(value).values()
                for each in self.waiting.gathers(g.of)
            ]
            for one in (value, *inner):
                waits = {g.of for g in self.waiting.gathers(one).values()}
                if one in {*values, *found} or not waits or not waits <= of:
                    continue
                if self.waiting.pass_of(one) == passes and self._has_views_in_memory(one):
                    self._place_views(one)
                    found.append(one)
        return found

    def _has_views_in_memory(self, value: str) -> bool:
        """Whether the views that a value is computed from are of what is in memory."""
        known = self.in_memory | self.waiting.steps.keys()
        known |= {
            name
            for name, view in self.views.items()
            if self.in_memory.issuperset(map(self.resolved, view.reads))
        }
        return known.issuperset(self.waiting.computed_from(value))

    def claimed(self, node: Node, claim: Claim) -> None:
        """Add the stage of a node that an engine claims."""
        arguments, of = self.resolved_arguments(node), ""
        if claim.of:
            of = self.resolved(claim.of)
            # Reductions and views before the stage that it cannot compute.
            self._place_views(of)
            self._place_reduced(of)
        else:
            for name in references(*arguments.values()):
                self.place(name)
        self._done(self._making.claimed(node, arguments, claim, of), node.name)

    def library(self, node: Node) -> None:
        """Leave a node to torch."""
        if without_overload(node.aten) in _BY_LAYOUT or node.aten == "view.dtype":
            for name in node.reads:
                self._place_as_traced(self.looked_at(name))
                self.by_layout.add(self.resolved(name))
        arguments = self.resolved_arguments(node)
        read = references(*arguments.values())
        self.in_one_reduce(read)
        for name in read:
            self.place(name)
        if node.aten == "view.default" and not self.known.issuperset(read):
            node = msgspec.structs.replace(node, aten="reshape.default")
        stage = self._making.library(node, arguments)
        self.parts |= {(node.name, index): name for index, name in enumerate(stage.results)}
        self._done(stage, *stage.results)

    def _place_as_traced(self, value: str) -> None:
        """Put a value into memory with the strides that the Model's has; kernels write in order."""
        self.place(value)
        if value in self.as_traced:
            return
        found = self.types[value]
        dims = range(len(found.shape))
        order = sorted(dims, key=lambda d: -found.strides[d])
        calls: list[tuple[str, str, dict[str, Argument]]] = [
            ("in_memory", "permute.default", {"dims": tuple(order)}),
            ("ordered", "contiguous.default", {}),
            ("strided", "permute.default", {"dims": tuple(order.index(d) for d in dims)}),
        ]
        of = value
        for word, aten, others in calls:
            name = f"{value}_{word}"
            arguments = {"self": Reference(of), **others}
            self.types[name] = found
            self.library(call_of(name, aten, arguments, found))
            of = name
        self.same[value] = of
        self.as_traced.add(of)
        self.known.add(of)
