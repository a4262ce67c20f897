"""Launches of the same kernel, put together."""

from __future__ import annotations

from collections.abc import Sequence

from kernelgen.profile.metrics import METRICS
from kernelgen.profile.record import Counters, KernelProfile, Launch, Stall


def merge(launches: Sequence[Launch]) -> tuple[KernelProfile, ...]:
    """Return the kernels, the one that takes most of the time first, without advice.

    Launches belong together if kernel, grid and block are the same. Counts are added up; shares,
    rates and sizes are means weighted by time, over the launches that have them.
    """
    groups: dict[tuple[str, str, str], list[Launch]] = {}
    for launch in launches:
        groups.setdefault((launch.kernel, launch.grid, launch.block), []).append(launch)
    total_us = sum(launch.counters.time_us for launch in launches)
    kernels = [_together(group, total_us) for group in groups.values()]
    return tuple(sorted(kernels, key=lambda kernel: -kernel.counters.time_us))


def _together(group: list[Launch], total_us: float) -> KernelProfile:
    first = group[0]
    counters = _counters([launch.counters for launch in group])
    return KernelProfile(
        kernel=first.kernel,
        grid=first.grid,
        block=first.block,
        launches=len(group),
        share=counters.time_us / total_us if total_us > 0 else 0.0,
        counters=counters,
        dram_gbps=counters.dram_gbps,
        stalls=_stalls(group),
    )


def _counters(group: list[Counters]) -> Counters:
    values: dict[str, float] = {}
    for metric in METRICS:
        found = [(getattr(c, metric.field), c.time_us) for c in group]
        known = [(value, weight) for value, weight in found if value is not None]
        if metric.summed and len(known) == len(group):
            values[metric.field] = sum(value for value, _ in known)
        elif not metric.summed and known:
            values[metric.field] = _mean(known)
    return Counters(**values)


def _stalls(group: list[Launch]) -> tuple[Stall, ...]:
    found: dict[str, float] = {}
    weights = 0.0
    for launch in group:
        if launch.stalls:
            weights += launch.counters.time_us
        for stall in launch.stalls:
            share = stall.share * launch.counters.time_us
            found[stall.reason] = found.get(stall.reason, 0.0) + share
    if weights <= 0:
        return ()
    merged = [Stall(reason=reason, share=value / weights) for reason, value in found.items()]
    return tuple(sorted(merged, key=lambda stall: -stall.share))


def _mean(known: list[tuple[float, float]]) -> float:
    weights = sum(weight for _, weight in known)
    if weights <= 0:
        return sum(value for value, _ in known) / len(known)
    return sum(value * weight for value, weight in known) / weights
