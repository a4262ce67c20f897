"""Runs that are killed go on: no verdict is lost, none is made twice."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_grade_supervisor import HONEST, problem_of

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import key_of
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor import crew
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.verdict import Status
from kernelgen.problem.library import load_problem
from kernelgen.solution.file import read_solution

COUNT = 6
BROKEN = "class ModelNew(:\n"


def fill(folder: Path) -> None:
    for number in range(COUNT):
        text = HONEST.read_text(encoding="utf-8") if number % 3 else BROKEN
        (folder / f"file_{number}.py").write_text(f"{text}\n# {number}\n", encoding="utf-8")


def start(folder: Path, journal: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kernelgen", "grade", str(folder), "--device", "cpu"]
    options = ["--no-timing", "--problem", str(problem_of(HONEST).path), "--json", "-"]
    return subprocess.Popen(
        [*command, *options, "--resume", str(journal), "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def verdicts_in(journal: Path) -> int:
    lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
    return sum(b'"type":"verdict"' in line and line.endswith(b"\n") for line in lines)


@pytest.mark.ci
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_run_that_is_killed_at_any_time_goes_on(kills: int, tmp_path: Path) -> None:
    files, journal = tmp_path / "files", tmp_path / "run"
    files.mkdir()
    fill(files)
    chance = random.Random(kills)
    seen = 0
    for _ in range(kills):
        run = start(files, journal)
        wanted = seen + chance.randint(1, 2)
        while run.poll() is None and verdicts_in(journal) < min(wanted, COUNT):
            time.sleep(0.01)
        time.sleep(chance.random())
        run.send_signal(signal.SIGKILL)
        run.communicate()
        assert verdicts_in(journal) >= seen
        seen = verdicts_in(journal)
        if seen == COUNT and kills > 2:
            journal.write_bytes(journal.read_bytes()[: -chance.randint(1, 3000)])
            seen = verdicts_in(journal)
    last = start(files, journal)
    found = json.loads(last.communicate(timeout=300)[0])["verdicts"]
    assert {Path(one["solution"]).name: one["status"] for one in found} == {
        f"file_{number}.py": "PASSED" if number % 3 else "BROKEN_CONTRACT"
        for number in range(COUNT)
    }
    assert len(found) == COUNT
    assert verdicts_in(journal) == COUNT
    again = start(files, journal)
    assert json.loads(again.communicate(timeout=300)[0])["verdicts"] == found


def test_another_rule_another_problem_or_text_is_graded_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    solution = read_solution(path, b"one")
    problem, options = load_problem("groupnorm"), GradeOptions()
    key = key_of(solution, problem, options)
    assert key == key_of(read_solution(tmp_path / "b.py", b"one"), problem, options)
    assert key == key_of(solution, problem, GradeOptions(gpu="1", build_cache=tmp_path))
    others = {
        key_of(read_solution(path, b"two"), problem, options),
        key_of(solution, load_problem("layernorm"), options),
        key_of(solution, problem, GradeOptions(tolerance=1e-4)),
        key_of(solution, problem, GradeOptions(time=False)),
        key_of(solution, problem, GradeOptions(memory_limit_bytes=1 << 30)),
    }
    assert len(others - {key}) == 5


def test_what_is_known_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text(BROKEN, encoding="utf-8")
    options = GradeOptions(problem=load_problem("groupnorm"), device="cpu")
    with Journal(tmp_path / "run") as journal:
        first = grade([file], options=options, journal=journal)
        assert (first.verdicts[0].status, journal.count) == (Status.BROKEN_CONTRACT, 1)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(crew, "open_oracles", refuse)
    with Journal(tmp_path / "run") as journal:
        assert grade([file], options=options, journal=journal) == first
        file.write_text(f"{BROKEN}# changed\n", encoding="utf-8")
        with pytest.raises(AssertionError):
            grade([file], options=options, journal=journal)


def test_what_has_no_problem_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "nonesuch.py"
    file.write_text(BROKEN, encoding="utf-8")
    with Journal(tmp_path / "run") as journal:
        run = grade([file, file], options=GradeOptions(device="cpu"), journal=journal)
        assert [one.status for one in run.verdicts] == [Status.INVALID_PROBLEM]
        assert journal.count == 0
