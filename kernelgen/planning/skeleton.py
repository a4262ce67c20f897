"""What of a plan stays the same at other sizes: a rendered file is right for all plans of it."""

from collections.abc import Iterable

import msgspec

from kernelgen.planning.graph import Argument, TensorType
from kernelgen.planning.plan import Library, Plan, Reduce, Stage


class Skeleton(msgspec.Struct, frozen=True, kw_only=True):
    """A plan without its sizes: a description of each stage, in order."""

    stages: tuple[str, ...]

    def difference(self, other: "Skeleton") -> str:
        """Return the first stage in which another skeleton differs, "" if none does."""
        for own, its in zip(self.stages, other.stages, strict=False):
            if own != its:
                return f"{its}, not {own}"
        if len(self.stages) != len(other.stages):
            return f"{len(other.stages)} stages, not {len(self.stages)}"
        return ""


def skeleton_of(plan: Plan) -> Skeleton:
    """Return a plan without its sizes."""
    return Skeleton(stages=(*map(_described, plan.stages), ", ".join(plan.outputs)))


# What follows from sizes, or is found anew for each of them when the file runs.
_SIZES = frozenset(("type", "types", "shape", "dims", "pattern", "span"))


def _described(stage: Stage) -> str:
    if isinstance(stage, Library):
        return f"{stage.aten}({', '.join(map(str, stage.arguments.values()))})"
    described = _without_sizes(stage)
    if isinstance(stage, Reduce):
        # All dimensions of any rank are all elements; some of them are those of one rank.
        rank = len(stage.shape)
        which = "all" if len(stage.dims) == rank else f"{stage.dims} of {rank}"
        described = f"{which} dimensions: {described}"
    return described


def _without_sizes(value: msgspec.Struct | TensorType | Argument | Iterable[object]) -> str:
    match value:
        case msgspec.Struct():
            fields = (
                f"{name}={_without_sizes(getattr(value, name))}"
                for name in value.__struct_fields__
                if name not in _SIZES
            )
            return f"{type(value).__name__}({', '.join(fields)})"
        case tuple():
            return f"({', '.join(_without_sizes(item) for item in value)})"
        case dict():
            return f"{{{', '.join(f'{k}: {_without_sizes(v)}' for k, v in value.items())}}}"
        case _:
            return repr(value)
