"""What limits a kernel, in a word or two: the unit that is busiest, by one rule.

docs/profile.md states the rule. It takes no more than what ncu counted: two kernels of which
neither is at a limit differ by what their warps wait for, which is in the profile.
"""

from __future__ import annotations

from kernelgen.grading.timing.times import Conditions
from kernelgen.hardware.conditions import POWER_CAP
from kernelgen.profile.record import Counters
from kernelgen.profile.scene import IDLE_PCT, Scene

# A part that is this much of its unit's share is what makes the unit busy: shares are of cycles in
# which an SM had work, or of all cycles, and come from different runs of the kernel.
_MOST_OF_IT = 0.9
# NVML tells clocks in steps of 15 MHz, and a mean of a short kernel is uncertain by a few percent.
_LOWERED = 0.9

NOT_COUNTED = "not counted"
LATENCY = "latency"


def limited_by(scene: Scene, conditions: Conditions | None = None) -> str:
    """Return what limits a kernel.

    Args:
        scene: the kernel, and what it is measured by.
        conditions: of the device meanwhile; None if nobody knows.
    """
    if scene.limit == "dram":
        return "DRAM"
    if scene.limit == "tensor":
        return _with_clock("tensor cores", scene.counters, conditions)
    if not scene.fills_device:
        return "too few blocks"
    counters = scene.counters
    shares = (
        (counters.dram_pct, "DRAM"),
        (counters.l2_pct, "L2"),
        (counters.l1_pct, _part_of_l1(counters)),
        (counters.sm_pct, _pipe(counters)),
    )
    known = [(share, unit) for share, unit in shares if share is not None]
    if not known:
        return NOT_COUNTED
    share, unit = max(known)
    if share < IDLE_PCT:
        return LATENCY
    # What is not in the SMs has a clock of its own.
    return unit if unit in ("DRAM", "L2") else _with_clock(unit, counters, conditions)


def _with_clock(unit: str, counters: Counters, conditions: Conditions | None) -> str:
    lowered = _lowered(counters, conditions)
    return f"{unit}, {lowered}" if lowered else unit


def _part_of_l1(counters: Counters) -> str:
    if counters.shared_pct is None:
        return "L1 or shared memory"
    is_shared = counters.shared_pct >= _MOST_OF_IT * (counters.l1_pct or 0)
    return "shared memory" if is_shared else "L1"


def _pipe(counters: Counters) -> str:
    """Return which pipe it is that makes the SMs busy, or that it is none of those counted."""
    pipes = (
        (counters.tensor_pct, "tensor cores"),
        (counters.fma_pct, "FMA"),
        (counters.alu_pct, "ALU"),
        (counters.xu_pct, "XU"),
        (counters.issue_pct, "issue"),
    )
    known = [(share, pipe) for share, pipe in pipes if share is not None]
    share, pipe = max(known, default=(0.0, ""))
    return pipe if share >= _MOST_OF_IT * (counters.sm_pct or 0) and pipe else "another pipe"


def _lowered(counters: Counters, conditions: Conditions | None) -> str:
    """Return why the clock was lower than between the kernels; "" if it was not."""
    if conditions is None or conditions.sm_mhz is None or counters.sm_mhz is None:
        return ""
    if counters.sm_mhz >= _LOWERED * conditions.sm_mhz[1]:
        return ""
    others = [reason for reason in conditions.throttled if reason != POWER_CAP]
    if others:
        return " and ".join(others)
    return "power" if POWER_CAP in conditions.throttled else "a lower clock"
