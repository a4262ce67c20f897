"""Calls of the candidate, each with new inputs, and what verifying them finds."""

from __future__ import annotations

from kernelgen.grading.correctness.settling import unsettled
from kernelgen.grading.judged import Judged
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.precision import changed_pins
from kernelgen.grading.supervisor.dialogue import Dialogue, Patience
from kernelgen.grading.supervisor.evidence import CaseLog, Evidence, parameter_hint
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Case, Prepacking

# Two clocks of one machine; a GPU's events are as fine as half a microsecond.
_CLOCKS_AGREE = 1.01
_NOISE_MS = 0.1


class Calls:
    """The calls of one session.

    Args:
        dialogue: with both workers.
        options: of the run.
        evidence: takes what is found.
        prepacking: the problem's.

    Attributes:
        dialogue, options, evidence: the same.
    """

    def __init__(
        self,
        dialogue: Dialogue,
        options: GradeOptions,
        evidence: Evidence,
        prepacking: Prepacking,
    ) -> None:
        self.dialogue, self.options, self.evidence = dialogue, options, evidence
        self._prepacking = prepacking
        self._made = 0

    def number(self, count: int) -> int:
        """Return the number of the first of so many calls that nobody has made yet."""
        self._made += count
        return self._made - count + 1

    def new_inputs(self) -> m.Tensors:
        """Have the oracle make inputs that the candidate has not seen."""
        made = self.dialogue.ask_oracle(m.MakeInputs(call=self.number(1)), m.InputsMade)
        return made.inputs

    def call(self, inputs: m.Tensors, case: Case, *, timed: bool, traced: bool = False) -> m.Called:
        """Call forward once; raises Judged."""
        called = self.dialogue.ask_host(
            m.Call(
                inputs=inputs,
                timed=timed,
                after_a_change=timed and self._prepacking == "timed",
                traced=traced,
            ),
            m.Called,
            self.options.call_timeout_s,
            f"in forward on case {case.name}",
            patience=Patience(building_s=self.options.build_timeout_s),
        )
        self._require_possible(called)
        if not self.evidence.precision:
            self.evidence.precision = called.pinned
        for change in changed_pins(called.pinned, called.pins):
            self.evidence.warn(
                f"the candidate changed a setting of torch's ({change}); "
                "it is put back before each call"
            )
        return called

    def _require_possible(self, called: m.Called) -> None:
        waited_ms = self.dialogue.waited_ms
        if max(called.elapsed_ms, called.host_ms) > _CLOCKS_AGREE * waited_ms + _NOISE_MS:
            reason = (
                f"the clock in the candidate's process says {called.elapsed_ms:.3g} ms (until the "
                f"return {called.host_ms:.3g} ms) for a call that took the supervisor "
                f"{waited_ms:.3g} ms to wait for"
            )
            raise Judged(Status.TAMPERED, reason)

    def verify(self, log: CaseLog, case: Case, called: m.Called, *, timed: bool) -> None:
        """Have the oracle compare a call's outputs; raises Judged if they are wrong."""
        self.require_passed(log, case, self._verified(called), timed=timed)

    def _verified(self, called: m.Called) -> m.Verified:
        found = self.dialogue.ask_oracle(m.Verify(outputs=called.outputs), m.Verified)
        return found if called.settled else unsettled(found)

    def require_passed(self, log: CaseLog, case: Case, found: m.Verified, *, timed: bool) -> None:
        """Take in what the oracle found on a call; raises Judged if that is bad."""
        log.add(found)
        self._require_agreement(found, case, timed=timed)

    def change_parameters(self, log: CaseLog, case: Case) -> None:
        """Call with other parameters, which are written over those before; raises Judged."""
        drawn = self.dialogue.ask_oracle(m.RedrawParameters(), m.ParametersDrawn)
        self.dialogue.ask_host(
            m.ChangeParameters(values=drawn.values),
            m.ParametersChanged,
            self.options.call_timeout_s,
            f"while the parameters of case {case.name} were changed",
        )
        called = self.call(self.new_inputs(), case, timed=False)
        found = self._verified(called)
        log.add(found)
        if found.status is not Status.PASSED:
            reason = (
                f"case {case.name}, after other parameters had been copied over the first ones: "
                f"{found.reason}\nwith the first ones its calls agreed; what is computed from "
                "parameters serves only until they change, which `_version` of a tensor counts"
            )
            raise Judged(found.status, reason)

    def repeat(self, log: CaseLog, case: Case) -> None:
        """Call again with the same inputs, at new addresses: the results must agree."""
        inputs = self.dialogue.ask_oracle(m.RepeatInputs(), m.InputsMade).inputs
        called = self.call(inputs, case, timed=False)
        repeated = self.dialogue.ask_oracle(m.VerifyRepeat(outputs=called.outputs), m.Repeated)
        log.add_repeat(repeated)
        if repeated.found is not None:
            self._require_agreement(repeated.found, case, timed=False)

    def require_inputs_unchanged(self, case: Case) -> None:
        """Have the last call's inputs compared with what they were; raises Judged."""
        returned = self.dialogue.ask_host(
            m.ReturnInputs(),
            m.InputsReturned,
            self.options.call_timeout_s,
            f"while the inputs of case {case.name} were returned",
        )
        found = self.dialogue.ask_oracle(m.VerifyInputs(inputs=returned.inputs), m.InputsVerified)
        if found.changed:
            reason = (
                f"case {case.name}: forward changed {', '.join(found.changed)}, which the "
                "reference leaves as they were; write to a new tensor instead"
            )
            raise Judged(Status.MUTATED_INPUT, reason)

    def _require_agreement(self, found: m.Verified, case: Case, *, timed: bool) -> None:
        if found.status is Status.PASSED:
            return
        lines = [f"case {case.name}: {found.reason}"]
        if timed:
            lines.append("the untimed calls of this case agreed; timed calls are verified as well")
        elif case.why:
            lines.append(f"this case is there for: {case.why}")
        if found.status in (Status.WRONG_VALUES, Status.NON_FINITE):
            lines += parameter_hint(self.evidence.parameters)
        raise Judged(found.status, "\n".join(lines))
