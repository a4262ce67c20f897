"""What of a plan stays the same at other sizes: a rendered file is right for all plans of it."""

from collections.abc import Iterable

import msgspec

from kernelgen.planning.graph import Argument, TensorType
from kernelgen.planning.plan import Library, Plan, Stage


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
    ends = f"outputs {', '.join(plan.outputs)}; sizes {'fixed' if plan.shapes_fixed else 'free'}"
    return Skeleton(stages=(*map(_described, plan.stages), ends))


# What follows from sizes, or is found anew for each of them when the file runs.
_SIZES = frozenset(("type", "types", "shape", "pattern", "span"))


def _described(stage: Stage) -> str:
    if isinstance(stage, Library):
        return f"{stage.aten}({', '.join(map(str, stage.arguments.values()))})"
    return _without_sizes(stage)


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
