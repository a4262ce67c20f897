"""Grading on a Ray cluster: the same verdicts as here, whatever is lost on the way.

The cluster's two nodes are on this machine, and their GPUs are numbers that Ray hands out.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_grade_supervisor import HONEST, left_behind, problem_of

from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import release
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.verdict import UNKNOWN_TIME, Owner, Status, Verdict
from kernelgen.service import cluster as cluster_module
from kernelgen.service.cluster import Cluster
from kernelgen.service.grader import Grader

pytestmark = pytest.mark.ci

ray = pytest.importorskip("ray")

CANDIDATES = Path(__file__).parent / "candidates"
PROBLEM = problem_of(HONEST)
OPTIONS = GradeOptions(problem=PROBLEM, time=False, device="cpu")
HANGING = CANDIDATES / "broken_hang_in_forward.py"
TEXT = HONEST.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two nodes with a CPU and no GPU, which keep builds in an empty folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield from _nodes()


def _nodes() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        from ray.cluster_utils import Cluster as Nodes

        found: Any = Nodes(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        found.add_node(num_cpus=1)
    try:
        yield found
    finally:
        found.shutdown()
        # Ray's shutdown does not wait for the last of its processes.
        deadline = time.monotonic() + 30
        while (left := left_behind()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_of(words: str) -> list[int]:
    """Return what runs below this process with these words in its command line."""
    return [pid for pid, command in left_behind().items() if words in command]


def workers() -> list[int]:
    return processes_of("ray::Worker")


def nothing_is_left() -> bool:
    deadline = time.monotonic() + 20
    while (left := workers() + processes_of("forkserver")) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not left


class Silent:
    """An observer that does nothing."""

    def begin(self, solutions: Sequence[str]) -> None:
        """Wait."""

    def phase(self, index: int, text: str) -> None:
        """Wait."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """Wait."""


class Kills(Silent):
    """An observer that kills the worker that begins with the file at this position."""

    def __init__(self, index: int, most: int) -> None:
        self.index, self.left, self.told = index, most, 0

    def phase(self, index: int, text: str) -> None:
        """Kill them all, as a node's end does."""
        if index == self.index and text.startswith("on ") and self.left:
            self.left -= 1
            # It has begun by then, or is about to.
            time.sleep(1)
            for pid in workers():
                os.kill(pid, signal.SIGKILL)

    def finished(self, index: int, verdict: Verdict) -> None:  # noqa: ARG002 (they are counted)
        """Count it."""
        self.told += 1


def files_in(folder: Path, count: int) -> list[Path]:
    """Write honest files and, in between, some with a wrong syntax or wrong values."""
    wrong = (CANDIDATES / "wrong_zeros.py").read_text(encoding="utf-8")
    texts = (TEXT, "class ModelNew(:\n", wrong)
    files = [folder / f"file_{number:03}.py" for number in range(count)]
    for number, file in enumerate(files):
        file.write_text(f"{texts[number % 3]}\n# {number}\n", encoding="utf-8")
    return files


def statuses(count: int) -> list[Status]:
    each = (Status.PASSED, Status.BROKEN_CONTRACT, Status.WRONG_VALUES)
    return [each[number % 3] for number in range(count)]


def test_verdicts_are_those_of_this_machine(nodes: Any, tmp_path: Path) -> None:
    names = (
        "honest_openmp",
        "wrong_nan",
        "broken_segfault",
        "broken_cpp_syntax",
        "hostile_keyboard_interrupt",
        "hostile_kills_the_fork_server",
    )
    files = [CANDIDATES / f"{name}.py" for name in names]
    problems = {file: problem_of(file) for file in files}
    stray = tmp_path / "stray.py"
    stray.write_text("x = 1\n", encoding="utf-8")
    files.append(stray)
    options = GradeOptions(device="cpu", min_samples=3, max_samples=3)
    here = grade(files, options=options, problems=problems)
    crew = Cluster(nodes.address, options)
    there = grade(files, options=options, problems=problems, crew=crew)
    for one, other in zip(here.verdicts, there.verdicts, strict=True):
        assert (one.solution, one.status, one.owner) == (other.solution, other.status, other.owner)
        assert (one.solution_sha256, one.source) == (other.solution_sha256, other.source)
        # A busy machine may leave no time that can be told, and that is told.
        told = [text for v in (one, other) for text in v.warnings if text.startswith(UNKNOWN_TIME)]
        assert told or (one.timing is None) == (other.timing is None)
    assert here.environment == there.environment
    assert not ray.is_initialized()
    assert nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize("count", [6, 200])
def test_a_lost_worker_costs_a_retry(count: int, nodes: Any, tmp_path: Path) -> None:
    files, kills = files_in(tmp_path, count), Kills(count // 2, 1)
    with Journal(tmp_path / "run") as journal:
        crew = Cluster(nodes.address, OPTIONS, journal=journal)
        run = grade(files, options=OPTIONS, observer=kills, crew=crew)
        assert [one.status for one in run.verdicts] == statuses(count)
        assert (kills.left, kills.told, journal.count) == (0, count, count)
    assert nothing_is_left()


@pytest.mark.long
def test_a_file_whose_workers_are_always_lost_is_nobodys_mistake(
    nodes: Any, tmp_path: Path
) -> None:
    (file,) = files_in(tmp_path, 1)
    kills = Kills(0, 100)
    crew = Cluster(nodes.address, OPTIONS)
    (verdict,) = grade([file], options=OPTIONS, observer=kills, crew=crew).verdicts
    assert (verdict.status, verdict.owner) == (Status.GRADER_ERROR, Owner.GRADER)
    assert "begun 3 times" in verdict.reason
    assert kills.left == 97


@pytest.mark.long
def test_a_program_that_has_joined_a_cluster_stays_in_it(nodes: Any) -> None:
    async def main() -> None:
        async with Grader(OPTIONS, hands=Cluster(options=OPTIONS)) as grader:
            left = asyncio.create_task(grader.grade_text(HANGING.read_text(encoding="utf-8")))
            assert (await grader.grade_text(TEXT)).passed
            await asyncio.sleep(1)
            left.cancel()
            with pytest.raises(asyncio.CancelledError):
                await left
            assert (await grader.grade_text(f"{TEXT}# again\n")).passed
            stopped = asyncio.create_task(grader.grade_text(HANGING.read_text(encoding="utf-8")))
            await asyncio.sleep(1)
        with pytest.raises(KernelgenFault, match="left before the verdict"):
            await stopped

    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        asyncio.run(main())
        assert ray.is_initialized()
        assert nothing_is_left()
    finally:
        ray.shutdown()


@pytest.mark.long
def test_a_lost_node_costs_a_retry(nodes: Any, tmp_path: Path) -> None:
    gpus = [nodes.add_node(num_cpus=0, num_gpus=1) for _ in range(2)]

    begun: list[int] = []

    class Lost(Silent):
        """Ends a node once both are at work."""

        def phase(self, index: int, text: str) -> None:
            if text.startswith("on "):
                begun.append(index)
            if index == 3 and len(gpus) > 1:
                time.sleep(1)
                nodes.remove_node(gpus.pop(), allow_graceful=False)

    options = GradeOptions(problem=PROBLEM, time=False)
    files = files_in(tmp_path, 6)
    try:
        crew = Cluster(nodes.address, options, jobs=1)
        assert crew.lanes == 2
        run = grade(files, options=options, observer=Lost(), crew=crew)
    finally:
        for node in gpus:
            nodes.remove_node(node)
    assert [one.status for one in run.verdicts] == statuses(6)
    assert len(gpus) == 1
    assert len(begun) > len(set(begun)) == 6


@pytest.mark.long
def test_what_a_file_builds_is_built_where_a_cpu_is_free(nodes: Any, tmp_path: Path) -> None:
    gpu = nodes.add_node(num_cpus=0, num_gpus=1)
    options = GradeOptions(problem=PROBLEM, time=False, build_cache=tmp_path)
    try:
        crew = Cluster(nodes.address, options, jobs=2)
        assert crew.lanes == 2
        run = grade(files_in(tmp_path, 3), options=options, crew=crew)
    finally:
        nodes.remove_node(gpu)
    assert [one.status for one in run.verdicts] == statuses(3)
    # Its own folder, not the driver's.
    assert not [one for one in tmp_path.iterdir() if one.suffix != ".py"]
    for verdict in (run.verdicts[0], run.verdicts[2]):
        assert verdict.build is not None
        assert verdict.build.cached


def test_a_node_of_another_release_is_named(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {**release(), "torch": "torch 1.0"}
    monkeypatch.setattr(cluster_module, "release", lambda: own)
    with pytest.raises(UserError, match=r"has another torch than this machine: .*, not torch 1\.0"):
        Cluster(nodes.address, OPTIONS)
    assert not ray.is_initialized()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--ray needs the extra: pip install 'kernelgen\[ray\]'"):
        Cluster()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ray", "127.0.0.1:1"], "no cluster can be reached there: Connection refused"),
        (["--ray", "local"], "write auto, or HOST:PORT"),
        (["--ray", "auto", "--build-cache", "."], "--build-cache and --ray exclude each other"),
    ],
)
def test_what_cannot_be_is_one_line(given: list[str], message: str) -> None:
    command = [sys.executable, "-m", "kernelgen", "grade", str(HONEST), *given]
    environment = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_ends_by_an_interruption_with_nothing_left(nodes: Any, tmp_path: Path) -> None:
    files = [*files_in(tmp_path, 2), tmp_path / "hanging.py"]
    files[-1].write_text(HANGING.read_text(encoding="utf-8"), encoding="utf-8")
    options = ["--device", "cpu", "--no-timing", "--problem", str(PROBLEM.path), "--json", "-"]
    command = [sys.executable, "-m", "kernelgen", "grade", str(tmp_path), *options]
    run = subprocess.Popen(
        [*command, "-v", "--ray", nodes.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    for line in run.stderr:
        if "BROKEN_CONTRACT" in line:
            break
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "BROKEN_CONTRACT" in out
    assert nothing_is_left()
