"""Floats of 16 bits, computed with as float32: widened where read, rounded where stored."""

from collections.abc import Collection

import msgspec

from kernelgen.engines.gathers import REDUCTIONS
from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import NARROW, operator_for
from kernelgen.engines.pool.window import is_pooled
from kernelgen.graph.graph import RUNNING, VIEWS, Argument, Graph, Named, Node, Reference, renamed
from kernelgen.planning.rewrites.builder import Builder, rewritten
from kernelgen.planning.rewrites.norms import keeps_known_statistics
from kernelgen.planning.rewrites.views import EXPANSIONS

_CAST = "_to_copy.default"
CASTS = (_CAST, "to.dtype", "to.dtype_layout")


def with_wide_floats(graph: Graph, known: frozenset[str]) -> Graph:
    """Return a graph in which kernels compute with no floats of 16 bits, but for casts.

    Torch computes an operator on these in float32 as well, and rounds its result. Kernels round
    what they write alone, and two values that they compare, which are equal where torch's are: else
    a cast here says how a value is stored, not that a stage rounds it.

    Args:
        graph: as it was traced.
        known: names of the operators that kernels compute beside those of the table.
    """
    narrow = {name for name, found in graph.types.items() if found.dtype in NARROW}
    # Of another type are those that the Model asks for: their rounding is a part of its result.
    upstream = graph.backward.upstream if graph.backward else ()
    given = {one.dtype for name, one in graph.input_types.items() if name not in upstream}
    repeated: dict[str, str] = {}  # what is repeated by a view, in float32

    def cast(name: str, b: Builder, dtype: str = "float32") -> Reference:
        arguments: dict[str, Argument] = {"self": Reference(name), "dtype": Named(dtype)}
        return b.emit(_CAST, arguments, b.types[name].shape, dtype)

    norms: dict[str, str] = {}  # that leave running statistics, in float32
    pairs: set[str] = set()  # extremes beside their indices

    def become(node: Node, b: Builder) -> list[Node]:
        if node.aten in RUNNING.values() and (norm := norms.get(node.argument("norm"))):
            old = cast(node.argument("self"), b)
            made = node.calling(node.aten, self=old, norm=Reference(norm))
            return [*b.nodes, *_stored(made, node, given)]
        if node.aten == "getitem" and node.argument("value") in pairs:
            pair = Reference(f"wide_{node.argument('value')}")
            made = msgspec.structs.replace(node, arguments=node.arguments | {"value": pair})
            return _stored(made, node, given)
        row = operator_for(node.aten, node.arguments)
        read = [name for name in node.reads if name in narrow]
        if node.aten in EXPANSIONS and node.name in narrow:
            repeated[node.name] = f"wide_{node.name}"
            seen = _with_input(node, repeated[node.name], cast(node.reads[0], b), "float32")
            return [node, *b.nodes, seen]
        if not (row or node.aten in known) or node.aten in CASTS or not read:
            return [node]
        wide = {name: repeated.get(name) or cast(name, b).name for name in read}
        if row and row[0].result == "bool" and len(node.reads) > 1:
            # One may have been stored, as a maximum, and the other be computed again.
            wide = {n: cast(cast(wide[n], b, b.types[n].dtype).name, b).name for n in read}
        arguments = renamed(node, lambda name: wide.get(name, name))
        arguments |= {"dtype": None} if arguments.get("dtype") == Named("float32") else {}
        updates = arguments.get("training", arguments.get("use_input_stats"))
        keeps = updates is True and arguments.get("running_mean") is not None
        if keeps and keeps_known_statistics(node):
            norms[node.name], keeps = f"wide_{node.name}", False
        is_pair = len(node.results) > 1 and node.aten in REDUCTIONS
        is_other = len(node.results) > 1 and not is_pair
        stays = is_other or isinstance(arguments.get("dtype"), Named) or keeps
        made = msgspec.structs.replace(node, arguments=arguments)
        if stays or not is_pooled(made, b.types):
            return [node]
        pairs.update([node.name] * is_pair)
        return [*b.nodes, *_stored(made, node, given)]

    return rewritten(graph, become) if narrow else graph


def _stored(made: Node, node: Node, free: Collection[str]) -> list[Node]:
    """Return a node whose float is in float32, and what stores one by itself as another node's.

    Only in the types that are `free` need it not be rounded where it is not in memory.
    """
    found, *others = node.results
    if found is None or found.dtype not in NARROW:
        return [made]
    results = (msgspec.structs.replace(found, dtype="float32"), *others)
    wide = msgspec.structs.replace(made, name=f"wide_{node.name}", results=results)
    value, dtype, is_free = Reference(wide.name), Named(found.dtype), found.dtype in free
    stored = node.calling(_CAST, self=value, dtype=dtype, non_blocking=is_free)
    return [wide] if others else [wide, stored]


def is_stored(node: Node) -> bool:
    """Whether a node says that a value is stored in 16 bits."""
    return node.aten == _CAST and node.arguments.get("non_blocking") is True


def with_casts_skipped(graph: Graph) -> list[Node]:
    """Return nodes that read floats of 16 bits as they are in memory, or as they were computed."""
    types, casts = graph.types, [node for node in graph.nodes if node.aten in CASTS]
    stored = {node.name: node.reads[0] for node in casts if is_stored(node)}
    read = {node.name: node.reads[0] for node in casts if types[node.name].dtype == "float32"}
    skipped = {n: stored.get(of, of) for n, of in read.items() if types[of].dtype in NARROW}
    return [
        msgspec.structs.replace(node, arguments=renamed(node, lambda name: skipped.get(name, name)))
        for node in graph.nodes
    ]


def _with_input(view: Node, name: str, value: Reference, dtype: str) -> Node:
    """Return a view of another value, of another dtype."""
    arguments = view.arguments | {"self": value}
    found = msgspec.structs.replace(view.type, dtype=dtype)
    return msgspec.structs.replace(view, name=name, arguments=arguments, results=(found,))


def with_views_before_casts(graph: Graph) -> Graph:
    """Return a graph in which what is viewed lies in memory, rather than in float32 nowhere."""
    cast: dict[str, Node] = {}

    def become(node: Node, b: Builder) -> list[Node]:
        if node.aten in CASTS and node.type.dtype == "float32":
            cast[node.name] = node
        is_view = without_overload(node.aten) in VIEWS and node.aten not in EXPANSIONS
        of = cast.get(node.reads[0]) if is_view else None
        if of is None or b.types[of.reads[0]].dtype not in NARROW or len(node.results) > 1:
            return [node]
        value, name = Reference(of.reads[0]), f"{of.reads[0]}_in_{node.name}"
        seen = _with_input(node, name, value, b.type_of(value).dtype)
        return [seen, node.calling(_CAST, self=Reference(name), dtype=Named("float32"))]

    return rewritten(graph, become)
