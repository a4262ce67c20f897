"""Whether the supervisor's own clock confirms the times that the candidate's process reports.

What a candidate's process says about its own time is worth nothing by itself: its code can replace
the clock. So the supervisor has it do a batch of calls on inputs that it has never seen (batch.py),
in which nothing is copied, emptied or timed, and looks at the outputs as soon as it says that it is
done. Whatever happened in there, the batch cannot have taken longer than the supervisor had to
wait. The wait of the same batch run by the oracle, less what the oracle's own clock says of it, is
the overhead of waiting.

That is an upper bound on the true time: a wait is lengthened by whatever else the machine does, and
shortened by nothing. Less what a wait takes beyond its work, it is what a call is borne out to
take, and no shorter time is quoted.

Other programs on the device lengthen waits too. So nobody is accused where they were seen at work,
unless by more than any load makes of a wait; and where they always are, there is no time.
"""

import math
from collections.abc import Callable
from statistics import median
from typing import Protocol

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.timing.times import Confirmation
from kernelgen.grading.verdict import UNKNOWN_TIME, Status

# A batch at least so long that the noise of a wait is small beside it.
_BATCH_MS = 6.0
# What one may take if its calls are slower than is claimed: they are few then.
_LONGEST_MS = 60.0
_MOST_CALLS = 64
# A GPU with more memory has a faster one too: in that time its calls move more.
_BATCH_BYTES = 4 << 30
_MOST_BATCH_BYTES = 12 << 30
_SHARE_OF_MEMORY = 10
_BATCHES = 2
# What the first call of a batch may take beyond its work: memory is made and mapped.
_FIRST_CALL_MS = 5.0
# As many again where the times do not agree, before an accusation.
_MOST_BATCHES = 15
_TRIES_IN_PLACE = 4
_MOST_GATED = 6
# Behind a gate no call waits for its Python, so that more of them fit the same noise. All that they
# launch has to fit a queue of about a thousand entries, each of which takes a microsecond or more.
_GATED_MS = 1.2
_MOST_GATED_CALLS = 256
# To enqueue them; a batch that is not enqueued in time is none.
_ENQUEUED_MS = 500.0
# Below this, the machine counts as free as while the calls were timed.
_QUIET_LOAD = 1.15
# Processes that take turns on a GPU at least double a long write beside its parts.
CROWDED = 1.3
# From here on no load explains a wait, beside one that was measured before and after it.
_BEYOND_LOAD = 10.0
# From this time of a call on, the quoted time is held to what is borne out. Below, the noise of a
# wait says more than its work.
_BORNE_OUT_MS = 0.2
# What the shortest of some waits takes beyond the same calls one by one, on an H200: 0.3 to 0.75 ms
# of a batch, and more of a short one, whose calls are those of large tensors. The rest is small.
_BEYOND_MS, _SHORT_BEYOND_MS, _SHORT_BEYOND_SHARE = 0.45, 0.75, 0.3
# Matrix products in a row took up to 1.16 times as long on an H200 as one between long writes.
_IN_A_ROW = 1.16
# A batch in which that is nothing, where a claim is not borne out by shorter ones.
_LONG_BATCH_MS = 24.0
# A reference that is quicker says nothing about load.
_LEAST_CONTROL_MS = 2.0
# So many of those that all disagree are no accident.
_QUIET_BATCHES = 8
# Before a time is lengthened, that many more batches may turn out shorter.
_CLOSER_LOOKS = 6
# Warm calls in a row take no longer than a cold one by itself, so that any excess is suspicious;
# the clocks of processors vary by less than this.
_TOLERATED = {"cuda": 1.25, "cpu": 1.5}
_NOISE_MS = {"cuda": 0.25, "cpu": 0.6}
# On H200s, waits for batches of large tensors were 0.45 to 0.65 ms longer than both clocks account
# for. So more noise is tolerated, but only in a batch that is long beside it by the claim itself:
# a claim that is much too small gains nothing by this.
_MORE_NOISE_MS = {"cuda": 0.8, "cpu": 0.6}
_SHARE_OF_NOISE = 0.3
# From here on it is no chance. On a busy CPU, calls in a row lose their turn where one by itself
# may not.
_ACCUSED = {"cuda": 1.6, "cpu": 4.0}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the candidate's process reports.

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


class Untold(msgspec.Struct, frozen=True):
    """The time cannot be told, and why: nobody is accused, and nothing is quoted."""

    why: str


class RunBatch(Protocol):
    """Runs a batch of new inputs and verifies every output; raises Judged."""

    def __call__(
        self, calls: int, *, in_place: bool, control_calls: int, counts: bool = True
    ) -> BatchTime:
        """Run `calls` calls, and so many of the reference before them if outputs are in place.

        A batch that does not count need not be verified.
        """

    def gated(self, calls: int) -> BatchTime | None:
        """Have `calls` calls enqueued before their inputs are there; None if they cannot be."""


class Confirming:
    """Holds a claim against the supervisor's clock.

    Args:
        time_again: times the candidate once more, in the same way as for the claim.
    """

    def __init__(
        self, device: str, claim: Claim, run: RunBatch, time_again: Callable[[], Claim]
    ) -> None:
        self._device, self._claim, self._run = device, claim, run
        self._time_again = time_again
        self._calls = 1
        self._in_place = device == "cuda"
        self._batches: list[BatchTime] = []

    def confirm(self) -> Confirmation | Untold:
        """Run batches until they confirm the claim, or enough of them contradict it.

        Raises:
            Judged: TAMPERED, the claim is too small; or what a batch's outputs deserve.
        """
        if self._claim.load > CROWDED:
            # The baselines were timed then as well.
            return Untold(_told_of_load(self._claim.load))
        self._rehearse()
        found = self._try()
        if found is None:
            # Before an accusation: the machine may have changed since the calls were timed.
            # An honest candidate that is slower now is quoted slower; a forged clock repeats its
            # claim.
            again, first = self._time_again(), self._claim
            self._claim = msgspec.structs.replace(
                again,
                device_ms=max(again.device_ms, first.device_ms),
                host_ms=max(again.host_ms, first.host_ms),
            )
            self._batches = []
            found = self._try()
        if found is not None:
            return found
        quiet = [one for one in self._quiet() if self._control_load(one) <= CROWDED]
        if len(quiet) < _QUIET_BATCHES:
            if self._beyond_load():
                raise Judged(Status.TAMPERED, self._accusation())
            return self._untold()
        noise_ms = self._noise_ms(self._claim.device_ms * self._calls) / self._calls
        if self._at_most_ms() > _ACCUSED[self._device] * self._claim.device_ms + noise_ms:
            raise Judged(Status.TAMPERED, self._accusation())
        # By less than a busy machine may explain: no accusation, and no gain.
        return self._confirmation(unconfirmed=True)

    def _try(self) -> Confirmation | Untold | None:
        """Run batches until they confirm the claim; None if enough of them do not."""
        claim = self._claim
        while len(self._batches) < _MOST_BATCHES and len(self._quiet()) < _QUIET_BATCHES:
            self._measure()
            if len(self._batches) < _BATCHES:
                continue
            if self._agrees(claim.device_ms):
                return self._look_closer()
            if self._device == "cuda" and self._agrees(max(claim.device_ms, claim.host_ms)):
                return self._confirm_behind_gate()
        return None

    def _untold(self) -> Untold:
        return Untold(_told_of_load(max(self._load(batch) for batch in self._batches)))

    def _look_closer(self) -> Confirmation | Untold:
        """Run more and longer batches where the waits so far would make the quoted time longer."""
        if self._at_least_ms() <= self._claim.device_ms:
            return self._confirmation()
        longer = _calls_a_batch(self._claim, _LONG_BATCH_MS)
        if longer > self._calls:
            self._calls, self._batches = longer, []
            self._rehearsed(longer, once_ms=0.0)
        for number in range(_CLOSER_LOOKS):
            self._measure()
            if number and self._quiet() and self._at_least_ms() <= self._claim.device_ms:
                break
        # On a CPU the write that tells of load varies by itself.
        told = self._quiet() or self._device == "cpu"
        return self._confirmation() if told else self._untold()

    def _confirm_behind_gate(self) -> Confirmation | Untold:
        """Take the Python out of it: calls in a row take longer to enqueue than to run."""
        ungated = self._calls, self._batches
        self._calls, self._batches = _gated_calls(self._claim, self._calls), []
        for _ in range(_MOST_GATED):
            batch = self._run.gated(self._calls) if self._in_place else None
            if batch is None:
                break
            if batch.at_once and batch.in_place:
                self._batches.append(batch)
            if len(self._batches) >= _BATCHES and self._agrees(self._claim.device_ms):
                return self._confirmation()
        if len(self._batches) >= _BATCHES:
            if len(self._quiet()) < _BATCHES:
                return self._untold()
            # Their Python is not in it: a smaller bound than the one of calls that wait for it.
            return self._confirmation(unconfirmed=True)
        self._calls, self._batches = ungated
        return self._confirmation(host_bound=True)

    def _rehearse(self) -> None:
        """Run batches that do not count: the first ones make and map memory.

        The very first is a single call. Its wait says how many calls a batch can have without
        taking for ever, whatever the candidate's own clock says.
        """
        wanted = _calls_a_batch(self._claim)
        self._calls = min(wanted, self._rehearsed(1, once_ms=_FIRST_CALL_MS))
        if self._calls < wanted:
            # On a busy machine, a first call may take longer for once than any liar's.
            self._calls = min(wanted, self._rehearsed(1, once_ms=0.0))
        if self._calls > 1:
            self._rehearsed(self._calls, once_ms=0.0)

    def _rehearsed(self, calls: int, *, once_ms: float) -> int:
        """Run a batch that does not count; return how many calls fit the longest, by its wait."""
        found = self._run(
            calls, in_place=self._in_place, control_calls=self._control_calls(calls), counts=False
        )
        self._in_place = self._in_place and found.in_place
        overhead_ms = found.control_wait_ms - found.control_ms
        waited_ms = (found.wait_ms - overhead_ms - once_ms) / calls
        return max(1, int(_LONGEST_MS / max(waited_ms, 1e-6)))

    def _measure(self) -> None:
        tries = _TRIES_IN_PLACE if self._in_place else 0
        control = self._control_calls(self._calls)
        for _ in range(tries):
            found = self._run(self._calls, in_place=True, control_calls=control)
            if found.at_once and found.in_place:
                self._batches.append(found)
                return
        if self._in_place:
            # Its memory is new each time, so that looking at it takes as long as mapping it.
            self._in_place = False
            self._batches.clear()
        self._batches.append(self._run(self._calls, in_place=False, control_calls=control))

    def _control_calls(self, calls: int) -> int:
        """Return how many calls of the reference take about as long as the batch, by the claims.

        What is fixed of a wait would drown in the noise of a reference that takes much longer.
        """
        reference_ms = self._claim.reference_ms
        if reference_ms is None:
            return calls
        return min(calls, max(1, math.ceil(calls * self._claim.device_ms / reference_ms)))

    def _overhead_ms(self) -> float:
        return median([batch.control_wait_ms - batch.control_ms for batch in self._batches])

    def _agrees(self, claimed_ms: float) -> bool:
        return any(self._excess(batch, claimed_ms) <= 1.0 for batch in self._quiet())

    def _beyond_load(self) -> bool:
        """Whether every batch took many times longer than even the load explains."""
        claimed_ms = self._claim.device_ms
        explained = _BEYOND_LOAD * max(self._load(batch) for batch in self._batches)
        return all(self._excess(one, claimed_ms) > explained for one in self._batches)

    def _excess(self, batch: BatchTime, claimed_ms: float) -> float:
        """Return how many times longer than what is claimed, and tolerated, a batch took."""
        batch_ms = claimed_ms * self._calls
        allowed_ms = _TOLERATED[self._device] * batch_ms + self._noise_ms(batch_ms)
        return (batch.wait_ms - self._overhead_ms()) / allowed_ms

    def _quiet(self) -> list[BatchTime]:
        """Return the batches beside which the machine was as free as when the calls were timed."""
        return [
            batch
            for batch in self._batches
            if self._slower(batch) <= _QUIET_LOAD and batch.load <= CROWDED
        ]

    def _load(self, batch: BatchTime) -> float:
        """How many times slower than by itself the machine was: others may be using it."""
        return max(self._slower(batch), batch.load, self._control_load(batch))

    def _slower(self, batch: BatchTime) -> float:
        usual_ms = min(self._claim.gauge_ms, *(one.gauge_ms for one in self._batches))
        return max(1.0, batch.gauge_ms / usual_ms)

    def _control_load(self, batch: BatchTime) -> float:
        """How many times longer the reference took in a row than call by call."""
        if self._device == "cpu" or self._claim.reference_ms is None or not batch.control_calls:
            return 1.0
        alone_ms = batch.control_calls * self._claim.reference_ms
        if alone_ms < _LEAST_CONTROL_MS:
            return 1.0
        return max(1.0, (batch.control_ms - _SHORT_BEYOND_MS) / alone_ms)

    def _noise_ms(self, batch_ms: float) -> float:
        """Return what a wait for a batch that takes so long may vary by."""
        most_ms = min(_MORE_NOISE_MS[self._device], _SHARE_OF_NOISE * batch_ms)
        return max(_NOISE_MS[self._device], most_ms)

    def _at_most_ms(self) -> float:
        shortest_ms = min(batch.wait_ms for batch in self._batches)
        return max(0.0, shortest_ms - self._overhead_ms()) / self._calls

    def _at_least_ms(self) -> float:
        """Return the time of a call that the shortest wait bears out, or 0 if it is too short."""
        batch_ms = self._claim.device_ms * self._calls
        beyond_ms = _BEYOND_MS
        if batch_ms < _BATCH_MS:
            beyond_ms = min(_SHORT_BEYOND_MS, _SHORT_BEYOND_SHARE * batch_ms)
        call_ms = self._at_most_ms() - beyond_ms / self._calls
        return call_ms / _IN_A_ROW if call_ms >= _BORNE_OUT_MS else 0.0

    def _confirmation(self, *, host_bound: bool = False, unconfirmed: bool = False) -> Confirmation:
        return Confirmation(
            claimed_ms=self._claim.device_ms,
            at_most_ms=self._at_most_ms(),
            at_least_ms=0.0 if host_bound or unconfirmed else self._at_least_ms(),
            calls=self._calls,
            batches=len(self._batches),
            overhead_ms=self._overhead_ms(),
            outputs="in place" if self._in_place else "copied",
            host_bound=host_bound,
            unconfirmed=unconfirmed,
        )

    def _accusation(self) -> str:
        times = "call" if self._calls == 1 else f"call in batches of {self._calls}"
        return (
            f"the clock in the candidate's process says {self._claim.device_ms:.3g} ms a call; by "
            f"the supervisor's clock the shortest of {len(self._batches)} batches took "
            f"{self._at_most_ms():.3g} ms a {times}, overhead taken off"
        )


def _told_of_load(load: float) -> str:
    return (
        f"{UNKNOWN_TIME}, and no speedup is: other work on the device made the grader's own "
        f"take up to {load:.2g} times as long; grade again when nothing else runs"
    )


def batch_bytes_of(gpu_bytes: int | None) -> int:
    """Return what inputs and outputs of a batch may take; `gpu_bytes` is None on a CPU."""
    share = (gpu_bytes or 0) // _SHARE_OF_MEMORY
    return min(max(_BATCH_BYTES, share), _MOST_BATCH_BYTES)


def _calls_a_batch(claim: Claim, batch_ms: float = _BATCH_MS) -> int:
    by_time = math.ceil(batch_ms / max(claim.device_ms, 1e-6))
    return max(1, min(by_time, _calls_in_memory(claim), _MOST_CALLS))


def _gated_calls(claim: Claim, ungated: int) -> int:
    """Return how many calls a batch behind a gate has: no fewer than one without."""
    by_time = math.ceil(_GATED_MS / max(claim.device_ms, 1e-6))
    by_host = int(_ENQUEUED_MS / max(claim.host_ms, 1e-6))
    most = min(by_time, by_host, _calls_in_memory(claim), _MOST_GATED_CALLS)
    return max(ungated, most)


def _calls_in_memory(claim: Claim) -> int:
    return claim.batch_bytes // max(claim.call_bytes, 1)
