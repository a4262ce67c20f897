"""What limits a kernel, in a word or two: the unit that is busiest, by one rule.

docs/profile.md states the rule. It takes no more than what ncu counted: two kernels of which
neither is at a limit differ by what their warps wait for, which is in the profile.
"""

from __future__ import annotations

from kernelgen.grading.timing.times import Conditions
from kernelgen.hardware.conditions import POWER_CAP
from kernelgen.profile.record import Counters, KernelProfile, Profile

# A copy, which does nothing else, reaches 89 % of the peak on an H200 (4.26 of 4.8 TB/s): from a
# little below that on, DRAM is the limit.
_NEAR_PEAK_PCT = 85.0
# Where a copy's own rate was measured, this much of it is its limit: kernels that also compute
# rarely come closer.
_NEAR_COPY = 0.92
# NVIDIA's sections take a unit above this for a limit, and one below the other for idle.
_BUSY_PCT = 80.0
_IDLE_PCT = 60.0
# A part that is this much of its unit's share is what makes the unit busy: shares are of cycles in
# which an SM had work, or of all cycles, and come from different runs of the kernel.
_MOST_OF_IT = 0.9
# NVML tells clocks in steps of 15 MHz, and a mean of a short kernel is uncertain by a few percent.
_LOWERED = 0.9

DRAM = "DRAM"
_L2 = "L2"
_TENSOR_CORES = "tensor cores"


def limited_by(kernel: KernelProfile, profile: Profile) -> str:
    """Return what limits a kernel of a profile, such as `DRAM` or `tensor cores, power`."""
    counters = kernel.counters
    if profile.copy_gbps is not None and kernel.dram_gbps is not None:
        at_limit = kernel.dram_gbps >= _NEAR_COPY * profile.copy_gbps
    else:
        at_limit = (counters.dram_pct or 0.0) >= _NEAR_PEAK_PCT
    if at_limit:
        return DRAM
    if _at_tensor_limit(counters):
        return _with_clock(_TENSOR_CORES, counters, profile.conditions)
    if counters.blocks is not None and counters.blocks < profile.facts.sm_count:
        return "too few blocks"
    shares = (
        (counters.dram_pct, DRAM),
        (counters.l2_pct, _L2),
        (counters.l1_pct, _part_of_l1(counters)),
        (counters.sm_pct, _pipe(counters)),
    )
    known = [(share, unit) for share, unit in shares if share is not None]
    if not known:
        return "not counted"
    share, unit = max(known)
    if share < _IDLE_PCT:
        return "latency"
    # What is not in the SMs has a clock of its own.
    return unit if unit in (DRAM, _L2) else _with_clock(unit, counters, profile.conditions)


def _at_tensor_limit(counters: Counters) -> bool:
    """Whether the tensor cores are the busiest unit, and busy.

    Their share is of the cycles in which an SM had work, and so is at least their part in the share
    of the SMs, which is of all cycles: where the SMs' share is larger, another pipe is busy, and
    where it is small, most SMs had nothing to do.
    """
    tensor, sm = counters.tensor_pct, counters.sm_pct
    if tensor is None or tensor < _BUSY_PCT or (sm is not None and sm < _BUSY_PCT):
        return False
    return tensor >= max(sm or 0.0, counters.l2_pct or 0.0, counters.l1_pct or 0.0)


def _part_of_l1(counters: Counters) -> str:
    if counters.shared_pct is None:
        return "L1 or shared memory"
    is_shared = counters.shared_pct >= _MOST_OF_IT * (counters.l1_pct or 0)
    return "shared memory" if is_shared else "L1"


def _pipe(counters: Counters) -> str:
    """Return which pipe it is that makes the SMs busy, or that it is none of those counted."""
    pipes = (
        (counters.tensor_pct, _TENSOR_CORES),
        (counters.fma_pct, "FMA"),
        (counters.alu_pct, "ALU"),
        (counters.xu_pct, "XU"),
        (counters.issue_pct, "issue"),
    )
    known = [(share, pipe) for share, pipe in pipes if share is not None]
    share, pipe = max(known, default=(0.0, ""))
    return pipe if share >= _MOST_OF_IT * (counters.sm_pct or 0) and pipe else "another pipe"


def _with_clock(unit: str, counters: Counters, conditions: Conditions | None) -> str:
    """Add why the clock was lower than between the kernels, if it was."""
    if conditions is None or conditions.sm_mhz is None or counters.sm_mhz is None:
        return unit
    if counters.sm_mhz >= _LOWERED * conditions.sm_mhz[1]:
        return unit
    others = [reason for reason in conditions.throttled if reason != POWER_CAP]
    power = "power" if POWER_CAP in conditions.throttled else "a lower clock"
    return f"{unit}, {' and '.join(others) or power}"
