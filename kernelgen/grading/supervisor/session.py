"""Grading one candidate on one device: build, every case, then the times."""

import contextlib
from functools import partial
from pathlib import Path
from time import sleep

import msgspec

from kernelgen.build.prebuild import Prebuilt
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import KernelgenFault, ToolchainError
from kernelgen.grading.launch import cores_aside
from kernelgen.grading.options import BASELINES, wanted_baselines
from kernelgen.grading.supervisor.blame import reconsider
from kernelgen.grading.supervisor.calls import CaseCalls, Task
from kernelgen.grading.supervisor.containment import plan_for
from kernelgen.grading.supervisor.dialogue import Dialogue, Patience
from kernelgen.grading.supervisor.main_case import MainCase, gpu_bytes
from kernelgen.grading.supervisor.oracle_client import oracle_setup
from kernelgen.grading.supervisor.oracles import Oracles, Preview
from kernelgen.grading.supervisor.prebuilding import prebuild_solution
from kernelgen.grading.supervisor.timing_lock import Displaced, Room, TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.timing.quiet import Quiet
from kernelgen.grading.timing.waits import CROWDED
from kernelgen.grading.tools.sanitizer import can_sanitize, sanitize
from kernelgen.grading.tools.workplace import Workplace
from kernelgen.grading.verdict import BuildRecord, Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.hardware.device import VISIBLE_GPUS, capability_of, usable_cores, visible_gpus
from kernelgen.problem.record import Case, Device
from kernelgen.sandbox.record import Containment, Plan
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.lending import lent_to

# Of a GPU's memory; the rest is for what references compute between, and for processes.
_SHARE_OF_MAIN_CASES = 0.5
# With so much at most, an oracle for each candidate takes next to no room: of parameters, on a GPU;
# on a CPU, where no main case waits for room, of all tensors.
_LIGHT_BYTES = {"cuda": 1 << 28, "cpu": 1 << 30}
_PROBES = 3
_SOUND = "only with this candidate: an oracle alone works on the device"


class Session:
    """One candidate, one oracle, one candidate host."""

    def __init__(self, task: Task) -> None:
        self._task, self._phase, self._evidence = task, task.phase, task.evidence
        self._solution, self._problem = task.solution, task.problem
        self._device, self._options = task.device, task.options
        self._tell_of_waiting = partial(
            task.phase, "waiting for the others, to have the device alone"
        )
        # Small cases first: most mistakes show there, in milliseconds. The main case comes last and
        # stays open to be timed.
        main, *extra = enumerate(task.problem.all_cases())
        self._cases: list[tuple[int, Case]] = [*extra, main]
        self._sizes_bytes: dict[int, int] = {}
        self._prebuilt = Prebuilt()
        self._reference_bytes = 0
        self._displaced = False
        self._dialogue: Dialogue
        self._lock: TimingLock
        self._plan: Plan

    def run(self, server: ForkServer, scratch: Path, oracles: Oracles) -> None:
        """Grade; on return the candidate has passed, and the evidence holds everything.

        Args:
            server: starts the candidate's process.
            scratch: an empty folder of this candidate's own.
            oracles: lend one, once the candidate is built. Their lock is held alone while the main
                case is timed; if it needs their room for itself, from its beginning.

        Raises:
            Judged: it has not passed.
        """
        # One device, chosen before CUDA starts: work cannot go to another.
        gpu = self._options.gpu or visible_gpus(1)[0]
        environment = {VISIBLE_GPUS: gpu}
        setup = oracle_setup(self._problem, self._device, self._options.memory_limit_bytes)
        self._lock = oracles.lock
        limit_s, building_s = self._options.whole_timeout_s, self._options.build_timeout_s
        self._dialogue = Dialogue(server, scratch, environment, limit_s, building_s)
        self._phase("opening the device")
        try:
            with oracles.expected(setup, environment):
                ahead = oracles.preview(setup, environment, compiles=self._compiled_baselines())
                self._build_ahead(server, gpu)
                known = ahead.result()
                self._evidence.ready = known.ready
                require_tools(self._solution)
                with self._lock.working():
                    self._grade(server, oracles, setup, known)
        except (Judged, KernelgenFault) as fault:
            if self._displaced:
                raise Displaced from fault
            if isinstance(fault, Judged) and fault.status is not Status.GRADER_ERROR:
                raise
            found = self._evidence.device_fault = oracles.failure_alone(setup, environment)
            told = f"an oracle alone fails there too: {found}" if found else _SOUND
            raise Judged(Status.GRADER_ERROR, f"{fault}\n({told})") from fault

    def _grade(
        self, server: ForkServer, oracles: Oracles, setup: m.SetUpOracle, known: Preview
    ) -> None:
        dialogue = self._dialogue
        try:
            contained = self._start_host()
            with self._lock.endable(self._displace):
                imported_s = self._import()
                light = is_light(known.main, self._device)
                cheap = light and not self._compiled_baselines()
                waiting = self._tell_of_waiting
                # Releases the exclusive lock after both workers have freed their memory.
                with (
                    contextlib.ExitStack() as held,
                    oracles.lend(setup, dialogue.environment, waiting, cheap=cheap) as oracle,
                ):
                    if contained.level != "namespaces":
                        # It may have been within the candidate's reach.
                        oracle.healthy = False
                    with dialogue.with_oracle(oracle):
                        oracle.ask(setup)
                        self._check_cases(oracles, known, imported_s, held)
        except KernelgenFault as fault:
            if dialogue.has_host and not server.running:
                # Nothing else has a reason to: the server is small, and the candidate was running.
                reason = f"the grader's own fork server was ended while the candidate ran: {fault}"
                raise Judged(Status.TAMPERED, reason) from fault
            raise
        finally:
            self._evidence.printed = dialogue.close()

    def _check_cases(
        self, oracles: Oracles, known: Preview, imported_s: float, held: contextlib.ExitStack
    ) -> None:
        """Check every case, then time the main one; the candidate has ended afterwards."""
        dialogue = self._dialogue
        quiet = Quiet(lambda: dialogue.ask_oracle(m.Probe()), sleep)
        try:
            for position, (number, case) in enumerate(self._cases, 1):
                if position == len(self._cases):
                    self._take_room(oracles.room, known, held)
                self._phase(f"case {position} of {len(self._cases)}: {case.name}")
                opened = self._open(number, case, imported_s if position == 1 else None)
                calls = CaseCalls(self._task, dialogue, case)
                for note in opened.notes:
                    self._evidence.warn(f"case {case.name}: {note}")
                calls.check(with_parameters=bool(opened.construct.state.names))
                # Once the small cases agree; main, which may fill the memory, is not open yet.
                if self._options.sanitize and position == max(1, len(self._cases) - 1):
                    self._sanitize()
            self._evidence.warn_of_precision(self._problem.tolerance)
            stubs = self._prebuilt.stubs
            main = MainCase(
                self._task, dialogue, calls, opened, quiet, stubs=stubs, rates=oracles.rates
            )
            main.prepare()
            with contextlib.ExitStack() as alone:
                if self._options.time:
                    alone.enter_context(self._lock.alone(self._tell_of_waiting))
                    self._end_what_others_left()
                main.examine()
                # Covers the oracle's last work, too.
                dialogue.require_still()
            if main.runner.has_left:
                self._phase("verifying what was timed")
                self._lock.give_way()
                main.runner.verify_left()
        except Judged as judged:
            if judged.status is Status.NO_CUSTOM_KERNEL:  # it may have caught the error of a build
                judged.reason = "\n".join((judged.reason, *self._prebuilt.broken))
            raise reconsider(judged, dialogue, self._device, self._reference_bytes) from judged
        finally:
            dialogue.end_host()

    def _displace(self) -> None:
        self._displaced = True
        self._dialogue.kill_host()

    def _end_what_others_left(self) -> None:
        """Have candidates that wait ended where the GPU is busy although all of them are stopped.

        A kernel without an end may be one's, or that of a stranger to this run: nobody is accused.
        """
        if self._device == "cuda" and not self._lock.crowded and self._is_crowded():
            self._lock.end_others()
            # If that was of no use, they are left alone from now on.
            self._lock.crowded = self._is_crowded()

    def _is_crowded(self) -> bool:
        probes = (self._dialogue.ask_oracle(m.Probe()) for _ in range(_PROBES))
        return all(probed.load > CROWDED for probed in probes)

    def _take_room(self, room: Room, known: Preview, held: contextlib.ExitStack) -> None:
        """Wait until the main case fits a GPU beside others', or have the GPU alone."""
        memory = gpu_bytes(known.ready, self._options)
        if memory is None:
            return
        whole = int(_SHARE_OF_MAIN_CASES * memory)
        size = whole + 1 if known.main is None else known.main.tensors
        tell = partial(self._phase, "waiting for memory of the device")
        held.enter_context(room.taken(size, whole, tell))
        if size > whole:
            held.enter_context(self._lock.alone(self._tell_of_waiting))

    def _compiled_baselines(self) -> tuple[str, ...]:
        """Return the baselines that take seconds to prepare."""
        names = wanted_baselines(self._options, self._device) if self._options.time else ()
        return tuple(name for name in names if BASELINES[name].mode is not None)

    def _build_ahead(self, server: ForkServer, gpu: str) -> None:
        """Compile what the candidate builds, or find it kept."""
        capability = capability_of(gpu) if self._device == "cuda" else None
        if self._device == "cuda" and capability is None:
            return
        # A GPU's times do not hear of compilers on other cores; a CPU's do.
        aside = self._device == "cuda" and cores_aside()
        with contextlib.nullcontext() if aside else self._lock.working():
            self._phase("building")
            self._prebuilt = prebuild_solution(self._task, capability, server)
        if self._prebuilt.warning:
            self._evidence.warn(self._prebuilt.warning)

    def _start_host(self) -> Containment:
        plan = self._plan = plan_for(
            self._options, self._solution, self._problem, self._dialogue.host_folder
        )
        found = self._evidence.containment = self._dialogue.start_host(self._solution, plan)
        if found.level == "none":
            self._evidence.warn(f"the candidate was not contained: {'; '.join(found.missing)}")
        return found

    def _import(self) -> float:
        """Have the candidate imported; return the seconds that it took.

        What it builds only now is stopped while another file is timed.
        """
        host = self._dialogue.host
        built = self._dialogue.ask_host(
            m.BuildCandidate(
                file_name=self._solution.name,
                text=self._solution.text,
                device=self._device,
                threads=usable_cores(),
                ready=self._prebuilt.ready,
                lent=lent_to(self._solution.text, self._problem.module_source).source,
            ),
            self._options.build_timeout_s,
            "while being imported",
            patience=Patience(while_waiting=lambda: self._lock.pausable(host.pause, host.resume)),
        )
        seconds = self._prebuilt.seconds + max(0.0, built.seconds - host.paused_s)
        self._evidence.build = BuildRecord(seconds=seconds, cached=self._prebuilt.cached)
        return seconds

    def _open(self, number: int, case: Case, imported_s: float | None) -> m.CaseOpened:
        """Open a case in both workers.

        The construction of the first case may build as well, and counts beside `imported_s`.
        """
        opened = self._dialogue.ask_oracle(m.OpenCase(case=number))
        self._reference_bytes = self._sizes_bytes[number] = opened.minimal_bytes
        constructed = self._dialogue.ask_host(
            opened.construct,
            self._options.build_timeout_s,
            f"while ModelNew was constructed for case {case.name}",
        )
        parameters = constructed.parameters
        if constructed.renamed:
            initial = self._dialogue.ask_oracle(m.DrawInitialValues())
            parameters = self._dialogue.ask_host(
                m.MatchParameters(initial=initial),
                self._options.call_timeout_s,
                f"while the parameters of case {case.name} were matched",
            ).parameters
        if imported_s is not None:
            seconds = imported_s + constructed.seconds
            self._evidence.build = BuildRecord(seconds=seconds, cached=self._prebuilt.cached)
            self._evidence.note_parameters(parameters)
        return opened

    def _sanitize(self) -> None:
        """Run compute-sanitizer on the smallest case so far."""
        if not can_sanitize(self._device):
            self._evidence.warn("--sanitize: compute-sanitizer checks CUDA; nothing was checked")
            return
        number = min(self._sizes_bytes, key=lambda number: self._sizes_bytes[number])
        case = self._problem.all_cases()[number]
        self._phase(f"compute-sanitizer on case {case.name}")
        scratch = self._dialogue.host_folder.parent
        folder, own = scratch / "sanitizer", scratch / "sanitized"
        for place in (folder, own):
            place.mkdir()
        inside = Workplace(
            plan=msgspec.structs.replace(self._plan, scratch=str(own)),
            folder=folder,
            environment=dict(self._dialogue.environment),
            deadline_s=self._options.build_timeout_s + self._options.call_timeout_s,
        )
        outcome = sanitize(self._solution, self._problem, case, self._device, inside)
        self._evidence.sanitizer = outcome.record
        for warning in outcome.warnings:
            self._evidence.warn(warning)
        if outcome.reason:
            raise Judged(Status.RUNTIME_ERROR, outcome.reason)


def is_light(main: m.CaseBytes | None, device: Device) -> bool:
    """Whether candidates with such a main case may have an oracle each."""
    if main is None:
        return False
    # On a GPU it waits for the main case's room with nothing but parameters in memory.
    return (main.parameters if device == "cuda" else main.tensors) <= _LIGHT_BYTES[device]


def require_tools(solution: SolutionFile) -> None:
    """Refuse to grade what cannot be built here: a missing compiler is not the candidate's.

    Raises:
        Judged: a compiler is missing.
    """
    if "load_inline" not in solution.text:
        return
    try:
        find_compiler()
        if "cuda_sources" in solution.text:
            find_toolkit()
    except ToolchainError as error:
        reason = f"{solution.path}: cannot be built here: {error}"
        raise Judged(Status.GRADER_ERROR, reason) from error
