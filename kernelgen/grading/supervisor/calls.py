"""Calls of the candidate on one case, each with new inputs, and what verifying them finds."""

import threading
from collections.abc import Callable

import msgspec

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.precision import changed_pins
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.evidence import Evidence, parameter_hint
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.solution.file import SolutionFile

# Two clocks of one machine; a GPU's events are as fine as half a microsecond.
_CLOCKS_AGREE = 1.01
_NOISE_MS = 0.1
_UNSETTLED = (
    "its outputs went on changing after forward had returned: work on a stream that the current "
    "one does not wait for, or by a thread that is not joined"
)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, its problem and the options.

    Attributes:
        phase: is told the present step.
        stop: set in another thread, it ends compilers.
    """

    solution: SolutionFile
    problem: Problem
    device: Device
    options: GradeOptions
    phase: Callable[[str], None]
    evidence: Evidence
    stop: threading.Event


class CaseCalls:
    """The calls of one case that is open in both workers; every method raises Judged."""

    def __init__(self, task: Task, dialogue: Dialogue, case: Case) -> None:
        self._case, self._options, self._evidence = case, task.options, task.evidence
        self._dialogue, self._problem = dialogue, task.problem
        self._log = task.evidence.open_case(case.name)

    def new_inputs(self, *, one_row: bool = False) -> m.Deposited:
        """Have the oracle make inputs that the candidate has not seen, or one row of them."""
        number = self._dialogue.number_calls(1)
        return self._dialogue.ask_oracle(m.MakeInputs(call=number, one_row=one_row))

    def call(
        self,
        inputs: m.Deposited,
        *,
        timed: bool = False,
        over_the_last: bool = False,
    ) -> m.Called:
        """Call forward once."""
        called = self._dialogue.ask_host(
            m.Call(
                inputs=inputs.tensors,
                seed=inputs.seed,
                timed=timed,
                over_the_last=over_the_last,
            ),
            self._options.call_timeout_s,
            f"in forward on case {self._case.name}",
        )
        self._require_possible(called)
        if self._evidence.pins is None:
            self._evidence.pins = called.pinned
        for change in changed_pins(called.pinned, called.pins):
            self._evidence.warn(
                f"the candidate changed a setting of torch's ({change}); "
                "it is put back before each call"
            )
        return called

    def _require_possible(self, called: m.Called) -> None:
        waited_ms = self._dialogue.waited_ms
        if max(called.elapsed_ms, called.host_ms) > _CLOCKS_AGREE * waited_ms + _NOISE_MS:
            reason = (
                f"the clock in the candidate's process says {called.elapsed_ms:.3g} ms (until the "
                f"return {called.host_ms:.3g} ms) for a call that took the supervisor "
                f"{waited_ms:.3g} ms to wait for"
            )
            raise Judged(Status.TAMPERED, reason)

    def verify(self, called: m.Called, *, timed: bool = False) -> None:
        """Have the oracle compare a call's outputs."""
        found = self._verified(called)
        if found.borrows:
            self.require_inputs_unchanged()
        self.require_passed(found, timed=timed)

    def check(self, *, with_parameters: bool) -> None:
        """See that the candidate agrees: on new inputs, on the same again, on other parameters."""
        inputs = self.new_inputs()
        self.verify(self.call(inputs))
        self.require_inputs_unchanged()
        if inputs.changed:
            self.compare_buffers(inputs.changed)
        self.repeat()
        # A memo of inputs by their addresses is out of date then.
        self.verify(self.call(self.new_inputs(one_row=True), over_the_last=True))
        self.require_inputs_unchanged()
        if with_parameters:
            self.change_parameters()

    def _verified(self, called: m.Called) -> m.Verified:
        found = self._dialogue.ask_oracle(m.Verify(outputs=called.outputs))
        return found if called.settled else unsettled(found)

    def require_passed(self, found: m.Verified, *, timed: bool) -> None:
        """Take in what the oracle found on a call."""
        self._log.add(found)
        self._require_agreement(found, timed=timed)

    def change_parameters(self) -> None:
        """Call with other parameters, which are written over those before."""
        changed = m.ChangeParameters(values=self._dialogue.ask_oracle(m.RedrawParameters()).tensors)
        self._ask_host(changed, "while the parameters", "were changed")
        called = self.call(self.new_inputs())
        found = self._verified(called)
        self._log.add(found)
        if found.status is not Status.PASSED:
            reason = (
                f"case {self._case.name}, after other parameters had been copied over the first "
                "ones: "
                f"{found.reason}\nwith the first ones its calls agreed; recompute what depends "
                "on parameters when they change, which `_version` of a tensor counts"
            )
            raise Judged(found.status, reason)

    def repeat(self) -> None:
        """Call again with the same inputs, at new addresses: the results must agree."""
        inputs = self._dialogue.ask_oracle(m.RepeatInputs())
        repeated = self._dialogue.ask_oracle(m.VerifyRepeat(outputs=self.call(inputs).outputs))
        self._log.add_repeat(repeated)
        if repeated.found is not None:
            self._require_agreement(repeated.found, timed=False)

    def compare_buffers(self, numbers: tuple[int, ...]) -> None:
        """Compare buffers that one call changes, such as running statistics."""
        asked = m.ReturnBuffers(numbers=numbers)
        returned = self._ask_host(asked, "while the buffers", "were returned")
        compared = self._dialogue.ask_oracle(m.VerifyBuffers(returned=returned))
        found = compared.found
        if found is not None and found.status is Status.TAMPERED:
            raise Judged(found.status, f"case {self._case.name}: {found.reason}")
        if self._problem.buffers == "ignored":
            if compared.differ:
                names = ", ".join(compared.differ)
                self._evidence.warn(
                    f"forward leaves other values than the reference in {names}, which count only "
                    "where a problem says `buffers: compared`"
                )
            return
        wrong = [f"ModelNew has no buffer for {name}" for name in compared.missing]
        wrong += [] if found is None else [found.reason]
        if wrong:
            reason = (
                f"case {self._case.name}: after a call, buffers are not what the reference makes "
                f"of them: {'; '.join(wrong)}\nwrite to them in forward, as the reference does"
            )
            raise Judged(Status.WRONG_VALUES, reason)

    def require_inputs_unchanged(self) -> None:
        """Have the last call's inputs compared with what they were."""
        returned = self._ask_host(m.ReturnInputs(), "while the inputs", "were returned")
        changed = self._dialogue.ask_oracle(m.VerifyInputs(inputs=returned.inputs))
        if changed:
            reason = (
                f"case {self._case.name}: forward changed {', '.join(changed)}, which the "
                "reference leaves as they were; write to a new tensor instead"
            )
            raise Judged(Status.MUTATED_INPUT, reason)

    def _ask_host(self, message: m.ToHost[m.AnswerT], what: str, done: str) -> m.AnswerT:
        during = f"{what} of case {self._case.name} {done}"
        return self._dialogue.ask_host(message, self._options.call_timeout_s, during)

    def _require_agreement(self, found: m.Verified, *, timed: bool) -> None:
        if found.status is Status.PASSED:
            return
        lines = [f"case {self._case.name}: {found.reason}"]
        if timed:
            lines.append("the untimed calls of this case agreed; timed calls are verified as well")
        elif self._case.why:
            lines.append(f"this case is there for: {self._case.why}")
        if found.status in (Status.WRONG_VALUES, Status.NON_FINITE):
            lines += parameter_hint(self._evidence.parameters)
        raise Judged(found.status, "\n".join(lines))


def unsettled(found: m.Verified) -> m.Verified:
    """Return what a verification comes to if the outputs went on changing after forward returned.

    If they were wrong when forward returned, that is the verdict, and here is its reason. If they
    were right, they were overwritten since: the next reader would find something else.
    """
    if found.status is Status.PASSED:
        reason = f"the outputs were right, but {_UNSETTLED}"
        return m.Verified(status=Status.TAMPERED, reason=reason)
    if found.status in (Status.WRONG_VALUES, Status.NON_FINITE):
        return msgspec.structs.replace(found, reason=f"{found.reason}\n{_UNSETTLED}")
    return found
