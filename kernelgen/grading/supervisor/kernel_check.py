"""What a session learns from its traced calls: the kernels for the verdict, and an objection."""

from __future__ import annotations

from kernelgen.grading.judged import Judged
from kernelgen.grading.kernels.attribution import is_all_own, is_disputed, kernel_uses
from kernelgen.grading.kernels.own import (
    Policy,
    TracedCall,
    depends_on_reference,
    objection,
)
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire.messages import Tensors
from kernelgen.grading.wire.trace import Trace
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import SolutionFile

# A trace and the supervisor read different clocks.
_CLOCK_RATIO = 1.1
_CLOCK_SLACK_US = 2000.0
# Traced and timed calls do the same work; where they plainly do not, that should be known.
_TIMED_RATIO = 3.0
_TIMED_SLACK_US = 200.0
# Nobody who writes a kernel needs one of these; who breaks the profiler does.
_PROFILERS = frozenset({"profiler", "_profiler", "kineto", "_kineto", "cupti", "libcupti"})


class KernelCheck:
    """Takes in the traced calls of the main case, then judges them.

    Args:
        solution: the candidate, whose text is trusted to be its text.
        problem: whose policy it is.
        device: on which it ran.
    """

    def __init__(self, solution: SolutionFile, problem: Problem, device: Device) -> None:
        self._declared = declared_kernels(solution.text)
        self._policy = Policy(require=problem.require, libraries=problem.libraries)
        self._device = device
        self._calls: list[TracedCall] = []
        self._missing: list[str] = []

    def add(self, trace: Trace | None, outputs: Tensors, wall_us: float) -> None:
        """Take in one call.

        Args:
            trace: what the host reported.
            outputs: of the call, verified.
            wall_us: by the supervisor's clock, from the request to the answer.

        Raises:
            Judged: the trace is one that no honest process sends.
        """
        if trace is None:
            raise Judged(Status.TAMPERED, "a traced call came back without a trace")
        if trace.missing:
            self._missing.append(trace.missing)
            return
        if trace.busy_us > wall_us * _CLOCK_RATIO + _CLOCK_SLACK_US:
            reason = (
                f"a trace claims {trace.busy_us / 1e3:.1f} ms of work for a call that took "
                f"{wall_us / 1e3:.1f} ms by the supervisor's clock"
            )
            raise Judged(Status.TAMPERED, reason)
        elements = 0
        for spec in outputs.specs:
            count = 1
            for size in spec.shape:
                count *= size
            elements += count
        self._calls.append(
            TracedCall(trace=trace, output_elements=elements, output_bytes=outputs.total_bytes)
        )

    @property
    def needs_reference(self) -> bool:
        """Whether `conclude` needs a trace of the reference, which takes a while on a GPU."""
        if self._device == "cpu" or self._missing:
            return True
        if self._without_reference() is not None:
            return False
        if depends_on_reference(self._calls, self._declared, self._policy):
            return True
        return any(is_disputed(call.trace, self._declared) for call in self._calls)

    @property
    def needs_another_call(self) -> bool:
        """Whether a further call is worth its time: not where a first one ran own kernels alone."""
        if self._device == "cpu" or self._missing or not self._calls:
            return True
        return not all(is_all_own(call.trace, self._declared) for call in self._calls)

    def _without_reference(self) -> str | None:
        return objection(self._calls, self._declared, self._policy, on_gpu=True, reference=None)

    def conclude(self, evidence: Evidence, reference: Trace | None) -> None:
        """Put the kernels into the evidence and judge them.

        Args:
            evidence: of the session.
            reference: a trace of the reference by the oracle, where it is needed.

        Raises:
            Judged: NO_CUSTOM_KERNEL; or TAMPERED, where the profiler works in the oracle and not
                beside a candidate that has to do with profilers.
        """
        missing = self._missing or ([reference.missing] if reference and reference.missing else [])
        if missing:
            told = f"which kernels ran is not known, the profiler failed: {missing[0]}"
            works_elsewhere = reference is not None and not reference.missing
            if works_elsewhere and self._declared.words & _PROFILERS:
                raise Judged(Status.TAMPERED, f"{told}; it works where the candidate is not")
            evidence.warn(told)
        if not self._calls:
            return
        on_gpu = self._device == "cuda"
        traces = [call.trace for call in self._calls]
        known = reference if reference is not None and not reference.missing else None
        evidence.kernels = kernel_uses(
            traces, self._declared, on_gpu=on_gpu, reference=known if on_gpu else None
        )
        self._warn(evidence, traces)
        if known is None and not on_gpu:
            return
        found = objection(self._calls, self._declared, self._policy, on_gpu=on_gpu, reference=known)
        if found is not None:
            raise Judged(Status.NO_CUSTOM_KERNEL, f"case main: {found}")

    def _warn(self, evidence: Evidence, traces: list[Trace]) -> None:
        if any(trace.unseen_graphs for trace in traces):
            evidence.warn("the kernels of a CUDA graph were not recorded; `kernels` lacks them")
        unknown = [use.name for use in evidence.kernels if use.owner == "unknown"]
        if unknown:
            names = ", ".join(unknown[:4])
            evidence.warn(f"whose these kernels are is not known, they count as its own: {names}")
        if evidence.timing is None or self._device != "cuda":
            return
        timed_us = evidence.timing.candidate_ms * 1e3
        busy_us = min(trace.busy_us for trace in traces)
        if busy_us > timed_us * _TIMED_RATIO + _TIMED_SLACK_US:
            evidence.warn(
                f"its traced calls kept the GPU busy for {busy_us / 1e3:.3g} ms, its timed calls "
                f"took {timed_us / 1e3:.3g} ms: does it do the same when it is traced?"
            )
