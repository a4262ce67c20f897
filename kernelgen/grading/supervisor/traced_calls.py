"""What traced calls show: the kernels and an objection to them, and times by the second clock."""

import math
from collections.abc import Iterable
from statistics import fmean

from kernelgen.grading.judged import Judged
from kernelgen.grading.kernels.attribution import is_all_own, is_disputed, kernel_uses
from kernelgen.grading.kernels.own import (
    Policy,
    TracedCall,
    depends_on_reference,
    objection,
)
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.evidence import Evidence, Kernels
from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import Launches, Status
from kernelgen.grading.wire import messages as m
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
# No honest kernel needs one of these; code that breaks the profiler does.
_PROFILERS = frozenset({"profiler", "_profiler", "kineto", "_kineto", "cupti", "libcupti"})


# Calls that the second clock times, of each subject; fewer where a call takes long.
_CLOCKED_CALLS = 3
_FEWER_CALLS = 2
_LONG_CALL_MS = 100.0


class KernelCheck:
    """Takes in the traced calls of the main case, then judges them."""

    def __init__(self, solution: SolutionFile, problem: Problem, device: Device) -> None:
        self._declared = declared_kernels(solution.text)
        self._policy = Policy(require=problem.require, libraries=problem.libraries)
        self._device = device
        self._calls: list[TracedCall] = []
        self._missing: list[str] = []

    def add(self, trace: Trace | None, outputs: m.Tensors, wall_us: float) -> None:
        """Take in one verified call; `wall_us` is the supervisor's, from the request to the answer.

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
        elements = sum(math.prod(spec.shape) for spec in outputs.specs)
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

    def conclude(
        self,
        evidence: Evidence,
        reference: Trace | None,
        timed_ms: float | None = None,
        launches: float | None = None,
    ) -> None:
        """Put the kernels into the evidence and judge them.

        `timed_ms` is an untraced call's; `launches` the kernels of a call of the reference, where
        they were counted elsewhere.

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
        uses = kernel_uses(
            traces, self._declared, on_gpu=on_gpu, reference=known if on_gpu else None
        )
        evidence.note(Kernels(uses))
        if on_gpu and not any(trace.unseen_graphs for trace in traces):
            if known is not None:
                launches = known.launches
            mine = fmean(trace.launches for trace in traces)
            evidence.note(Launches(candidate=mine, reference=launches))
        self._warn(evidence, traces, timed_ms)
        if known is None and not on_gpu:
            return
        found = objection(self._calls, self._declared, self._policy, on_gpu=on_gpu, reference=known)
        if found is not None:
            raise Judged(Status.NO_CUSTOM_KERNEL, f"case main: {found}")

    def _warn(self, evidence: Evidence, traces: list[Trace], timed_ms: float | None) -> None:
        if any(trace.unseen_graphs for trace in traces):
            evidence.warn("the kernels of a CUDA graph were not recorded; `kernels` lacks them")
        unknown = [use.name for use in evidence.kernels if use.owner == "unknown"]
        if unknown:
            names = ", ".join(unknown[:4])
            evidence.warn(f"kernels of unknown origin count as its own: {names}")
        if timed_ms is None or self._device != "cuda":
            return
        timed_us = timed_ms * 1e3
        busy_us = min(trace.busy_us for trace in traces)
        if busy_us > timed_us * _TIMED_RATIO + _TIMED_SLACK_US:
            evidence.warn(
                f"its traced calls kept the GPU busy for {busy_us / 1e3:.3g} ms, its timed calls "
                f"took {timed_us / 1e3:.3g} ms: does it do the same when it is traced?"
            )


class SecondClockReader:
    """Reads the second clock in one session, on a GPU.

    Attributes:
        events_us: what two events add to a time by this clock; None before `start`, and where there
            is no such clock.
        launches: kernels a call of the reference as written; None if it was not read.
        spans_us: from the start of a call's first kernel to the end of its last.
        beside_ms: the same calls by events.
    """

    def __init__(self, dialogue: Dialogue) -> None:
        self._dialogue = dialogue
        self.events_us: float | None = None
        self.launches: float | None = None
        self.spans_us: dict[str, tuple[float, ...]] = {}
        self.beside_ms: dict[str, tuple[float, ...]] = {}

    def start(self) -> None:
        """Have the oracle hold the two clocks against each other."""
        self.events_us = self._dialogue.ask_oracle(m.MeasureEvents())

    def calls(self, call_ms: float) -> int:
        """Return how many calls of each subject it is to time."""
        if self.events_us is None:
            return 0
        return _CLOCKED_CALLS if call_ms < _LONG_CALL_MS else _FEWER_CALLS

    def note(self, called: m.Called) -> None:
        """Take in a traced call of the candidate's."""
        trace = called.trace
        if self.events_us is None:
            return
        # A graph whose kernels the profiler did not see has no beginning and no end.
        if trace is not None and trace.span_us and not trace.unseen_graphs:
            self._add(CANDIDATE, (trace.span_us,), (called.elapsed_ms,))

    def read_baselines(self, names: Iterable[str], calls: int) -> None:
        """Have the baselines timed, if the candidate could be."""
        if not self.spans_us:
            return
        for name in names:
            found = self._dialogue.ask_oracle(m.SpanBaseline(name=name, calls=calls))
            self._add(name, found.spans_us, found.elapsed_ms)
            if name == "eager":
                self.launches = found.launches

    def _add(self, subject: str, spans_us: tuple[float, ...], ms: tuple[float, ...]) -> None:
        self.spans_us[subject] = (*self.spans_us.get(subject, ()), *spans_us)
        self.beside_ms[subject] = (*self.beside_ms.get(subject, ()), *ms)
