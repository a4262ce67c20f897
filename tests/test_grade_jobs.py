"""Several files graded at once: what overlaps, what does not, and what a fault leaves."""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from report_runs import passed
from test_grade_supervisor import HONEST, InterruptsIn, left_behind, problem_of

from kernelgen.errors import KernelgenFault
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job, LaneStopped
from kernelgen.grading.supervisor import crew, lane, session
from kernelgen.grading.supervisor.calls import CaseCalls
from kernelgen.grading.supervisor.crew import Crew, shares_of_cores
from kernelgen.grading.supervisor.grade import Interrupted, grade, usual_jobs
from kernelgen.grading.supervisor.oracle_client import OracleClient
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.timing_lock import TimingLock
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import UNKNOWN_TIME, Status, Verdict
from kernelgen.hardware.device import DeviceFacts

# A file's beginning waits right after this, and its verdict is told a moment after its work.
BESIDE = ("opening the device", Status.PASSED.value)
ALONE = ("timing", "confirming", "tracing")
TIMED = GradeOptions(
    problem=problem_of(HONEST), min_samples=3, max_samples=3, baselines=("eager",), device="cpu"
)


class Recorder:
    """An observer that keeps what it is told, and refuses to be told two things at once."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str]] = []
        self._busy = threading.Lock()

    def begin(self, solutions: Sequence[str]) -> None:
        """Wait."""

    def phase(self, index: int, text: str) -> None:
        """Keep it."""
        assert self._busy.acquire(blocking=False)
        self.told.append((index, text))
        time.sleep(0.001)
        self._busy.release()

    def finished(self, index: int, verdict: Verdict) -> None:
        """Keep the status."""
        self.phase(index, verdict.status.value)


def copies(folder: Path, count: int) -> list[Path]:
    files = [folder / f"file_{number}.py" for number in range(count)]
    for file in files:
        file.write_text(HONEST.read_text(encoding="utf-8"), encoding="utf-8")
    return files


# Overlap


@pytest.mark.ci
def test_builds_overlap_and_nothing_else_happens_while_one_is_timed(tmp_path: Path) -> None:
    files, recorder = copies(tmp_path, 3), Recorder()
    run = grade(files, options=TIMED, observer=recorder, jobs=2)
    assert [verdict.solution for verdict in run.verdicts] == [str(file) for file in files]
    assert {verdict.status for verdict in run.verdicts} == {Status.PASSED}
    # A busy machine may leave no time that can be told, and that is told.
    assert all(v.timing or v.warnings[0].startswith(UNKNOWN_TIME) for v in run.verdicts)
    assert len({verdict.device for verdict in run.verdicts}) == 1
    assert run.environment["cpu_threads"] == len(os.sched_getaffinity(0))
    for index in range(3):
        positions = [
            position
            for position, (who, text) in enumerate(recorder.told)
            if who == index and text.startswith(ALONE)
        ]
        between = recorder.told[positions[0] : positions[-1]]
        assert {who for who, text in between if text not in BESIDE} == {index}
    order = [who for who, _ in recorder.told]
    second = order.index(1)
    assert 0 in order[second:], "the second one began before the first had its verdict"
    assert any(text.startswith("waiting for the others") for _, text in recorder.told)
    assert left_behind() == {}


@pytest.mark.parametrize("fits", [True, False])
def test_main_cases_are_checked_beside_each_other_where_they_fit_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fits: bool
) -> None:
    all_inside, one_inside, check = threading.Barrier(3), threading.Lock(), CaseCalls.check

    def checked(calls: CaseCalls, *, with_parameters: bool) -> None:
        if fits:
            all_inside.wait(60)
            check(calls, with_parameters=with_parameters)
        else:
            assert one_inside.acquire(blocking=False)
            time.sleep(3)  # so that another one would come
            check(calls, with_parameters=with_parameters)
            one_inside.release()

    monkeypatch.setattr(CaseCalls, "check", checked)
    monkeypatch.setattr(session, "gpu_bytes", lambda *_: 1 << 60 if fits else 2)
    options = msgspec.structs.replace(TIMED, time=False)
    run = grade(copies(tmp_path, 3), options=options, jobs=3)
    assert {verdict.status for verdict in run.verdicts} == {Status.PASSED}
    assert left_behind() == {}


def test_a_file_of_its_own_options_alone_beside_nobody(tmp_path: Path) -> None:
    files, recorder = copies(tmp_path, 3), Recorder()
    untimed = GradeOptions(problem=TIMED.problem, time=False, device="cpu")
    jobs = [Job(path=file, options=untimed, alone=index == 1) for index, file in enumerate(files)]
    with Crew(3) as hands:
        futures = [hands.submit(job, recorder, index) for index, job in enumerate(jobs)]
        assert {one.result(120).status for one in futures} == {Status.PASSED}
    order = [who for who, _ in recorder.told]
    first, last = order.index(1), len(order) - 1 - order[::-1].index(1)
    between = recorder.told[first : last + 1]
    assert {who for who, text in between if text not in BESIDE} == {1}


def test_lanes_share_the_cores_where_there_are_enough() -> None:
    assert shares_of_cores(range(7), 3) == [(0, 3, 6), (1, 4), (2, 5)]
    assert shares_of_cores(range(2), 2) == [(0, 1), (0, 1)]


class NoLane(contextlib.AbstractContextManager["NoLane"]):
    """Stands for a lane: it notes the GPU that it is asked to grade on."""

    def __init__(self, asked: list[str | None]) -> None:
        self.environment: dict[str, Any] = {}
        self._asked = asked

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        """Do nothing: it does not run."""

    def grade_one(self, job: Job, *_: Any, **__: Any) -> Verdict:
        """Take so long that the other lanes come to their turn."""
        self._asked.append(job.options.gpu)
        time.sleep(0.2)
        return passed(str(job.path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The GPUs that files are graded on, in their order."""
    found: list[str | None] = []
    monkeypatch.setattr(crew, "Lane", lambda *_, **__: NoLane(found))
    return found


JOB = Job(path=HONEST, options=TIMED)


def test_lanes_take_the_gpus_in_turn(asked: list[str | None]) -> None:
    with Crew(3, gpus=("0", "GPU-b")) as hands:
        for one in [hands.submit(JOB) for _ in range(3)]:
            assert one.result(60).passed
    assert sorted(filter(None, asked)) == ["0", "0", "GPU-b"]


class NarrowLane(NoLane):
    """Stands for a lane on a GPU with room for one file."""

    inside = 0

    def __init__(self, _: Path, oracles: Oracles) -> None:
        super().__init__([])
        self._lock = oracles.lock

    def grade_one(self, job: Job, *_: Any, **__: Any) -> Verdict:
        """Fail where another file is there."""
        verdict = msgspec.structs.replace(passed(str(job.path)), device="narrow")
        with self._lock.working():
            NarrowLane.inside += 1
            time.sleep(0.2)
            others = NarrowLane.inside - 1
            time.sleep(0.1)
            NarrowLane.inside -= 1
        if not others:
            return verdict
        return msgspec.structs.replace(
            verdict, status=Status.OUT_OF_MEMORY, reason="no room", timing=None
        )


def test_what_lacks_memory_beside_others_is_graded_again_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crew, "Lane", NarrowLane)
    with Crew(3) as hands:
        futures = [hands.submit(JOB) for _ in range(3)]
        assert all(one.result(60).passed for one in futures)


def test_nobody_is_timed_before_the_oracle_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    at_rest, working = Oracles._at_rest, []  # noqa: SLF001 (what is done under the lock)

    def noted(self: Oracles, oracle: OracleClient) -> bool:
        working.append(vars(self.lock)["_working"])
        return at_rest(self, oracle)

    monkeypatch.setattr(Oracles, "_at_rest", noted)
    assert grade([HONEST], options=TIMED).verdicts[0].passed
    assert working == [1, 1], "after the preview, and after the times"


def test_a_file_may_be_taken_back(tmp_path: Path) -> None:
    slow = Path(__file__).parent / "candidates" / "broken_hang_in_forward.py"
    begun = threading.Event()

    class Began(Recorder):
        def phase(self, index: int, text: str) -> None:
            super().phase(index, text)
            if text.startswith("case"):
                begun.set()

    with Crew(1) as hands:
        hanging = hands.submit(Job(path=slow, options=TIMED), Began())
        waiting = hands.submit(Job(path=copies(tmp_path, 1)[0], options=TIMED))
        last = hands.submit(Job(path=copies(tmp_path, 1)[0], options=TIMED))
        assert begun.wait(60)
        hands.cancel(waiting)
        assert waiting.cancelled()
        hands.cancel(hanging)
        with pytest.raises(LaneStopped):
            hanging.result(20)
        assert last.result(60).passed
        hands.cancel(last)
    assert left_behind() == {}
    assert hands.submit(JOB).cancelled()


# Ends


@pytest.mark.parametrize(
    "phase", ["timing", "case 1", pytest.param("building", marks=pytest.mark.long)]
)
def test_an_interruption_ends_every_lane_and_keeps_what_is_known(
    phase: str, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def forward(:\n", encoding="utf-8")
    files = [broken, *copies(tmp_path, 3)]
    with pytest.raises(Interrupted) as stopped:
        grade(files, options=TIMED, observer=InterruptsIn(2, phase), jobs=2)
    verdicts = stopped.value.run.verdicts
    assert verdicts[0].status is Status.BROKEN_CONTRACT
    assert [one.solution for one in verdicts] == [str(file) for file in files[: len(verdicts)]]
    assert len(verdicts) < len(files)
    assert left_behind() == {}


def test_a_lane_that_cannot_be_opened_leaves_its_files_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    class OneServer(ForkServer):
        def __init__(self, *given: Any) -> None:
            opened.append(1)
            if len(opened) > 1:
                raise KernelgenFault("no fork server can be started: no more processes")
            super().__init__(*given)

    monkeypatch.setattr(lane, "ForkServer", OneServer)
    files = copies(tmp_path, 2)
    options = GradeOptions(problem=TIMED.problem, time=False, device="cpu")
    run = grade(files, options=options, jobs=2)
    assert [one.status for one in run.verdicts] == [Status.PASSED] * 2
    assert len(opened) == 2
    with pytest.raises(KernelgenFault, match="no more processes"):
        grade(files, options=options, jobs=2)


def test_a_server_that_does_not_come_back_costs_no_other_file_its_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(lane.Lane):
        def _present(self) -> ForkServer:
            raise KernelgenFault("no fork server can be started: no more processes")

    monkeypatch.setattr(crew, "Lane", Ended)
    broken = tmp_path / "broken.py"
    broken.write_text("def forward(:\n", encoding="utf-8")
    (file,) = copies(tmp_path, 1)
    run = grade([file, broken], options=TIMED)
    assert [one.status for one in run.verdicts] == [Status.GRADER_ERROR, Status.BROKEN_CONTRACT]
    assert "no more processes" in run.verdicts[0].reason


def test_what_an_observer_raises_ends_the_run(tmp_path: Path) -> None:
    class Gone(Recorder):
        def finished(self, index: int, verdict: Verdict) -> None:
            raise BrokenPipeError(index, verdict.status.value)

    broken = tmp_path / "broken.py"
    broken.write_text("def forward(:\n", encoding="utf-8")
    with pytest.raises(BrokenPipeError):
        grade([broken, *copies(tmp_path, 1)], options=TIMED, observer=Gone(), jobs=2)
    assert left_behind() == {}


# The lock


def test_the_lock_lets_many_work_and_one_alone() -> None:
    lock = TimingLock()
    inside, most, alone_beside = [0], [0], [0]
    count = threading.Lock()

    def change(by: int) -> None:
        with count:
            inside[0] += by
            most[0] = max(most[0], inside[0])

    def work() -> None:
        for _ in range(20):
            with lock.working():
                change(1)
                time.sleep(0.0005)
                change(-1)
                with lock.alone(), lock.alone():
                    alone_beside[0] += inside[0]
                    change(1)
                    time.sleep(0.0005)
                    alone_beside[0] += inside[0] - 1
                    change(-1)
                # Cleaning up afterwards disturbs nobody either.
                change(1)
                change(-1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert alone_beside == [0]
    assert most[0] > 1


def test_none_begins_while_one_waits_to_be_alone() -> None:
    lock = TimingLock()
    told: list[str] = []

    def timed() -> None:
        with lock.working(), lock.alone(lambda: told.append("waits")):
            told.append("timed")

    def late() -> None:
        with lock.working():
            told.append("late")

    with lock.working():
        first = threading.Thread(target=timed, daemon=True)
        first.start()
        while "waits" not in told:
            time.sleep(0.001)
        second = threading.Thread(target=late, daemon=True)
        second.start()
        time.sleep(0.05)
        assert told == ["waits"]
    first.join(10)
    second.join(10)
    assert told == ["waits", "timed", "late"]


@pytest.mark.parametrize(
    ("gpu_bytes", "host_bytes", "cores", "jobs"),
    [(141e9, 128e9, 16, 8), (24e9, 128e9, 16, 4), (141e9, 12e9, 16, 3), (141e9, 128e9, 4, 2)],
)
def test_as_many_files_are_in_work_as_there_are_cores_and_memory_for(
    monkeypatch: pytest.MonkeyPatch,
    gpu_bytes: float,
    host_bytes: float,
    cores: int,
    jobs: int,
) -> None:
    facts = DeviceFacts(
        name="GPU", compute_capability=(9, 0), sm_count=1, memory_bytes=int(gpu_bytes)
    )
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr("kernelgen.grading.supervisor.grade.facts_of", lambda _: facts)
    monkeypatch.setattr(
        "kernelgen.grading.supervisor.grade.available_bytes", lambda: int(host_bytes)
    )
    assert usual_jobs(GradeOptions()) == jobs
    assert usual_jobs(GradeOptions(device="cpu")) == 1
