"""The selftest: what it runs, in which order, and the command."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from report_runs import failed, passed, run_of
from rich.cells import cell_len
from rich.console import Console
from selftest_corpus import BROKEN, TESTS, Folder
from test_grade_supervisor import alive, children

from kernelgen.errors import UserError
from kernelgen.grading.options import Observer
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import most_lanes
from kernelgen.grading.supervisor.servers import FORK_SERVER_CODE
from kernelgen.grading.verdict import Run, Status
from kernelgen.hardware.device import GpuSurvey, visible_gpus
from kernelgen.report.json_report import decode, read_run
from kernelgen.sandbox.tree import ancestors_of
from kernelgen.selftest.corpus import Candidate, read_corpus
from kernelgen.selftest.report import exit_code, progress, show
from kernelgen.selftest.running import ordered, selftest
from kernelgen.selftest.selection import Selection, select


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


# Order, what is run


def names_in(candidates: tuple[Candidate, ...], seed: int) -> list[str]:
    return [one.name for one in ordered(candidates, seed)]


def test_the_order_is_the_seed_s() -> None:
    first = names_in(SHIPPED, 7)
    assert names_in(SHIPPED, 7) == first
    assert names_in(SHIPPED, 8) != first
    assert sorted(first) == sorted(one.name for one in SHIPPED)


def test_slow_ones_come_first_and_those_that_have_to_be_alone_last(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# alone: it ends whatever it finds\n")
    folder.add("broken_slow.py", f"{BROKEN}# slow: it waits\n")
    for letter in "bcdefgh":
        folder.add(f"broken_{letter}.py", f"{BROKEN}# time: true\n")
    orders = [names_in(read_corpus(folder.path), seed) for seed in range(4)]
    assert {(order[0], order[-1]) for order in orders} == {("broken_slow.py", "broken_a.py")}


def test_the_crew_grades_on_all_gpus_and_those_alone_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, dict[str, object]]] = []
    asked: list[Job] = []

    def grades(queue: Sequence[Job], _crew: Crew, observer: Observer) -> Run:
        asked.extend(queue)
        observer.begin([])
        for index, job in enumerate(queue):
            observer.finished(index, passed(str(job.path), labels=job.labels))
        return run_of()

    def crew(lanes: int, **options: object) -> None:
        made.append((lanes, options))

    folder.add("broken_a.py", f"{BROKEN}# alone: it ends whatever it finds\n")
    folder.add("broken_b.py")
    monkeypatch.setattr("kernelgen.selftest.running.Crew", crew)
    monkeypatch.setattr("kernelgen.selftest.running.grade_jobs", grades)
    chosen = Selection(run=read_corpus(folder.path), left_out={}, jobs=1, gpus=("0", "GPU-b"))
    with progress(Console(quiet=True), quiet=True) as reporter:
        run = selftest(chosen, reporter, seed=1, jobs=3)
    assert made == [(2, {"compiles": False, "share_cores": True, "gpus": ("0", "GPU-b")})]
    assert [(job.path.name, job.alone) for job in asked] == [
        ("broken_b.py", False), ("broken_a.py", True),
    ]  # fmt: skip
    assert [one.solution for one in run.verdicts] == ["broken_b.py", "broken_a.py"]
    assert exit_code(run) == 1
    assert exit_code(run_of()) == 3


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
    assert most_lanes(cores, memory_gib << 30, gpus_bytes) == jobs


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_cuda_candidates_are_left_out_with_the_reason() -> None:
    selection = select(SHIPPED)
    assert {one.device for one in selection.run} == {"cpu"}
    assert set(selection.left_out.values()) == {"no GPU: none is there"}
    assert len(selection.run) + len(selection.left_out) == len(SHIPPED)


@pytest.mark.usefixtures("no_gpu")
def test_a_selection_by_name_and_device() -> None:
    named = select(SHIPPED, names=("hostile_changed_settings", "honest_soft*.py"), device="cpu")
    assert [one.name for one in named.run] == ["honest_softmax.py", "hostile_changed_settings.py"]
    left_out = select(SHIPPED, names=("cuda/wrong_*",)).left_out
    assert {name.partition("_")[0] for name in left_out} == {"cuda/wrong"}
    with pytest.raises(UserError, match="no candidate matches --only nothing --device auto"):
        select(SHIPPED, names=("nothing",))


def test_quick_leaves_out_what_says_that_it_is_slow(folder: Folder) -> None:
    folder.add("broken_a.py", f"{BROKEN}# slow: it sleeps\n")
    folder.add("broken_b.py")
    selection = select(read_corpus(folder.path), quick=True)
    assert [one.name for one in selection.run] == ["broken_b.py"]
    assert selection.left_out == {"broken_a.py": "slow, and --quick was given"}


# The command


def test_all_as_expected_several_at_once_is_0(folder: Folder) -> None:
    for file in HONEST:
        folder.copy(file.name, file.read_text(encoding="utf-8"))
    for letter in "abc":
        folder.add(f"broken_{letter}.py", f"{BROKEN}# blames: def forward\n")
    result = folder.run("--jobs", "2", "--seed", "5", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "5 of 5 as expected on " in result.stdout
    assert "; --seed 5 repeats the order" in result.stdout
    assert "broken_a.py" not in result.stdout, "by default, only what is not as expected is told"
    assert "5 candidates, 2 at once, --seed 5\n" in result.stderr
    assert result.stderr.count("✓ as expected: PASSED") == 2
    assert result.stderr.count("✓ as expected: BROKEN_CONTRACT") == 3


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
    assert ["hostile", "-", "1"] in cells
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
    assert [one.solution for one in decode(result.stdout).verdicts] == ["broken_b.py"]


def test_the_json_is_a_run_with_what_was_expected_and_the_seed(
    folder: Folder, tmp_path: Path
) -> None:
    folder.add("broken_a.py")
    folder.add("hostile_b.py", "# problem: tiny_mean\n# expect: TAMPERED\n# exploit: H22 T05\n")
    result = folder.run("--seed", "9", "--jobs", "1", "-q", "--json", str(tmp_path / "run.json"))
    assert (result.exit_code, result.stderr) == (1, "")
    run = read_run(tmp_path / "run.json").run
    assert run.environment["seed"] == 9
    missed = next(one for one in run.verdicts if one.solution == "hostile_b.py")
    assert missed.labels == {"kind": "hostile", "device": "cpu", "exploit": "H22 T05"}
    assert (missed.status, missed.expected) == (Status.BROKEN_CONTRACT, Status.TAMPERED)
    assert missed.misses == ("the status is BROKEN_CONTRACT, not TAMPERED",)


def test_only_takes_the_names_that_match(folder: Folder) -> None:
    folder.add("broken_a.py")
    folder.add("broken_b.py")
    folder.add("wrong_c.py")
    result = folder.run("-v", "-k", "*_b", "--only", "broken_b")
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


@pytest.mark.parametrize("width", [40, 80])
def test_the_lines_fit_a_terminal_and_a_candidate_s_words_cannot_act_on_it(width: int) -> None:
    reason = "\x1b[2J\x1b]0;x\x07it said \u202e so"
    labels = {"kind": "hostile", "exploit": "T05"}
    missed = failed(
        Status.CRASHED, "hostile_" + "long_" * 30, reason=reason, labels=labels, misses=("x" * 300,)
    )
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    run = msgspec.structs.replace(run_of(missed), environment={"seed": 3})
    show(run, {}, console, verbose=False)
    assert max(map(cell_len, file.getvalue().splitlines())) <= width
    assert "| it said \\u202e so" in file.getvalue()
    assert "\x1b" not in file.getvalue()


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
    assert "interrupted; 1 graded before it" in err
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
