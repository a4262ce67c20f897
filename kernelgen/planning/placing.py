"""Values come to memory: what one is computed from becomes a stage, as far as one stage can.

Operators before a reduction, a scan or a pooling are computed with what they read, those after a
reduction with its results.
"""

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Literal

import msgspec

from kernelgen.planning.body import Apply, Body, Waiting, inputs_of
from kernelgen.planning.graph import Argument, Graph, Node, Reference, references, renamed
from kernelgen.planning.naming import SUMS, Names, without_overload
from kernelgen.planning.plan import (
    POOLED,
    Accumulator,
    Library,
    Map,
    Pool,
    Reduce,
    Result,
    Scan,
    Stage,
    StepValue,
)
from kernelgen.planning.pooling import Window

# Tensors of a value's size that it is computed from. To read two again costs no more than to write
# the value and to read that.
_MANY = 3
VIEWS = frozenset(
    """
    alias chunk detach expand expand_as flatten movedim narrow numpy_T permute select slice split
    squeeze t transpose unbind unflatten unfold unsqueeze view view_as
    """.split()  # noqa: SIM905 - a list of words reads best as words
)
_COMPUTES = frozenset(
    """
    addmm baddbmm bilinear bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d einsum gru linear lstm matmul mm scaled_dot_product_attention
    """.split()  # noqa: SIM905
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
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.types = graph.input_types
        self.in_memory = set(self.types)
        self.waiting = Waiting(self.types)
        self.views: dict[str, Node] = {}
        self.constants: dict[str, Node] = {}
        self.same: dict[str, str] = {}
        self.parts: dict[tuple[str, int], str] = {}
        self.stages: list[Stage] = []
        self._kernels = Names()
        # What a parameter is called in its layer, and a view of it in a kernel.
        self._called = {i.name: i.path.split(".")[-1] for i in graph.inputs if i.path}
        self._readers = Counter(name for node in graph.nodes for name in node.reads)
        self._readers.update((*graph.outputs, *graph.updates.values()))

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
        return {name: renamed(value, self.resolved) for name, value in node.arguments.items()}

    def place(self, value: str) -> None:
        """Add the stages that leave a value in memory."""
        self._place_shared(value)
        self._place_views(value)
        if value in self.in_memory:
            return
        if not self.waiting.gathers(value):
            self._map((value,))
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
        if value in self.constants and value in self.waiting.steps:
            self.library(self.constants[value])

    def _place_gathers(self, value: str) -> None:
        """Put into memory what a value reads of reductions, those of one pass at once."""
        found = self.waiting.last_reduced(value, self.types[value].shape)
        passes: dict[object, list[str]] = {}
        for name in dict.fromkeys(found):
            passes.setdefault(self.waiting.pass_of(name) or name, []).append(name)
        for names in passes.values():
            if self.waiting.pass_of(names[0]) is None:
                self.place(names[0])
            else:
                self._reduce(tuple(names))

    def in_one_map(self, values: Iterable[str]) -> None:
        """Compute several results of one shape together, if nothing else stands between."""
        for value in values:
            self._place_views(value)
        waiting = [
            v
            for v in dict.fromkeys(values)
            if v in self.waiting.steps and not self.waiting.gathers(v)
        ]
        shapes = {self.types[value].shape for value in waiting}
        if len(waiting) > 1 and len(shapes) == 1:
            self._map(tuple(waiting))

    def in_one_reduce(self, values: Iterable[str]) -> None:
        """Compute results of the same pass together."""
        passes: dict[object, list[str]] = {}
        for value in dict.fromkeys(values):
            if (found := self.waiting.pass_of(value)) is not None:
                passes.setdefault(found, []).append(value)
        for names in passes.values():
            if len(names) > 1:
                for name in names:
                    self._place_views(name)
                self._reduce(tuple(names))

    def _done(self, stage: Stage, *values: str) -> None:
        self.stages.append(stage)
        self.in_memory.update(values)
        for value in values:
            self.waiting.steps.pop(value, None)

    def _results(self, values: tuple[str, ...], of: Iterable[StepValue]) -> tuple[Result, ...]:
        return tuple(
            Result(value=value, of=made, type=self.types[value])
            for value, made in zip(values, of, strict=True)
        )

    def _map(self, values: tuple[str, ...]) -> None:
        shape = self.types[values[0]].shape
        body = Body(self.waiting, shape, self._called)
        of = [body.value(value) for value in values]
        stage = Map(
            name=self._kernels.kernel(body.steps, "copy"),
            shape=shape,
            operands=body.operands,
            steps=body.steps,
            results=self._results(values, of),
        )
        self._done(stage, *values)

    def _before(self, value: str) -> tuple[Body, str]:
        """Return operators that compute what a stage gathers, and what they call it.

        Reductions come to memory first.
        """
        self._place_views(value)
        self._place_reduced(value)
        body = Body(self.waiting, self.types[value].shape, self._called)
        read = body.value(value)
        assert isinstance(read, str)
        return body, read

    def _place_reduced(self, value: str) -> None:
        while self.waiting.gathers(value):
            if self.types[value].shape in {
                self.types[n].shape for n in self.waiting.gathers(value)
            }:
                self.place(value)
            else:
                self._place_gathers(value)

    def _reduce(self, values: tuple[str, ...]) -> None:
        """Add the stage whose results these values are, of one pass."""
        values = (*values, *self._beside(values))
        gathers = {name: g for value in values for name, g in self.waiting.gathers(value).items()}
        # What others read as well is written, rather than gathered again.
        shared = [name for name in gathers if self._readers[name] > 1 and name not in values]
        values = (*values, *shared)
        first = next(iter(gathers.values()))
        shape = self.types[first.of].shape
        for gather in gathers.values():
            self._place_reduced(gather.of)
            self._place_constant(gather.of)
            if gather.at:
                self.place(gather.at)
        # One that another of them is computed from has come there by now.
        gathers = {name: g for name, g in gathers.items() if name not in self.in_memory}
        values = tuple(value for value in values if value not in self.in_memory)
        before = Body(self.waiting, shape, self._called, Names(SUMS))
        result_shape = self.types[values[0]].shape
        after = Body(self.waiting, result_shape, self._called, before.names)
        accumulators = tuple(
            Accumulator(
                name=before.names.local(gather.kind),
                kind=gather.kind,
                of=before.value(gather.of),
                correction=gather.correction,
                at=after.value(gather.at) if gather.at else "",
            )
            for gather in gathers.values()
        )
        after.known.update({name: a.name for name, a in zip(gathers, accumulators, strict=True)})
        of = [after.value(value) for value in values]
        kinds = "_".join(dict.fromkeys(a.kind for a in accumulators))
        stage = Reduce(
            name=self._kernels.kernel((*before.steps, kinds, *after.steps), kinds),
            shape=shape,
            dims=first.dims,
            keepdim=first.keepdim,
            operands=before.operands,
            steps=before.steps,
            accumulators=accumulators,
            beside=after.operands,
            epilogue=after.steps,
            results=self._results(values, of),
        )
        self._done(stage, *values)

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
                if self.waiting.pass_of(one) == passes:
                    self._place_views(one)
                    found.append(one)
        return found

    def scan(self, node: Node) -> None:
        """Add the stage of a scan."""
        of = self.resolved(node.argument("self"))
        body, read = self._before(of)
        dim, reverse = node.arguments["dim"], node.arguments["reverse"]
        exclusive = node.arguments["exclusive"]
        assert isinstance(dim, int)
        kind: Literal["sum", "prod"] = "sum" if node.aten == "scan_sum" else "prod"
        words = "reverse_" * bool(reverse) + "exclusive_" * bool(exclusive) + f"cum{kind}"
        stage = Scan(
            name=self._kernels.kernel((*body.steps, words), words),
            shape=self.types[of].shape,
            kind=kind,
            dim=dim,
            reverse=bool(reverse),
            exclusive=bool(exclusive),
            operands=body.operands,
            steps=body.steps,
            of=read,
            result=Result(value=node.name, of="scanned", type=self.types[node.name]),
        )
        self._done(stage, node.name)

    def pool(self, node: Node, window: Window) -> None:
        """Add the stage of a pooling."""
        of = self.resolved(window.of)
        body, read = self._before(of)
        stage = Pool(
            name=self._kernels.kernel((*body.steps, f"{window.kind}_pool"), window.kind),
            shape=self.types[of].shape,
            operands=body.operands,
            steps=body.steps,
            result=Result(value=node.name, of=POOLED, type=self.types[node.name]),
            **{**msgspec.structs.asdict(window), "of": read},
        )
        self._done(stage, node.name)

    def library(self, node: Node) -> None:
        """Leave a node to torch."""
        arguments = self.resolved_arguments(node)
        for name in references(*arguments.values()):
            self.place(name)
        base = without_overload(node.aten)
        if base in VIEWS and len(read := list(node.arguments.values())[:1]) == 1:
            (first,) = read
            if isinstance(first, Reference) and first.name in self._called:
                self._called[node.name] = self._called[first.name]
        names = result_names(node)
        self.parts |= {(node.name, index): name for index, name in enumerate(names)}
        stage = Library(
            name=node.name,
            aten=node.aten,
            arguments=arguments,
            given=node.given,
            named=node.named,
            results=names,
            types=node.results,
            view=base in VIEWS,
            computes=base in _COMPUTES,
        )
        self._done(stage, *names)


def result_names(node: Node) -> tuple[str, ...]:
    """Return what the values of a node are called."""
    if len(node.results) == 1:
        return (node.name,)
    return tuple(f"{node.name}.{index}" for index in range(len(node.results)))
