"""The selftest: what it runs, in which order, and the command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from report_runs import passed
from rich.console import Console
from selftest_corpus import BROKEN, TESTS, Folder
from test_grade_supervisor import alive, children

from kernelgen.errors import UserError
from kernelgen.grading.options import Observer
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.servers import FORK_SERVER_CODE
from kernelgen.grading.verdict import Verdict
from kernelgen.hardware.device import GpuSurvey, visible_gpus
from kernelgen.report.progress import Verbosity
from kernelgen.sandbox.tree import ancestors_of
from kernelgen.selftest.corpus import Candidate, Kind, read_corpus
from kernelgen.selftest.record import Outcome, SelftestRun
from kernelgen.selftest.report import progress
from kernelgen.selftest.running import ordered, selftest
from kernelgen.selftest.selection import Selection, default_jobs, select


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep long lines whole: where they are folded is for the tests of reports."""
    monkeypatch.setenv("COLUMNS", "300")


SHIPPED = read_corpus(TESTS)
HONEST = tuple(TESTS / "candidates" / f"honest_{name}.py" for name in ("softmax", "embedding"))
HANGING = TESTS / "candidates" / "broken_hang_in_forward.py"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "corpus")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the machine one without a GPU, whatever it is."""
    survey = GpuSurvey(reason="none is there")
    monkeypatch.setattr("kernelgen.selftest.selection.survey_gpus", lambda: survey)


def run_in(text: str) -> SelftestRun:
    return msgspec.json.decode(text, type=SelftestRun)


# Order, what is run


def names_in(candidates: tuple[Candidate, ...], seed: int, rounds: int = 1) -> list[list[str]]:
    return [[one.name for one in found] for found in ordered(candidates, seed, rounds)]


def test_the_order_is_the_seed_s_and_each_round_has_its_own() -> None:
    first, second = names_in(SHIPPED, 7, rounds=2)
    assert names_in(SHIPPED, 7, rounds=2) == [first, second]
    assert first != second
    assert names_in(SHIPPED, 8) != [first]
    assert sorted(first) == sorted(second) == sorted(one.name for one in SHIPPED)


def test_those_that_have_to_be_alone_come_last(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# alone: it ends whatever it finds\n")
    for letter in "bcdefgh":
        folder.add(f"broken_{letter}.py", f"{BROKEN}# time: true\n")
    for names in names_in(read_corpus(folder.path), 3, rounds=3):
        assert names[-1] == "broken_a.py"


def test_slow_ones_begin_first_so_that_no_lane_waits_long_for_another(folder: Folder) -> None:
    for letter in "abcd":
        folder.add(f"broken_{letter}.py")
    folder.add("broken_slow.py", f"{BROKEN}# slow: it waits\n")
    orders = [names_in(read_corpus(folder.path), seed)[0] for seed in range(4)]
    assert {order[0] for order in orders} == {"broken_slow.py"}


class Asked(contextlib.AbstractContextManager["Asked"]):
    """Stands for a crew: it notes how it is to grade, and grades nothing."""

    environment: ClassVar[dict[str, object]] = {}
    given: ClassVar[list[tuple[int, dict[str, object]]]] = []
    asked: ClassVar[list[tuple[str, bool]]] = []

    def __init__(self, lanes: int, **options: object) -> None:
        self.given.append((lanes, options))

    def __exit__(self, *_: object) -> None: ...

    def submit(self, job: Job, observer: Observer, index: int) -> Future[Verdict]:
        """Give a verdict that says nothing."""
        self.asked.append((job.path.name, job.alone))
        verdict = passed(str(job.path))
        observer.finished(index, verdict)
        done: Future[Verdict] = Future()
        done.set_result(verdict)
        return done


def test_the_crew_grades_on_all_gpus_and_those_alone_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.add("broken_a.py", f"{BROKEN}# alone: it ends whatever it finds\n")
    folder.add("broken_b.py")
    monkeypatch.setattr("kernelgen.selftest.running.Crew", Asked)
    monkeypatch.setattr(Asked, "given", [])
    monkeypatch.setattr(Asked, "asked", [])
    chosen = Selection(run=read_corpus(folder.path), left_out=(), jobs=1, gpus=("0", "GPU-b"))
    with progress(Console(quiet=True), Verbosity.QUIET) as reporter:
        run, code = selftest(chosen, reporter, seed=1, jobs=3, rounds=2)
    options = {"compiles": False, "share_cores": True, "gpus": ("0", "GPU-b")}
    assert Asked.given == [(2, options), (2, options)]
    assert sorted(Asked.asked) == [("broken_a.py", True)] * 2 + [("broken_b.py", False)] * 2
    assert [one.round for one in run.results] == [1, 1, 2, 2]
    assert code == 1


def test_gpus_are_called_what_the_environment_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-a,1")
    assert visible_gpus(2) == ("3", "GPU-a")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_gpus(2) == ("0", "1")


@pytest.mark.parametrize(
    ("cores", "memory_gib", "gpus_gib", "jobs"),
    [
        (1, 64, [], 1),
        (2, 24, [], 2),
        (2, 4, [], 1),
        (16, 128, [139], 8),
        (16, 128, [], 8),
        (64, 512, [], 32),
        (64, 512, [139], 8),
        (64, 512, [139, 139], 16),
        (64, 512, [139, 12], 4),
        (64, 512, [12], 2),
        (2, 1, [1], 1),
    ],
)
def test_as_many_at_once_as_there_are_cores_and_memory_for(
    cores: int, memory_gib: int, gpus_gib: list[int], jobs: int
) -> None:
    gpus_bytes = [gib << 30 for gib in gpus_gib]
    assert default_jobs(cores, memory_gib << 30, gpus_bytes) == jobs


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_cuda_candidates_are_left_out_with_the_reason() -> None:
    selection = select(SHIPPED)
    assert {one.device for one in selection.run} == {"cpu"}
    assert {one.device for one in selection.left_out} == {"cuda"}
    assert {one.outcome for one in selection.left_out} == {Outcome.NOT_RUN}
    assert {one.note for one in selection.left_out} == {"no GPU: none is there"}
    assert len(selection.run) + len(selection.left_out) == len(SHIPPED)


@pytest.mark.usefixtures("no_gpu")
def test_a_selection_by_name_kind_and_device() -> None:
    named = select(SHIPPED, names=("hostile_tf32", "honest_soft*.py"), device="cpu")
    assert [one.name for one in named.run] == ["honest_softmax.py", "hostile_tf32.py"]
    kinds = select(SHIPPED, kinds=(Kind.WRONG,), names=("cuda/*",))
    assert {one.file.partition("_")[0] for one in kinds.left_out} == {"cuda/wrong"}
    with pytest.raises(UserError, match="no candidate matches --only nothing --device auto"):
        select(SHIPPED, names=("nothing",))


def test_quick_leaves_out_what_says_that_it_is_slow(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# slow: it sleeps\n")
    folder.add("broken_b.py")
    selection = select(read_corpus(folder.path), quick=True)
    assert [one.name for one in selection.run] == ["broken_b.py"]
    assert [one.note for one in selection.left_out] == ["slow, and --quick was given"]


# The command


def test_all_as_expected_several_at_once_is_0(folder: Folder) -> None:
    for file in HONEST:
        folder.copy(file.name, file.read_text(encoding="utf-8"))
    for letter in "abc":
        folder.add(f"broken_{letter}.py", f"{BROKEN}# blames: def forward\n")
    result = folder.run("--jobs", "2", "--seed", "5", "--rounds", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "10 of 10 as expected on " in result.stdout
    assert "2 at once; --seed 5 repeats the order" in result.stdout
    assert "broken_a.py" not in result.stdout, "by default, only what is not as expected is told"
    assert "10 candidates, 2 at once, --seed 5\n" in result.stderr
    assert result.stderr.count("✓ as expected: PASSED") == 4
    assert result.stderr.count("✓ as expected: BROKEN_CONTRACT") == 6


def test_a_verdict_that_is_not_the_expected_one_is_1_and_told_in_words(folder: Folder) -> None:
    folder.add("broken_a.py")
    folder.add("hostile_b.py", "# problem: tiny_mean\n# expect: TAMPERED\n# exploit: T05 C01\n")
    result = folder.run("-v")
    assert result.exit_code == 1
    assert "✓ broken_a.py: as expected, BROKEN_CONTRACT\n" in result.stdout
    assert (
        "✗ hostile_b.py: miss, BROKEN_CONTRACT [T05 C01]\n"
        "    the status is BROKEN_CONTRACT, not TAMPERED\n    | "
    ) in result.stdout
    cells = [line.split() for line in result.stdout.splitlines()]
    assert ["hostile", "1", "-", "1"] in cells
    assert ["caching", "1", "-", "1"] in cells
    assert "1 of 2 as expected (1 missed)" in result.stdout


def test_a_gap_is_counted_apart_and_told_once_it_is_closed(folder: Folder) -> None:
    folder.add("hostile_a.py", "# problem: tiny_mean\n# expect: TAMPERED\n# gap: nobody looks\n")
    folder.add("hostile_b.py", f"{BROKEN}# gap: nobody reads it\n")
    result = folder.run()
    assert result.exit_code == 0
    assert (
        "! hostile_a.py: known gap, BROKEN_CONTRACT\n    the status is BROKEN_CONTRACT"
        in result.stdout
    )
    assert "gap: nobody looks\n" in result.stdout
    assert (
        "! hostile_b.py: closed gap, BROKEN_CONTRACT\n    it got the verdict that its header"
        in result.stdout
    )
    assert "1 of 2 as expected (1 known gaps)" in result.stdout


def test_a_process_that_is_left_behind_is_a_miss(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# orphan: 71234.5\n")
    with subprocess.Popen(["sleep", "71234.5"]) as process:
        result = folder.run()
        process.kill()
    assert result.exit_code == 1
    assert f"a process was left behind: {process.pid}: sleep 71234.5" in result.stdout


def test_a_process_of_another_selftest_is_not_left_behind(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# orphan: 71235.5\n")
    # The outer shell ends at once, so that nothing of this test is above the inner one, which has
    # the arguments of a fork server.
    inner = """sh -c 'echo $$; exec >&-; sleep 71235.5; true' "$0" & """
    shell = ["sh", "-c", inner, FORK_SERVER_CODE]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True) as outer:
        assert outer.stdout is not None
        server = int(outer.stdout.readline())
        outer.wait()
        try:
            assert os.getpid() not in ancestors_of(server)
            result = folder.run()
        finally:
            os.killpg(outer.pid, signal.SIGKILL)
    assert result.exit_code == 0, result.stdout


@pytest.mark.usefixtures("no_gpu")
def test_what_cannot_be_run_is_never_counted_as_caught(folder: Folder) -> None:
    folder.add("cuda/hostile_a.py", "# problem: tiny_mean\n# expect: NO_DEVICE\n")
    alone = folder.run()
    assert alone.exit_code == 3
    assert "0 of 0 as expected (1 not run)" in alone.stdout
    assert "not run, and so neither caught nor accepted: 1 (no GPU: none is there)" in alone.stdout
    folder.add("broken_b.py")
    result = folder.run("-v", "--json", "-")
    assert result.exit_code == 0
    assert "1 of 1 as expected (1 not run)" in result.stderr
    assert "? cuda/hostile_a.py: not run\n" in result.stderr
    run = run_in(result.stdout)
    assert [one.outcome for one in run.results] == [Outcome.AS_EXPECTED, Outcome.NOT_RUN]
    assert run.results[1].verdict is None


def test_the_json_holds_the_results_their_verdicts_and_the_seed(
    folder: Folder, tmp_path: Path
) -> None:
    folder.add("broken_a.py")
    folder.add("hostile_b.py", "# problem: tiny_mean\n# expect: TAMPERED\n# exploit: H22\n")
    result = folder.run("--seed", "9", "--jobs", "1", "-q", "--json", str(tmp_path / "run.json"))
    assert result.exit_code == 1
    assert result.stderr == ""
    found = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert (found["schema"], found["seed"], found["jobs"]) == (1, 9, 1)
    assert found["interrupted"] is False
    missed = next(one for one in found["results"] if one["file"] == "hostile_b.py")
    assert missed["outcome"] == "miss"
    assert missed["exploit"] == ["H22"]
    assert missed["verdict"]["status"] == "BROKEN_CONTRACT"
    assert missed["misses"] == ["the status is BROKEN_CONTRACT, not TAMPERED"]
    run = run_in((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert run.count(Outcome.MISS) == 1


def test_only_takes_the_names_that_match(folder: Folder) -> None:
    folder.add("broken_a.py")
    folder.add("broken_b.py")
    folder.add("wrong_c.py")
    result = folder.run("-v", "-k", "*_b", "--only", "wrong_*", "--kind", "broken")
    assert result.exit_code == 0
    assert "1 of 1 as expected" in result.stdout
    assert "broken_b.py: as expected" in result.stdout
    refused = folder.run("-k", "nothing_*")
    assert refused.exit_code == 2
    assert "no candidate matches --only nothing_*" in refused.stderr


def test_a_broken_problem_ends_the_selftest_with_its_place(folder: Folder) -> None:
    (folder.path / "problems").unlink()
    (folder.path / "problems").mkdir()
    (folder.path / "problems" / "mine.yaml").write_text("summary: 1\n")
    folder.add("broken_a.py", "# problem: mine\n# expect: BROKEN_CONTRACT\n")
    result = folder.run("-q")
    assert result.exit_code == 2
    assert "mine.yaml:1: " in result.stderr


def test_quiet_and_verbose_exclude_each_other(folder: Folder) -> None:
    folder.add("broken_a.py")
    assert folder.run("-q", "-v").exit_code == 2


@pytest.mark.ci
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_ends_everything_and_shows_what_is_known(
    folder: Folder, number: signal.Signals, exit_code: int
) -> None:
    hanging = HANGING.read_text(encoding="utf-8").replace("timeout-s: 2", "timeout-s: 300")
    folder.copy(HANGING.name, hanging)
    folder.add("broken_a.py")
    command = ("-m", "kernelgen", "selftest", "--corpus", str(folder.path), "--jobs", "2")
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert any("broken_a: " in line for line in process.stderr)
    started = wait_for(lambda: workers_of(process.pid))
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert "interrupted; 1 of 2 graded before it" in err
    assert "1 of 1 as expected" in out
    assert [pid for pid in started if alive(pid)] == []


def wait_for(find: Callable[[], list[int]]) -> list[int]:
    """Return what is found as soon as there is something."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := find():
            return found
        time.sleep(0.05)
    pytest.fail("it did not come to that within 60 s")


def workers_of(pid: int) -> list[int]:
    """Return all that a selftest has started, once an oracle and a candidate are among them."""
    zygotes = children(pid)
    servers = [server for zygote in zygotes for server in children(zygote)]
    workers = [worker for server in servers for worker in children(server)]
    below = [process for worker in workers for process in children(worker)]
    return [*zygotes, *servers, *workers, *below] if len(workers) >= 2 else []
