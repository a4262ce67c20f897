"""`kernelgen tune` through click: what is printed, recorded, refused, and the exit codes."""

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
from kernelgen.problem.library import load_problem
from kernelgen.report.json_report import decode
from kernelgen.tuning import search

HERE = Path(__file__).resolve().parent
NAME = "tiny_groupnorm.yaml"
TUNED = "tiny_groupnorm.schedules.json"
WRITTEN = f"{TUNED}: written; its solutions are stale now: kernelgen render {NAME}"
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


def recorded() -> dict[str, dict[str, int]]:
    """Return the tuned schedules by architecture."""
    kind = dict[str, dict[str, dict[str, int]]]
    return msgspec.json.decode(Path(TUNED).read_bytes(), type=kind)["schedules"]


def render(*arguments: str) -> None:
    assert CliRunner().invoke(program, ["render", NAME, *arguments]).exit_code == 0


def test_the_winner_is_recorded_and_rendered(text: str, graded: Grades) -> None:
    result = tune("--quiet")
    assert result.exit_code == ExitCode.OK
    assert len(graded.asked) > 6
    assert Path(NAME).read_text() == text
    assert recorded() == {"cpu": {"batch": 128}}
    assert result.stderr == f"{WRITTEN} --backend cpp\n"
    render("--backend", "cpp")
    solution = Path("solutions/cpu/tiny_groupnorm.py").read_text()
    assert "# schedule: batch=128 slice=16384\n" in solution
    assert tune("--quiet").stdout.splitlines()[-1] == (
        "tiny_groupnorm: the present schedule stays, nothing was clearly faster"
    )


def test_the_table_has_every_trial_and_the_end_the_comparison(text: str, graded: Grades) -> None:
    graded.rule = lambda n: failed() if n["batch"] == 64 else bowl(n)
    result = tune("--dry-run")
    assert Path(NAME).read_text() == text
    assert not Path(TUNED).exists()
    rows = result.stdout.replace("\n  ", " ").splitlines()
    assert "✗ batch=64: WRONG_VALUES wrong by 3.0" in " ".join(result.stdout.split())
    assert any(row.split()[:4] == ["batch=128", "✓", "PASSED", "1.00"] for row in rows)
    tried, fastest, outcome = rows[-3:]
    assert tried == f"{len(graded.asked) - 6} schedules tried on a CPU"
    assert fastest == (
        "fastest: batch=128: 1.00 1.00 1.00 ms by turns with 1.38 1.38 1.38 ms of the present one; "
        "27.7 % faster, where grades of one schedule differ by 0.0 %"
    )
    assert outcome == "tiny_groupnorm: would be recorded (--dry-run) for cpu: batch=128"


def test_the_json_is_a_run_with_the_schedules_as_labels(text: str, graded: Grades) -> None:
    result = tune("--quiet", "--json", "-")
    assert text
    run = decode(result.stdout)
    assert [one.labels for one in run.verdicts] == graded.asked
    assert result.stderr.splitlines()[-1] == f"{WRITTEN} --backend cpp"
    assert "recorded for cpu: batch=128" in result.stderr


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
    assert recorded() == {"sm_100a": {"items": 8}}
    assert result.stderr == f"{WRITTEN} --arch sm_100a -o FILE\n"


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
    assert not Path(TUNED).exists()


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


def test_a_file_that_cannot_be_written_is_refused_first(
    text: str, graded: Grades, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    assert text
    monkeypatch.setattr(Path, "touch", refuse)
    result = tune()
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == f"error: {TUNED}: cannot be written: Permission denied\n"
    assert graded.asked == []
    assert tune("--dry-run").exit_code == 0
    assert not Path(TUNED).exists()


def test_an_entry_is_replaced_and_the_others_stay(text: str, graded: Grades) -> None:
    assert text
    Path(TUNED).write_text('{"schedules": {"cpu": {"batch": 64}, "sm_90a": {"items": 8}}}')
    assert tune("--quiet").exit_code == ExitCode.OK
    assert recorded() == {"cpu": {"batch": 128}, "sm_90a": {"items": 8}}
    assert graded.asked[0]["batch"] == 64


def test_defaults_that_win_are_recorded_over_an_entry_in_the_problem_s_file(
    text: str, graded: Grades
) -> None:
    Path(NAME).write_text(f"{text}schedules: {{cpu: {{batch: 64}}}}\n")
    graded.rule = lambda numbers: 1.0 + abs(numbers["batch"] - 512)
    result = tune("--quiet")
    assert result.stdout.splitlines()[-1] == "tiny_groupnorm: recorded for cpu: the defaults"
    assert recorded() == {"cpu": {}}
    render("--backend", "cpp")
    solution = Path("solutions/cpu/tiny_groupnorm.py").read_text()
    assert "# schedule: batch=512 slice=16384\n" in solution


@pytest.mark.parametrize("changed", [NAME, TUNED])
def test_a_file_that_changed_meanwhile_is_left_alone(
    text: str, graded: Grades, changed: str
) -> None:
    tuned = '{"schedules": {"cpu": {"batch": 64}}}'
    Path(TUNED).write_text(tuned)
    edited = f"{text}# edited\n" if changed == NAME else '{"schedules": {"sm_90a": {"items": 8}}}'

    def rule(numbers: Numbers) -> float:
        Path(changed).write_text(edited)
        return bowl(numbers)

    graded.rule = rule
    result = tune("--quiet")
    assert result.exit_code == ExitCode.USAGE
    words = "or its tuned schedules changed during the search; nothing is recorded, run it again"
    assert result.stderr == f"error: {NAME}: {words}\n"
    assert Path(changed).read_text() == edited
    last = "tiny_groupnorm: faster, and not recorded for cpu: batch=128"
    assert result.stdout.splitlines()[-1] == last


def test_an_interrupt_records_nothing(text: str, graded: Grades) -> None:
    def rule(numbers: Numbers) -> float:
        if len(graded.asked) == 5:
            raise supervisor.Interrupted(Run(schema=1, environment={}, verdicts=()))
        return bowl(numbers)

    graded.rule = rule
    result = tune("--quiet")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert (result.stdout, result.stderr) == ("", "interrupted\n")
    assert text
    assert not Path(TUNED).exists()


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
    assert not Path(TUNED).exists()


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
    schedules = load_problem(Path(NAME)).schedules
    assert ("cpu" in schedules) == (f"{TUNED}: written" in result.stderr)
