"""Floats of 16 bits, computed with as float32: widened where read, rounded where stored."""

from collections.abc import Mapping

import msgspec

from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import NARROW, operator_for
from kernelgen.engines.pool.window import is_pooled
from kernelgen.graph.graph import VIEWS, Argument, Graph, Named, Node, Reference, renamed
from kernelgen.planning.rewrites.builder import Builder, rewritten
from kernelgen.planning.rewrites.views import EXPANSIONS

_CAST = "_to_copy.default"
_CASTS = (_CAST, "to.dtype", "to.dtype_layout")


def with_wide_floats(graph: Graph, known: frozenset[str]) -> Graph:
    """Return a graph in which kernels compute with no floats of 16 bits, but for casts.

    Torch computes an operator on these in float32 as well, and rounds its result. Kernels round
    what they write alone: a cast here says how a value is stored, not that a stage rounds it.

    Args:
        graph: as it was traced.
        known: names of the operators that kernels compute beside those of the table.
    """
    types = graph.input_types
    for node in graph.nodes:
        types |= node.types
    narrow = {name for name, found in types.items() if found.dtype in NARROW}
    repeated: dict[str, Node] = {}

    def become(node: Node, b: Builder) -> list[Node]:
        is_known = node.aten in known or operator_for(node.aten, node.arguments) is not None
        read = [name for name in node.reads if name in narrow]
        if node.aten in EXPANSIONS:
            repeated[node.name] = node
        if not is_known or node.aten in _CASTS or not read:
            return [node]
        wide = {name: _widened(b, name, repeated.get(name)) for name in read}
        arguments = _renamed(node, wide)
        if arguments.get("dtype") == Named("float32"):
            arguments["dtype"] = None
        updates = arguments.get("training", arguments.get("use_input_stats"))
        keeps = updates is True and arguments.get("running_mean") is not None
        if len(node.results) > 1 or isinstance(arguments.get("dtype"), Named) or keeps:
            return [node]
        made, (found,) = msgspec.structs.replace(node, arguments=arguments), node.results
        if not is_pooled(made, b.types):
            return [node]
        if found is None or found.dtype not in NARROW:
            return [*b.nodes, made]
        wide_type = msgspec.structs.replace(found, dtype="float32")
        made = msgspec.structs.replace(made, name=f"wide_{node.name}", results=(wide_type,))
        dtype, value = Named(found.dtype), Reference(made.name)
        stored = node.calling(_CAST, self=value, dtype=dtype, non_blocking=True)
        return [*b.nodes, made, stored]

    return rewritten(graph, become) if narrow else graph


def is_stored(node: Node) -> bool:
    """Whether a node says that a value is stored in 16 bits."""
    return node.aten == _CAST and node.arguments.get("non_blocking") is True


def with_casts_skipped(graph: Graph) -> list[Node]:
    """Return nodes that read floats of 16 bits as they are in memory, or as they were computed."""
    types, stored, skipped = graph.types, dict[str, str](), dict[str, str]()
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.aten in _CASTS and types[node.reads[0]].dtype in (*NARROW, "float32"):
            (read,) = node.reads
            if is_stored(node):
                stored[node.name] = read
            elif types[node.name].dtype == "float32":
                skipped[node.name] = stored.get(read, read)
        arguments = _renamed(node, skipped)
        nodes.append(msgspec.structs.replace(node, arguments=arguments))
    return nodes


def _renamed(node: Node, names: Mapping[str, str]) -> dict[str, Argument]:
    given = node.arguments.items()
    return {key: renamed(value, lambda one: names.get(one, one)) for key, value in given}


def _widened(b: Builder, name: str, repeated: Node | None) -> str:
    """Return a value as float32; one that is `repeated` is repeated after that."""
    of = name if repeated is None else repeated.argument("self")
    given: dict[str, Argument] = {"self": Reference(of), "dtype": Named("float32")}
    wide = b.emit(_CAST, given, b.types[of].shape)
    if repeated is None:
        return wide.name
    made = _with_input(repeated, f"{wide.name}_repeated", wide, "float32")
    b.nodes.append(made)
    return made.name


def _with_input(view: Node, name: str, value: Reference, dtype: str) -> Node:
    """Return a view of another value, of another dtype."""
    arguments = view.arguments | {"self": value}
    found = msgspec.structs.replace(view.type, dtype=dtype)
    return msgspec.structs.replace(view, name=name, arguments=arguments, results=(found,))


def with_views_before_casts(graph: Graph) -> Graph:
    """Return a graph in which what is viewed lies in memory, rather than in float32 nowhere."""
    cast: dict[str, Node] = {}

    def become(node: Node, b: Builder) -> list[Node]:
        if node.aten in _CASTS and node.type.dtype == "float32":
            cast[node.name] = node
        is_view = without_overload(node.aten) in VIEWS and node.aten not in EXPANSIONS
        of = cast.get(node.reads[0]) if is_view else None
        if of is None or b.types[of.reads[0]].dtype not in NARROW or len(node.results) > 1:
            return [node]
        value, name = Reference(of.reads[0]), f"{of.reads[0]}_in_{node.name}"
        seen = _with_input(node, name, value, b.type_of(value).dtype)
        return [seen, node.calling(_CAST, self=Reference(name), dtype=Named("float32"))]

    return rewritten(graph, become)
