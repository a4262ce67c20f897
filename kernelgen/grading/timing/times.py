"""Times in a verdict: what was measured, how sure that is, and how near the hardware's limit it is.

Medians are of samples in ms. `docs/timing.md` says how they are taken. A baseline is named by what
it is: `eager`, `compile`, and on request others.
"""

from typing import Literal

import msgspec

CANDIDATE = "candidate"
"""Name of the candidate among the subjects that are timed."""

Says = Literal["faster", "slower", "same"]
"""Comparison that may be claimed: `same` unless the whole interval lies on one side of 1."""


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """Baseline time over candidate time.

    Attributes:
        median: over the blocks, of the ratio of the two times in a block.
        ci95: its 95 % interval, from order statistics; see docs/statistics.md.
    """

    median: float
    ci95: tuple[float, float]

    @property
    def says(self) -> Says:
        """Comparison that may be claimed of the candidate."""
        low, high = self.ci95
        return "faster" if low > 1.0 else "slower" if high < 1.0 else "same"


class Confirmation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Findings of the supervisor's own clock on the candidate's time; see confirm.py.

    Attributes:
        at_most_ms: a call took no longer: the wait for the shortest batch over its calls, the
            overhead of waiting taken off.
        calls: of a batch, every one verified.
        batches: that counted.
        overhead_ms: of waiting for a batch, median.
        outputs: `in place` where they were looked at in the candidate's own memory, else `copied`.
        claimed_ms: what was borne out: the median by the clock beside the work, or that of a
            second timing if the first was not; absent in reports of before there was a second.
        at_least_ms: what a call was borne out to take, and no shorter time is quoted; 0 where calls
            are too short to say, and absent in earlier reports.
        host_bound: calls in a row take as long as their own Python and launches, so that the
            device's time could not be confirmed, and the time of calls in a row is quoted.
        unconfirmed: the claim was not borne out, by a factor that may be chance; again the time of
            calls in a row is quoted.
    """

    at_most_ms: float
    calls: int
    batches: int
    overhead_ms: float
    outputs: str
    claimed_ms: float | None = None
    at_least_ms: float = 0.0
    host_bound: bool = False
    unconfirmed: bool = False


class Subject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The candidate or a baseline: what it is, and how its samples lie.

    Attributes:
        what: it is, with the flags that change its time, such as `torch.compile, default options,
            TF32 off`.
        median_ms: of the samples.
        quartiles_ms: first and third.
        host_ms: median wall time until forward returned, with the device still at work.
    """

    what: str
    median_ms: float
    quartiles_ms: tuple[float, float]
    host_ms: float | None = None


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The least time that the problem takes on the device, at rates measured on it.

    Attributes:
        limit_ms: the larger of the times for moving the bytes and for doing the operations.
        fraction: of the limit that the candidate reached: limit_ms over candidate_ms.
        bound: which of the two it is.
        source: of bytes and operations: `declared` in the problem, or `counted`.
        minimal_bytes: inputs, parameters and outputs once each.
        minimal_flops: operations of the matrix products, a multiply and an add counted as two; 0
            where the time for all others is nothing beside the bytes.
        copy_gbps: bytes read and written by a device-to-device copy, in 1e9 a second.
        flops_per_s: rate for these operations at the problem's accuracy.
        rate: which rate that is, such as `three bf16 products`; "" without operations.
    """

    limit_ms: float
    fraction: float
    bound: Literal["memory", "arithmetic"]
    source: Literal["declared", "counted"]
    minimal_bytes: int
    minimal_flops: int = 0
    copy_gbps: float | None = None
    flops_per_s: float | None = None
    rate: str = ""


class Conditions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions of the device while times were taken, read through NVML once a block.

    Attributes:
        throttled: reasons for lowered clocks that held in a block, such as `thermal slowdown`.
        repeated_blocks: blocks that were measured again because of one.
    """

    throttled: tuple[str, ...] = ()
    repeated_blocks: int = 0


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times of the main case; medians in ms. A baseline that was not timed is absent.

    Attributes:
        candidate_ms: median over the samples.
        eager_ms: the reference as written, under the same pins.
        compile_ms: the reference under torch.compile with default options, under the same pins.
        speedup: name of a baseline -> baseline over candidate.
        samples: raw times in ms, one list a subject, paired by position.
        subjects: `candidate` and the baselines: what they are, and how their samples lie.
        minimal_bytes: inputs, parameters and outputs once each.
        gbps: minimal_bytes over candidate_ms, in 1e9 bytes a second.
        limit: what the hardware allows; absent if its rates are not known.
        method: how the times were taken, one line.
        events_us: what two events around a call add to its time by CUPTI's stamps, as the grader
            measured it in a process of its own; taken off all times by events.
        confirmed: by the supervisor's own clock.
        conditions: of the device meanwhile; absent if it does not tell.
        host_bound: subjects whose call takes the host longer than the device.
    """

    candidate_ms: float
    eager_ms: float | None = None
    compile_ms: float | None = None
    speedup: dict[str, Speedup] = {}
    samples: dict[str, tuple[float, ...]] = {}
    subjects: dict[str, Subject] = {}
    minimal_bytes: int | None = None
    gbps: float | None = None
    limit: Limit | None = None
    method: str = ""
    events_us: float | None = None
    confirmed: Confirmation | None = None
    conditions: Conditions | None = None
    host_bound: tuple[str, ...] = ()
