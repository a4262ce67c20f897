"""What was counted of a kernel, in sentences: bytes, rates, occupancy, what its warps wait for."""

from __future__ import annotations

from kernelgen.profile.quantities import amount, duration, launches, percent, rate, times
from kernelgen.profile.record import Counters, Facts, KernelProfile
from kernelgen.profile.stalls import in_words, top

# Where the launch allows this much, nothing limits it.
_FULL_PCT = 99.0
# Less than this of the minimum: the rest was still in a cache.
_LESS = 0.95


def sentences(
    kernel: KernelProfile, facts: Facts, copy_gbps: float | None = None
) -> tuple[str, ...]:
    """Return what was counted; what this ncu could not count is left out.

    Args:
        kernel: of which.
        facts: of the problem and the device.
        copy_gbps: rate of a device-to-device copy, None if nobody measured it.
    """
    found = (
        _moves(kernel.counters, facts),
        _reaches(kernel, copy_gbps),
        _through_l2(kernel.counters),
        _computes(kernel.counters),
        _occupies(kernel.counters),
        _waits(kernel),
    )
    return tuple(text for text in found if text)


def _moves(counters: Counters, facts: Facts) -> str:
    moved = counters.dram_bytes
    if moved is None or counters.dram_read_bytes is None or counters.dram_written_bytes is None:
        return ""
    read, written = amount(counters.dram_read_bytes), amount(counters.dram_written_bytes)
    text = f"moves {amount(moved)} of DRAM ({read} read, {written} written)"
    least = facts.minimal_bytes
    if least <= 0:
        return text
    text += f" for the problem's minimum of {amount(least)} ({times(moved / least)})"
    if moved < _LESS * least and facts.l2_cache_bytes > 0:
        text += "; what is less than 1 is another kernel's, or was still in the L2 cache"
    return text


def _reaches(kernel: KernelProfile, copy_gbps: float | None) -> str:
    if kernel.dram_gbps is None:
        return ""
    text = f"reaches {rate(kernel.dram_gbps)} of DRAM"
    if copy_gbps is not None:
        return f"{text}, {percent(100 * kernel.dram_gbps / copy_gbps)} of a copy's rate"
    if kernel.counters.dram_pct is not None:
        return f"{text}, {percent(kernel.counters.dram_pct)} of its peak"
    return text


def _through_l2(counters: Counters) -> str:
    if counters.l2_bytes is None:
        return ""
    text = f"asks the L2 cache for {amount(counters.l2_bytes)}"
    if counters.l2_hit_pct is not None:
        text += f", {percent(counters.l2_hit_pct)} of it there"
    return f"{text}; {_shares(counters)}" if _shares(counters) else text


def _shares(counters: Counters) -> str:
    units = (("SMs", counters.sm_pct), ("L1", counters.l1_pct), ("L2", counters.l2_pct))
    known = [f"{name} {percent(pct)}" for name, pct in units if pct is not None]
    return f"of their peaks: {', '.join(known)}" if known else ""


def _computes(counters: Counters) -> str:
    """Return which pipes worked for how much of the time, and at which clock."""
    pipes = (
        ("tensor cores", counters.tensor_pct), ("FMA", counters.fma_pct),
        ("ALU", counters.alu_pct), ("XU", counters.xu_pct),
    )  # fmt: skip
    busy = [f"{name} {percent(pct)}" for name, pct in pipes if pct is not None and pct >= 1]
    text = f"its pipes are busy: {', '.join(busy)}" if busy else ""
    if counters.sm_mhz is None:
        return text
    clock = f"its SMs run at {counters.sm_mhz:.0f} MHz"
    return f"{text}; {clock}" if text else clock


def _occupies(counters: Counters) -> str:
    if counters.occupancy_pct is None:
        return ""
    text = f"occupancy {percent(counters.occupancy_pct)}"
    possible, warps = counters.possible_occupancy_pct, counters.possible_warps
    if possible is None or possible <= 0:
        return text
    if warps is not None:
        text += f" of {100 * warps / possible:.0f} warps"
    text += f", {percent(possible)} possible"
    limit = _limit(counters)
    return f"{text}, limited by {limit}" if limit and possible < _FULL_PCT else text


def _limit(counters: Counters) -> str:
    """Return what allows the fewest blocks an SM, with the number behind it."""
    shared = (counters.static_shared_bytes or 0) + (counters.dynamic_shared_bytes or 0)
    limits = (
        (counters.blocks_by_registers, f"registers ({counters.registers or 0:.0f} a thread)"),
        (counters.blocks_by_shared, f"shared memory ({amount(shared)} a block)"),
        (counters.blocks_by_warps, f"the size of blocks ({counters.threads or 0:.0f} threads)"),
        (counters.blocks_by_slots, f"blocks an SM (of {counters.threads or 0:.0f} threads each)"),
    )
    known = [(blocks, words) for blocks, words in limits if blocks is not None]
    if not known:
        return ""
    least = min(blocks for blocks, _ in known)
    return " and ".join(words for blocks, words in known if blocks == least)


def _waits(kernel: KernelProfile) -> str:
    reasons = top(kernel.stalls)
    return f"its warps wait: {', '.join(map(in_words, reasons))}" if reasons else ""


def heading(kernel: KernelProfile, shown: str) -> str:
    """Return one line: the kernel, its time and share, and how it is launched.

    Args:
        kernel: which.
        shown: its name in short.
    """
    return (
        f"{shown}: {duration(kernel.counters.time_us)}, {percent(100 * kernel.share)} of the time, "
        f"{launches(kernel.launches)} of {kernel.grid} blocks of {kernel.block} threads"
    )
