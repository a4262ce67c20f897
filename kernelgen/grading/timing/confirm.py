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
from typing import Protocol

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.timing.times import Confirmation
from kernelgen.grading.timing.waits import BATCH_MS, CROWDED, BatchTime, Claim, Waits
from kernelgen.grading.verdict import UNKNOWN_TIME, Status

# What a batch may take if its calls are slower than is claimed: they are few then.
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
# A batch beside which what it takes beyond its calls is nothing, where shorter ones do not bear a
# claim out.
_LONG_BATCH_MS = 24.0
# So many quiet ones that all disagree are no accident.
_QUIET_BATCHES = 8
# Before a time is lengthened, that many more batches may turn out shorter.
_CLOSER_LOOKS = 6
# From here on an excess is no chance. On a busy CPU, calls in a row lose their turn where one by
# itself may not.
_ACCUSED = {"cuda": 1.6, "cpu": 4.0}


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
        self._device, self._run, self._time_again = device, run, time_again
        self._in_place = device == "cuda"
        self._waits = Waits(device, claim, calls=1)

    def confirm(self) -> Confirmation | Untold:
        """Run batches until they confirm the claim, or enough of them contradict it.

        Raises:
            Judged: TAMPERED, the claim is too small; or what a batch's outputs deserve.
        """
        claim = self._waits.claim
        if claim.load > CROWDED:
            # The baselines were timed then as well.
            return Untold(_told_of_load(claim.load))
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
            self._waits = Waits(self._device, claim, self._waits.calls)
            found = self._try()
        if found is not None:
            return found
        waits = self._waits
        quiet = [one for one in waits.quiet() if waits.control_load(one) <= CROWDED]
        if len(quiet) < _QUIET_BATCHES:
            if waits.beyond_load():
                raise Judged(Status.TAMPERED, self._accusation())
            return self._untold()
        noise_ms = waits.noise_ms(claim.device_ms * waits.calls) / waits.calls
        if waits.at_most_ms() > _ACCUSED[self._device] * claim.device_ms + noise_ms:
            raise Judged(Status.TAMPERED, self._accusation())
        # By less than a busy machine may explain: no accusation, and no gain.
        return self._confirmation(unconfirmed=True)

    def _try(self) -> Confirmation | Untold | None:
        """Run batches until they confirm the claim; None if enough of them do not."""
        waits, claim = self._waits, self._waits.claim
        while len(waits.batches) < _MOST_BATCHES and len(waits.quiet()) < _QUIET_BATCHES:
            self._measure()
            if len(waits.batches) < _BATCHES:
                continue
            if waits.agree(claim.device_ms):
                return self._look_closer()
            if self._device == "cuda" and waits.agree(max(claim.device_ms, claim.host_ms)):
                return self._confirm_behind_gate()
        return None

    def _untold(self) -> Untold:
        return Untold(_told_of_load(self._waits.most_load()))

    def _look_closer(self) -> Confirmation | Untold:
        """Run more and longer batches where the waits so far would make the quoted time longer."""
        claim = self._waits.claim
        if self._waits.at_least_ms() <= claim.device_ms:
            return self._confirmation()
        longer = _calls_a_batch(claim, _LONG_BATCH_MS)
        if longer > self._waits.calls:
            self._waits = Waits(self._device, claim, longer)
            self._rehearsed(longer, once_ms=0.0)
        waits = self._waits
        for number in range(_CLOSER_LOOKS):
            self._measure()
            if number and waits.quiet() and waits.at_least_ms() <= claim.device_ms:
                break
        # On a CPU the write that tells of load varies by itself.
        told = waits.quiet() or self._device == "cpu"
        return self._confirmation() if told else self._untold()

    def _confirm_behind_gate(self) -> Confirmation | Untold:
        """Take the Python out of it: calls in a row take longer to enqueue than to run."""
        ungated, claim = self._waits, self._waits.claim
        waits = self._waits = Waits(self._device, claim, _gated_calls(claim, ungated.calls))
        for _ in range(_MOST_GATED):
            batch = self._run.gated(waits.calls) if self._in_place else None
            if batch is None:
                break
            if batch.at_once and batch.in_place:
                waits.batches.append(batch)
            if len(waits.batches) >= _BATCHES and waits.agree(claim.device_ms):
                return self._confirmation()
        if len(waits.batches) >= _BATCHES:
            if len(waits.quiet()) < _BATCHES:
                return self._untold()
            # Their Python is not in it: a smaller bound than the one of calls that wait for it.
            return self._confirmation(unconfirmed=True)
        self._waits = ungated
        return self._confirmation(host_bound=True)

    def _rehearse(self) -> None:
        """Run batches that do not count: the first ones make and map memory.

        The very first is a single call. Its wait says how many calls a batch can have without
        taking for ever, whatever the candidate's own clock says.
        """
        claim = self._waits.claim
        wanted = _calls_a_batch(claim)
        calls = min(wanted, self._rehearsed(1, once_ms=_FIRST_CALL_MS))
        if calls < wanted:
            # On a busy machine, a first call may take longer for once than any liar's.
            calls = min(wanted, self._rehearsed(1, once_ms=0.0))
        if calls > 1:
            self._rehearsed(calls, once_ms=0.0)
        self._waits = Waits(self._device, claim, calls)

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
        calls, batches = self._waits.calls, self._waits.batches
        tries = _TRIES_IN_PLACE if self._in_place else 0
        control = self._control_calls(calls)
        for _ in range(tries):
            found = self._run(calls, in_place=True, control_calls=control)
            if found.at_once and found.in_place:
                batches.append(found)
                return
        if self._in_place:
            # Its memory is new each time, so that looking at it takes as long as mapping it.
            self._in_place = False
            batches.clear()
        batches.append(self._run(calls, in_place=False, control_calls=control))

    def _control_calls(self, calls: int) -> int:
        """Return how many calls of the reference take about as long as the batch, by the claims.

        What is fixed of a wait would drown in the noise of a reference that takes much longer.
        """
        claim = self._waits.claim
        if claim.reference_ms is None:
            return calls
        return min(calls, max(1, math.ceil(calls * claim.device_ms / claim.reference_ms)))

    def _confirmation(self, *, host_bound: bool = False, unconfirmed: bool = False) -> Confirmation:
        waits = self._waits
        return Confirmation(
            claimed_ms=waits.claim.device_ms,
            at_most_ms=waits.at_most_ms(),
            at_least_ms=0.0 if host_bound or unconfirmed else waits.at_least_ms(),
            calls=waits.calls,
            batches=len(waits.batches),
            overhead_ms=waits.overhead_ms(),
            outputs="in place" if self._in_place else "copied",
            host_bound=host_bound,
            unconfirmed=unconfirmed,
        )

    def _accusation(self) -> str:
        waits = self._waits
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


def _calls_a_batch(claim: Claim, batch_ms: float = BATCH_MS) -> int:
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
