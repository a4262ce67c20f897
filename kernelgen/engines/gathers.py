"""Operators of torch that gather elements along dimensions."""

from collections.abc import Mapping

import msgspec

from kernelgen.engines.stage import Accumulation
from kernelgen.graph.graph import Node, TensorType

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


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """A reduction of an operator's into a result.

    Attributes:
        of: the value that is gathered.
        dims: ascending, from the front; all of them where the operator names none.
        correction: of a variance.
        at: the value with the positions of a pick.
        fewest: elements that are gathered.
    """

    kind: Accumulation
    of: str
    dims: tuple[int, ...]
    keepdim: bool
    correction: float = 0.0
    at: str = ""
    fewest: int = 0


def gathers_of(node: Node, types: Mapping[str, TensorType]) -> list[Gather]:
    """Return what an operator gathers into its results; nothing where no kernel here does it.

    Sums of whole numbers stay in torch.
    """
    kinds = _KINDS.get(node.aten, ())
    of = node.argument(next(iter(node.arguments))) if kinds else ""
    if not kinds or types[of].dtype != "float32" or node.arguments.get("dtype") is not None:
        return []
    correction, fewest = node.arguments.get("correction", 0.0), node.arguments.get("fewest", 0)
    assert isinstance(correction, int | float)
    assert isinstance(fewest, int)
    return [
        Gather(
            kind=kind,
            of=of,
            dims=_dims(node, len(types[of].shape)),
            keepdim=bool(node.arguments.get("keepdim", False)),
            correction=float(correction),
            at=node.argument("index") if kind == "pick" else "",
            fewest=fewest,
        )
        for kind in kinds
    ]


def _dims(node: Node, rank: int) -> tuple[int, ...]:
    given = node.arguments.get("dim")
    found = given if isinstance(given, tuple) else (given,)
    return tuple(sorted(d % rank for d in found if type(d) is int and rank) or range(rank))
