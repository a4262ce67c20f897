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

import itertools
import math
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from kernelgen.grading.timing.times import Confirmation
from kernelgen.grading.timing.traced import RunTraced, trace_as_timed
from kernelgen.grading.timing.waits import BATCH_MS, CROWDED, BatchTime, Claim, Waits
from kernelgen.grading.verdict import UNKNOWN_TIME, Judged, Status
from kernelgen.grading.wire.trace import Trace

Way = Literal["behind a gate", "in place", "copied"]

# Limit of a batch whose calls are slower than is claimed: they are few then.
_LONGEST_MS = 60.0
# A GPU with more memory has a faster one too: in that time its calls move more.
_BATCH_BYTES = 4 << 30
_MOST_BATCH_BYTES = 12 << 30
_SHARE_OF_MEMORY = 10
_BATCHES = 2
# Excess of a batch's first call beyond its work: memory is made and mapped.
_FIRST_CALL_MS = 5.0
# As many again where the times do not agree, before an accusation.
_MOST_BATCHES = 15
_TRIES_IN_PLACE = 4
# All that the calls behind a gate launch has to fit a queue of about a thousand entries.
_MOST_CALLS = {"cuda": 256, "cpu": 64}
_ENQUEUED_MS = 20.0
# All outputs of a batch are verified, which takes a few times what the reference takes for them.
_OF_REFERENCE_MS = 500.0
# A batch beside which what it takes beyond its calls is nothing, where shorter ones do not bear a
# claim out.
_LONG_BATCH_MS = 24.0
# Eight quiet batches that all disagree are no accident.
_QUIET_BATCHES = 8
# Before a time is lengthened, that many more batches may turn out shorter. Of 64 solutions on an
# H200, one had eight in a row that were too long by a quarter.
_CLOSER_LOOKS = 20
# Calls by themselves, until one bears the claim out; and what a wait for one takes beyond it, at
# most: 0.38 to 0.66 ms on H200s. On a CPU that is beside the overhead.
_ALONE, _BEYOND_ALONE_MS = 8, 1.0
# From here on an excess is no chance. On a busy CPU, calls in a row lose their turn where one by
# itself may not.
_ACCUSED = {"cuda": 1.6, "cpu": 4.0}
# How a batch is run, the strictest way first; the next one where it cannot be.
_WAYS: dict[str, tuple[Way, ...]] = {
    "cuda": ("behind a gate", "in place", "copied"),
    "cpu": ("in place", "copied"),
}


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

    Attributes:
        waits: for the batches that bear the claim out, or contradict it.
    """

    def __init__(
        self, device: str, claim: Claim, run: RunBatch, time_again: Callable[[], Claim]
    ) -> None:
        self._device, self._run, self._time_again = device, run, time_again
        self._ways = list(_WAYS[device])
        self._controls: list[BatchTime] = []
        self.waits = Waits(device, claim, calls=1)

    def confirm(self) -> Confirmation | str:
        """Run batches until they confirm the claim, or enough of them contradict it.

        Returns:
            What confirms it; or why the time cannot be told: nobody is accused, nothing is quoted.

        Raises:
            Judged: TAMPERED, the claim is too small; or what a batch's outputs deserve.
        """
        claim = self.waits.claim
        if self._device == "cuda" and claim.load > CROWDED:
            # The baselines were timed then as well.
            return _told_of_load(claim.load)
        self._rehearse()
        found = self._try()
        if found is None:
            # Before an accusation: the machine may have changed since the calls were timed.
            # An honest candidate that is slower now is quoted slower; a forged clock repeats its
            # claim.
            again = self._time_again()
            claim = msgspec.structs.replace(
                again,
                device_ms=max(again.device_ms, claim.device_ms),
                host_ms=max(again.host_ms, claim.host_ms),
            )
            self._begin(claim, self.waits.calls)
            found = self._try()
        if found is not None:
            return self._beside_one_alone(found)
        waits = self.waits
        quiet = [one for one in waits.quiet() if waits.control_load(one) <= CROWDED]
        # A batch behind a gate has no control of its own.
        self._rehearsed(waits.calls, once_ms=0.0)
        crowded = waits.control_load(self._controls[-1]) > CROWDED
        if crowded or len(quiet) < _QUIET_BATCHES:
            if waits.beyond_load():
                raise Judged(Status.TAMPERED, self._accusation())
            return _told_of_load(waits.most_load())
        if not waits.at_most_ms():
            return f"{UNKNOWN_TIME}, and no speedup is: waits are no longer than overhead"
        noise_ms = waits.noise_ms(claim.device_ms * waits.calls) / waits.calls
        accused = _ACCUSED[self._device] * min(one.load for one in quiet)
        if waits.at_most_ms() > accused * claim.device_ms + noise_ms:
            raise Judged(Status.TAMPERED, self._accusation())
        # By less than a busy machine may explain: no accusation, and no gain.
        return self._beside_one_alone(self._confirmation(unconfirmed=True))

    def _beside_one_alone(self, found: Confirmation | str) -> Confirmation | str:
        """Bear out what a call takes by itself as well: a batch's can be computed together.

        Of calls that are not behind a gate, a GPU's wait may be their Python's.
        """
        waits = self.waits
        told = self._gated or (self._way == "in place" and self._device == "cpu")
        if isinstance(found, str) or waits.calls == 1 or not told:
            return found
        beyond_ms = _BEYOND_ALONE_MS + (0.0 if self._gated else waits.overhead_ms())
        shortest_ms = math.inf
        for _ in range(_ALONE):
            one = self._batch(1)
            if one is None:
                return found
            shortest_ms = min(shortest_ms, one.wait_ms - beyond_ms)
            if shortest_ms <= max(waits.claim.device_ms, found.at_least_ms):
                return found
        return msgspec.structs.replace(found, at_least_ms=shortest_ms)

    def _begin(self, claim: Claim, calls: int) -> None:
        """Take in batches of so many calls from now on."""
        self.waits = Waits(self._device, claim, calls, self._controls)

    def trace(self, run: RunTraced) -> Trace | str:
        """Return what a call runs in a traced batch as quick as these, or why none is known."""
        waits, claim = self.waits, self.waits.claim
        calls = min(waits.calls, _calls_a_batch(self._device, claim))
        return trace_as_timed(
            Waits(self._device, claim, calls),
            waits.call_ms,
            run,
            in_place=self._way != "copied",
            control_calls=self._control_calls(calls),
        )

    def _try(self) -> Confirmation | str | None:
        """Run batches until they confirm the claim; None if enough of them do not."""
        waits, claim = self.waits, self.waits.claim
        while len(waits.batches) < _MOST_BATCHES and len(waits.quiet()) < _QUIET_BATCHES:
            waits = self._measure()
            if len(waits.batches) < _BATCHES:
                continue
            if waits.agree(claim.device_ms):
                return self._look_closer()
            hosts_ms = max(claim.device_ms, claim.host_ms)
            if self._device == "cuda" and not self._gated and waits.agree(hosts_ms):
                return self._confirmation(host_bound=True)
        return None

    @property
    def _way(self) -> Way:
        return self._ways[0]

    @property
    def _gated(self) -> bool:
        return self._way == "behind a gate"

    def _look_closer(self) -> Confirmation | str:
        """Run more and longer batches where the waits so far would make the quoted time longer."""
        claim = self.waits.claim
        if self.waits.at_least_ms() <= claim.device_ms:
            return self._confirmation()
        longer = _calls_a_batch(self._device, claim, _LONG_BATCH_MS)
        if longer > self.waits.calls:
            self._rehearsed(longer, once_ms=0.0)
            self._begin(claim, longer)
        waits = self.waits
        for number in range(_CLOSER_LOOKS):
            waits = self._measure()
            if number and waits.quiet() and waits.at_least_ms() <= claim.device_ms:
                break
        # On a CPU the write that tells of load varies by itself.
        told = waits.quiet() or self._device == "cpu"
        return self._confirmation() if told else _told_of_load(waits.most_load())

    def _rehearse(self) -> None:
        """Run batches that do not count: the first ones make and map memory.

        The very first is a single call. Its wait says how many calls a batch can have without
        taking for ever, whatever the candidate's own clock says.
        """
        claim = self.waits.claim
        wanted = _calls_a_batch(self._device, claim)
        calls = min(wanted, self._rehearsed(1, once_ms=_FIRST_CALL_MS))
        if calls < wanted:
            # On a busy machine, a first call may take longer for once than any liar's.
            calls = min(wanted, self._rehearsed(1, once_ms=0.0))
        if calls > 1:
            self._rehearsed(calls, once_ms=0.0)
        self._begin(claim, calls)

    def _rehearsed(self, calls: int, *, once_ms: float) -> int:
        """Run a batch that does not count; return how many calls fit the longest, by its wait."""
        in_place = self._way != "copied"
        found = self._run(
            calls, in_place=in_place, control_calls=self._control_calls(calls), counts=False
        )
        if in_place and not found.in_place:
            self._ways = ["copied"]
        self._controls.append(found)
        waited_ms = (found.wait_ms - found.overhead_ms - once_ms) / calls
        return max(1, int(_LONGEST_MS / max(waited_ms, 1e-6)))

    def _measure(self) -> Waits:
        """Take in one batch, run in the strictest way in which it can be, and return all so far."""
        while True:
            for _ in range(_TRIES_IN_PLACE):
                found = self._batch(self.waits.calls)
                if found is None:
                    break
                if self._way == "copied" or (found.at_once and found.in_place):
                    self.waits.batches.append(found)
                    return self.waits
            if found is None and (fewer := self._fewer()):
                self._begin(self.waits.claim, fewer)
                continue
            # It waits for the device in forward, so that it cannot be enqueued; or its memory is
            # new each time, so that looking at it takes as long as mapping it.
            self._ways.pop(0)
            self.waits.batches.clear()

    def _fewer(self) -> int:
        """Return how many calls can be enqueued where so many cannot; 0 if not even one can.

        All that they launch has to fit a device's queue.
        """
        calls = self.waits.calls
        if calls == 1 or self._run.gated(1) is None:
            return 0
        halves = (calls >> times for times in itertools.count(1))
        return next(n for n in halves if n == 1 or self._run.gated(n) is not None)

    def _batch(self, calls: int) -> BatchTime | None:
        if self._gated:
            return self._run.gated(calls)
        in_place = self._way == "in place"
        return self._run(calls, in_place=in_place, control_calls=self._control_calls(calls))

    def _control_calls(self, calls: int) -> int:
        """Return how many calls of the reference take about as long as the batch, by the claims.

        What is fixed of a wait would drown in the noise of a reference that takes much longer.
        """
        claim = self.waits.claim
        if claim.reference_ms is None:
            return calls
        return min(calls, max(1, math.ceil(calls * claim.device_ms / claim.reference_ms)))

    def _confirmation(self, *, host_bound: bool = False, unconfirmed: bool = False) -> Confirmation:
        waits = self.waits
        return Confirmation(
            claimed_ms=waits.claim.device_ms,
            at_most_ms=waits.at_most_ms(),
            at_least_ms=0.0 if host_bound or unconfirmed else waits.at_least_ms(),
            calls=waits.calls,
            batches=len(waits.batches),
            overhead_ms=waits.overhead_ms(),
            outputs="copied" if self._way == "copied" else "in place",
            host_bound=host_bound,
            unconfirmed=unconfirmed,
        )

    def _accusation(self) -> str:
        waits = self.waits
        times = "call" if waits.calls == 1 else f"call in batches of {waits.calls}"
        return (
            f"the clock in the candidate's process says {waits.claim.device_ms:.3g} ms a call; by "
            f"the supervisor's clock the shortest of {len(waits.batches)} batches took "
            f"{waits.at_most_ms():.3g} ms a {times}, overhead taken off"
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


def _calls_a_batch(device: str, claim: Claim, batch_ms: float | None = None) -> int:
    by_time = math.ceil((batch_ms or BATCH_MS[device]) / max(claim.device_ms, 1e-6))
    in_memory = claim.batch_bytes // max(claim.call_bytes, 1)
    most = min(by_time, in_memory, _MOST_CALLS[device])
    if device == "cuda":
        most = min(most, int(_ENQUEUED_MS / max(claim.host_ms, 1e-6)))
    if claim.reference_ms is not None:
        most = min(most, int(_OF_REFERENCE_MS / max(claim.reference_ms, 1e-6)))
    return max(1, most)
