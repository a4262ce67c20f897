"""A graph to its plan: which operators make up a kernel, in which order, and which stay in torch.

Pointwise operators and reductions wait until a value is needed in memory (placing.py).
"""

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from kernelgen.planning.body import Apply
from kernelgen.planning.graph import VIEWS, Argument, Graph, Node, Reference, TensorType, references
from kernelgen.planning.making import result_names
from kernelgen.planning.naming import without_overload
from kernelgen.planning.norms.kept import kept_norms, with_norms
from kernelgen.planning.operators import Operator, operator_for
from kernelgen.planning.placing import Placing
from kernelgen.planning.plan import Plan, Source, reads, writes
from kernelgen.planning.pooling import window_of, with_means
from kernelgen.planning.reductions import gathers_of
from kernelgen.planning.rewrites.builder import DTYPES
from kernelgen.planning.rewrites.decompose import decomposed, prepared
from kernelgen.planning.rewrites.scans import with_scans

# What a kernel reads and writes; everything else stays in torch.
_DTYPES = frozenset(("float32", "bool", "int64"))
_TAKEN = {"float": ("float32", "bool"), "bool": ("bool",), "any": ("float32", "bool", "int64")}


def plan_of(graph: Graph) -> Plan:
    """Return the plan of a graph. Every graph has one: what is not known stays in torch."""
    return plan_of_simple(simplified(graph, whole_norms(graph)))


def whole_norms(graph: Graph) -> frozenset[str]:
    """Return the names of the nodes that end a norm which stays whole."""
    return kept_norms(prepared(graph))


def simplified(graph: Graph, whole: Iterable[str]) -> Graph:
    """Return a graph of what stages know, without losses; simplified once, not twice.

    The norms that end with nodes of these names stay whole; other graphs of the Model keep those
    of the main case's, so that their plans are alike.
    """
    return with_scans(with_means(decomposed(with_norms(prepared(graph), whole))))


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
        used |= {i.size.input for i in self._graph.inputs if i.size and i.name in used}
        sources = tuple(
            Source(name=i.name, type=i.type, kind=i.kind, path=i.path, text=i.text, size=i.size)
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
            kinds=self._graph.kinds,
            fixed=self._graph.fixed,
            attributes=frozenset(i.path for i in self._graph.inputs if i.kind == "attribute"),
            bound=self._graph.bound,
            indexed=self._graph.indexed,
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
        if (gathers := gathers_of(node, values.types)) and _is_known(node):
            for index, (name, one) in enumerate(zip(result_names(node), gathers, strict=True)):
                of, at = values.resolved(one.of), values.resolved(one.at)
                values.waiting.steps[name] = msgspec.structs.replace(one, of=of, at=at)
                values.parts[node.name, index] = name
            return
        is_view = without_overload(node.aten) in VIEWS and "self" in node.arguments
        if is_view and len(node.results) == 1 and node.types:
            values.views[node.name] = node
        elif node.aten in {"scan_sum", "scan_prod"} and _is_known(node):
            values.scan(node)
        elif node.aten.startswith("segment."):
            values.segment(node)
        elif (window := window_of(node, values.types)) is not None and _is_known(node):
            values.pool(node, window)
        else:
            values.library(node)

    def _part(self, node: Node) -> bool:
        if node.aten != "getitem":
            return False
        value, index = node.argument("value"), node.arguments["index"]
        assert isinstance(index, int)
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
        values.waiting.steps[node.name] = Apply(operator=operator, arguments=filled)
        read = [name for key in filled if operator.reads(key) for name in references(filled[key])]
        if all(name in values.constants for name in read):
            values.constants[node.name] = node
        return True


def kernel_row(
    node: Node, types: Mapping[str, TensorType]
) -> tuple[Operator, dict[str, Argument]] | None:
    """Return the row of a node that a kernel computes as torch does, and its arguments, filled in.

    None if there is none, or C would give another type than torch, or compute in another: bools
    are added as bools, whole numbers as whole numbers.
    """
    found = operator_for(node.aten, node.arguments)
    if found is None or not _is_known(node):
        return None
    operator, filled = found[0], cast("dict[str, Argument]", found[1])
    made = node.type.dtype
    tensors: set[str] = set()  # the types of those that are computed with
    floats = operator.takes != "float" or not references(*filled.values())
    for name, value in filled.items():
        if isinstance(value, Reference):
            one = types[value.name]
            is_number = one.dtype == "float64" and not one.shape and operator.takes != "bool"
            if not is_number and one.dtype not in _TAKEN[operator.takes]:
                return None
            if name not in {"condition", "mask"}:
                tensors.add(one.dtype)
            elif one.dtype != "bool":
                return None
        elif operator.reads(name):
            floats |= not isinstance(value, bool)
            if operator.result == "like" and made == "bool" and not isinstance(value, bool):
                return None
    if operator.result != "like":
        suits = made == DTYPES[operator.result]
    else:
        suits = made == "float32" or tensors <= {made}
    casts = operator.result == "float" and operator.takes == "any"
    suits &= "float64" not in tensors or "float32" in tensors or casts
    # C divides bools as whole numbers.
    suits &= floats or "float32" in tensors or operator.result == "like"
    return (operator, filled) if suits else None


def _is_known(node: Node) -> bool:
    """Whether kernels write what it returns."""
    return all(found is not None and found.dtype in _DTYPES for found in node.results)
