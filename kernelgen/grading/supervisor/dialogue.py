"""The supervisor's talk with an oracle and a candidate host, and what each silence means."""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import cpu_threads, trusted_environment
from kernelgen.grading.supervisor.explain import (
    explain_exit,
    explain_failure,
    judge_over_limit,
    last_place,
    own_words,
)
from kernelgen.grading.supervisor.workers import ForkServer, Worker, WorkerGone
from kernelgen.grading.verdict import Owner, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import ChannelGarbage
from kernelgen.problem.record import Device, Problem
from kernelgen.sandbox.record import Containment, Plan
from kernelgen.sandbox.tree import tree_bytes
from kernelgen.sandbox.watch import OverLimit
from kernelgen.solution.file import SolutionFile

ORACLE_TIMEOUT_S = 600.0
_CONTAIN_TIMEOUT_S = 60.0
_COMPILER_LOG_BYTES = 1 << 20

ReplyT = TypeVar("ReplyT")


def oracle_setup(problem: Problem, device: Device, memory_limit_bytes: int | None) -> m.SetUpOracle:
    """Return an oracle's first message, with a new secret seed in it."""
    return m.SetUpOracle(
        device=device,
        cases=tuple(
            m.CaseSource(name=case.name, source=problem.reference_source(case, device))
            for case in problem.all_cases()
        ),
        tolerance=problem.tolerance,
        rule=problem.rule,
        eval_mode=problem.eval_mode,
        batch_independent=problem.batch_independent,
        seed=secrets.token_hex(16),
        memory_limit_bytes=memory_limit_bytes,
        threads=cpu_threads(),
    )


def stage_of(message: m.Request[Any], cases: tuple[str, ...]) -> str:
    """Return what the oracle does on a message, such as `while it opened case main`."""
    if isinstance(message, m.MeasureCase | m.LintCase | m.OpenCase):
        return f"{message.stage} case {cases[message.case]}"
    if isinstance(message, m.TimeBaseline | m.SpanBaseline):
        return f"{message.stage} {message.name}"
    return message.stage


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to the wait for one answer of the host's.

    Attributes:
        building_s: for the answer while processes that the candidate has started, such as
            compilers, are running.
        meanwhile: called once the message is on its way.
        rescue_after_s, rescue: what is called if there is no answer for so long.
        keep_running: do not stop the candidate once it has answered; `freeze_host` does.
    """

    building_s: float = 0.0
    meanwhile: Callable[[], None] | None = None
    rescue_after_s: float = 0.0
    rescue: Callable[[], None] | None = None
    keep_running: bool = False

    def begin(self, host: Worker) -> None:
        """Do what is to be done before the answer is waited for in earnest."""
        if self.meanwhile is not None:
            self.meanwhile()
        if self.rescue is not None and not host.has_news(self.rescue_after_s):
            self.rescue()


_NONE = Patience()


class Dialogue:
    """An oracle and, once it is started, a candidate host.

    Args:
        scratch: an empty folder; each worker gets one of its own in it.

    Attributes:
        waited_ms: by this process's clock, from the last request to the host to its answer.
    """

    def __init__(self, server: ForkServer, scratch: Path, environment: Mapping[str, str]) -> None:
        self._server, self._scratch = server, scratch
        self._environment = environment
        self._oracle = self._start("oracle", {})
        self._host: Worker | None = None
        self._case_names: tuple[str, ...] = ()
        self._begun: m.Request[Any] | None = None
        self._solution: SolutionFile
        self._numbered = 0
        self.waited_ms = 0.0

    @property
    def host_folder(self) -> Path:
        """The candidate host's folder, which comes to be when it is started."""
        return self._scratch / "candidate"

    def start_host(
        self, solution: SolutionFile, environment: Mapping[str, str], plan: Plan
    ) -> Containment:
        """Start the candidate host; return what is in force around it.

        Raises:
            Judged: that could not be done.
        """
        self._solution = solution
        self._host = self._start("candidate", environment, plan)
        self._oracle.meanwhile = self._host.meanwhile
        try:
            # No code of the candidate's is there yet: this, and only this, is our own word.
            said = self._host.receive(_CONTAIN_TIMEOUT_S)
            if isinstance(said, m.Contained):
                self._host.freeze()
                return said.containment
        except (WorkerGone, TimeoutError, ChannelGarbage) as error:
            reason = f"the candidate's process did not start: {error}\n{self._host.log_tail()}"
            raise Judged(Status.GRADER_ERROR, reason.rstrip()) from error
        why = said.reason if isinstance(said, m.NotContained) else type(said).__name__
        reason = f"the candidate could not be contained: {why}; --sandbox off grades without"
        raise Judged(Status.GRADER_ERROR, reason)

    def freeze_host(self) -> None:
        """Stop all that the candidate runs until it is asked something.

        What it may not see is not there while its code can run: the oracle writes inputs, reads
        outputs and times baselines while it stands still.

        Raises:
            Judged: it cannot be stopped.
        """
        assert self._host is not None
        try:
            self._host.freeze()
        except TimeoutError as error:
            reason = f"what the candidate has started cannot be stopped: {error}"
            raise Judged(Status.TAMPERED, reason) from error

    def number_calls(self, count: int) -> int:
        """Reserve so many call numbers and return the first."""
        self._numbered += count
        return self._numbered - count + 1

    @property
    def has_host(self) -> bool:
        """Whether the candidate host has been started."""
        return self._host is not None

    def end_host(self) -> None:
        """End the candidate; what it printed can still be read."""
        if self._host is not None:
            self._host.end()

    def host_bytes(self) -> int:
        """Return the machine's memory that the candidate's processes hold.

        Without what every fork begins with: the server's imports, most of a GB with a CUDA torch.
        """
        if self._host is None:
            return 0
        return max(0, tree_bytes(self._host.pid) - self._server.own_bytes())

    def close(self) -> str:
        """End both workers; return the end of what the candidate printed."""
        try:
            if self._host is not None:
                self._host.end()
        finally:
            self._oracle.end()
            self._oracle.release()
        if self._host is None:
            return ""
        log = own_words(self._host.log_tail())
        self._host.release()
        return log

    def ask_oracle(
        self, message: m.Request[m.AnswerT], timeout_s: float = ORACLE_TIMEOUT_S
    ) -> m.AnswerT:
        """Ask the oracle; it is trusted, so a failure is ours or the problem's.

        Raises:
            Judged: it refused, failed, or took too long; with this or with what was begun.
        """
        if isinstance(message, m.SetUpOracle):
            self._case_names = tuple(case.name for case in message.cases)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            with self._oracle_trouble(begun, timeout_s):
                self._answer_of_oracle(begun, timeout_s)
        with self._oracle_trouble(message, timeout_s):
            self._oracle.send(message)
            return self._answer_of_oracle(message, timeout_s)

    def begin_oracle(self, message: m.Request[Any]) -> None:
        """Have the oracle begin something while the host is asked; its answer is read later.

        Raises:
            Judged: it is gone.
        """
        assert self._begun is None
        with self._oracle_trouble(message, ORACLE_TIMEOUT_S):
            self._oracle.send(message)
        self._begun = message

    def _answer_of_oracle(self, message: m.Request[m.AnswerT], timeout_s: float) -> m.AnswerT:
        reply = self._oracle.receive(timeout_s)
        if isinstance(reply, m.Refused):
            # Memory that the oracle lacks is the grader's matter, never the candidate's.
            owner = Owner.GRADER if reply.status is Status.OUT_OF_MEMORY else None
            raise Judged(reply.status, reply.reason, owner)
        if not isinstance(reply, message.answer()):
            raise Judged(Status.GRADER_ERROR, f"the oracle answered with a {type(reply).__name__}")
        return reply

    @contextlib.contextmanager
    def _oracle_trouble(self, message: m.Request[Any], timeout_s: float) -> Iterator[None]:
        """Turn a failure of the oracle's process into a judgement that names the stage."""
        stage = stage_of(message, self._case_names)
        try:
            yield
        except OverLimit as over:
            raise judge_over_limit(over, stage) from None
        except WorkerGone as gone:
            words = self._oracle.log_tail()
            reason = f"the oracle ended unexpectedly {stage}: {_explain_end(gone)}\n{words}"
            raise Judged(Status.GRADER_ERROR, reason.rstrip()) from None
        except TimeoutError:
            reason = f"the oracle took longer than {timeout_s:.0f} s {stage}; use smaller constants"
            raise Judged(Status.GRADER_ERROR, reason) from None
        except ChannelGarbage as error:
            raise Judged(
                Status.GRADER_ERROR, f"the oracle sent no record {stage}: {error}"
            ) from error

    def ask_host(
        self,
        message: msgspec.Struct,
        expect: type[ReplyT],
        timeout_s: float,
        during: str,
        *,
        patience: Patience = _NONE,
    ) -> ReplyT:
        """Ask the candidate host; every way in which that can fail is the candidate's.

        `during` completes "the process ended ...", for the reason.

        Raises:
            Judged: it raised, ended, hung, or sent something else.
        """
        assert self._host is not None
        # A new arena's descriptor came from the oracle and goes on to the host.
        carries = isinstance(message, m.Construct | m.RunBatch)
        fds = tuple(self._oracle.take_fds()) if carries else ()
        try:
            self._host.thaw()
            start = time.perf_counter()
            self._host.send(message, fds)
            patience.begin(self._host)
            reply = self._host.await_reply(timeout_s, patience.building_s)
            self.waited_ms = (time.perf_counter() - start) * 1e3
            if not patience.keep_running:
                self.freeze_host()
        except OverLimit as over:
            raise judge_over_limit(over, during) from None
        except WorkerGone as gone:
            reason = f"the process ended {during}: {_explain_end(gone)}"
            place = last_place(self._host.log_tail(), self._solution)
            raise Judged(Status.CRASHED, reason + place) from None
        except TimeoutError:
            self._host.ask_where()
            place = last_place(self._host.log_tail(), self._solution)
            reason = f"not finished {during} after {timeout_s:g} s"
            raise Judged(Status.TIMEOUT, reason + place) from None
        except ChannelGarbage as error:
            reason = f"a malformed record came from the host {during}: {error}"
            raise Judged(Status.TAMPERED, reason) from error
        finally:
            for fd in fds:
                os.close(fd)
        if isinstance(reply, m.CandidateFailed):
            # With verbose=True, torch prints what the compiler says instead of raising it.
            printed = self._host.log_tail(_COMPILER_LOG_BYTES) if reply.in_build else ""
            status, reason = explain_failure(reply, self._solution, during, printed)
            raise Judged(status, reason)
        if not isinstance(reply, expect):
            reason = f"a {type(reply).__name__} came {during} where a {expect.__name__} was due"
            raise Judged(Status.TAMPERED, reason)
        return reply

    def _start(self, role: str, environment: Mapping[str, str], plan: Plan | None = None) -> Worker:
        folder = self._scratch / role
        folder.mkdir()
        caches = {
            "TMPDIR": str(folder),
            "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"),
        }
        full = {**self._environment, **caches, **environment}
        if role == "oracle":
            # The reference may need what the user has set; the candidate gets none of it.
            full = {**trusted_environment(), **full}
            return self._server.fork("oracle", folder, full, m.FromOracle)
        full["HOME"] = str(folder)
        return self._server.fork("candidate", folder, full, m.FromCandidate, plan)


def _explain_end(gone: WorkerGone) -> str:
    if gone.by_us:
        return "it closed its connection to the grader and was killed"
    return explain_exit(gone.exit_code)
