"""How many times are taken, in which order, and what is made of them."""

import random
import secrets
import time
from collections.abc import Callable

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.limit import Floor, Work, floor_of, limit_of
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.quiet import MemoryLimits
from kernelgen.grading.statistics import median, speedup
from kernelgen.grading.times import Confirmation, Limit, Timing
from kernelgen.grading.verdict import Status
from kernelgen.hardware.calibration import Calibration

CANDIDATE = "candidate"

# Reads may be a little faster than the write that the limit was measured with.
_FASTER_THAN_A_WRITE = 1.2
_HOST_BOUND = (
    "calls in a row take as long as their own Python and launches, and the candidate waits for the "
    "device in forward, so that the device's own time could not be confirmed: the time of calls in "
    "a row is quoted"
)

_UNCONFIRMED = (
    "the supervisor's clock does not quite bear the times out, for which a busy machine may be the "
    "reason: the time of calls in a row is quoted; time again on a free machine"
)

Samples = dict[str, list[float]]
"""Times in ms of the candidate and of each baseline, paired by position."""

_WARM_UP_BLOCKS = 2
_SAMPLES_A_PHASE = 10
_FEWEST_SAMPLES = 3
# Less than any call of a Python function that does something, and than any launch on a GPU.
_IMPOSSIBLE_MS = 5e-4
# Times the timing budget, after which the fewest samples do.
_PATIENCE = 4
# Several times the fastest memory of any device (8000 GB/s in 2025), caches of CPUs included.
_IMPOSSIBLE_GBPS = 30_000
# Width of a speedup's 95 % interval, relative to it, from which on it is not worth quoting.
_WIDE_INTERVAL = 0.5


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a call has to move at least, and how it was timed.

    Attributes:
        minimal_bytes: inputs, parameters and outputs once each.
        method: how times are taken, one line.
        limits: of the device's memory; None where they were not measured.
        work: of a call, for its limit; None where none is wanted.
        calibration: of the device; None if its rates are not known.
    """

    minimal_bytes: int
    method: str
    limits: MemoryLimits | None = None
    work: Work | None = None
    calibration: Calibration | None = None

    @property
    def floor(self) -> Floor:
        """Time that no call can do without."""
        return floor_of(self._moving_ms, self.minimal_bytes, self.work, self.calibration)

    def limit(self, candidate_ms: float) -> Limit | None:
        """What the device allows, beside a time."""
        if self.work is None or self.calibration is None:
            return None
        return limit_of(candidate_ms, self.work, self.calibration)

    @property
    def _moving_ms(self) -> float:
        """Time that moving the bytes takes, those that a cache may keep aside."""
        if self.limits is None:
            return self.minimal_bytes / (_IMPOSSIBLE_GBPS * 1e6)
        beyond_cache = max(0, self.minimal_bytes - self.limits.cache_bytes)
        return beyond_cache / (_FASTER_THAN_A_WRITE * self.limits.gbps * 1e6)


def take_samples(
    block: Callable[[list[str]], dict[str, float]],
    baselines: tuple[str, ...],
    options: GradeOptions,
    phase: Callable[[str], None],
) -> Samples:
    """Time blocks until there are enough.

    A block times the candidate and every baseline once, on the same new inputs, in an order drawn
    anew: what drifts (clock, temperature) or lingers (caches, what ran before) falls on all alike.
    The first blocks warm up and do not count. Sampling stops after `max_samples`, or once
    `min_samples` are there and the timing budget is spent; a candidate that is so slow that the
    budget is spent several times over by then is timed thrice.

    Args:
        block: times the named subjects in the given order; returns each one's ms.
        baselines: which to time beside the candidate.
        options: of the run.
        phase: told how far it is.
    """
    subjects = [CANDIDATE, *baselines]
    samples: Samples = {subject: [] for subject in subjects}
    order = random.Random(secrets.randbits(64))  # noqa: S311 (the order of three subjects)
    begin = time.monotonic()
    phase("timing")
    blocks = 0
    while True:
        spent_s = time.monotonic() - begin
        count = len(samples[CANDIDATE])
        slow = spent_s > _PATIENCE * options.timing_budget_s
        least = min(_FEWEST_SAMPLES, options.min_samples) if slow else options.min_samples
        if count >= options.max_samples or (count >= least and spent_s > options.timing_budget_s):
            break
        order.shuffle(subjects)
        times = block(list(subjects))
        blocks += 1
        if blocks == 1 or (blocks <= _WARM_UP_BLOCKS and spent_s <= options.timing_budget_s):
            continue
        for subject, elapsed_ms in times.items():
            samples[subject].append(elapsed_ms)
        if (count + 1) % _SAMPLES_A_PHASE == 0 and count + 1 < options.max_samples:
            phase(f"timing: {count + 1} samples")
    return samples


def require_possible(samples: Samples) -> None:
    """Refuse times that no call takes; raises Judged."""
    least_ms = min(samples[CANDIDATE])
    if least_ms < _IMPOSSIBLE_MS:
        reason = (
            f"by the clock in its own process a call took {least_ms:.3g} ms, "
            "which is less than it takes to call anything"
        )
        raise Judged(Status.TAMPERED, reason)


def summarise(
    samples: Samples, traffic: Traffic, confirmed: Confirmation
) -> tuple[Timing, tuple[str, ...]]:
    """Return medians and speedups, and what a reader of them should be warned of.

    Args:
        samples: of all subjects.
        traffic: of a call.
        confirmed: by the supervisor's clock. Where it could confirm only the time of calls in a
            row, that is what is quoted: nobody gains by being hard to time.

    Raises:
        Judged: the candidate's times are impossible.
    """
    samples = _quoted(samples, confirmed)
    candidate = samples[CANDIDATE]
    candidate_ms = median(candidate)
    floor = traffic.floor
    # A problem may not need all of its inputs; but then the supervisor's clock says so as well.
    if candidate_ms < floor.floor_ms < confirmed.at_most_ms:
        reason = (
            f"by the clock in its own process a call takes {candidate_ms:.3g} ms; {floor.reason}, "
            f"and the supervisor's clock saw {confirmed.at_most_ms:.3g} ms"
        )
        raise Judged(Status.TAMPERED, reason)
    medians = {name: median(times) for name, times in samples.items()}
    baselines = [name for name in samples if name != CANDIDATE]
    speedups = {name: speedup(samples[name], candidate) for name in baselines}
    warnings = tuple(
        f"the times vary too much to say how the candidate compares with {name}: the speedup is "
        f"{found.ci95[0]:.3g} to {found.ci95[1]:.3g}; is something else running?"
        for name, found in speedups.items()
        if found.ci95[1] - found.ci95[0] > _WIDE_INTERVAL * found.median
    )
    timing = Timing(
        candidate_ms=candidate_ms,
        eager_ms=medians.get("eager"),
        compile_ms=medians.get("compile"),
        speedup=speedups,
        samples={name: tuple(times) for name, times in samples.items()},
        minimal_bytes=traffic.minimal_bytes,
        gbps=traffic.minimal_bytes / (candidate_ms * 1e6),
        limit=traffic.limit(candidate_ms),
        method=traffic.method,
        confirmed=confirmed,
    )
    if candidate_ms < floor.floor_ms:
        warnings = (*warnings, floor.warning)
    if confirmed.host_bound:
        warnings = (*warnings, _HOST_BOUND)
    if confirmed.unconfirmed:
        warnings = (*warnings, _UNCONFIRMED)
    return timing, warnings


def _quoted(samples: Samples, confirmed: Confirmation) -> Samples:
    """Return the samples with the candidate's no smaller than what could be confirmed."""
    candidate = samples[CANDIDATE]
    in_a_row = confirmed.host_bound or confirmed.unconfirmed
    least_ms = confirmed.at_most_ms if in_a_row else confirmed.claimed_ms
    lacking_ms = (least_ms or 0.0) - median(candidate)
    if lacking_ms <= 0.0:
        return samples
    return {**samples, CANDIDATE: [elapsed_ms + lacking_ms for elapsed_ms in candidate]}
