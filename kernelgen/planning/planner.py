"""A graph to its plan: which operators make up a kernel, in which order, and which stay in torch.

Pointwise operators and reductions wait until a value is needed in memory (placing.py).
"""

from typing import cast

import msgspec

from kernelgen.planning.body import Apply
from kernelgen.planning.graph import Argument, Graph, Node, references
from kernelgen.planning.making import VIEWS, result_names
from kernelgen.planning.naming import without_overload
from kernelgen.planning.operators import Operator, operator_for
from kernelgen.planning.placing import Placing
from kernelgen.planning.plan import Plan, Source, reads
from kernelgen.planning.pooling import window_of, with_means
from kernelgen.planning.reductions import gathers_of
from kernelgen.planning.rewrites.decompose import decomposed
from kernelgen.planning.rewrites.scans import with_scans

# What a kernel reads and writes; everything else stays in torch.
_DTYPES = frozenset(("float32", "bool", "int64"))
_TAKEN = {"float": ("float32", "bool"), "bool": ("bool",), "any": ("float32", "bool", "int64")}


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
        values.in_one_map(outputs)
        values.in_one_reduce((*outputs, *updates.values()))
        for value in outputs:
            values.place(value)
        values.in_one_reduce(map(values.looked_at, updates.values()))
        for value in updates.values():
            values.place(value)
        used = {name for stage in values.stages for name in reads(stage)} | {*outputs}
        sources = tuple(
            Source(name=i.name, type=i.type, path=i.path, is_number=i.kind == "scalar", size=i.size)
            for i in self._graph.inputs
            if i.name in used or i.name in updates.values()
        )
        return Plan(
            arguments=self._graph.arguments,
            sources=sources,
            stages=tuple(values.stages),
            outputs=outputs,
            returns=self._graph.returns,
            updates=updates,
            fixed=self._graph.fixed,
            attributes=frozenset(i.path for i in self._graph.inputs if i.kind == "attribute"),
            bound=self._graph.bound,
        )

    def _add(self, node: Node) -> None:
        values = self._values
        for name, found in zip(result_names(node), node.results, strict=True):
            if found is not None:
                values.types[name] = found
        if node.aten == "getitem":
            value, index = node.argument("value"), node.arguments["index"]
            assert isinstance(index, int)
            values.same[node.name] = values.parts[value, index]
            return
        if self._pointwise(node):
            return
        if (gathers := gathers_of(node, values.types)) and _is_known(node):
            for index, (name, one) in enumerate(zip(result_names(node), gathers, strict=True)):
                of, at = values.resolved(one.of), values.resolved(one.at)
                values.waiting.steps[name] = msgspec.structs.replace(one, of=of, at=at)
                values.parts[node.name, index] = name
            return
        if without_overload(node.aten) in VIEWS and len(node.results) == 1:
            values.views[node.name] = node
        elif node.aten in {"scan_sum", "scan_prod"} and _is_known(node):
            values.scan(node)
        elif (window := window_of(node, values.types)) is not None and _is_known(node):
            values.pool(node, window)
        else:
            values.library(node)

    def _pointwise(self, node: Node) -> bool:
        values = self._values
        arguments = values.resolved_arguments(node)
        found = operator_for(node.aten, arguments)
        if found is None or not _is_known(node):
            return False
        operator, filled = found[0], cast("dict[str, Argument]", found[1])
        inputs = references(*filled.values())
        if not all(self._suits(operator, name) for name in inputs):
            return False
        if operator.name == "identity":
            # torch returns the operand itself: no kernel copies it.
            (only,) = inputs
            if values.types[only].dtype == values.types[node.name].dtype:
                values.same[node.name] = only
                return True
        values.waiting.steps[node.name] = Apply(operator=operator, arguments=filled)
        read = [name for key in filled if operator.reads(key) for name in references(filled[key])]
        if all(name in values.constants for name in read):
            values.constants[node.name] = node
        return True

    def _suits(self, operator: Operator, name: str) -> bool:
        found = self._values.types[name]
        if found.dtype == "float64":
            return not found.shape and operator.takes != "bool"
        return found.dtype in _TAKEN[operator.takes]


def _is_known(node: Node) -> bool:
    """Whether kernels write what it returns."""
    return all(found is not None and found.dtype in _DTYPES for found in node.results)
