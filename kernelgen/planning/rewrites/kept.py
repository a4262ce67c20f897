"""Norms that stay whole in a graph, so that a file takes inputs of any rank that they take.

Each becomes one node, `segment.KIND`, whose arguments `segment_of` reads. All others are taken
apart: those of what an operator of ours computes, or whose result a reduction reads.
"""

import re
from collections.abc import Iterable

import msgspec

from kernelgen.engines.gathers import REDUCTIONS
from kernelgen.engines.naming import without_overload
from kernelgen.engines.operators import operator_for
from kernelgen.engines.pool.window import POOLINGS
from kernelgen.engines.rows import FLOATS
from kernelgen.graph.graph import VIEWS, Argument, Graph, Node, Reference
from kernelgen.planning.rewrites.builder import rewritten
from kernelgen.planning.rewrites.losses import LOSSES
from kernelgen.planning.rewrites.narrow import is_stored, with_casts_skipped
from kernelgen.planning.rewrites.norms import FLOAT_EPS, NORMS
from kernelgen.planning.rewrites.statistics import STATISTICS

_QUOTIENTS = frozenset(("div.Tensor", "divide.Tensor", "true_divide.Tensor"))
_MAGNITUDES = frozenset(("abs.default", "absolute.default"))
_SOFTMAXES = {"softmax.int": "softmax", "log_softmax.int": "log_softmax"}
_EUCLIDEAN = 2


def kept_norms(graph: Graph) -> frozenset[str]:
    """Return the names of the nodes that end a norm which stays whole."""
    found = _Norms(graph)
    return frozenset(node.name for node in graph.nodes if found.stays(node))


def with_norms(graph: Graph, names: Iterable[str]) -> Graph:
    """Return a graph in which the norms that end with nodes of these names are one node each."""
    found, kept = _Norms(graph), {*names}
    unbatched: set[str] = set()

    def become(node: Node, _: object) -> list[Node]:
        if unbatched.intersection(node.reads):
            if node.aten == "squeeze.dim":
                return [node.calling("alias.default", self=Reference(node.reads[0]))]
            unbatched.add(node.name)
            return [_of_one_image(node)]
        if node.name not in kept or (norm := found.norm(node)) is None:
            return [node]
        if (x := found.unbatched(norm)) is not None:
            unbatched.add(node.name)
            norm = norm.calling(norm.aten, **{**norm.arguments, "self": Reference(x)})
            return [_of_one_image(norm)]
        return [norm]

    return rewritten(graph, become)


class _Norms:
    """Norms among a graph's nodes."""

    def __init__(self, graph: Graph) -> None:
        self._types = graph.types
        self._paths = {i.name: i.path for i in graph.inputs}
        self._outputs = {*graph.outputs, *graph.updates.values()}
        self._nodes = {node.name: node for node in with_casts_skipped(graph)}
        self._readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.reads:
                self._readers.setdefault(name, []).append(node)

    def stays(self, node: Node) -> bool:
        """Whether it ends a norm that is done as soon whole."""
        norm = self.norm(node)
        return (
            norm is not None
            and 0 not in norm.type.shape
            and self._is_last(norm)
            and not self._is_computed(norm.argument("self"))
            and not self._is_gathered(node.name, set())
        )

    def norm(self, node: Node) -> Node | None:
        """Return the norm that a node ends as one node; None if it ends none."""
        node = self._nodes[node.name]
        if node.aten in _QUOTIENTS:
            return self._quotient(node)
        if node.aten in _SOFTMAXES and node.arguments["dtype"] is None:
            return self._along(node, _SOFTMAXES[node.aten], node.arguments["dim"])
        x = node.arguments.get("input")
        if not isinstance(x, Reference) or self._types[x.name].dtype not in FLOATS:
            return None
        return self._of_channels(node, x)

    def _of_channels(self, node: Node, x: Reference) -> Node | None:
        """Return the norm of a layer of torch's."""
        shape, eps = self._types[x.name].shape, node.arguments.get("eps")
        match node.aten:
            case "group_norm.default":
                groups = node.arguments["num_groups"]
                by = self._of_layer(node, "GroupNorm", "num_groups") or groups
                return _whole(node, x, "groups.moments", (by, groups), eps)
            case "layer_norm.default" | "rms_norm.default":
                is_rms = node.aten == "rms_norm.default"
                statistics, layer = ("rms", "RMSNorm") if is_rms else ("moments", "LayerNorm")
                sizes = node.take("normalized_shape", tuple)
                by = self._of_layer(node, layer, "normalized_shape") or sizes
                eps = FLOAT_EPS if eps is None else eps
                return _whole(node, x, f"rows.{statistics}", (by, len(sizes)), eps)
            case "instance_norm.default" if (
                node.arguments["use_input_stats"] is True and node.arguments["running_mean"] is None
            ):
                rank = len(shape) - 2
                return _whole(node, x, "channels.moments", (rank, rank), eps)
        return None

    def unbatched(self, norm: Node) -> str | None:
        """Return the image that a norm of channels has as a batch of one, None if it has more."""
        before, aten = self._nodes.get(norm.argument("self")), norm.aten
        after = self._readers.get(norm.name, [])
        if len(after) == 1 and is_stored(after[0]):
            norm, after = after[0], self._readers.get(after[0].name, [])
        if before is None or aten != "segment.channels" or norm.name in self._outputs:
            return None
        if before.aten != "unsqueeze.default" or before.arguments["dim"] != 0:
            return None
        is_taken_back = after and all(one.aten == "squeeze.dim" for one in after)
        if not is_taken_back or any(one.arguments["dim"] != 0 for one in after):
            return None
        return before.argument("self")

    def _of_layer(self, node: Node, layer: str, attribute: str) -> str:
        """Return the path of a layer's attribute, if it calls a node with its own weights."""
        weights = {key: node.arguments.get(key) for key in ("weight", "bias")}
        own = all(
            self._paths.get(value.name) == f"{node.module}.{key}"
            for key, value in weights.items()
            if isinstance(value, Reference)
        )
        plain = re.fullmatch(r"\w+(\.\w+)*", node.module, re.ASCII)
        return f"{node.module}.{attribute}" if node.layer == layer and own and plain else ""

    def _quotient(self, node: Node) -> Node | None:
        """Return x / mean(|x|) or x / ||x||, along the last dimension."""
        divisor = self._made(node, "other")
        if divisor is None or divisor.arguments.get("keepdim") is not True:
            return None
        dims = divisor.arguments.get("dim")
        if not isinstance(dims, tuple) or len(dims) != 1 or divisor.arguments.get("dtype"):
            return None
        magnitude = self._made(divisor, "self")
        match divisor.aten:
            case "mean.dim" if magnitude is not None and magnitude.aten in _MAGNITUDES:
                return self._along(node, "l1", dims[0], magnitude)
            case "linalg_vector_norm.default" | "norm.ScalarOpt_dim":
                order = divisor.arguments.get("ord", divisor.arguments.get("p"))
                return self._along(node, "l2", dims[0], divisor) if order == _EUCLIDEAN else None
        return None

    def _along(
        self, node: Node, statistics: str, dim: Argument, first: Node | None = None
    ) -> Node | None:
        """Return a norm along a dimension, whose first node reads what the last one does."""
        x = node.arguments["self"]
        if not isinstance(dim, int) or not isinstance(x, Reference):
            return None
        found = self._types[x.name]
        if not found.shape or found.dtype not in FLOATS:
            return None
        if first is not None and first.arguments["self"] != x:
            return None
        return _whole(node, x, f"dim.{statistics}", (dim, dim), 0.0)

    def _is_last(self, norm: Node) -> bool:
        """Whether a norm's segments are runs of neighbours."""
        rank, dim = len(norm.type.shape), norm.arguments["by"]
        return norm.aten != "segment.dim" or (isinstance(dim, int) and dim % rank == rank - 1)

    def _made(self, node: Node, argument: str) -> Node | None:
        value = node.arguments.get(argument)
        return self._nodes.get(value.name) if isinstance(value, Reference) else None

    def _is_computed(self, name: str) -> bool:
        """Whether a kernel of ours computes a value, or what it is a view of."""
        node = self._nodes.get(name)
        while node is not None and _is_view(node) and node.reads:
            node = self._nodes.get(node.reads[0])
        return node is not None and (
            operator_for(node.aten, node.arguments) is not None or _gathers(node)
        )

    def _is_gathered(self, name: str, seen: set[str]) -> bool:
        """Whether a reduction reads a value, or what is computed of it element by element."""
        seen.add(name)
        for node in self._readers.get(name, ()):
            if _gathers(node):
                return True
            passes = _is_view(node) or operator_for(node.aten, node.arguments) is not None
            if passes and node.name not in seen and self._is_gathered(node.name, seen):
                return True
        return False


def _whole(
    node: Node, x: Reference, kind: str, extent: tuple[Argument, Argument], eps: Argument
) -> Node:
    """Return a norm as one node; `kind` is what segments are, and what is gathered of them."""
    what, _, statistics = kind.partition(".")
    weights = {key: node.arguments.get(key) for key in ("weight", "bias")}
    by, count = extent
    return node.calling(
        f"segment.{what}", self=x, **weights, statistics=statistics, by=by, count=count, eps=eps
    )


def _of_one_image(node: Node) -> Node:
    """Return a node whose result is that of a batch of one without the batch."""
    found = node.type
    own = msgspec.structs.replace(found, shape=found.shape[1:], strides=found.strides[1:])
    return msgspec.structs.replace(node, results=(own,))


def _gathers(node: Node) -> bool:
    known = (LOSSES, REDUCTIONS, NORMS, STATISTICS, POOLINGS)
    return any(node.aten in table for table in known)


def _is_view(node: Node) -> bool:
    return node.aten == "reshape.default" or without_overload(node.aten) in VIEWS
