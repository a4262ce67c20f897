"""`kernelgen tune` through click: what is printed, refused, and the exit codes."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from tune_grades import Grades, Numbers, failed

from kernelgen.cli import program
from kernelgen.errors import ExitCode
from kernelgen.grading.supervisor import grade as supervisor
from kernelgen.grading.verdict import Owner, Run, Status
from kernelgen.hardware.device import DeviceFacts, GpuSurvey
from kernelgen.report.json_report import decode
from kernelgen.tuning import search

HERE = Path(__file__).resolve().parent
NAME = "tiny_groupnorm.yaml"
Tuned = Callable[..., Result]


def bowl(numbers: Numbers) -> float:
    return 1 + abs(numbers["batch"] - 128) / 1000 + abs(numbers["slice"] - 16384) / 1e6


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a problem into an empty current folder and return its text."""
    monkeypatch.chdir(tmp_path)
    plain = (HERE / "problems" / NAME).read_text(encoding="utf-8")
    # Whole vectors, and enough of them for a block.
    whole = f"# Mine.\n{plain}\n".replace("width: 7", "width: 8").replace("height: 5", "height: 50")
    Path(NAME).write_text(whole)
    return whole


@pytest.fixture
def graded(monkeypatch: pytest.MonkeyPatch) -> Grades:
    """Put a grader that is made up in the real one's place."""
    grades = Grades(bowl)
    monkeypatch.setattr(search, "grader", lambda _target, _reporter: nullcontext(grades))
    return grades


def tune(*arguments: str, backend: str = "cpp") -> Result:
    return CliRunner().invoke(program, ["tune", NAME, "--backend", backend, *arguments])


def last_line(result: Result) -> str:
    """Return what it says at last."""
    return result.stdout.splitlines()[-1]


def test_the_winner_is_what_the_problem_s_file_then_says(text: str, graded: Grades) -> None:
    result = tune("--quiet")
    assert result.exit_code == ExitCode.OK
    assert len(graded.asked) > 6
    assert Path(NAME).read_text() == text
    entry = "cpu: {batch: 128}"
    told = f"tiny_groupnorm: to have it rendered, write under `schedules` in {NAME}:"
    assert " ".join(result.stdout.split()).endswith(f"{told} {entry}")
    Path(NAME).write_text(f"{text}schedules:\n  {entry}\n")
    arguments = ["render", NAME, "--backend", "cpp"]
    assert CliRunner().invoke(program, arguments).exit_code == 0
    solution = Path("solutions/cpu/tiny_groupnorm.py").read_text()
    assert "# schedule: batch=128 slice=16384\n" in solution
    assert last_line(tune("--quiet")) == (
        "tiny_groupnorm: the present schedule stays, nothing was clearly faster"
    )


def test_the_table_has_every_trial_and_the_end_the_comparison(text: str, graded: Grades) -> None:
    graded.rule = lambda n: failed() if n["batch"] == 64 else bowl(n)
    result = tune()
    assert Path(NAME).read_text() == text
    rows = result.stdout.replace("\n  ", " ").splitlines()
    assert "✗ batch=64: WRONG_VALUES wrong by 3.0" in " ".join(result.stdout.split())
    assert any(row.split()[:4] == ["batch=128", "✓", "PASSED", "1.00"] for row in rows)
    tried, fastest, _, outcome = rows[-4:]
    assert tried == f"{len(graded.asked) - 2} schedules tried on a CPU"
    assert fastest == "fastest: batch=128: once more 1.00 ms, the present one 1.38 ms"
    assert outcome == "cpu: {batch: 128}"


def test_the_json_is_a_run_with_the_schedules_as_labels(text: str, graded: Grades) -> None:
    result = tune("--quiet", "--json", "-")
    assert text
    run = decode(result.stdout)
    assert [one.labels for one in run.verdicts] == graded.asked
    assert "cpu: {batch: 128}" in result.stderr


def test_the_gpu_that_is_there_names_the_architecture(
    text: str, graded: Grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = DeviceFacts(
        name="B200",
        compute_capability=(10, 0),
        sm_count=148,
        memory_bytes=1,
        free_bytes=None,
        driver=None,
    )
    monkeypatch.setattr("kernelgen.hardware.device.survey_gpus", lambda: GpuSurvey(devices=(gpu,)))
    graded.rule = lambda numbers: 1.0 + abs(numbers["items"] - 8)
    result = tune("--quiet", backend="cuda")
    assert result.exit_code == 0
    assert Path(NAME).read_text() == text
    assert last_line(result) == "sm_100a: {items: 8}"


def test_without_a_gpu_there_is_one_line(
    text: str, graded: Grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernelgen.hardware.device.survey_gpus", lambda: GpuSurvey(reason="no driver")
    )
    result = tune(backend="cuda")
    assert result.exit_code == ExitCode.GRADER_FAULT
    words = "there is no GPU: no driver; --backend cpp tunes for the CPU"
    assert (result.stdout, result.stderr) == ("", f"error: {words}\n")
    assert graded.asked == []
    assert text


def test_problems_that_cannot_be_tuned(text: str, graded: Grades) -> None:
    planned = text.replace("return self.norm(x)", "return torch.cumsum(x, 1)")
    assert planned != text
    Path(NAME).write_text(planned)
    result = tune()
    assert result.exit_code == ExitCode.USAGE
    reason = "its Model has not one product or long norm, and other kernels have no schedule"
    assert result.stderr == f"error: tiny_groupnorm: {reason}\n"
    Path(NAME).write_text(f"{text}schedules: {{cpu: {{batch: 3}}}}\n")
    assert "schedules.cpu.batch: batch must be from 16 to 4096, not 3" in tune().stderr
    assert tune("-q", "-v").exit_code == ExitCode.USAGE
    assert graded.asked == []


def test_where_the_defaults_win_the_entry_is_to_go(text: str, graded: Grades) -> None:
    Path(NAME).write_text(f"{text}schedules: {{cpu: {{batch: 64}}}}\n")
    graded.rule = lambda numbers: 1.0 + abs(numbers["batch"] - 512)
    told = f"to have it rendered, remove schedules.cpu from {NAME}"
    assert " ".join(tune("--quiet").stdout.split()).endswith(f"tiny_groupnorm: {told}")


def test_an_interrupt_ends_it(text: str, graded: Grades) -> None:
    def rule(numbers: Numbers) -> float:
        if len(graded.asked) == 5:
            raise supervisor.Interrupted(Run(schema=1, environment={}, verdicts=()))
        return bowl(numbers)

    graded.rule = rule
    result = tune("--quiet")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert (result.stdout, result.stderr) == ("", "interrupted\n")
    assert text


@pytest.mark.parametrize(
    ("owner", "status", "code"),
    [
        (Owner.CANDIDATE, Status.BUILD_ERROR, ExitCode.CANDIDATE_FAILED),
        (Owner.PROBLEM, Status.INVALID_PROBLEM, ExitCode.USAGE),
        (Owner.GRADER, Status.GRADER_ERROR, ExitCode.GRADER_FAULT),
    ],
)
def test_a_present_schedule_that_fails(
    text: str, graded: Grades, owner: Owner, status: Status, code: ExitCode
) -> None:
    found = msgspec.structs.replace(failed(status, "first\nsecond"), owner=owner)
    graded.rule = lambda _: found
    result = tune("--quiet")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == f"the present schedule fails: {status.value}: first\n  second\n"
    assert text


@pytest.mark.long
def test_a_real_search_on_this_cpu(text: str) -> None:
    # Long enough that two trials end in it on a machine that has other things to do.
    result = tune("--budget", "60", "--json", "out.json")
    assert result.exit_code == 0, result.stderr
    verdicts = decode(Path("out.json").read_text()).verdicts
    assert len(verdicts) >= 2
    assert all(verdict.passed for verdict in verdicts)
    assert all(f"{k}={v}" in one.source for one in verdicts for k, v in one.labels.items())
    assert Path(NAME).read_text() == text
