"""The part that runs on nodes of a Ray cluster: facts, builds, and a worker that grades.

Ray finds these by their names, so that a node needs the same kernelgen. Nothing here imports Ray
before it runs in one of its processes.
"""

import contextlib
import os
import platform
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.build.prebuild import Wanted, prebuild
from kernelgen.build.store import BuildStore
from kernelgen.build.toolchain import builds_folder
from kernelgen.errors import KernelgenFault
from kernelgen.grading.options import GradeOptions, compiles_baselines
from kernelgen.grading.queue.job import Job, devices, release
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import require_tools, usual_jobs
from kernelgen.grading.supervisor.prebuilding import told_alone
from kernelgen.grading.verdict import Verdict
from kernelgen.hardware.device import VISIBLE_GPUS, capability_of, visible_gpus
from kernelgen.solution.file import read_solution


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a node tells of itself.

    Attributes:
        host: its name.
        release: of kernelgen, torch and Python; the driver's has to be the same.
        devices: that verdicts depend on.
        jobs: how many files to build and check at once on one of its GPUs.
        capability: of its first GPU that is seen, such as (9, 0); None without one.
    """

    host: str
    release: dict[str, str]
    devices: tuple[str, ...]
    jobs: int
    capability: tuple[int, int] | None


def facts(options: GradeOptions, gpus: int) -> Facts:
    """Return the facts of a node with this many GPUs; with none, of what a worker there sees.

    Raises:
        UserError: it lacks what the options ask for.
    """
    require_tools(options)
    if gpus:
        # Ray hides them from a task that takes none.
        os.environ.pop(VISIBLE_GPUS, None)
    seen = visible_gpus(1)
    return Facts(
        host=platform.node(),
        release=release(),
        devices=devices(),
        jobs=usual_jobs(options, max(1, gpus)),
        capability=capability_of(seen[0]) if seen else None,
    )


def build(job: Job, capability: tuple[int, int] | None) -> dict[str, bytes]:
    """Compile what a candidate builds, or find it kept here; return the entries of a build store.

    They are none where this node cannot build it: who grades it then says why.

    Args:
        job: with its problem and its content.
        capability: of the GPU to build for.
    """
    problem = job.options.problem
    assert problem is not None, "the driver finds it"
    solution = read_solution(job.path, job.data)
    device = solution.wants if job.options.device == "auto" else job.options.device
    if device == "cuda" and capability is None:
        return {}
    wanted = Wanted(
        solution=solution,
        reference_source=problem.reference_source(problem.all_cases()[0], device),
        capability=capability if device == "cuda" else None,
        timeout_s=job.options.build_timeout_s,
        tell=told_alone,
    )
    kept: dict[str, bytes] = {}
    if (folder := _builds()) is not None:
        with contextlib.suppress(KernelgenFault, OSError):
            prebuild(wanted, _Noting(folder, kept))
    return kept


class _Noting(BuildStore):
    """A store that notes the entries that are used."""

    def __init__(self, folder: Path, used: dict[str, bytes]) -> None:
        super().__init__(folder)
        self._used = used

    def get(self, key: str) -> bytes | None:
        if (data := super().get(key)) is not None:
            self._used[key] = data
        return data

    def put(self, key: str, data: bytes) -> None:
        self._used[key] = data
        super().put(key, data)


class Worker:
    """A Ray actor: a crew on one GPU, or on a node without, that stays warm for the whole run."""

    def __init__(self, options: GradeOptions, jobs: int) -> None:
        self._options = options
        self._futures: dict[int, Future[Verdict]] = {}
        self._crew = Crew(jobs, compiles=compiles_baselines(options))

    def facts(self) -> Facts:
        """Return the facts as seen from here; raises what `facts` raises."""
        return facts(self._options, 0)

    def grade(self, number: int, job: Job, built: Sequence[Any]) -> tuple[bytes, dict[str, Any]]:
        """Grade a file.

        Args:
            number: that no other file of the run has.
            job: with its problem and its content; its folder for builds is one of the driver's.
            built: a reference to the entries that `build` returns; or nothing.

        Returns:
            The verdict as JSON, and facts about the environment.

        Raises:
            KernelgenFault: the grader's processes cannot be started.
        """
        folder = None if job.options.build_cache is None else _builds()
        options = msgspec.structs.replace(job.options, gpu=None, build_cache=folder)
        if folder is not None:
            _keep(built, BuildStore(folder), options.build_timeout_s)
        future = self._crew.submit(msgspec.structs.replace(job, options=options))
        self._futures[number] = future
        try:
            return msgspec.json.encode(future.result()), self._crew.environment
        finally:
            del self._futures[number]

    def cancel(self, number: int) -> None:
        """End a file, if it is here; `grade` then raises."""
        if (future := self._futures.get(number)) is not None:
            self._crew.cancel(future)

    def close(self) -> None:
        """End everything that was started."""
        self._crew.__exit__()


def _keep(built: Sequence[Any], store: BuildStore, patience_s: float) -> None:
    """Put what was built elsewhere into this node's store, once it is there.

    Where it was lost, or the cluster has no CPU to spare, it is built here.
    """
    import ray
    from ray.exceptions import RayError

    with contextlib.suppress(RayError, OSError):
        for entries in ray.get(list(built), timeout=patience_s):
            for key, data in entries.items():
                store.put(key, data)


def _builds() -> Path | None:
    """Return this node's own folder for compiled extensions, None where none can be made."""
    try:
        return builds_folder()
    except OSError:
        return None
