"""The oracles of a run: one for a problem, lent to one candidate after another.

What an oracle has prepared for a problem (its code, the baselines under torch.compile, the rates of
the device) serves every candidate. What is secret or a candidate's own is made anew for each: the
seed, and so parameters and inputs, and the memory through which tensors cross.
"""

import contextlib
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.grading.judged import Judged
from kernelgen.grading.launch import worker_environment
from kernelgen.grading.supervisor.oracle_client import OracleClient
from kernelgen.grading.supervisor.timing_lock import LockStopped, TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.timing.quiet import Quiet
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.forking import USUAL_MODULES

# So many wait for the next candidate on their problem; a context takes most of a GB of a GPU.
_MOST_IDLE = 2
# After one of these the oracle itself, or the device, may not be what it was.
_NOT_LENT_AGAIN = (
    Status.TAMPERED,
    Status.GRADER_ERROR,
    Status.INVALID_PROBLEM,
    Status.OUT_OF_MEMORY,
    Status.TIMEOUT,
)
_SMALL_BYTES = 1 << 30


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a problem before any candidate is built.

    Attributes:
        probes: writes of the oracle's own on a GPU, with no candidate of this problem about.
    """

    ready: m.OracleReady
    fits: m.Fits
    probes: tuple[m.Probed, ...]


class Oracles:
    """A fork server for oracles, and the oracles that run.

    The server takes its environment from the process. On `close`, every oracle is dead.

    Args:
        scratch: an empty folder, its own.
        modules: that the server imports for all of them.
        lock: keeps what is prepared in the background away from what is timed.

    Attributes:
        lock: the same.

    Raises:
        OSError: the server cannot be started.
    """

    def __init__(
        self, scratch: Path, lock: TimingLock, modules: Sequence[str] = USUAL_MODULES
    ) -> None:
        self._scratch, self.lock, self._modules = scratch, lock, modules
        self._started = 0
        self._change = threading.Condition()
        self._large = threading.Lock()
        self._live: dict[str, int] = {}
        self._idle: list[tuple[str, OracleClient]] = []
        self._previews: dict[str, Preview] = {}
        self._preparing: list[threading.Thread] = []
        self._stopped = False
        self._server = self._new_server()

    def stop(self) -> None:
        """End what runs, from any thread; who waits or asks gets a KernelgenFault."""
        with self._change:
            self._stopped = True
            self.lock.stop()
            self._change.notify_all()
            self._server.stop()

    def close(self) -> None:
        """End every oracle, then the server."""
        self.stop()
        for thread in self._preparing:
            thread.join()
        for _, oracle in self._idle:
            oracle.end()
        self._idle.clear()
        self._server.close()

    def preview(
        self, setup: m.SetUpOracle, environment: Mapping[str, str], *, compiles: tuple[str, ...]
    ) -> Preview:
        """Return what a problem is on its device; asked for the first time, an oracle says it.

        Args:
            setup: as for `lend`.
            environment: as for `lend`.
            compiles: baselines to be prepared in the background, once that is known.

        Raises:
            Judged: the problem cannot be graded there.
        """
        key = _key(setup, environment)
        if (known := self._previews.get(key)) is not None:
            return known
        with self.lend(setup, environment) as oracle:
            ready = oracle.ask(setup)
            fits = oracle.ask(m.MeasureCase(case=0))
            self.lock.on_device(ready.device_uuid)
            quiet = Quiet(lambda: oracle.ask(m.Probe()), sleep)
            probes = tuple(quiet.before()) if setup.device == "cuda" else ()
        found = self._previews[key] = Preview(ready=ready, fits=fits, probes=probes)
        if compiles:
            self._prepare(setup, environment, compiles, fits)
        return found

    @contextlib.contextmanager
    def lend(
        self,
        setup: m.SetUpOracle,
        environment: Mapping[str, str],
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[OracleClient]:
        """Lend an oracle for a problem, to be set up with a seed of the borrower's own.

        One that was not healthy to the end, and one whose borrower calls for it, ends afterwards.

        Args:
            setup: what it is to be set up with; all but the seed decides which one is lent.
            environment: of its process, on top of the user's; CUDA_VISIBLE_DEVICES above all.
            waiting: called before it waits for another borrower.

        Raises:
            KernelgenFault: none can be started.
        """
        key = _key(setup, environment)
        oracle = self._take(key, waiting) or self._start(key, environment)
        keep = False
        try:
            yield oracle
            keep = True
        except Judged as judged:
            keep = judged.status not in _NOT_LENT_AGAIN
            raise
        finally:
            self._give_back(key, oracle, keep=keep and self._at_rest(oracle))

    def _take(self, key: str, waiting: Callable[[], None]) -> OracleClient | None:
        """Return the problem's, once it is idle, or None where one is to be started."""
        alone = self.lock.is_mine

        def may_take() -> bool:
            # Who has the device alone cannot wait for those who wait for it.
            return self._stopped or self._is_idle(key) or not self._live.get(key) or alone

        told = False
        while True:
            with self._change:
                if may_take():
                    return self._taken(key)
            if not told:
                told = True
                waiting()
            # Whoever is timed meanwhile may be the one that is waited for.
            with self.lock.resting(), self._change:
                self._change.wait_for(may_take)

    def _taken(self, key: str) -> OracleClient | None:
        if self._stopped:
            raise KernelgenFault("the oracles were stopped")
        if not self._server.running:
            # Its oracles went with it.
            for of, oracle in self._idle:
                oracle.end()
                self._live[of] -= 1
            self._idle.clear()
            self._server.close()
            self._server = self._new_server()
        for number, (of, oracle) in enumerate(self._idle):
            if of == key:
                del self._idle[number]
                return oracle
        self._live[key] = self._live.get(key, 0) + 1
        return None

    def _is_idle(self, key: str) -> bool:
        return any(of == key for of, _ in self._idle)

    def _start(self, key: str, environment: Mapping[str, str]) -> OracleClient:
        try:
            with self._change:
                self._started += 1
                folder = self._scratch / str(self._started) / "oracle"
            folder.mkdir(parents=True)
            return OracleClient(self._server, folder, environment)
        except BaseException:
            self._forget(key)
            raise

    def _new_server(self) -> ForkServer:
        folder = Path(tempfile.mkdtemp(prefix="server-", dir=self._scratch))
        try:
            return ForkServer(worker_environment(), folder, self._modules)
        except OSError as error:
            raise KernelgenFault(f"no fork server can be started: {error}") from error

    def _at_rest(self, oracle: OracleClient) -> bool:
        """Have it let go of what was its last borrower's."""
        if not oracle.healthy:
            return False
        with contextlib.suppress(Judged, KernelgenFault):
            oracle.ask(m.Rest())
        return oracle.healthy

    def _give_back(self, key: str, oracle: OracleClient, *, keep: bool) -> None:
        ended = [] if keep else [(key, oracle)]
        with self._change:
            if keep:
                self._idle.append((key, oracle))
            while len(self._idle) > _MOST_IDLE:
                ended.append(self._idle.pop(0))
            self._change.notify_all()
        for of, one in ended:
            one.end()
            self._forget(of)
            shutil.rmtree(one.folder.parent, ignore_errors=True)

    def _forget(self, key: str) -> None:
        with self._change:
            self._live[key] -= 1
            self._change.notify_all()

    def _prepare(
        self,
        setup: m.SetUpOracle,
        environment: Mapping[str, str],
        names: tuple[str, ...],
        fits: m.Fits,
    ) -> None:
        """Prepare baselines beside other work; what fails will fail again where it is judged."""

        def prepare() -> None:
            # Two large ones at once might not fit.
            small = fits.tensor_bytes is not None and fits.tensor_bytes < _SMALL_BYTES
            with (
                contextlib.suppress(Judged, KernelgenFault, LockStopped),
                contextlib.nullcontext() if small else self._large,
                self.lock.working(),
                self.lend(setup, environment) as oracle,
            ):
                oracle.ask(_with_new_seed(setup))
                oracle.ask(m.PrepareBaselines(names=names))

        thread = threading.Thread(target=prepare, name="kernelgen-baselines")
        self._preparing.append(thread)
        thread.start()


def _with_new_seed(setup: m.SetUpOracle) -> m.SetUpOracle:
    return msgspec.structs.replace(setup, seed=secrets.token_hex(16))


def _key(setup: m.SetUpOracle, environment: Mapping[str, str]) -> str:
    """Return what two candidates must have in common to get the same oracle: all but the seed."""
    whole = (msgspec.structs.replace(setup, seed=""), sorted(environment.items()))
    return msgspec.json.encode(whole).decode()
