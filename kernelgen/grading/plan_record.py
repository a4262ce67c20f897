"""A problem's plan for reports: read without the graph that it was made from."""

from typing import Literal

import msgspec

from kernelgen.grading.timing.times import Limit


class PlannedStage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stage of a plan.

    Attributes:
        kind: of the engine that renders it; `library` stays in torch, a `view` costs nothing.
        name: of its kernel, or of torch's operator.
        shape: of its first result.
        formula: what its kernel computes; "" for what torch does.
        moved_bytes: each operand once, at its own size, and each result.
        flops: of products, a multiply and an add counted as two.
        bound: which of the two takes longer; "" without rates, and where there is neither.
        expected_ms: how long that takes at the device's rates; absent without a bound.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    formula: str = ""
    moved_bytes: int = 0
    flops: int = 0
    bound: Literal["", "memory", "arithmetic"] = ""
    expected_ms: float | None = None


class PlanRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The plan of a problem's main case at its sizes on a device, or why there is none.

    Attributes:
        problem: its name.
        device: name of the device that times are for, as verdicts give it.
        reason: why there is no plan; "" if there is one.
        stages: in order.
        minimal_bytes: inputs, parameters and outputs, each moved once.
        fixed_sizes: in words, sizes of inputs that are part of the plan; "" if all are free.
        identities: of algebra that it computes by, in words.
        limit: of the problem, and as `fraction` how much of the expected time it is; absent if the
            device's rates are not known.
    """

    problem: str
    device: str
    reason: str = ""
    stages: tuple[PlannedStage, ...] = ()
    minimal_bytes: int = 0
    fixed_sizes: str = ""
    identities: tuple[str, ...] = ()
    limit: Limit | None = None

    @property
    def moved_bytes(self) -> int:
        """Return what all stages move."""
        return sum(stage.moved_bytes for stage in self.stages)

    @property
    def expected_ms(self) -> float | None:
        """Return the time of all stages without launches; None if none is known to take time."""
        known = [stage.expected_ms for stage in self.stages if stage.expected_ms is not None]
        return sum(known) if known else None
