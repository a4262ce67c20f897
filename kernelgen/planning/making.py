"""Stages are made of what waits: the record of each, once all that it reads is in memory.

Operators before a reduction or a claimed node are computed with what they read, those after a
reduction with its results.
"""

from collections.abc import Iterable, Mapping

from kernelgen.engines.body import Body, Waiting
from kernelgen.engines.engine import Claim, Given
from kernelgen.engines.gathers import Gather
from kernelgen.engines.map import Map
from kernelgen.engines.naming import SUMS, Names, called
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.stage import Accumulator, Kernel, Library, Result, StepValue
from kernelgen.graph.graph import Argument, GraphInput, Node, Reference


class Making:
    """Makes stages, and names their kernels."""

    def __init__(self, waiting: Waiting, inputs: Iterable[GraphInput]) -> None:
        self._waiting, self._types = waiting, waiting.types
        self._kernels = Names()
        # The name of a parameter in its layer, and of a view of it in a kernel.
        self._called = {i.name: called(i.path) for i in inputs if i.path}

    def map(self, values: tuple[str, ...]) -> Map:
        """Return the stage of values of one shape that wait for no reduction."""
        shape = self._types[values[0]].shape
        body = Body(self._waiting, shape, self._called)
        of = [body.value(value) for value in values]
        return Map(
            name=self._kernels.kernel(body.steps, "copy"),
            shape=shape,
            operands=body.operands,
            steps=body.steps,
            results=self._results(values, of),
        )

    def reduce(self, values: tuple[str, ...], gathers: dict[str, Gather]) -> Reduce:
        """Return the stage whose results these values are, with the reductions of its one pass."""
        first = next(iter(gathers.values()))
        shape = self._types[first.of].shape
        before = Body(self._waiting, shape, self._called, Names(SUMS))
        after = Body(self._waiting, self._types[values[0]].shape, self._called, before.names)
        accumulators = tuple(
            Accumulator(
                name=before.names.local(gather.kind),
                kind=gather.kind,
                of=before.value(gather.of),
                correction=gather.correction,
                at=after.value(gather.at) if gather.at else "",
                fewest=gather.fewest,
            )
            for gather in gathers.values()
        )
        after.known.update({name: a.name for name, a in zip(gathers, accumulators, strict=True)})
        of = [after.value(value) for value in values]
        kinds = "_".join(dict.fromkeys(a.kind for a in accumulators))
        return Reduce(
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

    def claimed(
        self, node: Node, arguments: Mapping[str, Argument], claim: Claim, of: str
    ) -> Kernel:
        """Return the stage of a claimed node, with the operators that compute `of`, if any."""
        body = Body(self._waiting, self._types[of or node.name].shape, self._called)
        read = str(body.value(of)) if of else ""
        return claim.stage(Given(node, arguments, self._types, self._kernels, body, read))

    def library(self, node: Node, arguments: dict[str, Argument]) -> Library:
        """Return the stage of a node that torch computes."""
        first = next(iter(node.arguments.values()), None)
        stage = Library(
            name=node.name,
            aten=node.aten,
            arguments=arguments,
            given=node.given,
            named=node.named,
            results=result_names(node),
            types=node.results,
            whole=node.whole if len(node.results) == 1 else (),
        )
        if stage.view and isinstance(first, Reference) and first.name in self._called:
            self._called[node.name] = self._called[first.name]
        return stage

    def _results(self, values: tuple[str, ...], of: Iterable[StepValue]) -> tuple[Result, ...]:
        return tuple(
            Result(value=value, of=made, type=self._types[value])
            for value, made in zip(values, of, strict=True)
        )


def result_names(node: Node) -> tuple[str, ...]:
    """Return what the values of a node are called."""
    if len(node.results) == 1:
        return (node.name,)
    return tuple(f"{node.name}.{index}" for index in range(len(node.results)))
