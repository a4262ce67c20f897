"""Processes that fork others when asked: the supervisor's side of `grading/forkserver.py`.

An import of torch takes seconds, a fork none. So a zygote imports once, for all lanes with the
same environment, and the fork servers of lanes and oracles are its forks.
"""

import abc
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from kernelgen.child_python import python_path, start_code
from kernelgen.errors import KernelgenFault
from kernelgen.grading.wire.channel import Channel, ChannelClosed, ChannelGarbage
from kernelgen.grading.wire.forking import Fork, Forked, Look, Looked
from kernelgen.scratch import temporary_folder

FORK_SERVER_CODE = start_code("kernelgen.grading.forkserver", "run()")
END_TIMEOUT_S = 20.0
_START_TIMEOUT_S = 120.0
_EXIT_GRACE_S = 2.0


class WorkerGone(Exception):  # noqa: N818
    """A worker ended before it answered.

    Args:
        by_us: it had closed its channel and went on; the code is that of our signal.
    """

    def __init__(self, exit_code: int, *, by_us: bool = False) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code, self.by_us = exit_code, by_us


class Server(abc.ABC):
    """A process that forks others, asked from several threads.

    Args:
        control: the connection to it.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control: Channel[Forked | Looked] = Channel(control, Forked | Looked)
        self._asking = threading.Lock()
        self._asked = 0
        self._replies: dict[int, Forked | Looked] = {}

    def look(self, pid: int) -> int | None:
        """Return a worker's exit code, or None while it runs."""
        return self._looked(Look(pid=pid))

    def tell(self, pid: int, *, kept: bool) -> None:
        """Have a worker, or the process behind its keeper, write to its log where it is."""
        self._looked(Look(pid=pid, tell=True, kept=kept))

    def reap(self, pid: int) -> WorkerGone:
        """End a worker that has closed its channel; return what to raise for it.

        It is on its way out: a moment's patience makes the code its own, not that of our signal.
        """
        code = self.ended(pid, _EXIT_GRACE_S)
        return WorkerGone(self.end(pid), by_us=code is None)

    def ended(self, pid: int, within_s: float) -> int | None:
        """Return the exit code of a worker that is ending, or None if it has not by then."""
        deadline = time.monotonic() + within_s
        while (code := self.look(pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return code

    def end(self, pid: int) -> int:
        """End a worker and everything that it started; return its exit code."""
        code = self._looked(Look(pid=pid, kill=True))
        assert code is not None
        return code

    def post(self, request: Fork | Look, fds: tuple[int, ...] = ()) -> int:
        """Ask for something; return the number of the reply."""
        with self._asking, self._its_end_is_ours():
            self._asked += 1
            numbered = msgspec.structs.replace(request, number=self._asked)
            self._control.send(numbered, fds, timeout_s=_START_TIMEOUT_S)
            return self._asked

    def reply(self, number: int) -> Forked | Looked:
        """Return the reply of that number, which is there only once."""
        with self._asking, self._its_end_is_ours():
            while number not in self._replies:
                reply = self._control.receive(_START_TIMEOUT_S)
                self._replies[reply.number] = reply
            return self._replies.pop(number)

    def _looked(self, request: Look) -> int | None:
        reply = self.reply(self.post(request))
        assert isinstance(reply, Looked)
        return reply.exit_code

    @contextlib.contextmanager
    def _its_end_is_ours(self) -> Iterator[None]:
        try:
            yield
        except (ChannelClosed, ChannelGarbage, TimeoutError) as error:
            raise KernelgenFault(f"the fork server is gone: {self.last_words()}") from error

    @abc.abstractmethod
    def last_words(self) -> str:
        """Return why it is not there."""


class Zygote(Server):
    """A fork server that was started and has imported: those of the lanes are its forks.

    Args:
        modules: to import besides torch.

    Attributes:
        users: how many of its forks are in use.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str]) -> None:
        self._kept = contextlib.ExitStack()
        # Its imports write there.
        folder = self._kept.enter_context(temporary_folder())
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", FORK_SERVER_CODE, str(theirs.fileno()), *modules],
                pass_fds=(theirs.fileno(),),
                env={**environment, "PYTHONPATH": python_path(environment)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        super().__init__(ours)
        self.users = 0

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it and all its forks."""
        self._control.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Its workers have asked the kernel to be killed with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._kept.close()

    def last_words(self) -> str:
        """Return what it said at last."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        if self._process.poll() is None or self._process.stderr is None:
            return "it does not answer"
        words = self._process.stderr.read().decode("utf-8", errors="replace").strip()
        return words[-2000:] or f"it ended with exit code {self._process.returncode}"


class Zygotes:
    """The zygotes that are in use, by environment and modules."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[object, Zygote] = {}

    def borrow(self, environment: Mapping[str, str], modules: Sequence[str]) -> Zygote:
        """Return a zygote, started if there is none; may raise OSError."""
        key = (*sorted(environment.items()), *modules)
        with self._lock:
            found = self._known.get(key)
            if found is None or not found.running:
                found = self._known[key] = Zygote(environment, modules)
            found.users += 1
            return found

    def give_back(self, zygote: Zygote) -> None:
        """End a zygote that nobody uses any more."""
        with self._lock:
            zygote.users -= 1
            if zygote.users:
                return
            self._known = {key: one for key, one in self._known.items() if one is not zygote}
        zygote.close()


ZYGOTES = Zygotes()
