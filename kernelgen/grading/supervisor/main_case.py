"""The main case once it agrees: its times, their confirmation, and which kernels ran."""

import math
import random
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

from kernelgen.build.toolchain import cache_folder
from kernelgen.errors import UserError
from kernelgen.grading.options import BASELINES, GradeOptions, wanted_baselines
from kernelgen.grading.precision import in_words
from kernelgen.grading.supervisor.batch_runner import BatchRunner
from kernelgen.grading.supervisor.calls import CaseCalls, Task
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.traced_calls import KernelCheck
from kernelgen.grading.timing.confirm import Confirming, batch_bytes_of
from kernelgen.grading.timing.device_conditions import DeviceConditions
from kernelgen.grading.timing.limit import Work, formats_for, work_of
from kernelgen.grading.timing.looks import Looks, Meanwhile
from kernelgen.grading.timing.quiet import OTHER_WORK, SHARED_GPU, MemoryLimits, Quiet
from kernelgen.grading.timing.sampling import TimedBlock, take_samples
from kernelgen.grading.timing.summary import Observed, Traffic, require_possible, summarise
from kernelgen.grading.timing.times import CANDIDATE, Conditions
from kernelgen.grading.timing.waits import CROWDED, BatchTime, Claim
from kernelgen.grading.verdict import UNTIMED_BASELINE
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.trace import Trace
from kernelgen.hardware.calibration import Cached, Calibration, MatrixFormat, look_up
from kernelgen.hardware.identity import DeviceIdentity

_TRACED_CALLS = {"cuda": 3, "cpu": 2}
_PROBES = 3
_CALLS_AGAIN = 7
# Others on a GPU are looked for after as many blocks as there are at least, and then within so long
# after the last look, no candidate knows when: a look takes longer than a call of microseconds.
_LOOKS_AT_FIRST, _LOOK_WITHIN_S = 12, 0.1
_DRAW = random.SystemRandom()

Rates = dict[tuple[DeviceIdentity, tuple[MatrixFormat, ...]], Calibration]
"""Rates of devices for formats of products, as they were measured."""


class MainCase:
    """The main case, open in both workers.

    Args:
        stubs: tell of kernels that were compiled ahead.
        rates: measured for other candidates, of which there will be one more.

    Attributes:
        runner: of batches, whose outputs may be left to be verified later.
    """

    def __init__(  # noqa: PLR0913 (all that there is by then)
        self,
        task: Task,
        dialogue: Dialogue,
        calls: CaseCalls,
        opened: m.CaseOpened,
        quiet: Quiet,
        *,
        stubs: tuple[str, ...],
        rates: Rates,
    ) -> None:
        ready = task.evidence.ready
        assert ready is not None
        self._task, self._calls, self._opened, self._ready = task, calls, opened, ready
        self._dialogue, self._evidence = dialogue, task.evidence
        self._quiet, self._stubs, self._rates = quiet, stubs, rates
        self._look_at = -math.inf
        self._at_once = _LOOKS_AT_FIRST
        self._baselines: dict[str, str] | None = None
        self._host_ms: dict[str, list[float]] = {}
        self._events_us: float | None = None
        self.runner = BatchRunner(task, dialogue, calls)
        self._reference_ms: float | None = None

    def prepare(self) -> None:
        """Prepare what to compare times with, unless that measures and needs the device alone."""
        names = wanted_baselines(self._task.options, self._task.device)
        modes = (BASELINES[name].mode for name in names)
        if self._task.options.time and all(mode in {None, "default"} for mode in modes):
            self._baselines = self._warm_baselines()

    def examine(self) -> None:
        """Time the case, hold the times against the supervisor's clock, and trace its kernels.

        Ends the candidate's process on a GPU.

        Raises:
            Judged: the candidate does not pass after all.
        """
        if not self._task.options.time:
            self._trace(None)
            return
        if self._baselines is None:
            self._baselines = self._warm_baselines()
        if self._task.device == "cuda" and not self._task.options.launch_overhead:
            self._events_us = self._dialogue.ask_oracle(m.MeasureEvents())
        gauge = self._gauge()
        with DeviceConditions(self._ready.device_uuid) as conditions:
            taken = take_samples(
                lambda subjects: self._time_block(subjects, conditions),
                tuple(self._baselines),
                self._task.options,
                self._task.phase,
            )
        times_ms = taken.samples[CANDIDATE]
        confirming = self._confirming(times_ms, gauge, taken.samples.get("eager"))
        confirmed = confirming.confirm()
        # After the times, which what a profiler leaves behind could disturb. Of a time that is not
        # told, nothing has to be known.
        told = None if isinstance(confirmed, str) else confirming
        self._trace(told)
        limits = self._require_quiet()
        if isinstance(confirmed, str):
            self._evidence.warn(confirmed)
            return
        if OTHER_WORK in taken.disturbed or (limits is not None and limits.shared):
            self._evidence.warn(SHARED_GPU)
            return
        traffic = self._traffic(limits)
        observed = self._observed(conditions.seen(taken.repeated_blocks))
        timing, warnings = summarise(taken.samples, traffic, confirmed, observed)
        self._evidence.timing = timing
        for warning in (*warnings, *conditions.warnings()):
            self._evidence.warn(warning)

    def _require_quiet(self) -> MemoryLimits | None:
        """End the candidate's process, and see whether it had left the GPU alone."""
        if self._task.device != "cuda":
            return None
        self._task.phase("ending its process")
        self._quiet.beside(self.runner.probes, self._probe_after_a_call)
        self._dialogue.require_still()
        self._dialogue.end_host()
        return self._quiet.after()

    def _traffic(self, limits: MemoryLimits | None) -> Traffic:
        work = work_of(self._opened, self._task.problem, self._task.device)
        return Traffic(
            work=work,
            method=self._ready.method,
            limits=limits,
            calibration=_rates_of(self._dialogue, work, self._evidence.warn, self._rates),
        )

    def _observed(self, conditions: Conditions | None) -> Observed:
        return Observed(
            what={
                CANDIDATE: f"ModelNew; {in_words(self._task.problem.precision)}",
                **(self._baselines or {}),
            },
            # On a CPU the time is the host's anyway.
            host_ms=self._host_ms if self._task.device == "cuda" else {},
            events_us=self._events_us,
            conditions=conditions,
        )

    def _probe(self) -> m.Probed:
        return self._dialogue.ask_oracle(m.Probe())

    def _probe_after_a_call(self) -> m.Probed:
        """Write right after a call: what the candidate leaves running may end soon."""
        called = self._calls.call(self._calls.new_inputs())
        probed = self._probe()
        self._calls.verify(called)
        return probed

    def _time_block(self, subjects: list[str], conditions: DeviceConditions) -> TimedBlock:
        inputs = self._calls.new_inputs()
        times_ms: dict[str, float] = {}
        throttled: list[str] = []
        for subject in subjects:
            times_ms[subject] = self._time_one(subject, inputs)
            # Right after a call the device is still as it was during it.
            throttled += conditions.look()
        if self._task.device == "cuda" and perf_counter() >= self._look_at:
            self._at_once -= 1
            if self._probe().load > CROWDED:
                throttled.append(OTHER_WORK)
                self._at_once = sys.maxsize  # who was seen is looked for after every block
            within_s = 0.0 if self._at_once > 0 else _LOOK_WITHIN_S
            self._look_at = perf_counter() + _DRAW.uniform(0.0, within_s)
        return TimedBlock(times_ms=times_ms, throttled=tuple(dict.fromkeys(throttled)))

    def _time_one(self, subject: str, inputs: m.Deposited) -> float:
        host_ms = self._host_ms.setdefault(subject, [])
        if subject != CANDIDATE:
            timed = self._dialogue.ask_oracle(m.TimeBaseline(name=subject))
            host_ms.append(timed.host_ms)
            return timed.elapsed_ms
        called = self._calls.call(inputs, timed=True)
        # At once, before a baseline runs: the less time, the less can be written over it.
        self._calls.verify(called, timed=True)
        self._calls.require_inputs_unchanged()
        host_ms.append(called.host_ms)
        require_possible(called.elapsed_ms)
        return called.elapsed_ms

    def _warm_baselines(self) -> dict[str, str]:
        names = wanted_baselines(self._task.options, self._task.device)
        self._task.phase("preparing the baselines")
        if not names:
            return {}
        ready = self._dialogue.ask_oracle(m.WarmBaselines(names=names))
        for name, why in ready.failed.items():
            self._evidence.warn(f"{UNTIMED_BASELINE}{name} could not be timed: {why}")
        return ready.ready

    def _confirming(
        self, times_ms: list[float], gauge: m.Probed, reference_ms: list[float] | None
    ) -> Confirming:
        """Hold the times that the candidate's process reported against the supervisor's clock."""
        self._task.phase("confirming the times")
        if reference_ms:
            self._reference_ms = max(median(reference_ms), median(self._host_ms["eager"]))
        claim = self._claim(times_ms, gauge)
        return Confirming(self._task.device, claim, self.runner, self._time_again)

    def _claim(self, times_ms: list[float], gauge: m.Probed) -> Claim:
        return Claim(
            device_ms=median(times_ms),
            host_ms=median(self._host_ms[CANDIDATE][-len(times_ms) :]),
            gauge_ms=gauge.elapsed_ms,
            load=gauge.load,
            reference_ms=self._reference_ms,
            call_bytes=self._opened.minimal_bytes,
            batch_bytes=batch_bytes_of(gpu_bytes(self._ready, self._task.options)),
        )

    def _time_again(self) -> Claim:
        self._task.phase("timing again")
        gauge = self._gauge()
        times_ms = [
            self._time_one(CANDIDATE, self._calls.new_inputs()) for _ in range(_CALLS_AGAIN)
        ]
        return self._claim(times_ms, gauge)

    def _gauge(self) -> m.Probed:
        return min((self._probe() for _ in range(_PROBES)), key=lambda probed: probed.elapsed_ms)

    def _trace(self, confirming: Confirming | None) -> None:
        """See which kernels run: in calls of which a time is quoted, or in batches no slower."""
        task = self._task
        check = KernelCheck(task.solution, task.problem, task.device, self._stubs)
        self._task.phase("tracing its kernels")
        calls: list[tuple[m.Called, float]] = []
        self._dialogue.begin_trace(task.options.call_timeout_s)
        for _ in range(_TRACED_CALLS[task.device]):
            # No other message than a timed call's.
            called = self._calls.call(self._calls.new_inputs(), timed=True)
            calls.append((called, self._dialogue.waited_ms * 1e3))
            self._calls.verify(called)
            self._calls.require_inputs_unchanged()
        traces = self._dialogue.end_trace(task.options.call_timeout_s, len(calls))
        for trace, (called, wall_us) in zip(traces, calls, strict=True):
            check.add(trace, called.outputs, wall_us)
        if check.needs_batch:
            self._trace_batches(check, confirming)
            # The next steps are done with one call's.
            self._calls.new_inputs()
        asks = check.needs_reference
        reference = self._dialogue.ask_oracle(m.TraceReference()) if asks else None
        check.conclude(self._evidence, reference)

    def _trace_batches(self, check: KernelCheck, confirming: Confirming | None) -> None:
        if self._task.device == "cpu":
            self._dialogue.begin_trace(self._task.options.call_timeout_s, follows=True)
            for _ in range(_TRACED_CALLS["cpu"]):
                self._calls.call(self._calls.new_inputs(), timed=True)
            (found,) = self._dialogue.end_trace(self._task.options.call_timeout_s, 1)
            check.add_followed(found, self._opened.minimal_bytes)
        if confirming is not None:
            check.add_batch(confirming.trace(self._trace_batch))
        if self._task.device == "cpu":
            most = batch_bytes_of(None) // max(1, self._opened.minimal_bytes)
            looks = Looks(self._dialogue.host, self._run_within, most_calls=most)
            timed = confirming.waits if confirming else None
            # Load explains what is slower than a quoted time; a probe takes longer than a batch.
            self.runner.is_probing = timed is not None
            check.add_looks(looks.objection(check.least_recorded, timed))

    def _run_within(self, calls: int, meanwhile: Meanwhile) -> BatchTime:
        return self.runner(calls, in_place=True, control_calls=1, counts=False, meanwhile=meanwhile)

    def _trace_batch(
        self, calls: int, *, in_place: bool, control_calls: int
    ) -> tuple[BatchTime, Trace]:
        self._dialogue.begin_trace(self._task.options.call_timeout_s)
        batch = self.runner(calls, in_place=in_place, control_calls=control_calls)
        (trace,) = self._dialogue.end_trace(self._task.options.call_timeout_s, 1)
        return batch, trace


def gpu_bytes(ready: m.OracleReady, options: GradeOptions) -> int | None:
    """Return the memory that the GPU has, or is to act as if it had; None on a CPU."""
    found = ready.environment.get("memory_bytes")
    if not isinstance(found, int):
        return None
    limit = options.memory_limit_bytes
    return found if limit is None else min(found, limit)


def _rates_of(
    dialogue: Dialogue, work: Work, warn: Callable[[str], None], known: Rates
) -> Calibration | None:
    """Return rates of the oracle's device, or None if they cannot be known.

    `kernelgen calibrate` fills the cache. Where it has nothing, a few tenths of a second give the
    rates that this limit needs, for this run alone: what is measured between other work is not
    kept longer.
    """
    identity = dialogue.ask_oracle(m.IdentifyDevice())
    cached = _cached(identity)
    if cached is not None and cached.warning:
        warn(f"the calibration {cached.warning}; for now the rates were measured quickly")
    if cached is not None and cached.calibration is not None:
        return cached.calibration
    formats = formats_for(work)
    if (identity, formats) in known:
        return known[identity, formats]
    measured = dialogue.ask_oracle(m.MeasureRates(formats=formats))
    if identity.device == "cuda" and dialogue.ask_oracle(m.Probe()).load > CROWDED:
        # Rates that are too low would make an honest time impossible.
        warn(f"the device's limit is not known: there was {OTHER_WORK}")
        return None
    if isinstance(measured, str):
        warn(f"the device's limit is not known: {measured}")
        return None
    known[identity, formats] = measured
    return measured


def _cached(identity: DeviceIdentity) -> Cached | None:
    """Return what the cache has, or None where the user has no folder for one."""
    try:
        folder = cache_folder()
    except UserError:
        # A verdict needs no cache.
        return None
    return look_up(folder, identity)
