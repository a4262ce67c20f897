"""How many times are taken, and in which order."""

import random
import secrets
import time
from collections.abc import Callable

import msgspec

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.timing.statistics import speedup
from kernelgen.grading.timing.times import CANDIDATE

Samples = dict[str, list[float]]
"""Times in ms of the candidate and of each baseline, paired by position."""

_WARM_UP_BLOCKS = 2
_SAMPLES_A_PHASE = 10
_FEWEST_SAMPLES = 3
# Times the timing budget, after which the fewest samples do.
_PATIENCE = 4
# A device that is too hot for so long will not cool down by waiting for it.
_MOST_REPEATED = 10


class TimedBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Every subject once, on the same inputs.

    Attributes:
        times_ms: subject -> its time.
        throttled: why the device was slower than usual, as far as that may pass.
    """

    times_ms: dict[str, float]
    throttled: tuple[str, ...] = ()


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """All samples.

    Attributes:
        repeated_blocks: how many were measured again because something disturbed them.
        disturbed: what disturbed those that count.
    """

    samples: Samples
    repeated_blocks: int
    disturbed: tuple[str, ...] = ()


def take_samples(
    block: Callable[[list[str]], TimedBlock],
    baselines: tuple[str, ...],
    options: GradeOptions,
    phase: Callable[[str], None],
) -> Taken:
    """Time blocks until there are enough.

    A block times the candidate and every baseline once, on the same new inputs, in an order drawn
    anew: what drifts (clock, temperature) or lingers (caches, what ran before) falls on all alike.
    The first blocks warm up and do not count, nor does one in which the device was throttled.
    Sampling stops once `min_samples` are there and every speedup's interval is as narrow as
    `interval` asks, or the timing budget is spent; and after `max_samples`. A candidate that is so
    slow that the budget is spent several times over by then is timed thrice.
    """
    subjects = [CANDIDATE, *baselines]
    samples: Samples = {subject: [] for subject in subjects}
    order = random.Random(secrets.randbits(64))  # noqa: S311 (the order of three subjects)
    begin = time.monotonic()
    phase("timing")
    blocks = repeated = 0
    disturbed: dict[str, None] = {}
    while True:
        spent_s = time.monotonic() - begin
        if _enough(samples, spent_s, options):
            return Taken(samples=samples, repeated_blocks=repeated, disturbed=tuple(disturbed))
        order.shuffle(subjects)
        timed = block(list(subjects))
        blocks += 1
        if blocks == 1 or (blocks <= _WARM_UP_BLOCKS and spent_s <= options.timing_budget_s):
            continue
        if timed.throttled and repeated < _MOST_REPEATED:
            repeated += 1
            phase(f"timing: again, {', '.join(timed.throttled)}")
            continue
        disturbed.update(dict.fromkeys(timed.throttled))
        for subject, elapsed_ms in timed.times_ms.items():
            samples[subject].append(elapsed_ms)
        count = len(samples[CANDIDATE])
        if count % _SAMPLES_A_PHASE == 0 and count < options.max_samples:
            phase(f"timing: {count} samples")


def _enough(samples: Samples, spent_s: float, options: GradeOptions) -> bool:
    count = len(samples[CANDIDATE])
    slow = spent_s > _PATIENCE * options.timing_budget_s
    least = min(_FEWEST_SAMPLES, options.min_samples) if slow else options.min_samples
    if count >= options.max_samples:
        return True
    if count < least:
        return False
    return spent_s > options.timing_budget_s or _narrow(samples, options.interval)


def _narrow(samples: Samples, interval: float) -> bool:
    """Whether every speedup is known as precisely as is asked for."""
    candidate = samples[CANDIDATE]
    found = [speedup(times, candidate) for name, times in samples.items() if name != CANDIDATE]
    return bool(found) and all(
        max(one.ci95[1] - one.median, one.median - one.ci95[0]) <= interval * one.median
        for one in found
    )
