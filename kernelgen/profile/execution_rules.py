"""Rules of advice on work: how much of the device a launch uses, and what its warps wait for.

A threshold stands with its reason. What a counter proves is said plainly; what it only suggests is
said with `may`.
"""

from __future__ import annotations

import math

from kernelgen.profile.quantities import duration, percent
from kernelgen.profile.scene import IDLE_PCT, Scene

# The last wave leaves this much of the device's time unused.
_TAIL_SHARE = 0.15
# Achieved beside possible occupancy: less than this says that blocks end at different times.
_UNEVEN = 0.7
# Ten to twenty warps an SM with a few loads each can fill DRAM's pipeline; fewer rarely do.
_LOW_OCCUPANCY_PCT = 25.0
# The host and the device's front end need a few microseconds for a launch.
_SHORT_US = 5.0
# Where tensor cores are at work at all, they are so for more than this.
_TENSOR_PCT = 1.0
# A kernel whose arithmetic matters keeps the pipe busy for at least half of its cycles.
_FMA_PCT = 50.0


def too_small(scene: Scene) -> str:
    """Say so where there are SMs without a block."""
    if scene.fills_device or scene.counters.blocks is None:
        return ""
    return (
        f"{scene.counters.blocks:.0f} blocks for {scene.facts.sm_count} SMs leave the others idle: "
        "cut the work into more blocks, splitting also along what is summed over"
    )


def short(scene: Scene) -> str:
    """Say so where a launch is over before it pays."""
    if scene.per_launch_us >= _SHORT_US:
        return ""
    return (
        f"a launch takes {duration(scene.per_launch_us)}, about as long as launching it does: join "
        "it with its neighbours, or record the call in a CUDA graph"
    )


def sm_limit(scene: Scene) -> str:
    """Say so where the SMs can do no more."""
    if scene.limit != "sm":
        return ""
    return (
        f"the SMs are at {percent(scene.counters.sm_pct or 0)} of their peak: the kernel is bound "
        "by instructions; fewer of them help, such as wider loads, cheaper index arithmetic, FMA, "
        "or tensor cores for products of matrices"
    )


def tensor_limit(scene: Scene) -> str:
    """Say so where the tensor cores can do no more."""
    if scene.limit != "tensor":
        return ""
    return (
        f"the tensor cores are busy {percent(scene.counters.tensor_pct or 0)} of the time: there "
        "is nothing to gain here but by fewer products, such as fewer parts of a split as far as "
        "the problem's tolerance admits, a format of a higher rate, or tiles with less padding"
    )


def no_tensor_cores(scene: Scene) -> str:
    """Say so where a product of matrices may be done without tensor cores."""
    fma, tensor = scene.counters.fma_pct, scene.counters.tensor_pct
    if fma is None or tensor is None or fma < _FMA_PCT or tensor >= _TENSOR_PCT:
        return ""
    if scene.facts.matrix_flops == 0 or scene.limit == "dram":
        return ""
    flops = scene.facts.matrix_flops
    known = (
        f"the problem has {flops / 1e9:.3g} GFLOP of matrix products"
        if flops
        else "if this is a product of matrices"
    )
    return (
        f"the FMA pipe is at {percent(fma)} and tensor cores are unused; {known}: a product of "
        "fp32 matrices split into parts of lower precision, with sums in fp32, can be faster and "
        "still be as close as the problem asks"
    )


def tail(scene: Scene) -> str:
    """Say so where the last wave of blocks is a small one."""
    waves = scene.counters.waves
    if waves is None or waves <= 1:
        return ""
    unused = 1 - waves / math.ceil(waves)
    if unused < _TAIL_SHARE:
        return ""
    return (
        f"the grid is {waves:.2f} waves of blocks, and the last one leaves about "
        f"{percent(100 * unused)} of the device's time unused: choose the size of blocks so that "
        "waves come out whole, or let as many blocks as fit take their work in turn"
    )


def uneven(scene: Scene) -> str:
    """Say so where blocks do not end together."""
    counters = scene.counters
    achieved, possible = counters.occupancy_pct, counters.possible_occupancy_pct
    if achieved is None or possible is None or not scene.fills_device or tail(scene):
        return ""
    if achieved >= _UNEVEN * possible or scene.limit is not None:
        return ""
    return (
        f"occupancy is {percent(achieved)} where the launch allows {percent(possible)}: blocks or "
        "warps may end at different times, or end before the device is full; give them equal work"
    )


def low_occupancy(scene: Scene) -> str:
    """Say so where few warps fit."""
    possible = scene.counters.possible_occupancy_pct
    if possible is None or possible >= _LOW_OCCUPANCY_PCT or scene.limit is not None:
        return ""
    if not scene.fills_device:
        return ""
    return (
        f"at most {percent(possible)} of the warps that an SM can hold are there: with plain loads "
        "that is often too few to hide DRAM's latency; bulk copies into shared memory need no more"
    )


def latency(scene: Scene) -> str:
    """Say so where nothing is busy."""
    if not scene.idle or not scene.fills_device or scene.per_launch_us < _SHORT_US:
        return ""
    return (
        f"no unit is busy for more than {percent(IDLE_PCT)}: the kernel waits for answers, it is "
        "not short of bandwidth or arithmetic; what the warps wait for says where"
    )
