"""The supervisor: what it does with bad files, interruptions and its own processes' deaths."""

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import warm_lane
from warm_lane import until_timed

from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.supervisor.grade import expand, grade
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.grading.wire import messages as m
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

HERE = Path(__file__).parent
HONEST = HERE / "candidates" / "honest_softmax.py"
HANGING = HERE / "candidates" / "broken_hang_in_forward.py"


def problem_of(candidate: Path) -> Problem:
    first = candidate.read_text().splitlines()[0].removeprefix("# problem: ")
    return load_problem(HERE / "problems" / f"{first}.yaml")


def graded(*files: Path, problem: Problem | None = None) -> Run:
    return grade(files, options=GradeOptions(problem=problem, time=False))


def test_a_pass_is_timed_with_samples_of_every_subject() -> None:
    options = GradeOptions(
        problem=problem_of(HONEST), min_samples=4, max_samples=4, timing_budget_s=60.0
    )
    verdict = until_timed(lambda: warm_lane.graded(HONEST, options))
    assert verdict.status is Status.PASSED, verdict.reason
    assert verdict.timing is not None
    assert {name: len(times) for name, times in verdict.timing.samples.items()} == {
        "candidate": 4,
        "eager": 4,
    }
    assert verdict.timing.compile_ms is None
    assert verdict.correctness is not None
    main = verdict.correctness.cases[-1]
    # Two checked calls, two warm-up blocks, four samples, two batches, and one or two traced calls.
    assert (main.name, main.agreed) == ("main", True)
    assert main.calls >= 2 + 2 + 4 + 2 + 1
    assert verdict.timing.confirmed is not None
    assert verdict.timing.confirmed.batches >= 2
    assert verdict.timing.confirmed.outputs == "in place"
    assert verdict.kernels[0].owner == "candidate"
    assert sum(use.share for use in verdict.kernels) == pytest.approx(1.0)
    low, high = verdict.timing.speedup["eager"].ci95
    assert low <= verdict.timing.speedup["eager"].median <= high


def test_what_torch_says_of_a_missing_nvml_is_not_in_the_log(tmp_path: Path) -> None:
    warning = tmp_path / "warning.py"
    text = HONEST.read_text()
    for what in ("Can't initialize NVML", "something else"):
        text += f'\nimport warnings\n\nwarnings.warn("{what}", stacklevel=1)\n'
    warning.write_text(text)
    options = GradeOptions(problem=problem_of(HONEST), time=False)
    verdict = warm_lane.graded(warning, options)
    assert verdict.status is Status.PASSED
    assert "something else" in verdict.log
    assert "NVML" not in verdict.log


def test_a_file_that_is_no_text_does_not_stop_the_others(tmp_path: Path) -> None:
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe\x00")
    run = graded(binary, HONEST, problem=problem_of(HONEST))
    assert [verdict.status for verdict in run.verdicts] == [Status.BROKEN_CONTRACT, Status.PASSED]
    assert "UTF-8" in run.verdicts[0].reason


def test_a_file_of_no_known_problem_says_how_to_name_it(tmp_path: Path) -> None:
    stray = tmp_path / "stray.py"
    stray.write_text("x = 1\n")
    (verdict,) = graded(stray).verdicts
    assert (verdict.status, verdict.owner) == (Status.INVALID_PROBLEM, Owner.PROBLEM)
    assert "--problem NAME" in verdict.reason


def test_wrong_paths_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        grade([tmp_path / "absent.py"])
    with pytest.raises(UserError, match=r"holds no \.py file"):
        grade([tmp_path])


def test_a_folder_means_its_own_files_and_no_file_twice(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "inner/c.py", "note.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    assert expand([tmp_path, tmp_path / "a.py"]) == [tmp_path / "a.py", tmp_path / "b.py"]


REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("result", "inputs", "reason"),
    [
        ("x.no_such_method()", "torch.rand(4, 4)", "no_such_method"),
        ("x + torch.seed() / 2**64", "torch.rand(4, 4)", "different results on equal inputs"),
        ("'text'", "torch.rand(4, 4)", "at least one plain tensor, and returns none"),
        (
            "torch.fft.fft(x)",
            "torch.rand(4, 4)",
            "complex64 tensor; return some, of complex ones torch",
        ),
        (
            "x + self.__dict__.setdefault('n', iter(range(99))).__next__()",
            "torch.rand(4, 4)",
            "let it keep nothing, such as a counter or a generator of its own",
        ),
        ("x", "torch.rand(4, no_such_name)", "no_such_name"),
    ],
)
def test_a_reference_that_does_not_work_is_the_problems_fault(
    tmp_path: Path, result: str, inputs: str, reason: str
) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE.format(result=result, inputs=inputs))
    (verdict,) = graded(HONEST, problem=load_problem(reference)).verdicts
    assert verdict.status is Status.INVALID_PROBLEM
    assert reason in verdict.reason


def test_a_problem_larger_than_the_memory_is_nobodys_wrong_answer() -> None:
    options = GradeOptions(problem=problem_of(HONEST), memory_limit_bytes=1024, time=False)
    (verdict,) = grade([HONEST], options=options).verdicts
    assert (verdict.status, verdict.owner) == (Status.OUT_OF_MEMORY, Owner.GRADER)
    assert "does not fit this device" in verdict.reason


def test_a_module_in_the_users_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch imports a `json`: the interpreter looks for it in the folder that `-m` was started in.
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')\n")
    monkeypatch.chdir(tmp_path)
    (verdict,) = graded(HONEST.resolve(), problem=problem_of(HONEST)).verdicts
    assert verdict.status is Status.PASSED


def test_a_full_disk_is_not_blamed_on_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    syntax = HERE / "candidates" / "broken_cpp_syntax.py"
    usage = shutil.disk_usage("/")._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (verdict,) = graded(syntax, problem=problem_of(syntax)).verdicts
    assert verdict.status is Status.GRADER_ERROR
    assert "is full (1 MiB free)" in verdict.reason


class InterruptsIn:
    """An observer that presses ^C when a phase begins."""

    def __init__(self, index: int, phase: str) -> None:
        self.index, self.text = index, phase

    def begin(self, solutions: Sequence[str]) -> None:
        """Wait."""

    def phase(self, index: int, text: str) -> None:
        """Press ^C, if it is time."""
        if index == self.index and text.startswith(self.text):
            os.kill(os.getpid(), signal.SIGINT)

    def finished(self, index: int, verdict: Verdict) -> None:
        """Wait."""


def left_behind() -> dict[int, str]:
    """Return what runs below this process, but for what all tests share, with its command lines."""
    names = ("grading.forkserver", "tracing.capture_host", "resource_tracker")
    shared = [pid for pid in children(os.getpid()) if any(n in command_of(pid) for n in names)]
    return {pid: command_of(pid) for pid in descendants(os.getpid()) if pid not in shared}


def command_of(pid: int) -> str:
    """Return a process's command line; an empty one once it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def descendants(pid: int) -> list[int]:
    """Return the process ids below a process."""
    found = children(pid)
    return [*found, *(below for child in found for below in descendants(child))]


def children(pid: int) -> list[int]:
    """Return what a process has started, or been given, and not reaped."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            found += map(int, task.read_text().split())
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_load_is_measured_beside_looks_where_a_time_is_quoted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A probe takes longer than the batch that a look is at."""
    asked: list[type[Any]] = []
    ask = Dialogue.ask_oracle

    def noting(dialogue: Dialogue, message: Any) -> Any:
        asked.append(type(message))
        return ask(dialogue, message)

    monkeypatch.setattr(Dialogue, "ask_oracle", noting)
    options = GradeOptions(problem=problem_of(HONEST), time=False, device="cpu")
    assert warm_lane.graded(HONEST, options).status is Status.PASSED
    assert asked.count(m.RunControl) > 3, "it was looked at"
    assert asked.count(m.Probe) == 1
