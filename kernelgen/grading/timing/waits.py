"""Waits for batches of calls, held against a claim.

A wait is the work, the overhead of waiting, and noise: what else the machine did is in it too.
"""

import math
from collections.abc import Sequence
from statistics import median

import msgspec

# A batch at least so long that the noise of a wait is small beside it.
BATCH_MS = {"cuda": 8.0, "cpu": 6.0}
# Below this, the machine counts as free as while the calls were timed.
_QUIET_LOAD = 1.15
# Processes that take turns on a GPU at least double a long write beside its parts.
CROWDED = 1.3
# From here on no load explains a wait, beside one that was measured before and after it.
_BEYOND_LOAD = 10.0
# From this time of a call on, the quoted time is held to what is borne out. Below, the noise of a
# wait says more than its work: on a GPU more is taken off it then, on a CPU nothing is borne out.
_BORNE_OUT_MS = 0.2
# Time that the shortest wait takes beyond the same calls one by one, the overhead of waiting
# included: 0.38 to 0.55 ms behind a gate on an H200, however many calls there are, and up to 0.66
# with calls of microseconds. On a machine where messages take longer, so much of their overhead.
_BEYOND_MS, _SMALL_BEYOND_MS, _BEYOND_OVERHEAD, _MOST_BEYOND_MS = 0.45, 0.7, 1.5, 1.0
# The same on a CPU, beside the overhead.
_CPU_BEYOND_MS, _SHORT_BEYOND_MS, _SHORT_BEYOND_SHARE = 0.45, 0.75, 0.3
# Behind a gate, calls in a row are as quick as one between long writes: 0.98 to 1.01 times its
# time on an H200, matrix products too. On a CPU they are interrupted.
_IN_A_ROW = {"cuda": 1.02, "cpu": 1.16}
# A request and its answer are two short records between processes: 0.3 to 0.4 ms on a virtual
# machine. What is longer is others' work, or no overhead. On a GPU it may be copies.
_MOST_OVERHEAD_MS = {"cuda": math.inf, "cpu": 1.0}
# A reference that is quicker says nothing about load.
_LEAST_CONTROL_MS = 2.0
# Warm calls in a row take no longer than a cold one by itself, so that any excess is suspicious;
# the clocks of processors vary by less than this.
_TOLERATED = {"cuda": 1.25, "cpu": 1.5}
_NOISE_MS = {"cuda": 0.25, "cpu": 0.6}
# On H200s, waits for batches of large tensors were 0.45 to 0.65 ms longer than both clocks account
# for. So more noise is tolerated, but only in a batch that is long beside it by the claim itself:
# a claim that is much too small gains nothing by this.
_MORE_NOISE_MS = {"cuda": 0.8, "cpu": 0.6}
_SHARE_OF_NOISE = 0.3


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Times that the candidate's process reports.

    Attributes:
        device_ms: median time of a call.
        host_ms: median wall time until a call returned; on a GPU its work may go on after that.
        gauge_ms: the oracle's fixed piece of work, when the calls were timed.
        load: how many times longer others made that, see `Probed.load`.
        reference_ms: time of a call of the reference by the oracle's clock, timed in the same way,
            or until it returned, if that is more; None if it was not timed.
        call_bytes: inputs and outputs of a call.
        batch_bytes: what those of all calls of a batch may take together; see `batch_bytes_of`.
    """

    device_ms: float
    host_ms: float
    gauge_ms: float
    load: float = 1.0
    reference_ms: float | None = None
    call_bytes: int
    batch_bytes: int


class BatchTime(msgspec.Struct, frozen=True, kw_only=True):
    """One verified batch; times in ms.

    Attributes:
        wait_ms: from the supervisor's request to the candidate's answer.
        control_wait_ms, control_ms: the same for the reference, right before, and what the oracle's
            own clock said of it.
        control_calls: of the reference; 0 without a control.
        gauge_ms: a fixed piece of work of the oracle's, right after the batch: a measure of what
            else the machine is doing.
        load: how many times longer others made that.
        in_place: the outputs were left where forward made them.
        at_once: they could be looked at without mapping memory first.
    """

    wait_ms: float
    control_wait_ms: float = 0.0
    control_ms: float = 0.0
    control_calls: int = 0
    gauge_ms: float
    load: float = 1.0
    in_place: bool
    at_once: bool

    @property
    def overhead_ms(self) -> float:
        """Time that waiting for the control took beyond its work."""
        return self.control_wait_ms - self.control_ms


class Waits:
    """Batches of the same number of calls, held against a claim.

    Args:
        controls: batches before these that had a control, which one behind a gate has not.

    Attributes:
        device: `cuda` or `cpu`.
        calls: of each batch.
        batches: those so far.
    """

    def __init__(
        self, device: str, claim: Claim, calls: int, controls: Sequence[BatchTime] = ()
    ) -> None:
        self.device, self.claim, self.calls = device, claim, calls
        self._controls = controls
        self.batches: list[BatchTime] = []

    @property
    def call_ms(self) -> float:
        """Time of a call in a batch, or by the candidate's own clock if that says more."""
        return max(self.claim.device_ms, self.claim.host_ms, self.at_most_ms())

    def overhead_ms(self) -> float:
        """Return what a wait takes whatever the work, by the reference's batches."""
        found = [one.overhead_ms for one in self.batches if one.control_calls]
        known_ms = median(found or [one.overhead_ms for one in self._controls])
        return min(known_ms, _MOST_OVERHEAD_MS[self.device])

    def agree(self, claimed_ms: float) -> bool:
        """Whether some quiet batch took no longer than calls of this time may take."""
        return any(self._excess(batch, claimed_ms) <= 1.0 for batch in self.quiet())

    def beyond_load(self) -> bool:
        """Whether every batch took many times longer than even the load explains."""
        explained = _BEYOND_LOAD * self.most_load()
        return all(self._excess(one, self.claim.device_ms) > explained for one in self.batches)

    def _excess(self, batch: BatchTime, claimed_ms: float) -> float:
        """Return how many times longer than what is claimed, and tolerated, a batch took."""
        batch_ms = claimed_ms * self.calls
        allowed_ms = _TOLERATED[self.device] * batch_ms + self.noise_ms(batch_ms)
        left_ms = batch.wait_ms - self.overhead_ms()
        # No time at all bears nothing out.
        return left_ms / allowed_ms if left_ms > 0 else math.inf

    def quiet(self) -> list[BatchTime]:
        """Return the batches beside which the machine was as free as when the calls were timed.

        On a CPU that others use too, most calls are over within a turn of theirs.
        """
        most_load = CROWDED if self.device == "cuda" else math.inf
        return [
            batch
            for batch in self.batches
            if self._slower(batch) <= _QUIET_LOAD and batch.load <= most_load
        ]

    def most_load(self) -> float:
        """How many times slower than by itself the machine was: others may be using it."""
        loads = ((self._slower(one), one.load, self.control_load(one)) for one in self.batches)
        return max(map(max, loads))

    def _slower(self, batch: BatchTime) -> float:
        usual_ms = min(self.claim.gauge_ms, *(one.gauge_ms for one in self.batches))
        return max(1.0, batch.gauge_ms / usual_ms)

    def control_load(self, batch: BatchTime) -> float:
        """How many times longer the reference took in a row than call by call."""
        if self.device == "cpu" or self.claim.reference_ms is None or not batch.control_calls:
            return 1.0
        alone_ms = batch.control_calls * self.claim.reference_ms
        if alone_ms < _LEAST_CONTROL_MS:
            return 1.0
        return max(1.0, (batch.control_ms - _MOST_BEYOND_MS) / alone_ms)

    def noise_ms(self, batch_ms: float) -> float:
        """Return what a wait for a batch that takes so long may vary by."""
        most_ms = min(_MORE_NOISE_MS[self.device], _SHARE_OF_NOISE * batch_ms)
        return max(_NOISE_MS[self.device], most_ms)

    def at_most_ms(self) -> float:
        """Return the time of a call that the shortest wait leaves room for."""
        return max(0.0, self._shortest_ms() - self.overhead_ms()) / self.calls

    def at_least_ms(self) -> float:
        """Return the time of a call that the shortest wait bears out, or 0 if it is too short."""
        call_ms = (self._shortest_ms() - self._beyond_ms()) / self.calls / _IN_A_ROW[self.device]
        told = call_ms >= _BORNE_OUT_MS or (self.device == "cuda" and call_ms > 0.0)
        return call_ms if told else 0.0

    def _shortest_ms(self) -> float:
        return min(batch.wait_ms for batch in self.batches)

    def _beyond_ms(self) -> float:
        """Return what the shortest wait is taken to have beyond its calls."""
        if self.device == "cuda":
            small = self.claim.device_ms < _BORNE_OUT_MS
            usual_ms = _SMALL_BEYOND_MS if small else _BEYOND_MS
            return min(max(usual_ms, _BEYOND_OVERHEAD * self.overhead_ms()), _MOST_BEYOND_MS)
        batch_ms = self.claim.device_ms * self.calls
        short_ms = min(_SHORT_BEYOND_MS, _SHORT_BEYOND_SHARE * batch_ms)
        return self.overhead_ms() + (_CPU_BEYOND_MS if batch_ms >= BATCH_MS["cpu"] else short_ms)
