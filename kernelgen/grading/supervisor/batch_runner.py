"""One batch of calls in a dialogue, with the supervisor's clock around the candidate's part."""

import contextlib
import time

from kernelgen.grading.supervisor.calls import CaseCalls, Task
from kernelgen.grading.supervisor.dialogue import Dialogue, Patience
from kernelgen.grading.timing.looks import Meanwhile
from kernelgen.grading.timing.waits import BatchTime
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import MAIN_CASE

# Enqueueing takes 20 ms by the claim; only a candidate that waits for the device takes longer.
_ENQUEUED_WITHIN_S = 0.5


class BatchRunner:
    """Runs batches on the main case, which is open.

    Attributes:
        has_left: outputs of batches, to be verified once nobody waits for the device.
        probes: writes of the oracle's own, one after each batch while it `is_probing`; the load of
            others is that of the last one.
    """

    is_probing = True
    has_left = False

    def __init__(self, task: Task, dialogue: Dialogue, calls: CaseCalls) -> None:
        self._dialogue, self._calls = dialogue, calls
        self._device, self._timeout_s = task.device, task.options.call_timeout_s
        self.probes: list[m.Probed] = []

    def __call__(
        self,
        calls: int,
        *,
        in_place: bool,
        control_calls: int,
        counts: bool = True,
        meanwhile: Meanwhile = contextlib.nullcontext,
    ) -> BatchTime:
        """Run a batch of so many calls; raises Judged.

        In place, outputs stay where forward makes them; a batch in which that is impossible is not
        verified, and says so. One that does not count is not verified, and its times mean nothing.
        `meanwhile` is entered while it runs.
        """
        ask = self._dialogue.ask_oracle
        made = self._made(calls, in_place=in_place)
        # The descriptor of a CPU's arena came with that and goes to the host with the request.
        start = time.perf_counter()
        # Where a GPU's outputs are copied, that is a part of the overhead: as many as the
        # candidate's.
        on_gpu = self._device == "cuda"
        count = control_calls if in_place or not on_gpu else calls
        control = ask(m.RunControl(count=count))
        control_wait_ms = (time.perf_counter() - start) * 1e3 - control.apart_ms
        # On a CPU what runs on after the answer is work: the wait ends once nothing does.
        patience = Patience(keep_running=on_gpu, while_waiting=meanwhile)
        ran = self._ask_host(made, patience)
        wait_ms = self._dialogue.waited_ms
        if in_place and not on_gpu and not ran.why_not_in_place:
            ran = self._dialogue.copy_outputs(ran, made)
        if not in_place and any(any(placed.blocks) for placed in ran.outputs):
            reason = (
                "the candidate describes outputs in its own memory, where copies were asked for"
            )
            raise Judged(Status.TAMPERED, reason)
        at_once = self._verify(ran, counts=counts, verifies=not (in_place and ran.why_not_in_place))
        return BatchTime(
            wait_ms=wait_ms,
            control_wait_ms=control_wait_ms,
            control_ms=control.elapsed_ms,
            control_calls=count,
            gauge_ms=self.probes[-1].elapsed_ms,
            load=self.probes[-1].load,
            in_place=in_place and not ran.why_not_in_place,
            at_once=at_once,
        )

    def _made(self, calls: int, *, in_place: bool, withheld: bool = False) -> m.RunBatch:
        first = self._dialogue.number_calls(calls)
        return self._dialogue.ask_oracle(
            m.MakeBatch(first_call=first, count=calls, in_place=in_place, withheld=withheld)
        )

    def gated(self, calls: int) -> BatchTime | None:
        """Run a batch that is enqueued before the candidate can see its inputs; raises Judged.

        The device then does the calls one after the other, however long their Python took. Returns
        None for a candidate that waits for the device in forward, which cannot be enqueued, and
        where the device has no room for inputs that are withheld.
        """
        made = self._made(calls, in_place=True, withheld=True)
        if not made.gated:
            return None
        opened: list[float] = []

        def open_gate() -> None:
            opened.append(self._dialogue.ask_oracle(m.OpenGate()))

        enqueued = self._ask_host(
            made,
            # Not stopped after it: waking up would count, and the inputs are not there yet.
            Patience(rescue_after_s=_ENQUEUED_WITHIN_S, rescue=open_gate, keep_running=True),
        )
        if opened or not enqueued.outputs:
            self._ask_host(m.AwaitBatch(), Patience(meanwhile=open_gate))
            return None
        self._ask_host(m.AwaitBatch(), Patience(meanwhile=open_gate, keep_running=True))
        wait_ms = self._dialogue.waited_ms - opened[0]
        at_once = self._verify(enqueued)
        return BatchTime(
            wait_ms=wait_ms,
            gauge_ms=self.probes[-1].elapsed_ms,
            load=self.probes[-1].load,
            in_place=True,
            at_once=at_once,
        )

    def _verify(self, ran: m.BatchRan, *, counts: bool = True, verifies: bool = True) -> bool:
        """Look at the outputs, then at all of them again; return whether the look was at once."""
        ask = self._dialogue.ask_oracle
        # First of all: stopping a process does not stop what it has given to the GPU.
        at_once = verifies and ask(m.SampleBatch(outputs=ran.outputs))
        self._dialogue.freeze_host()
        # The candidate is done, so that nothing but the oracle should be using the device.
        if self.is_probing or not self.probes:
            self.probes.append(ask(m.Probe()))
        if counts and verifies:
            found = ask(m.VerifyBatch())
            self.has_left = self.has_left or found is None
            if found is not None:
                self._calls.require_passed(found, timed=True)
        return at_once

    def verify_left(self) -> None:
        """Have the outputs compared that were left for later; raises Judged."""
        if self.has_left:
            self._calls.require_passed(self._dialogue.ask_oracle(m.VerifyKept()), timed=True)

    def _ask_host(self, message: m.ToHost[m.AnswerT], patience: Patience) -> m.AnswerT:
        during = f"in a batch of calls on case {MAIN_CASE}"
        return self._dialogue.ask_host(message, self._timeout_s, during, patience=patience)
