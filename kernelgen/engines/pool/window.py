"""Operators of torch that move a window over the last dimensions, or take the mean of these."""

from collections.abc import Mapping

import msgspec

from kernelgen.engines.pool.record import Window
from kernelgen.graph.graph import Argument, Graph, Node, TensorType

_RANKS = {f"{kind}_pool{rank}d.default": rank for kind in ("max", "avg") for rank in (1, 2, 3)}
_ADAPTIVE = {f"adaptive_avg_pool{rank}d.default": rank for rank in (1, 2, 3)}
POOLINGS = frozenset((*_RANKS, *_ADAPTIVE))
_WIDEST = 3072  # elements from a window's first to its last that a kernel keeps of a row


def with_means(graph: Graph) -> Graph:
    """Return a graph in which an adaptive pooling to one element is a mean."""
    return msgspec.structs.replace(graph, nodes=tuple(_mean(node) or node for node in graph.nodes))


def _mean(node: Node) -> Node | None:
    rank = _ADAPTIVE.get(node.aten)
    if rank is None or _reads_sizes(node):
        return None
    if _numbers(node.arguments["output_size"], rank, ()) != (1,) * rank:
        return None
    x, dims = node.arguments["self"], tuple(range(-rank, 0))
    mean = node.calling("mean.dim", self=x, dim=dims, keepdim=True, dtype=None)
    return msgspec.structs.replace(mean, given=3)


def is_pooled(node: Node, types: Mapping[str, TensorType]) -> bool:
    """Whether a pooling, if it is one, is a window or a mean of ours."""
    return node.aten not in POOLINGS or bool(_mean(node) or window_of(node, types))


def window_of(node: Node, types: Mapping[str, TensorType]) -> Window | None:
    """Return the window of a pooling; None if the operator is none, or stays in torch."""
    rank = _RANKS.get(node.aten)
    if rank is None:
        return None
    of = node.argument("self" if "self" in node.arguments else "input")
    if types[of].dtype != "float32" or _reads_sizes(node):
        return None
    kernel = _numbers(node.arguments["kernel_size"], rank, ())
    dilation = _numbers(node.arguments.get("dilation", 1), rank, (1,) * rank)
    if (kernel[-1] - 1) * dilation[-1] >= _WIDEST:
        return None
    divisor = node.arguments.get("divisor_override")
    return Window(
        of=of,
        kind="max" if node.aten.startswith("max") else "mean",
        kernel=kernel,
        stride=_numbers(node.arguments["stride"], rank, kernel),
        padding=_numbers(node.arguments["padding"], rank, (0,) * rank),
        dilation=dilation,
        ceil_mode=bool(node.arguments["ceil_mode"]),
        count_padding=bool(node.arguments.get("count_include_pad", True)),
        divisor=divisor if isinstance(divisor, int) else 0,
    )


def _reads_sizes(node: Node) -> bool:
    """Whether a number of a pooling's is read when it runs, as a size of an input."""
    return len(node.reads) > 1


def _numbers(value: Argument, rank: int, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Return a number for each dimension; torch takes one for all, or none for the usual."""
    if isinstance(value, int):
        return (value,) * rank
    given = value if isinstance(value, tuple) else ()
    found = tuple(item for item in given if isinstance(item, int)) or usual
    return found * rank if len(found) == 1 else found
