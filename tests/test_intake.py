"""Commands as a user runs them: odd names, closed streams, other files, a lost folder."""

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.blame import excuse
from kernelgen.grading.verdict import Judged, Owner, Run, Status
from kernelgen.report.json_report import decode
from kernelgen.sandbox.environment import passed_on

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(3, 5)]


def get_init_inputs():
    return []
"""
RIGHT = """\
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x + x
"""
RULES = "--reference ref.py --require anything --no-timing --device cpu --resume journal"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of candidates, graded once: what comes after is found in the journal."""
    made = tmp_path_factory.mktemp("intake")
    (made / "ref.py").write_text(REFERENCE)
    files = made / os.fsdecode(b"in\xfe")
    files.mkdir()
    (files / os.fsdecode(b"right\xff.py")).write_text(RIGHT)
    (files / os.fsdecode(b"fails\xff.py")).write_text(RIGHT.replace("x + x", "x.nothing()"))
    (files / os.fsdecode(b"text\xff.py")).write_text("class ModelNew(")
    for name in ("conftest.py", "__init__.py", ".hidden.py"):
        (files / name).write_text("import pytest")
    done = run(f"grade in* {RULES} --json first.json --html page --junit tests.xml", made)
    assert done.returncode == 1, done.stderr
    return made


def run(command: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of the shell in a folder; kernelgen's output may be redirected."""
    line = f"{shlex.quote(sys.executable)} -m kernelgen {command}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def report(file: Path) -> Run:
    """Return the run in a report, which can be read back."""
    return decode(file.read_bytes())


def test_names_that_are_not_utf8_are_graded_and_told(folder: Path) -> None:
    verdicts = {one.solution: one for one in report(folder / "first.json").verdicts}
    named = [rf"in\udcfe/{stem}\udcff.py" for stem in ("fails", "right", "text")]
    assert list(verdicts) == named  # in the given order, and nothing that is no candidate
    assert verdicts[r"in\udcfe/right\udcff.py"].status is Status.PASSED
    fails = verdicts[r"in\udcfe/fails\udcff.py"]
    assert fails.status is Status.RUNTIME_ERROR
    assert r"in\udcfe/fails\udcff.py:6" in fails.reason
    assert verdicts[r"in\udcfe/text\udcff.py"].status is Status.BROKEN_CONTRACT
    with Journal(folder / "journal") as journal:
        assert journal.count == 3
        assert not journal.torn


@pytest.mark.parametrize(
    "reads",
    [
        "open('kern.cpp')",
        "load(name='ext', sources=[os.path.join(os.path.dirname(__file__), 'kern.cpp')])",
    ],
)
def test_a_file_beside_a_candidate_is_not_there(reads: str, tmp_path: Path) -> None:
    (tmp_path / "ref.py").write_text(REFERENCE)
    (tmp_path / "kern.cpp").touch()
    imports = "import os\nfrom torch.utils.cpp_extension import load\n"
    (tmp_path / "beside.py").write_text(f"{imports}{RIGHT}\n{reads}\n")
    found = run(f"grade beside.py {RULES}", tmp_path).stdout
    assert "kern.cpp is not there in grading: a candidate is one file" in " ".join(found.split())


@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        (">&-", 1),
        ("2>&-", 1),
        (">&- 2>&- <&-", 1),
        ("2>/dev/full", 1),
        ("2> >(exec true)", 1),
        (">/dev/full", 3),
    ],
)
def test_verdicts_survive_a_stream_that_takes_nothing(
    folder: Path, redirected: str, code: int
) -> None:
    name = f"{len(redirected)}.json"
    done = run(f"grade in* {RULES} --json {name} {redirected}", folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert len(report(folder / name).verdicts) == 3


@pytest.mark.parametrize("settings", [{"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_are_told_in_any_encoding(folder: Path, settings: dict[str, str]) -> None:
    done = run(f"grade in* {RULES}", folder, **settings)
    assert done.returncode == 1, done.stderr
    assert r"right\udcff" in done.stdout


def test_a_report_to_a_closed_stdout_is_refused_before_any_work(folder: Path) -> None:
    done = run(f"grade in* {RULES} --json - >&-", folder)
    assert done.returncode == 2
    assert "stdout is closed" in done.stderr


def test_a_folder_without_candidates_says_what_counts_for_none(folder: Path) -> None:
    (folder / "none").mkdir()
    (folder / "none" / "__init__.py").touch()
    done = run(f"grade none {RULES}", folder)
    assert done.returncode == 2
    assert "conftest.py" in done.stderr


def test_a_working_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {shlex.quote(str(gone))}; rmdir {shlex.quote(str(gone))}; "
    home = shlex.quote(str(Path(__file__).resolve().parents[1]))
    line += f"PYTHONPATH={home} {shlex.quote(sys.executable)} -m kernelgen list"
    left = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert left.returncode == 2
    assert left.stderr.startswith("error: the working folder is gone")
    assert len(left.stderr.splitlines()) == 1


def test_a_broken_problem_of_a_run_is_the_verdict_on_its_files_alone(tmp_path: Path) -> None:
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_Twice.py").write_text(REFERENCE)
    (level / "2_Broken.py").write_text("import torch")
    (tmp_path / "mine").mkdir()
    for number in (1, 2, 3):  # of the last there is no problem
        (tmp_path / "mine" / f"level_1_problem_{number}_sample_0_kernel.py").write_text(RIGHT)
    rules = "--kernelbench . --require anything --no-timing --device cpu --json out.json"
    done = run(f"grade mine {rules}", tmp_path)
    assert done.returncode == 2, done.stderr
    statuses = [one.status for one in report(tmp_path / "out.json").verdicts]
    assert sorted(statuses) == [Status.INVALID_PROBLEM, Status.INVALID_PROBLEM, Status.PASSED]
    assert json.loads((tmp_path / "mine" / "eval_results.json").read_bytes()).keys() == {"1"}


def test_a_broken_problem_of_a_folder_to_build_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "broken.yaml").write_text("name: broken\n")
    for name in ("broken", "nowhere"):
        (tmp_path / f"{name}.py").write_text(f"# problem: {name}\n{RIGHT}")
    done = run("build .", tmp_path)
    assert done.returncode == 2, done.stderr
    assert "broken.py: FAILED" in done.stdout
    assert "nowhere.py: FAILED" in done.stdout


def test_an_empty_setting_of_a_tool_is_none_and_one_of_cuda_is() -> None:
    given = {"CXX": "", "MAX_JOBS": "", "CC": "gcc", "CUDA_VISIBLE_DEVICES": ""}
    assert passed_on(given) == {"CC": "gcc", "CUDA_VISIBLE_DEVICES": ""}


def test_a_build_under_the_shells_small_limit_accuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Judged(Status.BUILD_ERROR, "no object file")
    wrong = Judged(Status.WRONG_VALUES, "1 and not 2")
    assert excuse(failed, tmp_path) is failed
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2 << 20, resource.RLIM_INFINITY))
    excused = excuse(failed, tmp_path)
    assert (excused.status, excused.owner) == (Status.GRADER_ERROR, Owner.GRADER)
    assert "ulimit -f" in excused.reason
    assert excuse(wrong, tmp_path) is wrong
