"""The main case once it agrees: its times, what bears them out, and which kernels ran."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import monotonic

from kernelgen.grading.options import wanted_baselines
from kernelgen.grading.supervisor.batch_runner import BatchRunner, BatchSetting
from kernelgen.grading.supervisor.calls import Calls
from kernelgen.grading.supervisor.device_rates import rates_of
from kernelgen.grading.supervisor.evidence import CaseLog
from kernelgen.grading.supervisor.kernel_check import KernelCheck
from kernelgen.grading.supervisor.second_clock import SecondClockReader
from kernelgen.grading.timing.confirm import Claim, Confirming, batch_bytes_of
from kernelgen.grading.timing.device_conditions import DeviceConditions
from kernelgen.grading.timing.quiet import SOMEBODY_ELSE, MemoryLimits, Quiet
from kernelgen.grading.timing.sampling import TimedBlock, take_samples
from kernelgen.grading.timing.summary import Observed, Traffic, require_possible, summarise
from kernelgen.grading.timing.times import CANDIDATE, Conditions, Confirmation
from kernelgen.grading.wire import messages as m
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
        quiet: has looked at the GPU before there was a candidate.
    """

    def __init__(
        self,
        calls: Calls,
        case: Case,
        device: Device,
        phase: Callable[[str], None],
        quiet: Quiet,
    ) -> None:
        self._quiet = quiet
        self._calls, self._case, self._device, self._phase = calls, case, device, phase
        self._dialogue, self._options = calls.dialogue, calls.options
        self._evidence = calls.evidence
        self._log: CaseLog = self._evidence.cases[-1]
        self._host_ms: dict[str, list[float]] = {}
        self._second = SecondClockReader(calls.dialogue)
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
            self._trace(check, spans=0)
            return
        self._warm_baselines()
        gauge_ms = min(self._probe().elapsed_ms for _ in range(_PROBES))
        with DeviceConditions(self._evidence.device_uuid) as conditions:
            taken = take_samples(
                lambda subjects: self._time_block(subjects, conditions),
                tuple(self._evidence.baselines),
                self._options,
                self._phase,
            )
        times_ms = taken.samples[CANDIDATE]
        confirmed = self._confirm(times_ms, gauge_ms)
        # After the times, which what a profiler leaves behind could disturb.
        self._trace(check, self._second.calls(median(times_ms)))
        traffic = self._traffic(method, self._require_quiet())
        observed = self._observed(conditions.seen(taken.repeated_blocks))
        self._evidence.timing, warnings = summarise(taken.samples, traffic, confirmed, observed)
        for warning in (*warnings, *conditions.warnings()):
            self._evidence.warn(warning)

    def _require_quiet(self) -> MemoryLimits | None:
        """End the candidate's process, and see whether it had left the GPU alone."""
        if self._device != "cuda":
            return None
        self._quiet.beside(self._probes, self._probe_after_a_call)
        self._dialogue.end_host()
        limits = self._quiet.after()
        if limits.shared:
            self._evidence.warn(SOMEBODY_ELSE)
        return limits

    def _traffic(self, method: str, limits: MemoryLimits | None) -> Traffic:
        work = self._evidence.work
        return Traffic(
            minimal_bytes=work.minimal_bytes,
            method=method,
            limits=limits,
            work=work,
            calibration=rates_of(self._dialogue, work, self._evidence.warn),
        )

    def _observed(self, conditions: Conditions | None) -> Observed:
        return Observed(
            what={CANDIDATE: "ModelNew; fp32 with TF32 off", **self._evidence.baselines},
            # On a CPU the time is the host's anyway.
            host_ms=self._host_ms if self._device == "cuda" else {},
            spans_us=self._second.spans_us,
            beside_ms=self._second.beside_ms,
            events_us=self._second.events_us,
            conditions=conditions,
        )

    def _probe(self) -> m.Probed:
        return self._dialogue.ask_oracle(m.Probe(), m.Probed)

    def _probe_after_a_call(self) -> m.Probed:
        """Write right after a call: what the candidate leaves running may end soon."""
        called = self._calls.call(self._calls.new_inputs(), self._case, timed=False)
        probed = self._probe()
        self._calls.verify(self._log, self._case, called, timed=False)
        return probed

    def _time_block(self, subjects: list[str], conditions: DeviceConditions) -> TimedBlock:
        inputs = self._calls.new_inputs()
        times_ms: dict[str, float] = {}
        throttled: list[str] = []
        for subject in subjects:
            times_ms[subject] = self._time_one(subject, inputs)
            # Right after a call the device is still as it was during it.
            throttled += conditions.look()
        return TimedBlock(times_ms=times_ms, throttled=tuple(dict.fromkeys(throttled)))

    def _time_one(self, subject: str, inputs: m.Tensors) -> float:
        host_ms = self._host_ms.setdefault(subject, [])
        if subject != CANDIDATE:
            timed = self._dialogue.ask_oracle(m.TimeBaseline(name=subject), m.BaselineTimed)
            host_ms.append(timed.host_ms)
            return timed.elapsed_ms
        called = self._calls.call(inputs, self._case, timed=True)
        # At once, before a baseline runs: the less time, the less can be written over it.
        self._calls.verify(self._log, self._case, called, timed=True)
        self._calls.require_inputs_unchanged(self._case)
        host_ms.append(called.host_ms)
        require_possible(called.elapsed_ms)
        return called.elapsed_ms

    def _warm_baselines(self) -> None:
        """Prepare what to compare times with, now that there is something to time."""
        names = wanted_baselines(self._options, self._device)
        self._phase("preparing the baselines")
        if self._device == "cuda":
            self._second.start()
        if not names:
            return
        ready = self._dialogue.ask_oracle(m.WarmBaselines(names=names), m.BaselinesReady)
        self._evidence.baselines = ready.ready
        for name, why in ready.failed.items():
            self._evidence.warn(f"the baseline {name} could not be timed: {why}")

    def _confirm(self, times_ms: list[float], gauge_ms: float) -> Confirmation:
        """Hold the times that the candidate's process reported against the supervisor's clock."""
        self._phase("confirming the times")
        claim = self._claim(times_ms, gauge_ms)
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
            host_ms=median(self._host_ms[CANDIDATE][-len(times_ms) :]),
            gauge_ms=gauge_ms,
            call_bytes=self._evidence.minimal_bytes,
            batch_bytes=batch_bytes_of(self._gpu_bytes()),
        )

    def _gpu_bytes(self) -> int | None:
        """Return the memory that the GPU has, or is to act as if it had; None on a CPU."""
        found = self._evidence.environment.get("memory_bytes")
        if not isinstance(found, int):
            return None
        limit = self._options.memory_limit_bytes
        return found if limit is None else min(found, limit)

    def _time_again(self) -> Claim:
        self._phase("timing again")
        gauge_ms = min(self._probe().elapsed_ms for _ in range(_PROBES))
        times_ms = [
            self._time_one(CANDIDATE, self._calls.new_inputs()) for _ in range(_CALLS_AGAIN)
        ]
        return self._claim(times_ms, gauge_ms)

    def _trace(self, check: KernelCheck, spans: int) -> None:
        """See which kernels run, and what the second clock says on so many calls."""
        self._phase("tracing its kernels")
        for number in range(max(_TRACED_CALLS, spans)):
            if number >= spans and not check.needs_another_call:
                break
            inputs = self._calls.new_inputs()
            start = monotonic()
            called = self._calls.call(inputs, self._case, timed=False, traced=True)
            wall_us = (monotonic() - start) * 1e6
            self._calls.verify(self._log, self._case, called, timed=False)
            self._calls.require_inputs_unchanged(self._case)
            check.add(called.trace, called.outputs, wall_us)
            self._second.note(called)
        self._second.read_baselines(self._evidence.baselines, spans)
        reference = None
        if check.needs_reference:
            asked = self._dialogue.ask_oracle(m.TraceReference(), m.ReferenceTraced)
            reference = asked.trace
        check.conclude(self._evidence, reference)
