"""Grading on a Ray cluster: the same crew, whose lanes hand each file to a worker elsewhere.

Ray places workers and builds, carries files and what was built, and notices what is lost. Which
file comes next, retries, the journal and cancelling are `Crew`'s.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions, Phase
from kernelgen.grading.queue.job import AnyLane, Job, LaneLost, LaneStopped, release
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.verdict import Verdict
from kernelgen.service import node
from kernelgen.service.far_lane import FarLane
from kernelgen.service.joining import import_ray, join
from kernelgen.service.node import Facts

_SURVEY_S = 120.0
_POLL_S = 0.2
_CLOSE_S = 20.0
# While other workers are there, one waits for its GPU as long as the run lasts.
_PATIENCE_S = 600.0
_STARTS = 3


class Cluster(Crew):
    """Grades files on an existing Ray cluster; what `Crew` is on one machine.

    It has one worker a GPU, or one a node where there are none, so that what is timed is alone.
    Joins the cluster at once, unless the program has joined one already; leaving the context ends
    all that it has there.

    Args:
        address: as `ray.init` takes it: `auto`, or HOST:PORT.
        options: of the run: how workers are prepared.
        jobs: how many files a worker builds and checks at once; None is what suits the nodes.
        journal: has verdicts that are not made again, and gets the others as they are made.

    Raises:
        UserError: Ray is not installed, the cluster cannot be reached, or a node has another
            kernelgen, torch or Python, or lacks what the options ask for.
    """

    def __init__(
        self,
        address: str = "auto",
        options: GradeOptions | None = None,
        *,
        jobs: int | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._ray = import_ray()
        self._asked = options or GradeOptions()
        self._joined = join(self._ray, address)
        try:
            gpus = self._asked.device != "cpu" and bool(self._ray.cluster_resources().get("GPU"))
            surveyed = self._survey("GPU" if gpus else "CPU", address)
        except BaseException:
            self._leave()
            raise
        self._places = _places([one for one, _ in surveyed], gpus=gpus)
        # A CPU's times suffer from compilers, so that there each worker builds in its turn.
        self._builds_apart = gpus and self._ray.cluster_resources().get("CPU", 0) >= 1
        self._jobs = jobs or min(found.jobs for _, found in surveyed)
        self._changing = threading.Lock()
        self._workers: dict[str, Any] = {}
        self._up: set[str] = set()
        super().__init__(self._jobs * len(self._places), gpus=tuple(self._places), journal=journal)
        # On one kind of node, these are as they would be there without Ray.
        kinds = sorted({found.devices for _, found in surveyed})
        self.devices = tuple(dict.fromkeys(name for kind in kinds for name in kind))

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)
        finally:
            with self._changing:
                workers, self._workers = self._workers, {}
            with contextlib.suppress(self._ray.exceptions.RayError):
                closing = [workers[gpu].close.remote() for gpu in workers if gpu in self._up]
                self._ray.wait(closing, num_returns=len(closing) or 1, timeout=_CLOSE_S)
            for worker in workers.values():
                self._ray.kill(worker)
            self._leave()

    def _leave(self) -> None:
        if self._joined:
            self._ray.shutdown()

    def _survey(self, kind: str, address: str) -> list[tuple[Mapping[str, Any], Facts]]:
        """Return the nodes that have a GPU or a CPU, and what each says of itself."""
        found = self._ray.nodes()
        nodes = [one for one in found if one["Alive"] and one["Resources"].get(kind, 0) >= 1]
        task = self._ray.remote(num_cpus=0, max_retries=2)(node.facts)
        asked = [
            task.options(scheduling_strategy=_on(one["NodeID"])).remote(
                self._asked, int(one["Resources"].get("GPU", 0))
            )
            for one in nodes
        ]
        surveyed: list[tuple[Mapping[str, Any], Facts]] = []
        for one, reference in zip(nodes, asked, strict=True):
            # One that is lost may be among the nodes until Ray notices.
            with contextlib.suppress(self._ray.exceptions.RayError):
                surveyed.append((one, self._told(one["NodeManagerHostname"], reference)))
        if not surveyed:
            raise UserError(f"--ray {address}: no node of the cluster has a {kind} to offer")
        return surveyed

    def _told(self, host: str, reference: Any) -> Facts:
        """Return what a node says of itself.

        Raises:
            UserError: it is not fit for the run.
            RayError: it does not answer.
        """
        try:
            found: Facts = self._ray.get(reference, timeout=_SURVEY_S)
        except self._ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, UserError):
                raise type(cause)(f"node {host}: {cause}") from error
            raise UserError(
                f"node {host} cannot run kernelgen: {_last_line(error)}; install the same "
                "kernelgen there"
            ) from error
        own = release()
        for name in own:
            if found.release.get(name) != own[name]:
                raise UserError(
                    f"node {host} has another {name} than this machine: "
                    f"{found.release.get(name)}, not {own[name]}; install the same on both"
                )
        return found

    def _start_shared(self) -> None:
        """Nothing: lanes share workers, which are started as they are opened."""

    @contextlib.contextmanager
    def _opened(self, number: int, gpu: str) -> Iterator[AnyLane]:
        del number
        worker, found = self._started(gpu)
        try:
            yield _RayLane(self._ray, worker, found, builds_apart=self._builds_apart)
        except LaneLost:
            self._drop(gpu, worker)
            raise

    def _started(self, gpu: str) -> tuple[Any, Facts]:
        """Return the worker on a GPU or node, once it is there."""
        for attempt in range(1, _STARTS + 1):
            with self._changing:
                worker = self._workers.get(gpu) or self._start_worker(gpu)
            reference = worker.facts.remote()
            deadline = time.monotonic() + _PATIENCE_S
            while not _is_done(self._ray, reference):
                if self._queue.closed:
                    raise LaneStopped
                if self._lanes:
                    deadline = time.monotonic() + _PATIENCE_S
                elif time.monotonic() > deadline:
                    raise KernelgenFault(
                        f"the cluster has started no worker within {_PATIENCE_S:g} s; "
                        "`ray status` shows what it is short of"
                    )
            try:
                found = self._told(gpu, reference)
            except (UserError, self._ray.exceptions.RayError) as error:
                self._drop(gpu, worker)
                if attempt == _STARTS:
                    raise KernelgenFault(f"no worker starts on {gpu}: {error}") from error
                continue
            if not set(found.devices) <= set(self.devices or ()):
                raise KernelgenFault(f"node {found.host} has other devices than the run began with")
            with self._changing:
                self._up.add(gpu)
            return worker, found
        raise AssertionError

    def _start_worker(self, gpu: str) -> Any:
        actor = self._ray.remote(node.Worker).options(
            max_concurrency=2 * self._jobs + 2, **self._places[gpu]
        )
        worker = self._workers[gpu] = actor.remote(self._asked, self._jobs)
        return worker

    def _drop(self, gpu: str, worker: Any) -> None:
        """End a worker that is of no use, if it still runs; the next lane starts another."""
        with self._changing:
            if self._workers.get(gpu) is worker:
                del self._workers[gpu]
                self._up.discard(gpu)
        self._ray.kill(worker)


class _RayLane(FarLane):
    """A lane whose files are graded by a worker of the cluster, which it may share with others."""

    def __init__(self, ray: Any, worker: Any, found: Facts, *, builds_apart: bool) -> None:
        super().__init__()
        self._ray, self._worker, self._found = ray, worker, found
        self._builds_apart = builds_apart

    def grade_ready(self, ready: Job, number: int, phase: Phase, stop: threading.Event) -> Verdict:
        """Grade a file; raises LaneStopped, and LaneLost where the worker is gone."""
        phase(f"on {self._found.host}")
        errors = self._ray.exceptions
        try:
            reply = self._worker.grade.remote(number, ready, self._built(ready))
            while not _is_done(self._ray, reply):
                if self._stopped.is_set():
                    raise LaneStopped
                if stop.is_set():
                    # Again and again: it may not have arrived before.
                    self._worker.cancel.remote(number)
            if stop.is_set():
                raise LaneStopped
            data, self.environment = self._ray.get(reply)
        except errors.RayTaskError as error:
            return ready.fault(f"on {self._found.host}: {_last_line(error)}")
        except errors.RayError as error:
            if self._stopped.is_set() or stop.is_set():
                raise LaneStopped from error
            raise LaneLost(f"{self._found.host}: {str(error).splitlines()[0]}") from error
        return msgspec.json.decode(data, type=Verdict)

    def _built(self, job: Job) -> list[Any]:
        """Have what a file builds compiled wherever there is a CPU, as a reference to it."""
        if not self._builds_apart or job.options.build_cache is None:
            return []
        # With containment off, a candidate is seen without it, its build included.
        if job.options.sandbox == "off":
            return []
        build = self._ray.remote(num_cpus=1, max_retries=2)(node.build)
        return [build.remote(job, self._found.capability)]


def _is_done(ray: Any, reference: Any) -> bool:
    """Wait a moment for a reply; return whether it is there."""
    return bool(ray.wait([reference], timeout=_POLL_S, fetch_local=False)[0])


def _places(nodes: Sequence[Mapping[str, Any]], *, gpus: bool) -> dict[str, dict[str, Any]]:
    """Return what each worker asks of Ray, by the worker's name."""
    if gpus:
        count = int(sum(one["Resources"]["GPU"] for one in nodes))
        return {f"GPU {number}": {"num_gpus": 1, "num_cpus": 0} for number in range(count)}
    return {
        f"{one['NodeManagerHostname']} {one['NodeID'][:8]}": {
            # All of them, so that nobody else's work is timed with ours.
            "num_cpus": int(one["Resources"]["CPU"]),
            "scheduling_strategy": _on(one["NodeID"]),
        }
        for one in nodes
    }


def _on(node_id: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def _last_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1]
