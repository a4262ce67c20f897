"""How much faster or slower a solution got between two runs, and what that rests on."""

import math

from kernelgen.grading.timing.statistics import block_ratios, resolution_ms, unpaired_speedup
from kernelgen.grading.timing.times import CANDIDATE, Speedup, Timing

_FEWEST = 2


def speed_since(old: Timing | None, new: Timing | None) -> tuple[Speedup, str] | str:
    """Return how many times as fast as before a solution is, or in words why that is not known.

    Two runs are hours apart, on a machine that may have changed: a slower time may be its doing. A
    baseline feels it as well, but not always as much: a slower speedup may be the baseline's doing.
    So a change is claimed only where the candidate's time and its speedup over a baseline both say
    so: the interval spans both, and the figure is the one nearer to 1, or 1 where they contradict
    each other. Of several baselines the one with the narrowest interval is taken; its name is
    returned too. Without any it is "", and the times stand alone.
    """
    if old is None or new is None:
        return "it was not timed in both runs"
    before, after = _samples(old, CANDIDATE), _samples(new, CANDIDATE)
    if not before or not after:
        return "a run lacks the samples of its times"
    step = max(resolution_ms(before), resolution_ms(after))
    by_time = unpaired_speedup(before, after, step=step)
    ratios = {name: _ratio(name, old, new) for name in old.speedup if _alike(name, old, new)}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    best = min(known, key=lambda name: known[name].ci95[1] / known[name].ci95[0], default="")
    return (_agreed(by_time, known[best]) if best else by_time), best


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


def _ratio(name: str, old: Timing, new: Timing) -> Speedup | None:
    """Return the new speedup over a baseline as a multiple of the old one.

    The clock's step is not in it: the interval of the times has that.
    """
    before, after = ((_samples(timing, name), _samples(timing, CANDIDATE)) for timing in (old, new))
    if (
        not before[0]
        or not after[0]
        or any(len(one) != len(other) for one, other in (before, after))
    ):
        return None
    return unpaired_speedup(block_ratios(*after), block_ratios(*before))


def _alike(name: str, old: Timing, new: Timing) -> bool:
    """Return whether a baseline is the same thing in both, as far as they say what it is."""
    before, after = old.subjects.get(name), new.subjects.get(name)
    return before is None or after is None or before.what == after.what


def _samples(timing: Timing, name: str) -> tuple[float, ...]:
    """Return the samples of a subject, or none where there are too few or impossible ones."""
    samples = timing.samples.get(name, ())
    possible = all(math.isfinite(value) and value > 0 for value in samples)
    return samples if possible and len(samples) >= _FEWEST else ()
