"""How much faster or slower a solution got between two runs, and what that rests on."""

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from kernelgen.comparison.record import BaselineChange, Compared
from kernelgen.grading.timing.statistics import (
    block_ratios,
    resolution_ms,
    unpaired_speedup,
)
from kernelgen.grading.timing.times import CANDIDATE, Speedup, Timing
from kernelgen.report.columns import speedup_text

_FEWEST = 2


def with_speed(base: Compared, old: Timing | None, new: Timing | None) -> Compared | str:
    """Return a solution with its change of speed, or in words why nothing can be said.

    Two runs are hours apart, on a machine that may have changed: a slower time may be its doing. A
    baseline feels it as well, but not always as much: a slower speedup may be the baseline's doing.
    So a change is claimed only where the candidate's time and its speedup over a baseline both say
    so: the interval spans both, and the figure is the one nearer to 1, or 1 where they contradict
    each other. Of several baselines the one with the narrowest interval is taken. Without any, the
    times stand alone.
    """
    if old is None or new is None:
        return "it was not timed in both runs"
    before, after = _samples(old, CANDIDATE), _samples(new, CANDIDATE)
    if not before or not after:
        return "a run lacks the samples of its times"
    step = max(resolution_ms(before), resolution_ms(after))
    time_ratio = speed = unpaired_speedup(before, after, step=step)
    shared = [name for name in old.speedup if name in new.speedup]
    unlike = [name for name in shared if not _alike(name, old, new)]
    changes = {name: _baseline(name, old, new) for name in shared if name not in unlike}
    baselines = {name: change for name, change in changes.items() if change is not None}
    widths = {name: one.ratio.ci95[1] / one.ratio.ci95[0] for name, one in baselines.items()}
    best = min(widths, key=widths.__getitem__, default="")
    remarks = [f"{name} is not timed as it was, and is left aside" for name in unlike]
    if best:
        ratio = baselines[best].ratio
        speed = _agreed(time_ratio, ratio)
        if time_ratio.says != ratio.says:
            by_time, by_ratio = (speedup_text(one, interval=True) for one in (time_ratio, ratio))
            by = f"by its time alone {by_time}, by its speedup over {best} {by_ratio}"
            remarks.insert(0, by)
    return msgspec.structs.replace(
        base,
        speed=speed,
        baseline=best,
        time_ratio=time_ratio,
        baselines=baselines,
        remarks=(*base.remarks, *remarks),
    )


def _agreed(one: Speedup, other: Speedup) -> Speedup:
    """Return as much of a change as both show, with an interval that spans both."""
    nearer = min(one.median, other.median, key=lambda ratio: abs(math.log(ratio)))
    if (one.median - 1.0) * (other.median - 1.0) < 0.0:
        nearer = 1.0
    low, high = min(one.ci95[0], other.ci95[0]), max(one.ci95[1], other.ci95[1])
    return Speedup(median=nearer, ci95=(low, high))


def beyond(ratio: Speedup, bound_percent: float) -> bool:
    """Return whether the whole interval says: over so much more time than before."""
    return ratio.ci95[1] < 1.0 / (1.0 + bound_percent / 100.0)


def drifted(change: BaselineChange, bound_percent: float) -> bool:
    """Return whether a baseline's own time surely changed by over so much, either way."""
    low, high = change.drift.ci95
    most = 1.0 + bound_percent / 100.0
    return high < 1.0 / most or low > most


def _baseline(name: str, old: Timing, new: Timing) -> BaselineChange | None:
    before, after = _samples(old, name), _samples(new, name)
    pairs = (before, _samples(old, CANDIDATE)), (after, _samples(new, CANDIDATE))
    if not before or not after or any(len(one) != len(other) for one, other in pairs):
        return None
    ratios = [block_ratios(baseline, candidate) for baseline, candidate in pairs]
    step = max(resolution_ms(before), resolution_ms(after))
    return BaselineChange(
        old_ms=median(before),
        new_ms=median(after),
        drift=unpaired_speedup(before, after, step=step),
        # A speedup grows where the candidate gets faster: the new one stands above.
        ratio=unpaired_speedup(ratios[1], ratios[0], step=_ratio_step(pairs, ratios)),
    )


def _ratio_step(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], ratios: Sequence[Sequence[float]]
) -> float:
    """Return what a step of the clock makes of a speedup, at most."""
    steps = []
    for (baseline, candidate), ratio in zip(pairs, ratios, strict=True):
        step_ms = resolution_ms(baseline, candidate)
        parts = step_ms / median(baseline) + step_ms / median(candidate)
        steps.append(median(ratio) * parts)
    return max(steps)


def _alike(name: str, old: Timing, new: Timing) -> bool:
    """Return whether a baseline is the same thing in both, as far as they say what it is."""
    before, after = old.subjects.get(name), new.subjects.get(name)
    return before is None or after is None or before.what == after.what


def _samples(timing: Timing, name: str) -> tuple[float, ...]:
    """Return the samples of a subject, or none where there are too few or impossible ones."""
    samples = timing.samples.get(name, ())
    possible = all(math.isfinite(value) and value > 0 for value in samples)
    return samples if possible and len(samples) >= _FEWEST else ()
