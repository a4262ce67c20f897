"""Grading one candidate on one device: build, every case, then the times."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from kernelgen.errors import KernelgenFault
from kernelgen.grading import messages as m
from kernelgen.grading.containment import plan_for, warnings_about
from kernelgen.grading.dialogue import Dialogue, oracle_setup
from kernelgen.grading.evidence import CaseLog, Evidence
from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import cpu_threads
from kernelgen.grading.options import BASELINES, GradeOptions
from kernelgen.grading.precision import changed_pins
from kernelgen.grading.timing import CANDIDATE, Traffic, summarise, take_samples
from kernelgen.grading.verdict import Status
from kernelgen.grading.workers import ForkServer
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.solution.file import SolutionFile

_CALLS_PER_CASE = 2


class Session:
    """One candidate, one oracle, one candidate host.

    Args:
        solution: the candidate.
        problem: what it is to solve.
        device: on which.
        options: of the run.
        phase: told what is being done.
    """

    def __init__(
        self,
        *,
        solution: SolutionFile,
        problem: Problem,
        device: Device,
        options: GradeOptions,
        phase: Callable[[str], None],
    ) -> None:
        self._solution, self._problem, self._device = solution, problem, device
        self._options, self._phase = options, phase
        # Small cases first: most mistakes show there, in milliseconds. The main case comes last and
        # stays open to be timed.
        main, *extra = enumerate(problem.all_cases())
        self._cases: list[tuple[int, Case]] = [*extra, main]
        self._calls = 0
        self._method = ""
        self._dialogue: Dialogue
        self._cache_lock: TextIO | None = None
        self.evidence = Evidence(expected=tuple(case.name for _, case in self._cases))

    def run(self, server: ForkServer, scratch: Path, prepare: Callable[[], None]) -> None:
        """Grade; on return the candidate has passed, and `evidence` holds everything.

        Args:
            server: starts the two processes.
            scratch: an empty folder of this candidate's own.
            prepare: called once the device is known to be there, before the candidate starts.

        Raises:
            Judged: it has not passed.
        """
        # One device, chosen before CUDA starts: work cannot go to another.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        environment = {"CUDA_VISIBLE_DEVICES": visible}
        self._dialogue = Dialogue(server, scratch, environment)
        try:
            limit = self._options.memory_limit_bytes
            setup = oracle_setup(self._problem, self._device, limit)
            ready = self._dialogue.ask_oracle(setup, m.OracleReady)
            self.evidence.device, self.evidence.environment = ready.device_name, ready.environment
            self._method = ready.method
            self._dialogue.ask_oracle(m.MeasureCase(case=0), m.Fits)
            prepare()
            self._start_host()
            self._build()
            for position, (number, case) in enumerate(self._cases, 1):
                self._phase(f"case {position} of {len(self._cases)}: {case.name}")
                self._check(number, case)
            if self._options.time:
                self._warm_baselines()
                self._time(self._cases[-1][1], self.evidence.cases[-1])
        except KernelgenFault as fault:
            if self._dialogue.has_host and not server.running:
                # Nobody else has reason to: the server is small, and the candidate was running.
                reason = f"the grader's own fork server was ended while the candidate ran: {fault}"
                raise Judged(Status.TAMPERED, reason) from fault
            raise
        finally:
            self.evidence.log = self._dialogue.close()
            if self._cache_lock is not None:
                self._cache_lock.close()

    def _start_host(self) -> None:
        kept = self._build_cache()
        plan = plan_for(
            self._options, self._solution, self._problem, self._dialogue.host_folder, kept
        )
        environment = {} if kept is None else {"TORCH_EXTENSIONS_DIR": str(kept)}
        found = self._dialogue.start_host(self._solution, environment, plan)
        self.evidence.containment = found
        for warning in warnings_about(found):
            self.evidence.warn(warning)

    def _build_cache(self) -> Path | None:
        if self._options.build_cache is None:
            return None
        # By content: a candidate finds what it built itself, and nothing of another's.
        kept = self._options.build_cache.resolve() / self._solution.sha256[:32]
        self.evidence.cached = kept.is_dir()
        kept.mkdir(parents=True, exist_ok=True)
        self._cache_lock = (kept / "in-use").open("w")
        fcntl.flock(self._cache_lock, fcntl.LOCK_EX)
        # torch waits for ever for the owner of such a lock; ours were killed with their build.
        for lock in kept.glob("*/lock"):
            lock.unlink(missing_ok=True)
        return kept

    def _build(self) -> None:
        self._phase("building")
        built = self._dialogue.ask_host(
            m.BuildCandidate(
                file_name=self._solution.path.name,
                text=self._solution.text,
                device=self._device,
                threads=cpu_threads(),
            ),
            m.CandidateBuilt,
            self._options.build_timeout_s,
            "while being imported",
        )
        self.evidence.build_s = built.seconds

    def _warm_baselines(self) -> None:
        """Prepare what to compare times with, now that there is something to time."""
        usual = BASELINES if self._device == "cuda" else BASELINES[:1]
        names = usual if self._options.baselines is None else self._options.baselines
        if not names:
            return
        self._phase("preparing the baselines")
        ready = self._dialogue.ask_oracle(m.WarmBaselines(names=names), m.BaselinesReady)
        self.evidence.baselines = ready.ready
        for name, why in ready.failed.items():
            self.evidence.warn(f"the baseline {name} could not be timed: {why}")

    def _check(self, number: int, case: Case) -> None:
        opened = self._dialogue.ask_oracle(m.OpenCase(case=number), m.CaseOpened)
        self.evidence.minimal_bytes = opened.minimal_bytes
        constructed = self._dialogue.ask_host(
            m.Construct(
                arena=opened.arena, given=opened.given, parameter_names=opened.parameter_names
            ),
            m.Constructed,
            self._options.build_timeout_s,
            f"while ModelNew was constructed for case {case.name}",
        )
        if not self.evidence.cases:
            assert self.evidence.build_s is not None
            self.evidence.build_s += constructed.seconds
            self.evidence.note_parameters(constructed)
        log = self.evidence.open_case(case.name)
        for note in opened.notes:
            self.evidence.warn(f"case {case.name}: {note}")
        for call in range(_CALLS_PER_CASE):
            called = self._call(self._new_inputs(), case, timed=False)
            self._verify(log, case, called, timed=False)
            if call == 0:
                self._require_inputs_unchanged(case)

    def _new_inputs(self) -> m.Tensors:
        self._calls += 1
        return self._dialogue.ask_oracle(m.MakeInputs(call=self._calls), m.InputsMade).inputs

    def _call(self, inputs: m.Tensors, case: Case, *, timed: bool) -> m.Called:
        called = self._dialogue.ask_host(
            m.Call(inputs=inputs, timed=timed),
            m.Called,
            self._options.call_timeout_s,
            f"in forward on case {case.name}",
            building_s=self._options.build_timeout_s,
        )
        if not self.evidence.precision:
            self.evidence.precision = called.pinned
        for change in changed_pins(called.pinned, called.pins):
            self.evidence.warn(
                f"the candidate changed a setting of torch's ({change}); "
                "it is put back before each call"
            )
        return called

    def _verify(self, log: CaseLog, case: Case, called: m.Called, *, timed: bool) -> None:
        found = self._dialogue.ask_oracle(m.Verify(outputs=called.outputs), m.Verified)
        log.add(found)
        if found.status is Status.PASSED:
            return
        lines = [f"case {case.name}: {found.reason}"]
        if timed:
            lines.append("the untimed calls of this case agreed; timed calls are verified as well")
        elif case.why:
            lines.append(f"this case is there for: {case.why}")
        if found.status in (Status.WRONG_VALUES, Status.NON_FINITE):
            lines += self.evidence.parameter_hint()
        raise Judged(found.status, "\n".join(lines))

    def _require_inputs_unchanged(self, case: Case) -> None:
        returned = self._dialogue.ask_host(
            m.ReturnInputs(),
            m.InputsReturned,
            self._options.call_timeout_s,
            f"while the inputs of case {case.name} were returned",
        )
        found = self._dialogue.ask_oracle(m.VerifyInputs(inputs=returned.inputs), m.InputsVerified)
        if found.changed:
            reason = (
                f"case {case.name}: forward changed {', '.join(found.changed)}, which the "
                "reference leaves as they were; write to a new tensor instead"
            )
            raise Judged(Status.MUTATED_INPUT, reason)

    def _time(self, case: Case, log: CaseLog) -> None:
        def block(subjects: list[str]) -> dict[str, float]:
            inputs = self._new_inputs()
            return {subject: self._time_one(subject, inputs, case, log) for subject in subjects}

        samples = take_samples(block, self.evidence.baselines, self._options, self._phase)
        traffic = Traffic(minimal_bytes=self.evidence.minimal_bytes, method=self._method)
        self.evidence.timing, warnings = summarise(samples, traffic)
        for warning in warnings:
            self.evidence.warn(warning)

    def _time_one(self, subject: str, inputs: m.Tensors, case: Case, log: CaseLog) -> float:
        if subject != CANDIDATE:
            return self._dialogue.ask_oracle(
                m.TimeBaseline(name=subject), m.BaselineTimed
            ).elapsed_ms
        called = self._call(inputs, case, timed=True)
        # At once, before a baseline runs: the less time, the less can be written over it.
        self._verify(log, case, called, timed=True)
        return called.elapsed_ms
