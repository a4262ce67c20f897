"""The supervisor's side of the fork server: start workers, talk under a deadline, end them."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.grading.launch import worker_environment
from kernelgen.grading.supervisor.servers import END_TIMEOUT_S, ZYGOTES, Server, WorkerGone
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import (
    CANDIDATE_LIMIT_BYTES,
    ORACLE_LIMIT_BYTES,
    Channel,
    ChannelClosed,
)
from kernelgen.grading.wire.forking import USUAL_MODULES, Fork, Forked, Role
from kernelgen.sandbox import standstill, tree
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.watch import Watch

_POLL_S = 0.5
_TELL_S = 0.2
# Children that build have at least this share of a core, however busy the machine is.
_LOOK_S, _LEAST_SHARE = 2.0, 0.01
_LOG_TAIL_BYTES = 8192


def _own_folders(folder: Path) -> dict[str, str]:
    """Return the environment that keeps a worker's temporary files in its own folder."""
    return {
        "TMPDIR": str(folder),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


class Worker:
    """A running oracle or candidate host.

    Args:
        log: open file that takes what it prints; its name the worker may well remove.

    Attributes:
        channel: its end here; its `sender` is the process that answers, in this process's table.
        meanwhile: called at least every second while its answer is waited for; may raise.
        paused_s: how long it has been stopped by `pause`, which counts for no deadline.
        shown: the kernel said where its processes stood, before any code of a candidate's ran.
    """

    def __init__(
        self,
        server: ForkServer,
        pid: int,
        channel: Channel[Any],
        log: BinaryIO,
        plan: Plan | None = None,
    ) -> None:
        self._server, self.pid, self.channel, self._log = server, pid, channel, log
        self._kept = plan is not None and plan.level == "namespaces"
        # A GPU's driver may work on within a call for as long as it takes.
        self._call_slack_ns = float("inf") if plan is None or plan.gpu else standstill.CALL_SLACK_NS
        self._still: standstill.Standstill | None = None
        self._unrest: standstill.Unrest | None = None
        self._ended = self.shown = False
        self._paused_at: float | None = None
        self.paused_s = 0.0
        self.meanwhile: Callable[[], None] = lambda: None
        if plan is not None and plan.limits is not None:
            self.meanwhile = Watch(plan.limits, self.processes, log.fileno()).look

    def send(self, message: msgspec.Struct, fds: tuple[int, ...] = ()) -> None:
        """Send a record without waiting for the answer.

        Raises:
            TimeoutError: it does not read.
            WorkerGone: it has ended.
        """
        try:
            self.channel.send(message, fds, timeout_s=END_TIMEOUT_S)
        except ChannelClosed:
            raise self._server.reap(self.pid) from None

    def receive(self, timeout_s: float) -> Any:
        """Return the next record.

        Raises:
            TimeoutError: none came in time; the worker still runs.
            WorkerGone: it has ended.
            ChannelGarbage: it sent something else.
            OverLimit: it, or the candidate that is watched meanwhile, uses more than it may.
        """
        deadline = self.running_s() + timeout_s
        while True:
            self.meanwhile()
            left = deadline - self.running_s()
            if left <= 0:
                raise TimeoutError
            try:
                return self.channel.receive(min(left, _POLL_S))
            except TimeoutError:
                # Its end of the channel may live on in a process that it forked: ask about itself.
                if (code := self._server.look(self.pid)) is not None:
                    raise WorkerGone(code) from None
            except ChannelClosed:
                raise self._server.reap(self.pid) from None

    def await_reply(self, timeout_s: float, building_s: float) -> Any:
        """Return the answer; raises what `receive` raises.

        While children of the worker's use the processor, as compilers do, `building_s` is the time
        for it.
        """
        deadline, before = self.running_s() + building_s, 0.0
        while True:
            try:
                return self.receive(timeout_s)
            except TimeoutError:  # noqa: PERF203 (it waits, it does not compute)
                inside = tree.contained_process(self.pid) if self._kept else self.pid
                worked = 0.0 if inside is None else tree.children_cpu_s(inside)
                if self.running_s() > deadline or worked < before + _LEAST_SHARE * _LOOK_S:
                    raise
                before, timeout_s = worked, _LOOK_S

    def processes(self) -> list[int]:
        """Return all its processes, also those that tried to detach."""
        if self._kept:
            first = tree.first_process(self.pid)
            return [] if first is None else tree.processes_below(tree.children_of(first))
        return tree.processes_below([self.pid, *self._server.orphans()])

    def freeze(self) -> float:
        """Stop everything that it runs; what it has given to a GPU goes on.

        Returns:
            Since when none of it has run, by `time.perf_counter`.

        Raises:
            TimeoutError: some of it does not stop.
        """
        if self._still is None:
            # The process that has just answered is there: stop it before the rest is looked for.
            sender = self.channel.sender
            answered = (sender,) if sender and not self._paused_at else ()
            self._still = standstill.freeze(self.processes, answered)
        return self._still.since_s

    def require_still(self) -> None:
        """See that nothing of it has run since it was stopped, now or in an earlier pause.

        Raises:
            Unrest: something has, or has ended.
        """
        if self._unrest is not None:
            raise self._unrest
        if self._still is not None:
            standstill.require_still(self._still, self.processes, self._call_slack_ns)

    def thaw(self) -> float:
        """Let everything that it runs go on; return `time.perf_counter` right before."""
        self._paused_at = self._still = None
        return standstill.thaw(self.processes)

    def pause(self) -> None:
        """Stop it in the middle of its work, from any thread; no deadline passes meanwhile."""
        self._paused_at = time.monotonic()
        # One that cannot be stopped is judged for it once it has answered.
        with contextlib.suppress(TimeoutError):
            self._paused_at = self.freeze()

    def resume(self) -> None:
        """Let it go on after `pause`."""
        # Anything that it did meanwhile is judged once it is asked something.
        try:
            self.require_still()
        except standstill.Unrest as unrest:
            self._unrest = unrest
        paused_at, resumed_at = self._paused_at, standstill.thaw(self.processes)
        if paused_at is not None:
            self.paused_s += resumed_at - paused_at
        self._paused_at = self._still = None

    def running_s(self) -> float:
        """Return a clock that stands still while the worker is paused."""
        now = time.monotonic() if (since := self._paused_at) is None else since
        return now - self.paused_s

    def ask_where(self) -> None:
        """Have the worker write to its log where it is, and give it a moment to do so."""
        self._server.tell(self.pid, kept=self._kept)
        time.sleep(_TELL_S)

    def log_tail(self, limit_bytes: int = _LOG_TAIL_BYTES) -> str:
        """Return the end of what it printed."""
        size = os.fstat(self._log.fileno()).st_size
        data = os.pread(self._log.fileno(), limit_bytes, max(0, size - limit_bytes))
        return data.decode("utf-8", errors="replace")

    def release(self) -> None:
        """Close the log, once the worker has ended and its log has been read."""
        self._log.close()

    def end(self) -> None:
        """End it and everything that it started."""
        if not self._ended:
            self._ended, self._still = True, None
            self.channel.close()
            # A server that is gone has taken its workers along.
            with contextlib.suppress(KernelgenFault):
                self._server.end(self.pid)


class ForkServer(Server, contextlib.AbstractContextManager["ForkServer"]):
    """The fork server as a context: on leaving it, everything that was started is dead.

    It runs on the cores of the thread that makes it.

    Args:
        folder: exists, and is where it works.
        modules: to import for every worker, besides torch.
        environment: None is that of all workers.

    Raises:
        KernelgenFault: it cannot be started.
    """

    def __init__(
        self,
        folder: Path,
        modules: Sequence[str] = USUAL_MODULES,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        try:
            self._log = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed in `close`)
            self._zygote = ZYGOTES.borrow(environment or worker_environment(), modules)
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise KernelgenFault(f"no fork server can be started: {error}") from error
        super().__init__(ours)
        self._workers: set[int] = set()
        self._finding = threading.Lock()
        self._found: int | None = None
        cores = tuple(sorted(os.sched_getaffinity(0)))
        request = Fork(role="server", scratch=str(folder), environment={}, cores=cores)
        with theirs, contextlib.ExitStack() as unless_asked:
            unless_asked.callback(ZYGOTES.give_back, self._zygote)
            # Not waited for: the zygote may still be importing.
            self._number = self._zygote.post(request, (theirs.fileno(), self._log.fileno()))
            unless_asked.pop_all()
        self._closed = False

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self) -> None:
        """Have it end every worker and itself, from any thread, while another may be asking it.

        A thread that asks gets a KernelgenFault. `close` is still to be called.
        """
        self._control.shut()

    def close(self) -> None:
        """End every worker, then the server."""
        if self._closed:
            return
        self._closed = True
        self._control.close()
        with contextlib.suppress(KernelgenFault):  # then it is gone as well
            self._zygote.ended(self._pid, END_TIMEOUT_S)
            # With what one that was killed has left to its zygote.
            self._zygote.end(self._pid)
        ZYGOTES.give_back(self._zygote)
        self._log.close()

    def fork(
        self, scratch: Path, environment: Mapping[str, str], plan: Plan | None = None
    ) -> Worker:
        """Start a candidate host in what the plan puts around it, or without one an oracle.

        `scratch` exists and is its working folder; its log is a file beside it. The environment
        comes on top of the server's, and that which keeps files in the folder on top of that.
        """
        role: Role = "oracle" if plan is None else "candidate"
        log = (scratch.parent / f"{role}.log").open("wb+")
        ours, theirs = socket.socketpair()
        full = {**environment, **_own_folders(scratch)}
        if plan is None:
            channel = Channel[Any](ours, m.FromOracle, ORACLE_LIMIT_BYTES)
        else:
            full["HOME"] = str(scratch)
            channel = Channel[Any](ours, m.FromCandidate, CANDIDATE_LIMIT_BYTES, one_sender=True)
        request = Fork(role=role, scratch=str(scratch), environment=full, plan=plan)
        with theirs, contextlib.ExitStack() as unless_forked:
            unless_forked.callback(channel.close)
            unless_forked.callback(log.close)
            reply = self.reply(self.post(request, (theirs.fileno(), log.fileno())))
            assert isinstance(reply, Forked)
            unless_forked.pop_all()
        self._workers.add(reply.pid)
        return Worker(self, reply.pid, channel, log, plan)

    def await_fork(self) -> None:
        """Wait until it is there, or will never be."""
        with contextlib.suppress(KernelgenFault):
            _ = self._pid

    @property
    def running(self) -> bool:
        """Whether the server is there."""
        try:
            return not self._closed and self._zygote.look(self._pid) is None
        except KernelgenFault:
            return False

    def own_bytes(self) -> int:
        """Return the memory that the server itself holds, and that every fork begins with."""
        return tree.own_bytes(self._pid)

    def orphans(self) -> list[int]:
        """Return the processes that came to the server from workers that left them behind."""
        return [pid for pid in tree.children_of(self._pid) if pid not in self._workers]

    def end(self, pid: int) -> int:
        """End a worker, as any server does, and know no longer of it."""
        code = super().end(pid)
        self._workers.discard(pid)
        return code

    @property
    def _pid(self) -> int:
        with self._finding:
            if self._found is None:
                reply = self._zygote.reply(self._number)
                assert isinstance(reply, Forked)
                self._found = reply.pid
            return self._found

    def last_words(self) -> str:
        """Return what it, or its zygote, said at last."""
        try:
            code = self._zygote.ended(self._pid, 1.0)
        except KernelgenFault:
            return self._zygote.last_words()
        if code is None:
            return "it does not answer"
        try:
            self._log.seek(0)
            words = self._log.read().decode("utf-8", errors="replace").strip()
        except ValueError:  # closed, by whoever found first that it is gone
            words = ""
        return words[-2000:] or f"it ended with exit code {code}"
