"""A graph of forward and backward as two, each planned by itself.

Backward computes again what takes little, from what forward has in memory.
"""

from collections.abc import Collection, Iterable, Mapping
from math import prod

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.gathers import REDUCTIONS
from kernelgen.engines.map import Map
from kernelgen.engines.naming import Names, without_overload
from kernelgen.engines.rows import kernel_row
from kernelgen.engines.stage import Kernel
from kernelgen.graph.graph import VIEWS, Graph, GraphInput, Node, TensorType
from kernelgen.planning.fusion import with_engines, with_name
from kernelgen.planning.plan import Differentiated, Plan
from kernelgen.planning.planner import plan_of_simple

# Tensors of a value's size that backward would read to compute it again: as many, and it is kept.
_MANY = 3


def with_gradients(plan: Plan) -> Plan:
    """Return a plan of forward and backward with a plan for each, if it has both."""
    if (of := plan.graph.backward) is None:
        return plan
    saved, *both = _split(plan.graph)
    forward, backward = map(plan_of_simple, both)
    found = Differentiated(saved=saved, forward=forward, backward=backward)
    sources = tuple(source for source in plan.sources if source.name not in of.upstream)
    plan = msgspec.structs.replace(plan, sources=sources, differentiated=found)
    others = [stage for stage in plan.all_stages if not isinstance(stage, Map)]
    asked = plan.graph.asked.union(["rank"] * bool(others))
    return msgspec.structs.replace(plan, graph=msgspec.structs.replace(plan.graph, asked=asked))


def with_engines_for_each(plan: Plan, arch: Architecture | None) -> Plan:
    """Return a plan whose stages are as fast as engines are, in forward and in backward."""
    if (found := plan.differentiated) is None:
        return with_engines(plan, arch)
    forward, backward = (with_engines(one, arch) for one in (found.forward, found.backward))
    names = Names(*(stage.name for stage in forward.stages if isinstance(stage, Kernel)))
    stages = tuple(with_name(stage, names) for stage in backward.stages)
    backward = msgspec.structs.replace(backward, stages=stages)
    found = msgspec.structs.replace(found, forward=forward, backward=backward)
    ordered = (forward.ordered | backward.ordered) & {source.name for source in plan.sources}
    return msgspec.structs.replace(plan, differentiated=found, ordered=ordered)


def _split(graph: Graph) -> tuple[tuple[str, ...], Graph, Graph]:
    """Return the values that forward leaves to backward, forward's graph, and backward's."""
    of = graph.backward
    assert of is not None
    outputs = (*graph.outputs[: graph.returned], *graph.updates.values())
    gradients = graph.outputs[graph.returned :]
    makers = {node.name: node for node in graph.nodes}
    behind = set(of.upstream)
    for node in graph.nodes:
        if not behind.isdisjoint(node.reads):
            behind.add(node.name)
    held = _held(graph, outputs, makers) - behind
    reached = _reached(gradients, makers, held)
    saved = tuple(name for name in makers if name in reached & held)
    needed = _reached((*outputs, *saved), makers)
    given = (GraphInput(name=name, kind="input", type=graph.types[name]) for name in saved)
    empty: dict[str, object] = {"backward": None, **dict.fromkeys(("asked", "bound"), frozenset())}
    empty |= {key: {} for key in ("updates", "fixed", "kinds")}

    def part(inputs: Iterable[GraphInput], nodes: Collection[str], *returned: str) -> Graph:
        own = tuple(node for node in graph.nodes if node.name in nodes)
        changed = {"inputs": tuple(inputs), "nodes": own, "outputs": returned}
        return msgspec.structs.replace(graph, **empty, **changed)

    inputs = (one for one in graph.inputs if one.name not in of.upstream)
    forward = part(inputs, needed, *outputs, *saved)
    backward = part((*graph.inputs, *given), reached - held, *gradients)
    return saved, forward, backward


def _held(graph: Graph, outputs: Iterable[str], makers: dict[str, Node]) -> set[str]:
    """Return the values that forward has in memory, as it returns or multiplies them."""
    types, numbers = graph.types, {i.name for i in graph.inputs if i.is_number}
    # Buffers hold what forward left in them before backward begins.
    changed = {i.name for i in graph.inputs if i.path in graph.updates}
    costs = {
        node.name
        for node in graph.nodes
        if not (numbers.issuperset(node.reads) or _is_cheap(node, makers, types))
        or not changed.isdisjoint(node.reads)
    }
    held = [*outputs]
    for name in costs & _reached(outputs, makers):
        held += makers[name].reads if makers[name].aten not in REDUCTIONS else []
    for name in held:
        if name in makers and _is_view(makers[name]):
            held += makers[name].reads[:1]
    found = costs.union(name for name in held if name in makers and not _is_view(makers[name]))
    sizes = {name: prod(one.shape) for name, one in types.items()}
    whole: dict[str, set[str]] = {}  # tensors that a value of their size is computed from
    for node in graph.nodes:
        alike = (name for name in node.reads if sizes.get(name) == sizes.get(node.name))
        whole[node.name] = set().union(*(whole.get(name, {name}) for name in alike))
        if len(whole[node.name]) >= _MANY and not _is_view(node):
            found.add(node.name)
        if node.name in found:
            whole[node.name] = {node.name}
    return found


def _reached(values: Iterable[str], makers: dict[str, Node], to: Collection[str] = ()) -> set[str]:
    """Return the nodes that values are computed from, up to such ends."""
    found, waiting = set[str](), [*values]
    while waiting:
        name = waiting.pop()
        if name in makers and name not in found:
            found.add(name)
            waiting += [] if name in to else makers[name].reads
    return found


def _is_cheap(node: Node, makers: dict[str, Node], types: Mapping[str, TensorType]) -> bool:
    """Whether backward computes a node again rather than reads its result."""
    if node.aten == "getitem":
        return _is_view(makers[node.argument("value")])
    return _is_view(node) or kernel_row(node, types) is not None


def _is_view(node: Node) -> bool:
    return without_overload(node.aten) in VIEWS and "self" in node.arguments
