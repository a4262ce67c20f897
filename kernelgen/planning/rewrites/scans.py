"""Cumulative sums and products: one operator each, however the Model spells them."""

import msgspec

from kernelgen.engines.naming import without_overload
from kernelgen.graph.graph import Graph, Node, Reference, TensorType
from kernelgen.planning.rewrites.narrow import CASTS, is_stored

_CUTS = frozenset(("narrow.default", "slice.Tensor"))
SCANS = {"cumsum.default": "scan_sum", "cumprod.default": "scan_prod"}


def with_scans(graph: Graph) -> Graph:
    """Return a graph whose cumulative operators say their direction and their first element.

    flip, cumsum, flip along one dimension is a cumsum from the end. Zeros, followed by the cumsum
    of all elements but the last, is one without the element itself. Nodes that nobody reads any
    more are dropped.
    """
    nodes: list[Node] = []
    by_name: dict[str, Node] = {}
    types = graph.types
    for node in graph.nodes:
        made = _scan(node) or _stored(node, by_name) or _reversed(node, by_name)
        made = made or _exclusive(node, by_name, types) or node
        nodes.append(made)
        by_name[made.name] = made
    return with_read_nodes(nodes, graph)


def _scan(node: Node) -> Node | None:
    kind = SCANS.get(node.aten)
    (result,) = node.results if len(node.results) == 1 else (None,)
    if kind is None or result is None or result.dtype != "float32" or not result.shape:
        return None
    dim = node.take("dim", int)
    return node.calling(kind, self=node.arguments["self"], dim=dim, reverse=False, exclusive=False)


def _stored(node: Node, by_name: dict[str, Node]) -> Node | None:
    """Return the scan whose result a node stores in 16 bits."""
    scan = by_name.get(node.reads[0]) if is_stored(node) else None
    if scan is None or not scan.aten.startswith("scan_"):
        return None
    return msgspec.structs.replace(scan, name=node.name, results=node.results)


def _reversed(node: Node, by_name: dict[str, Node]) -> Node | None:
    """Return the scan from the end that a flip after a scan after a flip is."""
    if node.aten != "flip.default":
        return None
    scan = by_name.get(node.argument("self"))
    if scan is None or not scan.aten.startswith("scan_") or scan.arguments["exclusive"]:
        return None
    flip = by_name.get(scan.argument("self"))
    if flip is None or flip.aten != "flip.default":
        return None
    rank = len(node.results[0].shape) if node.results[0] is not None else 0
    if not _flips_only(node, scan, rank) or not _flips_only(flip, scan, rank):
        return None
    arguments = {**scan.arguments, "self": flip.arguments["self"]}
    arguments["reverse"] = not scan.arguments["reverse"]
    return msgspec.structs.replace(scan, name=node.name, arguments=arguments)


def _flips_only(flip: Node, scan: Node, rank: int) -> bool:
    dims, dim = flip.take("dims", tuple), scan.take("dim", int)
    return [d % rank for d in dims if isinstance(d, int)] == [dim % rank]


def _exclusive(node: Node, by_name: dict[str, Node], types: dict[str, TensorType]) -> Node | None:
    """Return the scan without the element itself that zeros before a shortened scan are."""
    parts = node.arguments.get("tensors")
    if node.aten != "cat.default" or not isinstance(parts, tuple) or len(parts) != 2:  # noqa: PLR2004
        return None
    first, second = (by_name.get(p.name) if isinstance(p, Reference) else None for p in parts)
    if first is not None and is_stored(first):
        first = by_name.get(first.reads[0])
    if first is None or second is None or second.aten != "scan_sum":
        return None
    whole, shorter = node.results[0], second.results[0]
    cut = by_name.get(second.argument("self"))
    if cut is not None and cut.aten in CASTS and types[cut.name].dtype == "float32":
        cut = by_name.get(cut.reads[0])
    if whole is None or shorter is None or cut is None or cut.aten not in _CUTS:
        return None
    dim, along, cut_along = (each.take("dim", int) for each in (second, node, cut))
    rank = len(whole.shape)
    is_exclusive = (
        without_overload(first.aten) in {"zeros_like", "zeros", "new_zeros"}
        and whole.shape[dim] == shorter.shape[dim] + 1
        and types[cut.argument("self")].shape == whole.shape
        and along % rank == cut_along % rank == dim % rank
        and not cut.arguments["start"]
        and cut.arguments.get("step", 1) == 1
        and not second.arguments["reverse"]
        and not second.arguments["exclusive"]
    )
    if not is_exclusive:
        return None
    arguments = {**second.arguments, "self": cut.arguments["self"], "exclusive": True}
    return msgspec.structs.replace(
        second, name=node.name, arguments=arguments, results=node.results
    )


def with_read_nodes(nodes: list[Node], graph: Graph) -> Graph:
    """Return a graph of the nodes that lead to an output, and of those that draw random numbers."""
    wanted = {*graph.outputs, *graph.updates.values()}
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.name in wanted or node.draws:
            kept.append(node)
            wanted.update(node.reads)
    return msgspec.structs.replace(graph, nodes=tuple(reversed(kept)))
