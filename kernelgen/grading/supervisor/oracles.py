"""The oracles of a run, each for one problem, and lent to one candidate after another.

What an oracle has prepared for a problem (its code, the baselines under torch.compile, the rates of
the device) serves every candidate. What is secret or a candidate's own is made anew for each: the
seed, and so parameters and inputs, and the memory through which tensors cross. Where an oracle is
cheap, candidates of one problem that are graded at once have one each.
"""

import contextlib
import hashlib
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec

from kernelgen.errors import KernelgenFault
from kernelgen.grading.launch import cores_aside
from kernelgen.grading.supervisor.main_case import Rates
from kernelgen.grading.supervisor.oracle_client import OracleClient
from kernelgen.grading.supervisor.timing_lock import Room, TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.forking import USUAL_MODULES

# Idle oracles wait for a candidate that may not come; a context takes most of a GB of a GPU.
_MOST_IDLE = 2
# Of so many problems it is remembered what they are; one that comes back later is looked at again.
_MOST_PREVIEWS = 256
_CHECK_TIMEOUT_S = 60.0
# After one of these the oracle itself, or the device, may not be what it was.
_NOT_LENT_AGAIN = (
    Status.TAMPERED,
    Status.GRADER_ERROR,
    Status.INVALID_PROBLEM,
    Status.OUT_OF_MEMORY,
    Status.TIMEOUT,
)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a problem before any candidate is built.

    Attributes:
        main: sizes of its main case; None where they are not known.
    """

    ready: m.OracleReady
    main: m.CaseBytes | None


class Oracles:
    """A fork server for oracles, and the oracles that run.

    The server takes its environment from the process. On `close`, every oracle is dead.

    Args:
        scratch: an empty folder, its own.
        modules: that the server imports for all of them.
        lock: keeps what is prepared in the background away from what is timed.

    Attributes:
        lock: the same.
        room: for main cases of several candidates.
        rates: of devices, as far as they were measured while a candidate was timed.

    Raises:
        OSError: the server cannot be started.
    """

    def __init__(
        self, scratch: Path, lock: TimingLock, modules: Sequence[str] = USUAL_MODULES
    ) -> None:
        self._scratch, self.lock, self._modules = scratch, lock, modules
        self.room = Room(lock)
        self._started = 0
        self._change = threading.Condition()
        # A key at nought is forgotten: a run may see any number of problems.
        self._live: Counter[str] = Counter()
        self._idle: list[tuple[str, OracleClient]] = []
        self._previews: OrderedDict[str, Preview] = OrderedDict()
        self._expected: Counter[str] = Counter()
        self._threads: list[threading.Thread] = []
        self.rates: Rates = {}
        self._stopped = False
        self._server = self._new_server()

    def stop(self) -> None:
        """End what runs, from any thread; who waits or asks gets a KernelgenFault."""
        with self._change:
            self._stopped = True
            self.lock.stop()
            self.room.stop()
            self._change.notify_all()
            self._server.stop()

    def close(self) -> None:
        """End every oracle, then the server."""
        self.stop()
        for thread in self._threads:
            thread.join()
        self.end_idle()
        self._server.close()

    def preview(
        self, setup: m.SetUpOracle, environment: Mapping[str, str], *, compiles: tuple[str, ...]
    ) -> Future[Preview]:
        """Have an oracle say what a problem is on its device, unless that is known.

        It happens beside the caller, as soon as nobody is timed. The future raises Judged if the
        problem cannot be graded there.

        Args:
            setup: as for `lend`.
            environment: as for `lend`.
            compiles: baselines to be compiled after that.
        """
        found: Future[Preview] = Future()
        key = _key(setup, environment)
        with self._change:
            known = self._previews.get(key)
        if known is not None:
            found.set_result(known)
            return found

        def ask(prepared: tuple[str, ...]) -> None:
            try:
                with self.lock.working(), self.lend(setup, environment) as oracle:
                    first = self._first_look(oracle, setup)
                    self._remember(key, first)
                    found.set_result(first)
                    if prepared:
                        # That takes no memory of the device. On other cores than what is timed it
                        # goes on meanwhile; else it stands still.
                        aside = cores_aside() if setup.device == "cuda" else ()
                        still = self.lock.pausable(oracle.worker.pause, oracle.worker.resume)
                        with self.lock.resting() if aside else still:
                            oracle.ask(m.CompileBaselines(names=prepared, cores=aside))
            except BaseException as error:  # noqa: BLE001 (the outermost frame of a thread)
                # A failure in preparing will come again where it is judged.
                if not found.done():
                    found.set_exception(error)

        if self.lock.is_mine:
            ask(())
        else:
            thread = threading.Thread(target=ask, args=(compiles,), name="kernelgen-preview")
            with self._change:
                self._threads = [one for one in self._threads if one.is_alive()]
                thread.start()
                self._threads.append(thread)
        return found

    def _remember(self, key: str, preview: Preview) -> None:
        with self._change:
            self._previews[key] = preview
            while len(self._previews) > _MOST_PREVIEWS:
                self._previews.popitem(last=False)

    def _first_look(self, oracle: OracleClient, setup: m.SetUpOracle) -> Preview:
        ready = oracle.ask(setup)
        main = oracle.ask(m.MeasureCase(case=0))
        self.lock.on_device(ready.device_uuid)
        return Preview(ready=ready, main=main)

    @contextlib.contextmanager
    def expected(self, setup: m.SetUpOracle, environment: Mapping[str, str]) -> Iterator[None]:
        """Keep what there is for a problem meanwhile."""
        key = _key(setup, environment)
        with self._change:
            self._expected[key] += 1
        try:
            yield
        finally:
            with self._change:
                self._expected -= Counter((key,))

    @contextlib.contextmanager
    def lend(
        self,
        setup: m.SetUpOracle,
        environment: Mapping[str, str],
        waiting: Callable[[], None] = lambda: None,
        *,
        cheap: bool = False,
    ) -> Iterator[OracleClient]:
        """Lend an oracle for a problem, to be set up with a seed of the borrower's own.

        One that was not healthy to the end, and one whose borrower calls for it, ends afterwards.

        Args:
            setup: what it is to be set up with; all but the seed decides which one is lent.
            environment: of its process, on top of the user's; CUDA_VISIBLE_DEVICES above all.
            waiting: called before it waits for another borrower.
            cheap: start another one rather than wait.

        Raises:
            KernelgenFault: none can be started.
        """
        key = _key(setup, environment)
        # Until it has imported: nobody is to wait for that within the lock, such as to build.
        self._server.await_fork()
        oracle = self._take(key, waiting, cheap=cheap) or self._start(key, environment)
        keep = False
        try:
            yield oracle
            keep = True
        except Judged as judged:
            keep = judged.status not in _NOT_LENT_AGAIN
            raise
        finally:
            self._give_back(key, oracle, keep=keep and self._at_rest(oracle))

    def _take(self, key: str, waiting: Callable[[], None], *, cheap: bool) -> OracleClient | None:
        """Return one of the problem's, once it is idle, or None where one is to be started."""
        # A session that has the device alone cannot wait for those that wait for it.
        at_once = cheap or self.lock.is_mine

        def may_take() -> bool:
            idle = any(of == key for of, _ in self._idle)
            return self._stopped or idle or not self._live[key] or at_once

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
        self._require_server()
        for number, (of, oracle) in enumerate(self._idle):
            if of == key:
                del self._idle[number]
                return oracle
        self._live[key] += 1
        return None

    def _require_server(self) -> None:
        if self._stopped:
            raise KernelgenFault("the oracles were stopped")
        if not self._server.running:
            # Its oracles went with it.
            self.end_idle()
            self._server.close()
            self._server = self._new_server()

    def failure_alone(self, setup: m.SetUpOracle, environment: Mapping[str, str]) -> str:
        """Return how a new oracle fails on its device, "" if it does not; no candidate is there."""
        key = _key(setup, environment)
        with self._change:
            self._require_server()
            self._live[key] += 1
        try:
            oracle = self._start(key, environment)
            try:
                oracle.ask(setup)
                oracle.ask(m.CheckDevice(), _CHECK_TIMEOUT_S)
            finally:
                self._give_back(key, oracle, keep=False)
        except (Judged, KernelgenFault) as failed:
            # No room for two numbers says nothing about the device.
            no_room = isinstance(failed, Judged) and failed.status is Status.OUT_OF_MEMORY
            return "" if no_room else str(failed)
        return ""

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
        return ForkServer(folder, self._modules)

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
            unexpected = [one for one in self._idle if not self._expected[one[0]]]
            for pair in unexpected[: max(0, len(unexpected) - _MOST_IDLE)]:
                self._idle.remove(pair)
                ended.append(pair)
            self._change.notify_all()
        self._end(ended)

    def end_idle(self) -> None:
        """End the oracles that nobody has borrowed: what they keep is memory of the device."""
        with self._change:
            ended, self._idle = self._idle, []
        self._end(ended)

    def _end(self, ended: Iterable[tuple[str, OracleClient]]) -> None:
        for of, one in ended:
            one.end()
            self._forget(of)
            shutil.rmtree(one.folder.parent, ignore_errors=True)

    def _forget(self, key: str) -> None:
        with self._change:
            self._live -= Counter((key,))
            self._change.notify_all()


def _key(setup: m.SetUpOracle, environment: Mapping[str, str]) -> str:
    """Return what two candidates must have in common to get the same oracle: all but the seed."""
    whole = (msgspec.structs.replace(setup, seed=""), sorted(environment.items()))
    return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()
