"""Grading one candidate on one device: build, every case, then the times."""

import contextlib
import fcntl
from pathlib import Path
from time import sleep
from typing import TextIO

import msgspec

from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.errors import KernelgenFault, ToolchainError
from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import cpu_threads
from kernelgen.grading.options import BASELINES, wanted_baselines
from kernelgen.grading.supervisor.blame import reconsider
from kernelgen.grading.supervisor.calls import CaseCalls, Task
from kernelgen.grading.supervisor.containment import plan_for, warnings_about
from kernelgen.grading.supervisor.dialogue import Dialogue, oracle_setup
from kernelgen.grading.supervisor.evidence import Printed
from kernelgen.grading.supervisor.main_case import MainCase
from kernelgen.grading.supervisor.timing_lock import TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.timing.quiet import Quiet
from kernelgen.grading.tools.contained_run import Workplace
from kernelgen.grading.tools.sanitizer import can_sanitize, sanitize
from kernelgen.grading.verdict import BuildRecord, Status
from kernelgen.grading.wire import messages as m
from kernelgen.hardware.device import VISIBLE_GPUS, visible_gpus
from kernelgen.problem.record import Case
from kernelgen.sandbox.record import Plan
from kernelgen.solution.file import SolutionFile

# A GPU has room for several main cases of this size, and for their processes.
_BESIDE_OTHERS_BYTES = 1 << 30


class Session:
    """One candidate, one oracle, one candidate host."""

    def __init__(self, task: Task) -> None:
        self._task, self._phase, self._evidence = task, task.phase, task.evidence
        self._solution, self._problem = task.solution, task.problem
        self._device, self._options = task.device, task.options
        # Small cases first: most mistakes show there, in milliseconds. The main case comes last and
        # stays open to be timed.
        main, *extra = enumerate(task.problem.all_cases())
        self._cases: list[tuple[int, Case]] = [*extra, main]
        self._sizes_bytes: dict[int, int] = {}
        self._cached = False
        self._reference_bytes = 0
        self._dialogue: Dialogue
        self._plan: Plan
        self._cache_lock: TextIO | None = None

    def run(self, server: ForkServer, scratch: Path, lock: TimingLock) -> None:
        """Grade; on return the candidate has passed, and the evidence holds everything.

        Args:
            server: starts the two processes.
            scratch: an empty folder of this candidate's own.
            lock: held alone from the main case on, which fills the device and is timed.

        Raises:
            Judged: it has not passed.
        """
        # One device, chosen before CUDA starts: work cannot go to another.
        environment = {VISIBLE_GPUS: self._options.gpu or visible_gpus(1)[0]}
        dialogue = self._dialogue = Dialogue(server, scratch, environment)
        quiet = Quiet(lambda: dialogue.ask_oracle(m.Probe()), sleep)
        self._phase("opening the device")
        try:
            limit = self._options.memory_limit_bytes
            setup = oracle_setup(self._problem, self._device, limit)
            self._evidence.note(dialogue.ask_oracle(setup))
            fits = dialogue.ask_oracle(m.MeasureCase(case=0))
            _require_tools(self._solution)
            self._look_ahead(quiet)
            self._start_host()
            imported_s = self._import()
            with contextlib.ExitStack() as held:
                for position, (number, case) in enumerate(self._cases, 1):
                    if position == len(self._cases) and self._needs_the_device(fits):
                        held.enter_context(lock.alone(self._tell_of_waiting))
                    self._phase(f"case {position} of {len(self._cases)}: {case.name}")
                    opened = self._open(number, case, imported_s if position == 1 else None)
                    calls = CaseCalls(self._task, dialogue, case)
                    for note in opened.notes:
                        self._evidence.warn(f"case {case.name}: {note}")
                    calls.check(with_parameters=bool(opened.state.names))
                    # Once the small cases agree; main, which may fill the memory, is not open yet.
                    if self._options.sanitize and position == max(1, len(self._cases) - 1):
                        self._sanitize(scratch, environment)
                self._evidence.warn_of_precision()
                MainCase(self._task, dialogue, calls, opened, quiet).examine()
        except Judged as judged:
            raise reconsider(judged, dialogue, self._device, self._reference_bytes) from judged
        except KernelgenFault as fault:
            if dialogue.has_host and not server.running:
                # Nothing else has a reason to: the server is small, and the candidate was running.
                reason = f"the grader's own fork server was ended while the candidate ran: {fault}"
                raise Judged(Status.TAMPERED, reason) from fault
            raise
        finally:
            self._evidence.note(Printed(dialogue.close()))
            if self._cache_lock is not None:
                self._cache_lock.close()

    def _needs_the_device(self, fits: m.Fits) -> bool:
        """Return whether the main case is timed, or too large to lie beside those of others."""
        large = fits.tensor_bytes is None or fits.tensor_bytes > _BESIDE_OTHERS_BYTES
        return self._options.time or (self._device == "cuda" and large)

    def _tell_of_waiting(self) -> None:
        self._phase("waiting for the others, to have the device alone")

    def _look_ahead(self, quiet: Quiet) -> None:
        """Do what is better done before there is a candidate, if there will be times."""
        if not self._options.time:
            return
        if self._device == "cuda":
            quiet.before()
        names = wanted_baselines(self._options, self._device)
        if any(BASELINES[name].mode is not None for name in names):
            # While the candidate builds: torch.compile takes seconds to get going.
            self._dialogue.begin_oracle(m.StartCompiler())

    def _start_host(self) -> None:
        kept = self._build_cache()
        plan = self._plan = plan_for(
            self._options, self._solution, self._problem, self._dialogue.host_folder, kept
        )
        environment = {} if kept is None else {"TORCH_EXTENSIONS_DIR": str(kept)}
        found = self._dialogue.start_host(self._solution, environment, plan)
        self._evidence.note(found)
        for warning in warnings_about(found):
            self._evidence.warn(warning)

    def _build_cache(self) -> Path | None:
        if self._options.build_cache is None:
            return None
        # By content: a candidate finds what it built itself, and nothing of another's.
        kept = self._options.build_cache.resolve() / self._solution.sha256[:32]
        self._cached = kept.is_dir()
        kept.mkdir(parents=True, exist_ok=True)
        self._cache_lock = (kept / "in-use").open("w")
        fcntl.flock(self._cache_lock, fcntl.LOCK_EX)
        # torch waits for ever for the owner of such a lock; ours were killed with their build.
        for lock in kept.glob("*/lock"):
            lock.unlink(missing_ok=True)
        return kept

    def _import(self) -> float:
        """Have the candidate imported; return the seconds that it took."""
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
        self._evidence.note(BuildRecord(seconds=built.seconds, cached=self._cached))
        return built.seconds

    def _open(self, number: int, case: Case, imported_s: float | None) -> m.CaseOpened:
        """Open a case in both workers.

        The construction of the first case may build as well, and counts beside `imported_s`.
        """
        opened = self._dialogue.ask_oracle(m.OpenCase(case=number))
        self._reference_bytes = self._sizes_bytes[number] = opened.minimal_bytes
        constructed = self._dialogue.ask_host(
            m.Construct(
                arena=opened.arena,
                given=opened.given,
                state=opened.state,
                eval_mode=self._problem.eval_mode,
            ),
            m.Constructed,
            self._options.build_timeout_s,
            f"while ModelNew was constructed for case {case.name}",
        )
        parameters = constructed.parameters
        if constructed.renamed:
            drawn = self._dialogue.ask_oracle(m.DrawInitialValues())
            parameters = self._dialogue.ask_host(
                m.MatchParameters(initial=drawn.digests),
                m.Matched,
                self._options.call_timeout_s,
                f"while the parameters of case {case.name} were matched",
            ).parameters
        if imported_s is not None:
            seconds = imported_s + constructed.seconds
            self._evidence.note(BuildRecord(seconds=seconds, cached=self._cached))
            self._evidence.note_parameters(parameters)
        return opened

    def _sanitize(self, scratch: Path, environment: dict[str, str]) -> None:
        """Run compute-sanitizer on the smallest case so far."""
        if not can_sanitize(self._device):
            self._evidence.warn("--sanitize: compute-sanitizer checks CUDA; nothing was checked")
            return
        number = min(self._sizes_bytes, key=lambda number: self._sizes_bytes[number])
        case = self._problem.all_cases()[number]
        self._phase(f"compute-sanitizer on case {case.name}")
        folder, own = scratch / "sanitizer", scratch / "sanitized"
        for place in (folder, own):
            place.mkdir()
        inside = Workplace(
            plan=msgspec.structs.replace(self._plan, scratch=str(own)),
            folder=folder,
            environment=environment,
            deadline_s=self._options.build_timeout_s + self._options.call_timeout_s,
        )
        outcome = sanitize(self._solution, self._problem, case, self._device, inside)
        self._evidence.note(outcome.record)
        for warning in outcome.warnings:
            self._evidence.warn(warning)
        if outcome.reason:
            raise Judged(Status.RUNTIME_ERROR, outcome.reason)


def _require_tools(solution: SolutionFile) -> None:
    """Refuse to grade what cannot be built here: a missing compiler is not the candidate's."""
    if "load_inline" not in solution.text:
        return
    try:
        find_compiler()
        if "cuda_sources" in solution.text:
            find_toolkit()
    except ToolchainError as error:
        raise Judged(
            Status.GRADER_ERROR, f"{solution.path}: cannot be built here: {error}"
        ) from error
