"""Summary of the times that were taken."""

from statistics import median

import msgspec

from kernelgen.grading.timing.limit import FASTER_THAN_MEASURED, Floor, Work, floor_of, limit_of
from kernelgen.grading.timing.quiet import MemoryLimits
from kernelgen.grading.timing.sampling import Samples
from kernelgen.grading.timing.statistics import quartiles, speedup
from kernelgen.grading.timing.times import (
    CANDIDATE,
    Conditions,
    Confirmation,
    Limit,
    Subject,
    Timing,
)
from kernelgen.grading.verdict import Judged, Status
from kernelgen.hardware.calibration import Calibration

_HOST_BOUND = (
    "calls in a row take as long as their own Python and launches, and the candidate waits for the "
    "device in forward, so that the device's own time could not be confirmed: the time of calls in "
    "a row is quoted"
)

_UNCONFIRMED = (
    "the supervisor's clock does not confirm the times, perhaps because the machine is busy: "
    "the time of calls in a row is quoted; time again on a free machine"
)

# Less than any call of a Python function that does something, and than any launch on a GPU.
_IMPOSSIBLE_MS = 5e-4
# Several times the fastest memory of any device (8000 GB/s in 2025), caches of CPUs included.
_IMPOSSIBLE_GBPS = 30_000
# Width of a speedup's 95 % interval, relative to it, from which on it is not worth quoting.
_WIDE_INTERVAL = 0.5


# Less than any kernel takes; what is left of a time when the events' own share is taken off.
_LEAST_MS = 1e-4


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Observations beside the times themselves, by subject.

    Attributes:
        host_ms: wall times until a call returned.
        events_us: what two events add to a time; None where nothing tells.
    """

    what: dict[str, str] = {}
    host_ms: dict[str, list[float]] = {}
    events_us: float | None = None
    conditions: Conditions | None = None


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Least traffic of a call, and how it was timed.

    Attributes:
        work: what a call has to do.
        limits: of the device's memory; None where they were not measured.
        calibration: of the device; None if its rates are not known.
    """

    work: Work
    method: str
    limits: MemoryLimits | None = None
    calibration: Calibration | None = None

    @property
    def floor(self) -> Floor:
        """Time that no call can do without."""
        return floor_of(self._moving_ms, self.work, self.calibration)

    def limit(self, candidate_ms: float) -> Limit | None:
        """Limits of the device, beside a time."""
        known = self.calibration
        return None if known is None else limit_of(candidate_ms, self.work, known)

    @property
    def _moving_ms(self) -> float:
        """Time that moving the bytes takes, those that a cache may keep aside."""
        if self.limits is None:
            return self.work.minimal_bytes / (_IMPOSSIBLE_GBPS * 1e6)
        beyond_cache = max(0, self.work.minimal_bytes - self.limits.cache_bytes)
        measured = [self.limits.gbps]
        if self.calibration is not None:
            # One slow measurement must not make a kernel at the speed of memory impossible.
            measured += [self.calibration.copy_gbps.best, self.calibration.write_gbps.best]
        return beyond_cache / (FASTER_THAN_MEASURED * max(measured) * 1e6)


def require_possible(elapsed_ms: float) -> None:
    """Refuse a time that no call takes; raises Judged."""
    if elapsed_ms < _IMPOSSIBLE_MS:
        reason = (
            f"by the clock in its own process a call took {elapsed_ms:.3g} ms, "
            "which is less than it takes to call anything"
        )
        raise Judged(Status.TAMPERED, reason)


def summarise(
    samples: Samples, traffic: Traffic, confirmed: Confirmation, observed: Observed
) -> tuple[Timing, tuple[str, ...]]:
    """Return medians and speedups, and what a reader of them should be warned of.

    Where the supervisor's clock could confirm only the time of calls in a row, that is what is
    quoted: a candidate gains nothing by being hard to time.

    Raises:
        Judged: the candidate's times are impossible.
    """
    claimed_ms = median(samples[CANDIDATE])
    host_bound = tuple(
        name
        for name, times in samples.items()
        if name in observed.host_ms and median(observed.host_ms[name]) > median(times)
    )
    samples = _quoted(samples, confirmed, observed.events_us or 0.0)
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
    baselines = [name for name in samples if name != CANDIDATE]
    speedups = {name: speedup(samples[name], candidate) for name in baselines}
    subjects = {name: _subject(name, times, observed) for name, times in samples.items()}
    timing = Timing(
        candidate_ms=candidate_ms,
        eager_ms=subjects["eager"].median_ms if "eager" in subjects else None,
        compile_ms=subjects["compile"].median_ms if "compile" in subjects else None,
        speedup=speedups,
        samples={name: tuple(times) for name, times in samples.items()},
        subjects=subjects,
        minimal_bytes=traffic.work.minimal_bytes,
        gbps=traffic.work.minimal_bytes / (candidate_ms * 1e6),
        limit=traffic.limit(candidate_ms),
        method=traffic.method,
        events_us=observed.events_us,
        confirmed=confirmed,
        conditions=observed.conditions,
        host_bound=host_bound,
    )
    warnings = [
        f"the times vary too much to say how the candidate compares with {name}: the speedup is "
        f"{found.ci95[0]:.3g} to {found.ci95[1]:.3g}; is something else running?"
        for name, found in speedups.items()
        if found.ci95[1] - found.ci95[0] > _WIDE_INTERVAL * found.median
    ]
    if candidate_ms < floor.floor_ms:
        warnings.append(floor.warning)
    if confirmed.host_bound:
        warnings.append(_HOST_BOUND)
    if confirmed.unconfirmed:
        warnings.append(_UNCONFIRMED)
    if confirmed.at_least_ms > max(claimed_ms, confirmed.claimed_ms or 0.0):
        warnings.append(
            f"the supervisor's clock bears out no less than {confirmed.at_least_ms:.3g} ms a call, "
            f"which is quoted; the clock in the candidate's process says {claimed_ms:.3g} ms"
        )
    return timing, tuple(warnings)


def _quoted(samples: Samples, confirmed: Confirmation, events_us: float) -> Samples:
    """Return the samples without the events' own share of them.

    The candidate's become no smaller than what was borne out.
    """
    events_ms = events_us / 1e3
    candidate = samples[CANDIDATE]
    in_a_row = confirmed.host_bound or confirmed.unconfirmed
    borne_out_ms = max(confirmed.at_least_ms, confirmed.at_most_ms if in_a_row else 0.0)
    claimed_ms = 0.0 if in_a_row else confirmed.claimed_ms or 0.0
    lacking_ms = max(0.0, max(claimed_ms, borne_out_ms + events_ms) - median(candidate))
    lengthened = {**samples, CANDIDATE: [elapsed_ms + lacking_ms for elapsed_ms in candidate]}
    return {
        name: [max(_LEAST_MS, elapsed_ms - events_ms) for elapsed_ms in times]
        for name, times in lengthened.items()
    }


def _subject(name: str, times_ms: list[float], observed: Observed) -> Subject:
    host_ms = observed.host_ms.get(name)
    return Subject(
        what=observed.what.get(name, name),
        median_ms=median(times_ms),
        quartiles_ms=quartiles(times_ms),
        host_ms=median(host_ms) if host_ms else None,
    )
