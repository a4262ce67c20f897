"""The main case once it agrees: its times, what bears them out, and which kernels ran."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from kernelgen.grading import messages as m
from kernelgen.grading.batch_runner import BatchRunner, BatchSetting
from kernelgen.grading.calls import Calls
from kernelgen.grading.confirm import Claim, Confirming
from kernelgen.grading.device_rates import rates_of
from kernelgen.grading.evidence import CaseLog
from kernelgen.grading.kernel_check import KernelCheck
from kernelgen.grading.options import BASELINES
from kernelgen.grading.quiet import require_quiet
from kernelgen.grading.statistics import median
from kernelgen.grading.times import Confirmation
from kernelgen.grading.timing import (
    CANDIDATE,
    Samples,
    Traffic,
    require_possible,
    summarise,
    take_samples,
)
from kernelgen.problem.record import Case, Device

_TRACED_CALLS = 2
_PROBES = 3
_CALLS_AGAIN = 7


class MainCase:
    """The main case, open in both workers.

    Args:
        calls: of the session.
        case: the main one.
        device: on which.
        phase: told what is being done.
    """

    def __init__(
        self,
        calls: Calls,
        case: Case,
        device: Device,
        phase: Callable[[str], None],
    ) -> None:
        self._calls, self._case, self._device, self._phase = calls, case, device, phase
        self._dialogue, self._options = calls.dialogue, calls.options
        self._evidence = calls.evidence
        self._log: CaseLog = self._evidence.cases[-1]
        self._host_ms: list[float] = []
        self._probes: list[m.Probed] = []

    def examine(self, check: KernelCheck, method: str) -> None:
        """Time the case, hold the times against the supervisor's clock, and trace its kernels.

        Ends the candidate's process on a GPU.

        Args:
            check: of the traces.
            method: how times are taken, one line.

        Raises:
            Judged: the candidate does not pass after all.
        """
        if not self._options.time:
            self._trace(check)
            return
        self._warm_baselines()
        self._phase("timing")
        gauge_ms = min(self._probe().elapsed_ms for _ in range(_PROBES))
        samples = take_samples(
            self._time_block, self._evidence.baselines, self._options, self._phase
        )
        require_possible(samples)
        confirmed = self._confirm(samples, gauge_ms)
        # After the times, which what a profiler leaves behind could disturb.
        self._trace(check)
        limits = None
        if self._device == "cuda":
            self._dialogue.end_host()
            alone = [self._probe() for _ in range(_PROBES)]
            limits = require_quiet(self._probes, alone)
        work = self._evidence.work
        traffic = Traffic(
            minimal_bytes=work.minimal_bytes,
            method=method,
            limits=limits,
            work=work,
            calibration=rates_of(self._dialogue, work, self._evidence.warn),
        )
        self._evidence.timing, warnings = summarise(samples, traffic, confirmed)
        for warning in warnings:
            self._evidence.warn(warning)

    def _probe(self) -> m.Probed:
        return self._dialogue.ask_oracle(m.Probe(), m.Probed)

    def _time_block(self, subjects: list[str]) -> dict[str, float]:
        inputs = self._calls.new_inputs()
        return {subject: self._time_one(subject, inputs) for subject in subjects}

    def _time_one(self, subject: str, inputs: m.Tensors) -> float:
        if subject != CANDIDATE:
            return self._dialogue.ask_oracle(
                m.TimeBaseline(name=subject), m.BaselineTimed
            ).elapsed_ms
        called = self._calls.call(inputs, self._case, timed=True)
        # At once, before a baseline runs: the less time, the less can be written over it.
        self._calls.verify(self._log, self._case, called, timed=True)
        self._calls.require_inputs_unchanged(self._case)
        self._host_ms.append(called.host_ms)
        return called.elapsed_ms

    def _warm_baselines(self) -> None:
        """Prepare what to compare times with, now that there is something to time."""
        usual = BASELINES if self._device == "cuda" else BASELINES[:1]
        names = usual if self._options.baselines is None else self._options.baselines
        if not names:
            return
        self._phase("preparing the baselines")
        ready = self._dialogue.ask_oracle(m.WarmBaselines(names=names), m.BaselinesReady)
        self._evidence.baselines = ready.ready
        for name, why in ready.failed.items():
            self._evidence.warn(f"the baseline {name} could not be timed: {why}")

    def _confirm(self, samples: Samples, gauge_ms: float) -> Confirmation:
        """Hold the times that the candidate's process reported against the supervisor's clock."""
        self._phase("confirming the times")
        claim = self._claim(samples[CANDIDATE], gauge_ms)

        runner = BatchRunner(
            self._dialogue,
            BatchSetting(
                device=self._device,
                case_name=self._case.name,
                timeout_s=self._options.call_timeout_s,
            ),
            self._calls.number,
            lambda found: self._calls.require_passed(self._log, self._case, found, timed=True),
        )
        confirmed = Confirming(self._device, claim, runner, self._time_again).confirm()
        self._probes = runner.probes
        return confirmed

    def _claim(self, times_ms: list[float], gauge_ms: float) -> Claim:
        return Claim(
            device_ms=median(times_ms),
            host_ms=median(self._host_ms[-len(times_ms) :]),
            gauge_ms=gauge_ms,
            call_bytes=self._evidence.minimal_bytes,
        )

    def _time_again(self) -> Claim:
        self._phase("timing again")
        gauge_ms = min(self._probe().elapsed_ms for _ in range(_PROBES))
        times_ms = [
            self._time_one(CANDIDATE, self._calls.new_inputs()) for _ in range(_CALLS_AGAIN)
        ]
        return self._claim(times_ms, gauge_ms)

    def _trace(self, check: KernelCheck) -> None:
        """See which kernels run."""
        self._phase("tracing its kernels")
        for _ in range(_TRACED_CALLS):
            if not check.needs_another_call:
                break
            inputs = self._calls.new_inputs()
            start = monotonic()
            called = self._calls.call(inputs, self._case, timed=False, traced=True)
            wall_us = (monotonic() - start) * 1e6
            self._calls.verify(self._log, self._case, called, timed=False)
            self._calls.require_inputs_unchanged(self._case)
            check.add(called.trace, called.outputs, wall_us)
        reference = None
        if check.needs_reference:
            asked = self._dialogue.ask_oracle(m.TraceReference(), m.ReferenceTraced)
            reference = asked.trace
        check.conclude(self._evidence, reference)
