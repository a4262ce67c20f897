"""Which operators of torch gather elements along dimensions, and how."""

import msgspec

from kernelgen.planning.graph import Node, TensorType
from kernelgen.planning.plan import Accumulation

# aten -> what is gathered into each result.
_KINDS: dict[str, tuple[Accumulation, ...]] = {
    "sum.default": ("sum",),
    "sum.dim_IntList": ("sum",),
    "mean.default": ("mean",),
    "mean.dim": ("mean",),
    "prod.default": ("prod",),
    "prod.dim_int": ("prod",),
    "amax.default": ("max",),
    "amin.default": ("min",),
    "max.default": ("max",),
    "min.default": ("min",),
    "max.dim": ("max", "argmax"),
    "min.dim": ("min", "argmin"),
    "argmax.default": ("argmax",),
    "argmin.default": ("argmin",),
    "sumexp": ("sumexp",),
    "variance": ("variance",),
    "pick": ("pick",),
}
REDUCTIONS = frozenset(_KINDS)


class Reduction(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator gathers.

    Attributes:
        kinds: of each result, and the value that it gathers.
        dims: ascending, from the front; all of them where the operator names none.
        correction: of a variance.
        at: the value with the positions of a pick.
    """

    kinds: tuple[tuple[Accumulation, str], ...]
    dims: tuple[int, ...]
    keepdim: bool
    correction: float = 0.0
    at: str = ""


def reduction_of(node: Node, types: dict[str, TensorType]) -> Reduction | None:
    """Return what an operator gathers; None if it does not, or not as a kernel here does.

    Sums of whole numbers stay in torch.
    """
    kinds = _KINDS.get(node.aten)
    if kinds is None:
        return None
    name = next(iter(node.arguments))
    of = node.argument(name)
    if types[of].dtype != "float32" or node.arguments.get("dtype") is not None:
        return None
    rank = len(types[of].shape)
    dims = _dims(node, rank)
    correction = node.arguments.get("correction", 0.0)
    assert isinstance(correction, int | float)
    return Reduction(
        kinds=tuple((kind, of) for kind in kinds),
        dims=dims,
        keepdim=bool(node.arguments.get("keepdim", False)),
        correction=float(correction),
        at=node.argument("index") if node.aten == "pick" else "",
    )


def _dims(node: Node, rank: int) -> tuple[int, ...]:
    given = node.arguments.get("dim")
    if isinstance(given, bool) or given is None or given == ():
        return tuple(range(rank))
    found = given if isinstance(given, tuple) else (given,)
    return tuple(sorted(int(d) % max(rank, 1) for d in found if isinstance(d, int)))
