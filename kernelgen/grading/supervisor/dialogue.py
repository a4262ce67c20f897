"""The supervisor's talk with an oracle and a candidate host, and what each silence means."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.grading.supervisor.explain import (
    explain_end,
    explain_failure,
    judge_over_limit,
    last_place,
    own_words,
)
from kernelgen.grading.supervisor.oracle_client import ORACLE_TIMEOUT_S, OracleClient
from kernelgen.grading.supervisor.servers import WorkerGone
from kernelgen.grading.supervisor.workers import ForkServer, Worker
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import ChannelGarbage
from kernelgen.grading.wire.host_memory import copy_outputs
from kernelgen.grading.wire.trace import Trace
from kernelgen.sandbox.record import Containment, Plan
from kernelgen.sandbox.standing import computes_in_a_library
from kernelgen.sandbox.standstill import Ended, Unrest
from kernelgen.sandbox.tree import own_bytes, processes_below
from kernelgen.sandbox.watch import OverLimit
from kernelgen.solution.file import SolutionFile

_CONTAIN_TIMEOUT_S = 60.0
_COMPILER_LOG_BYTES = 1 << 20


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines and actions of the wait for one answer of the host's.

    Attributes:
        meanwhile: called once the message is on its way.
        rescue_after_s, rescue: what is called if there is no answer for so long.
        keep_running: do not stop the candidate once it has answered; `freeze_host` does. The wait
            then ends with the answer, and otherwise when nothing of the candidate's runs any more.
        while_waiting: entered for as long as the answer is waited for.
    """

    meanwhile: Callable[[], None] | None = None
    rescue_after_s: float = 0.0
    rescue: Callable[[], None] | None = None
    keep_running: bool = False
    while_waiting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def begin(self, host: Worker) -> None:
        """Do what is to be done before the answer is waited for in earnest."""
        if self.meanwhile is not None:
            self.meanwhile()
        if self.rescue is not None and not host.channel.has_news(self.rescue_after_s):
            self.rescue()


_NONE = Patience()


class Dialogue:
    """An oracle, once it is there, and a candidate host, once it is started.

    Args:
        scratch: an empty folder; the host gets one of its own in it.
        limit_s: for all answers of the host together, while it may run.
        building_s: for what its calls take beyond their own limit, while children build.

    Attributes:
        environment: of the host, on top of the server's.
        waited_ms: by this process's clock, from before the host could run on to the end of the
            last wait for it, without what it was paused.
    """

    def __init__(
        self,
        server: ForkServer,
        scratch: Path,
        environment: Mapping[str, str],
        limit_s: float = math.inf,
        building_s: float = 0.0,
    ) -> None:
        self._server, self._scratch = server, scratch
        self._limit_s = self._left_s = limit_s
        self._building_left_s = building_s
        self.environment = environment
        self._oracle: OracleClient | None = None
        self._host: Worker | None = None
        self._solution: SolutionFile
        self._numbered = 0
        self._arena_fds: tuple[int, ...] = ()
        self.waited_ms = 0.0

    @property
    def host_folder(self) -> Path:
        """The candidate host's folder, which comes to be when it is started."""
        return self._scratch / "candidate"

    def start_host(self, solution: SolutionFile, plan: Plan) -> Containment:
        """Start the candidate host; return what is in force around it.

        Raises:
            Judged: that could not be done.
        """
        self._solution = solution
        folder = self.host_folder
        folder.mkdir()
        self._host = self._server.fork(folder, self.environment, plan)
        try:
            # No code of the candidate's is there yet: this, and only this, is our own word.
            said = self._host.receive(_CONTAIN_TIMEOUT_S)
            if isinstance(said, m.Contained):
                self._host.freeze()
                self._host.shown = not computes_in_a_library(self._host.processes(), shown=True)
                return said.containment
        except (WorkerGone, TimeoutError, ChannelGarbage) as error:
            reason = f"the candidate's process did not start: {error}\n{self._host.log_tail()}"
            raise Judged(Status.GRADER_ERROR, reason.rstrip()) from error
        why = said.reason if isinstance(said, m.NotContained) else type(said).__name__
        reason = f"the candidate could not be contained: {why}; --sandbox off grades without"
        raise Judged(Status.GRADER_ERROR, reason)

    @contextlib.contextmanager
    def with_oracle(self, oracle: OracleClient) -> Iterator[None]:
        """Talk to this oracle meanwhile; the candidate is watched while it answers."""
        usual = oracle.worker.meanwhile
        if self._host is not None:
            oracle.worker.meanwhile = self._host.meanwhile
        self._oracle = oracle
        try:
            yield
        finally:
            oracle.worker.meanwhile = usual

    def freeze_host(self) -> float:
        """Stop all that the candidate runs until it is asked something.

        What it may not see is not there while its code can run: the oracle writes inputs, reads
        outputs and times baselines while it stands still.

        Returns:
            Since when none of it has run, by `time.perf_counter`.

        Raises:
            Judged: it cannot be stopped.
        """
        try:
            return self.host.freeze()
        except TimeoutError as error:
            reason = f"what the candidate has started cannot be stopped: {error}"
            raise Judged(Status.TAMPERED, reason) from error

    def require_still(self) -> None:
        """See that the candidate did not run while it was stopped.

        Raises:
            Judged: it did, or something of it has ended.
            KernelgenFault: the fork server has ended.
        """
        try:
            self.host.require_still()
        except Unrest as unrest:
            if not self._server.running:  # all that it had started has ended with it
                raise KernelgenFault(f"the fork server is gone: {unrest}") from unrest
            status = Status.CRASHED if isinstance(unrest, Ended) else Status.TAMPERED
            raise Judged(status, f"the candidate did not stay stopped: {unrest}") from None

    def copy_outputs(self, ran: m.BatchRan, made: m.RunBatch) -> m.BatchRan:
        """Copy a CPU batch's outputs from the memory of the candidate, which is stopped."""
        return copy_outputs(ran, made, self.host.channel.sender, self._arena_fds[0])

    def begin_trace(self, timeout_s: float, *, follows: bool = False) -> None:
        """Have the host record what its next calls or batch run; raises Judged."""
        self.ask_host(m.BeginTrace(follows=follows), timeout_s, "before a traced call")

    def end_trace(self, timeout_s: float, count: int) -> tuple[Trace, ...]:
        """Return what the host says ran since, in so many calls or a batch; raises Judged."""
        traces = self.ask_host(m.EndTrace(), timeout_s, "after traced calls").traces
        missing = next((trace.missing for trace in traces if trace.missing), "")
        if len(traces) != count:
            missing = missing or f"{len(traces)} calls were recorded, where {count} were made"
        return (Trace(missing=missing),) * count if missing else traces

    def number_calls(self, count: int) -> int:
        """Reserve so many call numbers and return the first."""
        self._numbered += count
        return self._numbered - count + 1

    @property
    def host(self) -> Worker:
        """The candidate host, which has been started."""
        assert self._host is not None
        return self._host

    @property
    def has_host(self) -> bool:
        """Whether the candidate host has been started."""
        return self._host is not None

    def end_host(self) -> None:
        """End the candidate; what it printed can still be read."""
        if self._host is not None:
            self._host.end()

    def kill_host(self) -> None:
        """End the candidate's processes, from any thread; who asks it finds them gone."""
        with contextlib.suppress(KernelgenFault):
            self._server.end(self.host.pid)

    def host_bytes(self) -> int:
        """Return the machine's memory that the candidate's processes hold.

        Without what every fork begins with: the server's imports, most of a GB with a CUDA torch.
        """
        held = sum(map(own_bytes, processes_below([self.host.pid])))
        return max(0, held - self._server.own_bytes())

    def close(self) -> str:
        """End the candidate; return the end of what it printed."""
        self._keep_arena(())
        if self._host is None:
            return ""
        self._host.end()
        log = own_words(self._host.log_tail())
        self._host.release()
        return log

    def _keep_arena(self, fds: tuple[int, ...]) -> None:
        """Hold on to the descriptors of the arena in use, a CPU's one, in place of those before."""
        for fd in self._arena_fds:
            os.close(fd)
        self._arena_fds = fds

    def ask_oracle(
        self, message: m.Request[m.AnswerT], timeout_s: float = ORACLE_TIMEOUT_S
    ) -> m.AnswerT:
        """Ask the oracle; raises Judged as `OracleClient.ask` does."""
        assert self._oracle is not None
        return self._oracle.ask(message, timeout_s)

    def ask_host(
        self,
        message: m.ToHost[m.AnswerT],
        timeout_s: float,
        during: str,
        *,
        patience: Patience = _NONE,
    ) -> m.AnswerT:
        """Ask the candidate host; every way in which that can fail is the candidate's.

        `during` completes "the process ended ...", for the reason.

        Raises:
            Judged: it raised, ended, hung, or sent something else.
        """
        assert self._host is not None
        # A new arena's descriptor came from the oracle and goes on to the host.
        carries = isinstance(message, m.Construct | m.RunBatch)
        if carries and self._oracle:
            self._keep_arena(tuple(self._oracle.worker.channel.take_fds()))
        try:
            self.require_still()
            start_s, paused_s = self._host.thaw(), self._host.paused_s
            self._host.send(message, self._arena_fds if carries else ())
            patience.begin(self._host)
            with patience.while_waiting():
                reply = self._await_reply(timeout_s, may_build=isinstance(message, m.Call))
            end_s = time.perf_counter() if patience.keep_running else self.freeze_host()
            self.waited_ms = (end_s - start_s - (self._host.paused_s - paused_s)) * 1e3
        except OverLimit as over:
            raise judge_over_limit(over, during) from None
        except WorkerGone as gone:
            reason = f"the process ended {during}: {explain_end(gone)}"
            place = last_place(self._host.log_tail(), self._solution)
            raise Judged(Status.CRASHED, reason + place) from None
        except TimeoutError:
            self._host.ask_where()
            place = last_place(self._host.log_tail(), self._solution)
            reason = f"not finished {during} after {timeout_s:g} s"
            if self._left_s <= 0:
                reason = f"not finished {during} when the candidate as a whole had had its "
                reason += f"{self._limit_s:g} s"
            raise Judged(Status.TIMEOUT, reason + place) from None
        except ChannelGarbage as error:
            reason = f"a malformed record came from the host {during}: {error}"
            raise Judged(Status.TAMPERED, reason) from error
        if isinstance(reply, m.CandidateFailed):
            # With verbose=True, torch prints what the compiler says instead of raising it.
            printed = self._host.log_tail(_COMPILER_LOG_BYTES) if reply.in_build else ""
            status, reason = explain_failure(reply, self._solution, during, printed)
            raise Judged(status, reason)
        due: type[m.AnswerT] = message.answered_by()
        if not isinstance(reply, due):
            reason = f"a {type(reply).__name__} came {during} where a {due.__name__} was due"
            raise Judged(Status.TAMPERED, reason)
        return reply

    def _await_reply(self, timeout_s: float, *, may_build: bool) -> Any:
        """Wait for the host's answer, and count what it took of the candidate's time."""
        begun_s = self.host.running_s()
        building_s = timeout_s + self._building_left_s if may_build else 0.0
        least_s, most_s = (min(one, self._left_s) for one in (timeout_s, building_s))
        try:
            return self.host.await_reply(least_s, most_s)
        finally:
            took_s = self.host.running_s() - begun_s
            self._left_s -= took_s
            self._building_left_s -= max(0.0, took_s - timeout_s)
