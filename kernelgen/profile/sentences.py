"""A profile on a terminal: a few lines about each kernel, ncu's own advice on it, and the call.

What to try is said by ncu's rules. The lines before them say what ncu cannot know, as it does not
know the problem, and what its rules could say only of a kernel that it has rewritten.
"""

from collections.abc import Iterator

from rich.console import Console

from kernelgen.grading.kernels.names import parse_kernel_name
from kernelgen.profile.limits import DRAM, limited_by
from kernelgen.profile.metrics import OTHERS, SHARES
from kernelgen.profile.record import Counters, Facts, KernelProfile, Profile, Stall
from kernelgen.report.columns import decimal
from kernelgen.report.console import keep_lines_whole
from kernelgen.report.table import Line, print_line

# Kernels that take less are told together.
_LEAST_SHARE = 0.02
_MOST_TOLD = 8
_MOST_ADVICE = 3

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES_US = ((1e6, "s"), (1e3, "ms"))
_TENS = 10

# Less than this of the minimum: the rest was still in a cache.
_LESS = 0.95
# What is read or written besides, such as partial sums, is rarely a tenth; more is a second pass.
_EXCESS = 1.1
# Writes that are still in the L2 cache at the end, and what ncu itself disturbs.
_SMALL_BYTES = 32 << 20
# A warp's widest load is 16 bytes a thread: 512 bytes, 16 sectors. More are never contiguous.
_WIDEST_SECTORS = 16.0
_SECTOR_BYTES = 32
# A few spills outside of the loops cost nothing.
_SPILLED_SHARE = 0.02
# NVIDIA's own rule warns from here on.
_CONFLICT_SHARE = 0.1
# Wall time of a call over the time of its kernels: caches are cold under ncu, so that a call of
# nothing but kernels comes out below 1.
_GAPS = 1.3
_GAPS_US = 5.0
_ISSUED = "selected"
# Below this, a reason to wait does not decide anything.
_LEAST_STALL = 0.05
_MOST_STALLS = 3


def show(profile: Profile, console: Console) -> None:
    """Print what was counted of each kernel that matters, what ncu advises, and the call."""
    keep_lines_whole(console)
    for line in _lines(profile):
        print_line(line, console)


def _lines(profile: Profile) -> Iterator[Line]:
    told = [kernel for kernel in profile.kernels if kernel.share >= _LEAST_SHARE][:_MOST_TOLD]
    for kernel in told:
        yield Line(text=heading(kernel), style="bold")
        for sentence in sentences(kernel, profile):
            yield Line(lead="  ", folded_lead="    ", text=sentence)
        for advice in _advice(kernel, profile):
            yield Line(lead="  - ", folded_lead="    ", text=advice, style="cyan")
    if len(told) < len(profile.kernels):
        rest = len(profile.kernels) - len(told)
        text = f"The other kernels ({rest}) take little each; --json has what was counted of them"
        yield Line(text=text, style="dim")
    yield Line(text=of_the_call(profile), style="bold")
    if profile.unavailable:
        text = f"not available on this device or to this ncu: {', '.join(profile.unavailable)}"
        yield Line(text=text, style="dim")
    for warning in profile.warnings:
        yield Line(text=f"warning: {warning}", style="yellow")
    yield Line(text=profile.method, style="dim")


def _advice(kernel: KernelProfile, profile: Profile) -> Iterator[str]:
    """Yield what ncu advises, unless the kernel does all that the memory allows."""
    if limited_by(kernel, profile) == DRAM:
        return
    for advice in kernel.advice[:_MOST_ADVICE]:
        speedup = advice.speedup_pct
        estimate = "" if speedup is None else f", estimates a gain of {percent(speedup)}"
        yield f"ncu ({advice.rule}{estimate}): {advice.text}"


def heading(kernel: KernelProfile) -> str:
    """Return one line: the kernel under its short name, its time, and how it is launched."""
    shown = parse_kernel_name(kernel.kernel).shown
    return (
        f"{shown}: {duration(kernel.counters.time_us)}, {percent(100 * kernel.share)} of the time, "
        f"{_launches(kernel.launches)} of {kernel.grid} blocks of {kernel.block} threads"
    )


def sentences(kernel: KernelProfile, profile: Profile) -> tuple[str, ...]:
    """Return what was counted of a kernel; what this ncu could not count is left out."""
    counters, facts, limit = kernel.counters, profile.facts, limited_by(kernel, profile)
    found = (
        f"limited by {limit}" + (": only fewer bytes help" if limit == DRAM else ""),
        _moves(counters, facts),
        _reaches(kernel, profile.copy_gbps),
        _counted(counters),
        _accesses(counters),
        _waits(kernel.stalls),
    )
    return tuple(text for text in found if text)


def of_the_call(profile: Profile) -> str:
    """Return one line on the whole call: its time, its bytes, and its time without ncu."""
    facts = profile.facts
    count = _launches(sum(kernel.launches for kernel in profile.kernels))
    text = f"The call: {duration(profile.time_us)} in {count} on {facts.device}"
    least, moved = facts.minimal_bytes, profile.dram_bytes
    if moved is not None and least > 0:
        text += f"; {amount(moved)} of DRAM for the problem's minimum of {amount(least)}"
        text += f" ({times(moved / least)})"
        if len(profile.kernels) > 1 and moved > _EXCESS * least + _SMALL_BYTES:
            text += ": fewer kernels would write and read less in between"
    wall_us = facts.forward_ms * 1e3
    text += f"; without ncu, with warm caches, {duration(wall_us)}"
    if wall_us > _GAPS * profile.time_us and wall_us - profile.time_us >= _GAPS_US:
        text += ", of which the rest is Python, launching and waiting"
    return text


def _moves(counters: Counters, facts: Facts) -> str:
    read, written = counters.dram_read_bytes, counters.dram_written_bytes
    if read is None or written is None:
        return ""
    text = (
        f"reads {_beside(read, facts.minimal_read_bytes, 'inputs and parameters')}, "
        f"writes {_beside(written, facts.minimal_written_bytes, 'outputs')}"
    )
    if read + written < _LESS * facts.minimal_bytes:
        text += "; what is less than 1 is another kernel's, or was still in the L2 cache"
    return text


def _beside(moved: float, least: int, of_what: str) -> str:
    if least <= 0:
        return f"{amount(moved)} of DRAM"
    return f"{amount(moved)} of DRAM for {amount(least)} of {of_what} ({times(moved / least)})"


def _reaches(kernel: KernelProfile, copy_gbps: float | None) -> str:
    if kernel.dram_gbps is None:
        return ""
    text = f"reaches {amount(kernel.dram_gbps * 1e9)}/s of DRAM"
    if copy_gbps is not None:
        return f"{text}, {percent(100 * kernel.dram_gbps / copy_gbps)} of a copy's rate"
    if kernel.counters.dram_pct is not None:
        return f"{text}, {percent(kernel.counters.dram_pct)} of its peak"
    return text


def _counted(counters: Counters) -> str:
    """Return shares of what the hardware can do, as far as they are 1 % or more, and the clock."""
    found = [
        f"{name} {percent(value)}" if field.endswith("_pct") else f"{name} {value:.0f}"
        for name, field in (SHARES | OTHERS).items()
        if (value := getattr(counters, field)) is not None and value >= 1
    ]
    return f"counted: {', '.join(found)}" if found else ""


def _accesses(counters: Counters) -> str:
    """Return what is wrong with its accesses to memory; "" if nothing is."""
    found = [
        f"{what} touch {sectors:.1f} sectors a request, contiguous ones 16 at most"
        for what, sectors in (("loads", counters.load_sectors), ("stores", counters.store_sectors))
        if sectors is not None and sectors > _WIDEST_SECTORS
    ]
    sectors = (counters.local_load_sectors or 0) + (counters.local_store_sectors or 0)
    spilled = sectors * _SECTOR_BYTES
    if spilled > 0 and spilled >= _SPILLED_SHARE * (counters.l2_bytes or 0):
        found.append(f"local memory moves {amount(spilled)}, as where registers spill")
    conflicts, passes = counters.shared_conflicts, counters.shared_wavefronts
    if conflicts and passes and conflicts >= _CONFLICT_SHARE * passes:
        share = percent(100 * conflicts / passes)
        found.append(f"{share} of the passes over shared memory may be bank conflicts")
    return "; ".join(found)


def _waits(stalls: tuple[Stall, ...]) -> str:
    waiting = [s for s in stalls if s.reason != _ISSUED and s.share >= _LEAST_STALL]
    reasons = [f"{100 * s.share:.0f} % {s.reason.replace('_', ' ')}" for s in waiting]
    return f"its warps wait: {', '.join(reasons[:_MOST_STALLS])}" if reasons else ""


def amount(nbytes: float) -> str:
    """Return bytes such as `15.1 GB`, in powers of 1000."""
    return _scaled(nbytes, _BYTES) or f"{nbytes:.0f} B"


def duration(time_us: float) -> str:
    """Return `3.52 ms` for 3520."""
    return _scaled(time_us, _TIMES_US) or f"{decimal(time_us)} us"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    found = (f"{decimal(value / scale)} {unit}" for scale, unit in units if value >= scale)
    return next(found, "")


def times(ratio: float) -> str:
    """Return `1.01x`."""
    return f"{ratio:.2f}x" if ratio < _TENS else f"{ratio:.0f}x"


def percent(pct: float) -> str:
    """Return `87 %`, or `0.4 %` where a whole number would be 0."""
    return f"{pct:.0f} %" if pct >= 1 or pct == 0 else f"{pct:.1f} %"


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count} launches"
