"""Findings of traced calls: kernels, and an objection to them."""

import math
from collections.abc import Iterable

import msgspec

from kernelgen.grading.kernels.attribution import disputed, kernel_uses
from kernelgen.grading.kernels.own import Policy, TracedCall, depends_on_reference, objection
from kernelgen.grading.supervisor.evidence import Evidence
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.trace import Trace
from kernelgen.problem.record import Device, Problem
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import SolutionFile

# A trace and the supervisor read different clocks.
_CLOCK_RATIO = 1.1
_CLOCK_SLACK_US = 2000.0
# Of a problem's data; what calls make of less can be followed, unless they set out to prevent it.
_HARD_TO_FOLLOW_BYTES = 128 << 20
# No honest kernel needs one of these; code that breaks the profiler does.
_PROFILERS = frozenset({"profiler", "_profiler", "kineto", "_kineto", "cupti", "libcupti"})


class KernelCheck:
    """Takes in the traced calls of the main case, then judges them.

    Args:
        stubs: symbols of the kernels in what was compiled ahead; see `declared_kernels`.
    """

    def __init__(
        self,
        solution: SolutionFile,
        problem: Problem,
        device: Device,
        stubs: Iterable[str] = (),
    ) -> None:
        self._declared = declared_kernels(solution.text, stubs)
        self._policy = Policy(require=problem.require, libraries=problem.libraries)
        self._device = device
        self._calls: list[TracedCall] = []
        self._missing: list[str] = []
        self._batch: list[TracedCall] = []
        self._untimed = ""

    @property
    def _decides(self) -> bool:
        return self._policy.require == "own_kernel" or self._policy.libraries == "forbidden"

    @property
    def _judged(self) -> list[TracedCall]:
        return [*self._calls, *self._batch]

    def add(self, trace: Trace, outputs: m.Tensors, wall_us: float) -> None:
        """Take in one verified call; `wall_us` is the supervisor's, from the request to the answer.

        Raises:
            Judged: the trace is one that no honest process sends.
        """
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
    def needs_batch(self) -> bool:
        """Whether it depends on a traced batch that what was traced is what was timed."""
        return self._decides and bool(self._calls)

    def add_batch(self, found: Trace | str) -> None:
        """Take in an average call of a traced batch, or why there is none that counts."""
        if isinstance(found, str):
            self._untimed = found
        else:
            self._batch = [msgspec.structs.replace(self._calls[-1], trace=found)]

    def add_followed(self, found: Trace, problem_bytes: int) -> None:
        """Take in what a call was found to be that was followed, before there is a batch."""
        unknown = found.missing and problem_bytes > _HARD_TO_FOLLOW_BYTES
        told = {"by_torch": found.by_torch, "followed": None if unknown else found.works}
        self._calls = [msgspec.structs.replace(call, **told) for call in self._calls]

    @property
    def least_recorded(self) -> Trace:
        """Trace in which the least of the time was recorded, of a batch if there is one.

        A batch is as quick as what was timed. Another call could be filled with what is recorded.
        """
        traces = (call.trace for call in self._batch or self._calls)
        return min(traces, key=lambda trace: trace.busy_us / (trace.call_us or math.inf))

    def add_looks(self, objection: str) -> None:
        """Take in why the traces do not tell what ran, "" if nothing speaks against them."""
        self._untimed = self._untimed or objection

    @property
    def needs_reference(self) -> bool:
        """Whether `conclude` needs a trace of the reference, which takes a while on a GPU."""
        if self._device == "cpu" or self._missing:
            return True
        if objection(self._judged, self._declared, self._policy, on_gpu=True, reference=None):
            return False
        if depends_on_reference(self._judged, self._declared, self._policy):
            return True
        return any(disputed(call.trace, self._declared) for call in self._judged)

    def conclude(self, evidence: Evidence, reference: Trace | None) -> None:
        """Put the kernels into the evidence and judge them.

        Raises:
            Judged: NO_CUSTOM_KERNEL; or TAMPERED, where the profiler works in the oracle and not
                beside a candidate that has to do with profilers.
        """
        works_elsewhere = reference is not None and not reference.missing
        if self._missing and works_elsewhere:
            self._refuse_untraced()
        missing = self._missing or ([reference.missing] if reference and reference.missing else [])
        if missing:
            evidence.warn(_untold(missing[0]))
        if not self._calls:
            return
        on_gpu = self._device == "cuda"
        traces = [call.trace for call in self._calls]
        known = reference if works_elsewhere else None
        evidence.kernels = kernel_uses(
            traces, self._declared, on_gpu=on_gpu, reference=known if on_gpu else None
        )
        self._warn(evidence, traces, known)
        if known is None and not on_gpu:
            return
        found = self._untimed or objection(
            self._judged, self._declared, self._policy, on_gpu=on_gpu, reference=known
        )
        if found:
            raise Judged(Status.NO_CUSTOM_KERNEL, f"case main: {found}")

    def _refuse_untraced(self) -> None:
        """Refuse a candidate beside which no profiler works: it has no evidence of its own kernel.

        One of its traces is evidence: whoever makes others fail could as well make that one up.
        """
        told = f"{_untold(self._missing[0])}; it works where the candidate is not"
        if self._declared.words & _PROFILERS:
            raise Judged(Status.TAMPERED, told)
        if not self._calls and self._decides:
            hint = (
                "nothing else shows a kernel of its own: leave profilers, the temporary folder "
                "and the standard library's modules as they are"
            )
            raise Judged(Status.NO_CUSTOM_KERNEL, f"{told}; {hint}")

    def _warn(self, evidence: Evidence, traces: list[Trace], reference: Trace | None) -> None:
        if any(trace.unseen_graphs for trace in traces):
            evidence.warn("the kernels of a CUDA graph were not recorded; `kernels` lacks them")
        unknown = [use.name for use in evidence.kernels if use.owner == "unknown"]
        alike = [name for one in traces for name in disputed(one, self._declared, reference)]
        for names, told in (
            (unknown, "kernels that nothing of the solution's declares do not count as its own"),
            (alike, "kernels with names as a library's have count as its own, which declares them"),
        ):
            if names:
                evidence.warn(f"{told}: {', '.join(dict.fromkeys(names[:4]))}")


def _untold(missing: str) -> str:
    return f"which kernels ran is not known, the profiler failed: {missing}"
