"""A graph to its plan: which operators make up a kernel, in which order, and which stay in torch.

Pointwise operators and reductions wait until a value is needed in memory (placing.py).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from kernelgen.engines.body import Apply
from kernelgen.engines.gathers import gathers_of
from kernelgen.engines.known import ENGINES
from kernelgen.engines.naming import without_overload
from kernelgen.engines.pool.window import with_means
from kernelgen.engines.rows import is_known, kernel_row
from kernelgen.engines.stage import reads, writes
from kernelgen.graph.graph import NUMBER, VIEWS, Graph, Node, references
from kernelgen.planning.making import result_names
from kernelgen.planning.placing import Placing
from kernelgen.planning.plan import Plan
from kernelgen.planning.rewrites.decompose import decomposed, prepared
from kernelgen.planning.rewrites.kept import kept_norms, with_norms
from kernelgen.planning.rewrites.means import Early, with_means_first
from kernelgen.planning.rewrites.scans import with_scans
from kernelgen.problem.record import Algebra


class Choices(NamedTuple):
    """Choices for a graph where they depend on sizes: the main case's, for all graphs of the Model.

    Attributes:
        norms: names of the nodes that end a norm which stays whole.
        means: and sums that are taken before what is linear, by their names.
    """

    norms: frozenset[str]
    means: Mapping[str, Early]

    @property
    def identities(self) -> tuple[str, ...]:
        """Identities of algebra that a solution computes by, in words."""
        found = [(one.kind, ", ".join(dict.fromkeys(one.operators))) for one in self.means.values()]
        return tuple(dict.fromkeys(f"the {kind} before {operators}" for kind, operators in found))


def choices_of(graph: Graph, algebra: Algebra = "allowed") -> Choices:
    """Return what is made of a graph."""
    norms = kept_norms(prepared(graph))
    if algebra == "forbidden":
        return Choices(norms, {})
    return Choices(norms, with_means_first(_decomposed(graph, norms))[1])


def simplified(graph: Graph, choices: Choices) -> Graph:
    """Return a graph of what stages know, without losses; simplified once, not twice."""
    return with_scans(with_means_first(_decomposed(graph, choices.norms), choices.means)[0])


def _decomposed(graph: Graph, norms: Iterable[str]) -> Graph:
    return with_means(decomposed(with_norms(prepared(graph), norms)))


def plan_of_simple(graph: Graph) -> Plan:
    """Return the plan of a graph that is simplified: what is not known stays in torch."""
    return _Planner(graph).plan()


class _Planner:
    """Reads a graph's nodes in their order."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._values = graph, Placing(graph)

    def plan(self) -> Plan:
        """Return the whole plan."""
        values = self._values
        for node in self._graph.nodes:
            self._add(node)
        outputs = tuple(values.resolved(name) for name in self._graph.outputs)
        updates = {path: values.resolved(name) for path, name in self._graph.updates.items()}
        # Views wait for all of a reduction.
        ends = (*outputs, *updates.values())
        values.in_one_map(value for value in ends if value not in values.views)
        values.in_one_reduce((*outputs, *updates.values()))
        for value in outputs:
            values.place(value)
        values.in_one_reduce(map(values.looked_at, updates.values()))
        for value in updates.values():
            values.place(value)
        used = {*outputs, *updates.values()}.union(*map(reads, values.stages))
        used |= {i.size.input for i in self._graph.inputs if i.size and i.name in used}
        # Of what is not read, a size may decide, or how many there are.
        used.update(name for name, _ in self._graph.bound)
        used.update(*[self._graph.input_types] * ("rank" in self._graph.asked))
        return Plan(
            graph=self._graph,
            sources=tuple(i for i in self._graph.inputs if i.name in used),
            stages=tuple(values.stages),
            outputs=outputs,
            updates=updates,
            bound=self._graph.bound,
            ordered=self._ordered(),
        )

    def _ordered(self) -> frozenset[str]:
        """Return the inputs whose order in memory decides what some operator computes."""
        values = self._values
        needed = set(map(values.resolved, values.by_layout))
        for stage in reversed(values.stages):
            if not needed.isdisjoint(writes(stage)):
                needed |= {*reads(stage)}
        return frozenset(i.name for i in self._graph.inputs if i.kind == "input") & needed

    def _add(self, node: Node) -> None:
        values = self._values
        for name, found in zip(result_names(node), node.results, strict=True):
            if found is not None:
                values.types[name] = found
        if self._part(node) or self._pointwise(node):
            return
        if (gathers := gathers_of(node, values.types)) and is_known(node):
            for index, (name, one) in enumerate(zip(result_names(node), gathers, strict=True)):
                of, at = values.resolved(one.of), values.resolved(one.at)
                values.waiting.steps[name] = msgspec.structs.replace(one, of=of, at=at)
                values.parts[node.name, index] = name
            return
        is_view = without_overload(node.aten) in VIEWS and "self" in node.arguments
        if is_view and len(node.results) == 1 and node.types:
            values.views[node.name] = node
            values.waiting.origins[node.name] = values.looked_at(node.name)
            return
        claims = (engine.claim(node, values.types) for engine in ENGINES)
        if (claim := next(filter(None, claims), None)) is not None and is_known(node):
            values.claimed(node, claim)
        else:
            values.library(node)

    def _part(self, node: Node) -> bool:
        if node.aten != "getitem":
            return False
        value, index = node.argument("value"), node.take("index", int)
        part = self._values.parts[value, index]
        if part not in self._values.types:
            return False  # the only one of a list, which torch takes out of it
        self._values.same[node.name] = part
        return True

    def _pointwise(self, node: Node) -> bool:
        values = self._values
        arguments = values.resolved_arguments(node)
        found = kernel_row(msgspec.structs.replace(node, arguments=arguments), values.types)
        if found is None:
            return False
        operator, filled = found
        inputs = references(*filled.values())
        if operator.name == "identity":
            # torch returns the operand itself: no kernel copies it.
            (only,) = inputs
            if values.types[only].dtype == values.types[node.name].dtype:
                values.same[node.name] = only
                return True
        apply = Apply(operator=operator, arguments=filled, whole=node.whole)
        values.waiting.steps[node.name] = apply
        read = [name for key in filled if operator.reads(key) for name in references(filled[key])]
        if all(name in values.constants or values.types[name] == NUMBER for name in read):
            values.constants[node.name] = node
        return True
