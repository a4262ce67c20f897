"""A graph to its plan: which operators make up a kernel, in which order, and which stay in torch.

Pointwise operators and reductions wait until a value is needed in memory. Then all that it is
computed from becomes one stage, as far as one stage can: operators before a reduction, a scan or a
pooling are computed with what they read, those after a reduction with its results.
"""

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Literal, cast

from kernelgen.planning.body import Apply, Body, Gather, inputs_of
from kernelgen.planning.graph import Argument, Graph, Item, Node, Reference, TensorType, references
from kernelgen.planning.naming import SUMS, Names, without_overload
from kernelgen.planning.operators import SAME, Operator, operator_for
from kernelgen.planning.plan import (
    POOLED,
    Accumulator,
    Library,
    Map,
    Plan,
    Pool,
    Reduce,
    Result,
    Scan,
    Source,
    Stage,
    reads,
)
from kernelgen.planning.pooling import Window, window_of, with_means
from kernelgen.planning.reductions import reduction_of
from kernelgen.planning.rewrites.decompose import decomposed
from kernelgen.planning.rewrites.scans import with_scans
from kernelgen.planning.waiting import Waiting

# Tensors of a value's size that it is computed from. To read two again costs no more than to write
# the value and to read that.
_MANY = 3
# What a kernel reads and writes; everything else stays in torch.
_DTYPES = frozenset(("float32", "bool", "int64"))
_TAKEN = {"float": ("float32", "bool"), "bool": ("bool",), "any": ("float32", "bool", "int64")}
_VIEWS = frozenset(
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


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph. Every graph has one: what is not known stays in torch."""
    return plan_of_simple(simplified(graph))


def simplified(graph: Graph) -> Graph:
    """Return a graph of what stages know, without losses and norms; simplified once, not twice."""
    return with_scans(with_means(decomposed(graph)))


def plan_of_simple(graph: Graph) -> Plan:
    """Return the plan of a graph that is simplified already."""
    return _Planner(graph).plan()


class _Planner:
    """The values of a graph, some in memory by now, some waiting."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._types: dict[str, TensorType] = {i.name: i.type for i in graph.inputs}
        self._in_memory = set(self._types)
        self._waiting = Waiting(self._types)
        self._views: dict[str, Node] = {}  # that wait, as what they look at does
        self._constants: dict[str, Node] = {}  # computed from numbers alone
        self._same: dict[str, str] = {}  # another name of the same value
        self._parts: dict[tuple[str, int], str] = {}  # of a result of several -> its value
        self._stages: list[Stage] = []
        self._kernels = Names()
        # What a parameter is called in its layer, and a view of it in a kernel.
        self._called = {i.name: i.path.split(".")[-1] for i in graph.inputs if i.path}
        self._readers = Counter(
            name
            for node in graph.nodes
            for value in node.arguments.values()
            for name in references(value)
        )
        self._readers.update((*graph.outputs, *graph.updates.values()))

    def plan(self) -> Plan:
        """Return the whole plan."""
        for node in self._graph.nodes:
            self._add(node)
        outputs = tuple(self._resolved(name) for name in self._graph.outputs)
        updates = {path: self._resolved(name) for path, name in self._graph.updates.items()}
        self._in_one_map(outputs)
        self._in_one_reduce((*outputs, *updates.values()))
        for value in outputs:
            self._place(value)
        self._in_one_reduce(map(self._looked_at, updates.values()))
        for value in updates.values():
            self._place(value)
        used = {name for stage in self._stages for name in reads(stage)} | {*outputs}
        sources = tuple(
            Source(name=i.name, type=i.type, path=i.path, is_number=i.kind == "scalar", size=i.size)
            for i in self._graph.inputs
            if i.name in used or i.name in updates.values()
        )
        return Plan(
            arguments=self._graph.arguments,
            sources=sources,
            stages=tuple(self._stages),
            outputs=outputs,
            single=self._graph.single,
            updates=updates,
            fixed=self._graph.fixed,
            attributes=frozenset(i.path for i in self._graph.inputs if i.kind == "attribute"),
            bound=self._graph.bound,
        )

    def _resolved(self, name: str) -> str:
        while name in self._same:
            name = self._same[name]
        return name

    def _looked_at(self, name: str) -> str:
        """Return the value that views which wait look at."""
        name = self._resolved(name)
        while name in self._views:
            name = self._resolved(self._views[name].argument("self"))
        return name

    def _add(self, node: Node) -> None:
        for name, found in zip(_result_names(node), node.results, strict=True):
            if found is not None:
                self._types[name] = found
        if node.aten == "getitem":
            value, index = node.argument("value"), node.arguments["index"]
            assert isinstance(index, int)
            self._same[node.name] = self._parts[value, index]
            return
        if self._pointwise(node):
            return
        if (reduction := reduction_of(node, self._types)) is not None and _is_known(node):
            for index, (kind, of) in enumerate(reduction.kinds):
                name = _result_names(node)[index]
                gather = Gather(
                    kind=kind,
                    of=self._resolved(of),
                    dims=reduction.dims,
                    keepdim=reduction.keepdim,
                    correction=reduction.correction,
                    at=self._resolved(reduction.at),
                )
                self._waiting.steps[name] = gather
                self._parts[node.name, index] = name
            return
        if without_overload(node.aten) in _VIEWS and len(node.results) == 1:
            self._views[node.name] = node
        elif node.aten in {"scan_sum", "scan_prod"} and _is_known(node):
            self._scan(node)
        elif (window := window_of(node, self._types)) is not None and _is_known(node):
            self._pool(node, window)
        else:
            self._library(node)

    def _pointwise(self, node: Node) -> bool:
        arguments = {name: self._as_value(value) for name, value in node.arguments.items()}
        found = operator_for(node.aten, arguments)
        if found is None or not _is_known(node):
            return False
        operator, filled = found[0], cast("dict[str, Argument]", found[1])
        inputs = [name for value in filled.values() for name in references(value)]
        if not all(self._suits(operator, name) for name in inputs):
            return False
        if operator.name in SAME:
            (only,) = inputs
            if self._types[only].dtype == self._types[node.name].dtype:
                self._same[node.name] = only
                return True
        self._waiting.steps[node.name] = Apply(operator=operator, arguments=filled)
        read = [name for key in filled if operator.reads(key) for name in references(filled[key])]
        if all(name in self._constants for name in read):
            self._constants[node.name] = node
        return True

    def _suits(self, operator: Operator, name: str) -> bool:
        found = self._types[name]
        if found.dtype == "float64":
            return not found.shape and operator.takes != "bool"
        return found.dtype in _TAKEN[operator.takes]

    def _as_value(self, value: Argument) -> Argument:
        if isinstance(value, tuple):
            return tuple(self._as_item(item) for item in value)
        return self._as_item(value)

    def _as_item(self, item: Item) -> Item:
        return Reference(self._resolved(item.name)) if isinstance(item, Reference) else item

    # What is in memory, and what has to come there.

    def _place(self, value: str) -> None:
        """Add the stages that leave a value in memory."""
        self._place_shared(value)
        self._place_views(value)
        if value in self._in_memory:
            return
        if not self._waiting.gathers(value):
            self._map((value,))
        elif self._waiting.pass_of(value) is not None:
            self._reduce((value,))
        else:
            self._place_gathers(value)
            self._place(value)

    def _place_shared(self, value: str) -> None:
        """Put into memory what is read elsewhere too, where each reader would read much for it.

        So is a sum of many layers' outputs, to which each layer adds one.
        """
        needed = self._waiting.computed_from(value)
        steps = [self._waiting.steps[name] for name in needed if name in self._waiting.steps]
        readers = Counter(read for step in steps for read in inputs_of(step))
        for name in reversed(needed[1:]):
            waits = isinstance(self._waiting.steps.get(name), Apply)
            if waits and self._readers[name] > readers[name] and self._reads(name) >= _MANY:
                self._place(name)

    def _reads(self, value: str) -> int:
        """Return how many tensors of its size a value is computed from."""
        size = prod(self._types[value].shape)
        read = self._waiting.computed_from(value, through_gathers=False)
        return sum(
            name in self._in_memory and prod(self._types[name].shape) == size for name in read
        )

    def _place_views(self, value: str) -> None:
        """Put into memory the views that a value is computed from."""
        for name in self._waiting.computed_from(value):
            if (view := self._views.pop(name, None)) is not None:
                self._library(view)
        self._place_constant(value)

    def _place_constant(self, value: str) -> None:
        """Leave to torch what reads nothing: a kernel has shape and device from what it reads."""
        if value in self._constants and value in self._waiting.steps:
            self._library(self._constants[value])

    def _place_gathers(self, value: str) -> None:
        """Put into memory what a value reads of reductions, those of one pass at once."""
        found = self._waiting.last_reduced(value, self._types[value].shape)
        passes: dict[object, list[str]] = {}
        for name in dict.fromkeys(found):
            passes.setdefault(self._waiting.pass_of(name) or name, []).append(name)
        for names in passes.values():
            if self._waiting.pass_of(names[0]) is None:
                self._place(names[0])
            else:
                self._reduce(tuple(names))

    def _in_one_map(self, values: Iterable[str]) -> None:
        """Compute several results of one shape together, if nothing else stands between."""
        for value in values:
            self._place_views(value)
        waiting = [
            v
            for v in dict.fromkeys(values)
            if v in self._waiting.steps and not self._waiting.gathers(v)
        ]
        shapes = {self._types[value].shape for value in waiting}
        if len(waiting) > 1 and len(shapes) == 1:
            self._map(tuple(waiting))

    def _in_one_reduce(self, values: Iterable[str]) -> None:
        """Compute results of the same pass together."""
        passes: dict[object, list[str]] = {}
        for value in dict.fromkeys(values):
            if (found := self._waiting.pass_of(value)) is not None:
                passes.setdefault(found, []).append(value)
        for names in passes.values():
            if len(names) > 1:
                for name in names:
                    self._place_views(name)
                self._reduce(tuple(names))

    def _done(self, stage: Stage, *values: str) -> None:
        self._stages.append(stage)
        self._in_memory.update(values)
        for value in values:
            self._waiting.steps.pop(value, None)

    def _map(self, values: tuple[str, ...]) -> None:
        shape = self._types[values[0]].shape
        body = Body(self._waiting.steps, self._types, shape, self._called)
        of = [body.value(value) for value in values]
        stage = Map(
            name=self._kernels.kernel(body.steps, "copy"),
            shape=shape,
            operands=body.operands,
            steps=body.steps,
            results=tuple(
                Result(value=value, of=step, type=self._types[value])
                for value, step in zip(values, of, strict=True)
            ),
        )
        self._done(stage, *values)

    def _before(self, value: str) -> tuple[Body, str]:
        """Return operators that compute what a stage gathers, and what they call it.

        Reductions come to memory first.
        """
        self._place_views(value)
        self._place_reduced(value)
        body = Body(self._waiting.steps, self._types, self._types[value].shape, self._called)
        read = body.value(value)
        assert isinstance(read, str)
        return body, read

    def _place_reduced(self, value: str) -> None:
        while self._waiting.gathers(value):
            if self._types[value].shape in {
                self._types[n].shape for n in self._waiting.gathers(value)
            }:
                self._place(value)
            else:
                self._place_gathers(value)

    def _reduce(self, values: tuple[str, ...]) -> None:
        """Add the stage whose results these values are, of one pass."""
        values = (*values, *self._beside(values))
        gathers = {name: g for value in values for name, g in self._waiting.gathers(value).items()}
        # What others read as well is written, rather than gathered again.
        shared = [name for name in gathers if self._readers[name] > 1 and name not in values]
        values = (*values, *shared)
        first = next(iter(gathers.values()))
        shape = self._types[first.of].shape
        for gather in gathers.values():
            self._place_reduced(gather.of)
            self._place_constant(gather.of)
            if gather.at:
                self._place(gather.at)
        # One that another of them is computed from has come there by now.
        gathers = {name: g for name, g in gathers.items() if name not in self._in_memory}
        values = tuple(value for value in values if value not in self._in_memory)
        before = Body(self._waiting.steps, self._types, shape, self._called, Names(SUMS))
        result_shape = self._types[values[0]].shape
        after = Body(self._waiting.steps, self._types, result_shape, self._called, before.names)
        accumulators = tuple(
            Accumulator(
                name=before.named(gather.kind),
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
            results=tuple(
                Result(value=value, of=made, type=self._types[value])
                for value, made in zip(values, of, strict=True)
            ),
        )
        self._done(stage, *values)

    def _beside(self, values: tuple[str, ...]) -> list[str]:
        """Return what forward leaves in buffers that one pass gathers with these values."""
        passes = self._waiting.pass_of(values[0])
        of = {g.of for value in values for g in self._waiting.gathers(value).values()}
        found: list[str] = []
        for name in self._graph.updates.values():
            value = self._looked_at(name)
            # Or what it is gathered from in turn, as the mean of all samples' variances.
            inner = [
                each
                for g in self._waiting.gathers(value).values()
                for each in self._waiting.gathers(g.of)
            ]
            for one in (value, *inner):
                waits = {g.of for g in self._waiting.gathers(one).values()}
                if one in {*values, *found} or not waits or not waits <= of:
                    continue
                if self._waiting.pass_of(one) == passes:
                    self._place_views(one)
                    found.append(one)
        return found

    def _scan(self, node: Node) -> None:
        of = self._resolved(node.argument("self"))
        body, read = self._before(of)
        dim, reverse = node.arguments["dim"], node.arguments["reverse"]
        exclusive = node.arguments["exclusive"]
        assert isinstance(dim, int)
        kind: Literal["sum", "prod"] = "sum" if node.aten == "scan_sum" else "prod"
        words = "reverse_" * bool(reverse) + "exclusive_" * bool(exclusive) + f"cum{kind}"
        stage = Scan(
            name=self._kernels.kernel((*body.steps, words), words),
            shape=self._types[of].shape,
            kind=kind,
            dim=dim,
            reverse=bool(reverse),
            exclusive=bool(exclusive),
            operands=body.operands,
            steps=body.steps,
            of=read,
            result=Result(value=node.name, of="scanned", type=self._types[node.name]),
        )
        self._done(stage, node.name)

    def _pool(self, node: Node, window: Window) -> None:
        of = self._resolved(window.of)
        body, read = self._before(of)
        stage = Pool(
            name=self._kernels.kernel((*body.steps, f"{window.kind}_pool"), window.kind),
            shape=self._types[of].shape,
            kind=window.kind,
            kernel=window.kernel,
            stride=window.stride,
            padding=window.padding,
            dilation=window.dilation,
            ceil_mode=window.ceil_mode,
            count_padding=window.count_padding,
            divisor=window.divisor,
            operands=body.operands,
            steps=body.steps,
            of=read,
            result=Result(value=node.name, of=POOLED, type=self._types[node.name]),
        )
        self._done(stage, node.name)

    def _library(self, node: Node) -> None:
        arguments = {name: self._as_value(value) for name, value in node.arguments.items()}
        for value in arguments.values():
            for name in references(value):
                self._place(name)
        base = without_overload(node.aten)
        if base in _VIEWS and len(read := list(node.arguments.values())[:1]) == 1:
            (first,) = read
            if isinstance(first, Reference) and first.name in self._called:
                self._called[node.name] = self._called[first.name]
        names = _result_names(node)
        self._parts |= {(node.name, index): name for index, name in enumerate(names)}
        stage = Library(
            name=node.name,
            aten=node.aten,
            arguments=arguments,
            given=node.given,
            results=names,
            types=node.results,
            view=base in _VIEWS,
            computes=base in _COMPUTES,
        )
        self._done(stage, *names)


def _is_known(node: Node) -> bool:
    """Whether kernels write what it returns."""
    return all(found is not None and found.dtype in _DTYPES for found in node.results)


def _result_names(node: Node) -> tuple[str, ...]:
    if len(node.results) == 1:
        return (node.name,)
    return tuple(f"{node.name}.{index}" for index in range(len(node.results)))
