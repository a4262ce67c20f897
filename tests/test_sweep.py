"""`kernelgen sweep`: its file, what it asks to be graded, its record, and the shipped files."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from report_runs import failed, passed, run_of

from kernelgen.cli import program
from kernelgen.errors import ProblemError, UserError
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.queue.job import Job
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import Interrupted
from kernelgen.grading.verdict import Run, Status
from kernelgen.problem.record import Backend, Minimal, Problem
from kernelgen.report.json_report import decode
from kernelgen.sweep.variants import read_sweep

ROOT = Path(__file__).parent.parent
SWEEPS = ROOT / "benchmarks" / "sweeps"
GOOD = """\
problem: softmax
points:
  - {batch_size: 16, features: 1024}
"""
TWO_POINTS = GOOD + "  - {batch_size: 32, features: 1024, schedule.batch: 64}\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def jobs_of(file: Path, backend: Backend = "cpp") -> tuple[Job, ...]:
    return read_sweep(file, backend, GradeOptions())


def problem_of(job: Job) -> Problem:
    assert job.options.problem is not None
    return job.options.problem


def test_a_point_is_the_problem_at_its_size_and_nothing_else(tmp_path: Path) -> None:
    (first, second) = jobs_of(written(tmp_path, TWO_POINTS))
    assert first.labels == {"batch_size": 16, "features": 1024}
    assert str(first.path) == "batch_size=16_features=1024.py"
    assert problem_of(first).constants == {"batch_size": 16, "features": 1024}
    assert problem_of(first).cpu_constants == {}
    assert [case.name for case in problem_of(first).all_cases()] == ["main"]
    assert first.data is not None
    assert b"batch_size = 16\nfeatures = 1024\n" in first.data
    assert second.labels == {"batch_size": 32, "features": 1024, "schedule.batch": 64}
    assert problem_of(second).constants == {"batch_size": 32, "features": 1024}
    assert second.data is not None
    assert b"# schedule: batch=64 " in second.data


def test_what_a_point_leaves_out_is_the_problem_s_own_on_that_device(tmp_path: Path) -> None:
    file = written(tmp_path, "problem: softmax\npoints: [{}, {constants.batch_size: 4}]\n")
    features: dict[Backend, int] = {"cuda": 393216, "cpp": 32768}
    for backend, own in features.items():
        whole, small = jobs_of(file, backend)
        assert str(whole.path) == "softmax.py"
        assert problem_of(small).constants == {"batch_size": 4, "features": own}


def test_bytes_that_the_problem_declares_are_of_another_size(tmp_path: Path) -> None:
    problem = (ROOT / "problems" / "softmax.yaml").read_text(encoding="utf-8")
    (tmp_path / "own.yaml").write_text(problem + "minimal: {bytes: 12}\n", encoding="utf-8")
    (job,) = jobs_of(written(tmp_path, GOOD.replace("softmax", "./own.yaml")))
    assert problem_of(job).minimal == Minimal()


def test_a_float_constant_stays_a_number(tmp_path: Path) -> None:
    problem = (ROOT / "problems" / "softmax.yaml").read_text(encoding="utf-8")
    problem = problem.replace("  features: 393216\n", "  features: 393216\n  scale: 0.5\n")
    (tmp_path / "own.yaml").write_text(problem, encoding="utf-8")
    text = GOOD.replace("softmax", "own.yaml").replace("1024}", "1024, scale: 1e-5}")
    (job,) = jobs_of(written(tmp_path, text))
    assert problem_of(job).constants["scale"] == 1e-5


@pytest.mark.parametrize(
    ("old", "new", "line", "complaint"),
    [
        ("problem: softmax\n", "", 1, "expected the key `problem`, found none"),
        ("points:", "point:", 2, "point: unknown key"),
        ("problem: softmax", "problem: softmaxx", 1, "problem: no problem is called 'softmaxx'"),
        ("features: 1024", "feature: 1024", 3, "points[0]: --set feature: unknown key; did you"),
        ("features: 1024", "features: many", 3, "expected a positive whole number, not 'many'"),
        ("features: 1024", "features: 0", 3, "expected a positive whole number, not 0"),
        ("features: 1024", "batch: 1", 3, "batch must be from 16 to 4096, not 1"),
        ("features: 1024", "features: {}", 3, "points[0].features: expected a number"),
        ("\n  - {batch_size: 16, features: 1024}", " []", 2, "points: expected a list of points"),
        ("1024}", "1024}\n  - {batch_size: 16, features: 1024}", 4, "the same settings stand"),
        ("points:\n  -", "points: [", 2, "not YAML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, complaint: str
) -> None:
    file = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ProblemError) as refused:
        jobs_of(file)
    assert re.match(rf"{re.escape(str(file))}:[{line}-4]: ", str(refused.value))
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_problem_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("class Model: ...\n")
    with pytest.raises(UserError):
        jobs_of(written(tmp_path, GOOD.replace("softmax", "bare.py")))
    with pytest.raises(UserError, match="cannot be read"):
        jobs_of(tmp_path / "absent.yaml")


# The command


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["sweep", *arguments])


class Grades:
    """Stands for the grader: it gives a run, or raises, and remembers the jobs."""

    def __init__(self) -> None:
        self.answer: Run | BaseException = run_of()
        self.asked: list[Job] = []

    def __call__(self, jobs: Sequence[Job], _crew: Crew, _observer: Observer) -> Run:
        """Grade."""
        self.asked += jobs
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def grades(monkeypatch: pytest.MonkeyPatch) -> Grades:
    """Put a grader that is made up in the real one's place."""
    found = Grades()
    monkeypatch.setattr("kernelgen.sweep.variants.grade_jobs", found)
    return found


@pytest.mark.parametrize(
    ("status", "code"),
    [(None, 0), (Status.WRONG_VALUES, 1), (Status.INVALID_PROBLEM, 2), (Status.NO_DEVICE, 3)],
)
def test_the_record_is_a_run_and_a_failure_decides_the_code(
    grades: Grades, tmp_path: Path, status: Status | None, code: int
) -> None:
    grades.answer = run_of(passed("a.py"), failed(status, "b.py") if status else passed("b.py"))
    record = tmp_path / "run.json"
    result = invoke(
        str(written(tmp_path, TWO_POINTS)), "--json", str(record), "--timing-budget", "3"
    )
    assert result.exit_code == code, result.stderr
    assert [job.options.timing_budget_s for job in grades.asked] == [3, 3]
    assert decode(record.read_text()) == grades.answer
    assert f"{2 - bool(status)} of 2 passed on NVIDIA H200" in result.stdout


@pytest.mark.parametrize("code", [130, 143])
def test_an_interrupted_sweep_keeps_what_is_known(
    grades: Grades, tmp_path: Path, code: int
) -> None:
    file = str(written(tmp_path, TWO_POINTS))
    grades.answer = Interrupted(run_of(passed()), code)
    record = tmp_path / "run.json"
    result = invoke(file, "--json", str(record))
    assert (result.exit_code, result.stderr) == (code, "interrupted; 1 graded before it\n")
    assert decode(record.read_text()) == run_of(passed())
    grades.answer = Interrupted(run_of(), code)
    none = invoke(file, "--json", str(tmp_path / "none.json"))
    assert (none.exit_code, none.stdout) == (code, "")
    assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("absent.yaml",), "absent.yaml: "),
        (("a.yaml", "-q", "-v"), "--quiet and --verbose exclude each other"),
        (("a.yaml", "--json", "no/such/run.json"), "its folder does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_nothing_is_graded_where_a_later_point_is_wrong(grades: Grades, tmp_path: Path) -> None:
    file = written(tmp_path, TWO_POINTS.replace("batch_size: 32", "batch_size: -1"))
    result = invoke(str(file))
    assert (result.exit_code, result.stdout, grades.asked) == (2, "", [])
    assert f"{file}:4: points[1]: --set batch_size: " in result.stderr


@pytest.mark.ci
def test_two_tiny_points_on_the_cpu(tmp_path: Path) -> None:
    record = tmp_path / "run.json"
    file = str(written(tmp_path, TWO_POINTS))
    result = invoke(file, "--backend", "cpp", "--timing-budget", "1", "--json", str(record))
    assert result.exit_code == 0, result.stderr
    verdicts = decode(record.read_text()).verdicts
    assert [one.status for one in verdicts] == [Status.PASSED] * 2
    assert [one.labels["batch_size"] for one in verdicts] == [16, 32]
    least = [one.timing.minimal_bytes for one in verdicts if one.timing is not None]
    assert set(least) <= {2 * 65536, 2 * 131072}


# The files in benchmarks/sweeps


@pytest.mark.long
@pytest.mark.parametrize("name", ["instancenorm", "softmax"])
def test_the_shipped_sweeps_have_segments_of_256_b_to_64_mb(name: str) -> None:
    file = SWEEPS / f"{name}.yaml"
    given = []
    for size in yaml.safe_load(file.read_text(encoding="utf-8"))["points"]:
        elements, segments = size.get("features"), size["batch_size"]
        if name == "instancenorm":
            elements, segments = size["height"] * size["width"], segments * size["num_features"]
        given.append((4 * elements, 4 * elements * segments))
    tensors = [n << 20 for n in (1, 16, 256, 2048, 8192)]
    assert given == [(256 << 2 * n, t) for t in tensors for n in range(10) if 256 << 2 * n <= t]
    assert len(jobs_of(file, "cuda")) == len(given)
