"""A lane: files graded one after another, with one fork server for all of them.

Several lanes may be open in one process, each used by a thread of its own; `crew` does that. They
share nothing but the lock that keeps the others out while a file is timed.
"""

import contextlib
import platform
import threading
from collections.abc import Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import kernelgen
from kernelgen.errors import KernelgenFault
from kernelgen.grading.launch import worker_environment
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.supervisor.file_grading import FileGrading
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.timing_lock import LockStopped, TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Verdict
from kernelgen.grading.wire.forking import COMPILER_MODULES, USUAL_MODULES


def versions(imports: Sequence[str] = ()) -> dict[str, Any]:
    """Return what of a run's environment is known before anything is graded.

    Args:
        imports: modules that solutions may import; the times of one that does are of its package's
            version, so it is named under `imports`, where it is installed as a package.
    """
    known = {"kernelgen": kernelgen.__version__, "python": platform.python_version()}
    if not imports:
        return known
    installed = packages_distributions()
    packages = dict.fromkeys(name for module in imports for name in installed.get(module, ()))
    named = ", ".join(f"{name} {version(name)}" for name in packages)
    return {**known, "imports": named} if named else known


def open_oracles(scratch: Path, *, compiles: bool) -> Oracles:
    """Return oracles for one lane or several, in a new folder below `scratch`.

    Raises:
        KernelgenFault: their fork server cannot be started.
    """
    folder = scratch / "oracles"
    folder.mkdir()
    return Oracles(folder, TimingLock(), COMPILER_MODULES if compiles else USUAL_MODULES)


class LaneStopped(Exception):  # noqa: N818 (an ending, not an error)
    """The lane was stopped: there is no verdict, and everything that it had started is ending."""


class Lane(contextlib.AbstractContextManager["Lane"]):
    """A fork server for candidates, and a new one where a candidate has ended it.

    The server takes its environment and its cores from the thread that makes the lane. On leaving
    the context, everything that was started is dead.

    Args:
        scratch: an empty folder, the lane's own.
        compiles: whether torch.compile is likely to be timed: its modules are imported once, then.
        oracles: what it shares with other lanes; else it has its own.

    Attributes:
        environment: facts about the versions and, once a device was used, about it.

    Raises:
        KernelgenFault: the fork server cannot be started.
    """

    def __init__(
        self,
        scratch: Path,
        *,
        compiles: bool = False,
        oracles: Oracles | None = None,
    ) -> None:
        self._scratch = scratch
        self._folder = scratch / "start"
        self._folder.mkdir()
        self._stopped = threading.Event()
        self._server = self._new_server()
        self._own: Oracles | None = None
        if oracles is None:
            oracles = self._own = open_oracles(scratch, compiles=compiles)
        self._oracles, self._lock = oracles, oracles.lock
        self.environment = versions()

    def __exit__(self, *_: object) -> None:
        self._server.close()
        if self._own is not None:
            self._own.close()

    def grade_one(
        self,
        path: Path,
        options: GradeOptions,
        index: int,
        observer: Observer,
        *,
        alone: bool = False,
    ) -> Verdict:
        """Grade a file.

        `index` is a number that no other file of this lane has. The observer is told of the phases,
        in the calling thread; not of the verdict. `alone` lets no other lane work meanwhile.

        Raises:
            LaneStopped: by `stop`.
        """
        one = FileGrading(path, options, index, observer, self._oracles)
        one.stop = self._stopped
        with contextlib.suppress(LockStopped), contextlib.ExitStack() as held:
            if alone:
                held.enter_context(self._lock.working())
                held.enter_context(self._lock.alone())
            verdict = one.verdict(self._present, self._scratch)
        if self._stopped.is_set():
            # What it says may be our own doing.
            raise LaneStopped
        self.environment |= one.environment
        return verdict

    def stop(self) -> None:
        """End what runs, from any thread: `grade_one` raises LaneStopped, now and from now on."""
        self._stopped.set()
        self._server.stop()
        if self._own is not None:
            self._own.stop()

    def _new_server(self) -> ForkServer:
        try:
            return ForkServer(worker_environment(), self._folder, ())
        except OSError as error:
            raise KernelgenFault(f"no fork server can be started: {error}") from error

    def _present(self) -> ForkServer:
        """Return a server that runs."""
        if not self._server.running:
            self._server.close()
            self._server = self._new_server()
        # Last: `stop` either ended the server that is returned, or is seen here.
        if self._stopped.is_set():
            raise LaneStopped
        return self._server
