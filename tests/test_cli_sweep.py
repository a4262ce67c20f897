"""`kernelgen sweep`: the command on verdicts made by hand, and one small real run."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from report_runs import FULL_TIMING, full, passed
from report_runs import failed as failed_verdict
from sweep_records import MIXED, recorded
from test_sweep_plan import GOOD

from kernelgen.cli import program
from kernelgen.grading.options import GradeOptions, Observer
from kernelgen.grading.queue.job import Job
from kernelgen.grading.verdict import UNKNOWN_TIME, Status, Verdict
from kernelgen.sweep import running
from kernelgen.sweep.plot import plot
from kernelgen.sweep.record import Sweep, read_sweep

TWO_POINTS = GOOD + GOOD.splitlines()[-1].replace("65536", "131072").replace("16,", "32,") + "\n"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["sweep", *arguments])


def test_a_record_is_shown_and_drawn_again_without_grading(tmp_path: Path) -> None:
    shown = invoke("--from", recorded(tmp_path))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "5 of 6 points passed" in shown.stdout
    pytest.importorskip("matplotlib")
    place = tmp_path / "plot.svg"
    result = invoke("--from", recorded(tmp_path), "--svg", str(place))
    assert (result.exit_code, result.stdout) == (0, shown.stdout)
    assert place.read_bytes() == plot(MIXED)
    piped = invoke("--from", recorded(tmp_path), "--svg", "-")
    assert piped.stdout_bytes == plot(MIXED)
    assert "5 of 6 points passed" in piped.stderr


def test_without_matplotlib_a_plot_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke("--from", recorded(tmp_path), "--svg", str(tmp_path / "plot.svg"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: a plot needs matplotlib; install it with `pip install 'kernelgen[plot]'`\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give either a sweep's FILE, or a record"),
        (("a.yaml", "--from", "b.json"), "give either a sweep's FILE, or a record"),
        (("absent.yaml",), "absent.yaml: "),
        (("--from", "absent.json"), "absent.json: cannot be read"),
        (("a.yaml", "-q", "-v"), "--quiet and --verbose exclude each other"),
        (("a.yaml", "--json", "x", "--svg", "x"), "--json and --svg both name x"),
        (("a.yaml", "--svg", "no/such/folder.svg"), "its folder does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1


class FakeLane:
    """A lane whose verdicts are given; it remembers what it was asked."""

    answers: Sequence[Verdict | BaseException] = ()
    asked: list[tuple[str, GradeOptions]] = []  # noqa: RUF012 - emptied by the fixture

    def __init__(self, *_: object, **__: object) -> None:
        self.environment = {"torch": "2.11.0"}

    def __enter__(self) -> "FakeLane":  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None: ...

    def grade_one(self, job: Job, index: int, _: Observer) -> Verdict:
        """Return the answer of this index, or raise it."""
        assert job.data is not None
        self.asked.append((job.data.decode(), job.options))
        answer = self.answers[index]
        if isinstance(answer, BaseException):
            raise answer
        place = f"{job.path}:3: {answer.reason}" if answer.reason else ""
        return msgspec.structs.replace(answer, reason=place, solution=str(job.path))


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> type[FakeLane]:
    """Return the class of the lanes that a sweep opens."""
    monkeypatch.setattr(running, "Lane", FakeLane)
    monkeypatch.setattr(FakeLane, "asked", [])
    return FakeLane


def swept(lane: type[FakeLane], folder: Path, *answers: Verdict | BaseException) -> Result:
    lane.answers = answers
    file = folder / "sweep.yaml"
    file.write_text(TWO_POINTS, encoding="utf-8")
    return invoke(str(file), "--backend", "cuda", "--json", str(folder / "run.json"))


def test_each_point_is_graded_on_its_own_problem(lane: type[FakeLane], tmp_path: Path) -> None:
    result = swept(lane, tmp_path, full(), passed())
    assert result.exit_code == 0, result.stderr
    sizes = [options.problem.constants for _, options in lane.asked if options.problem]
    assert sizes == [{"batch_size": n, "features": 1024} for n in (16, 32)]
    assert ["batch_size = 32\n" in text for text, _ in lane.asked] == [False, True]
    found = read_sweep(tmp_path / "run.json")
    times = [point.time for point in found.points]
    assert times[0] is not None
    assert times[1] is not None
    assert (times[0].fraction, times[0].limit_ms, times[1].fraction) == (0.88, 3.52, None)
    medians = {name: FULL_TIMING.subjects[name].median_ms for name in FULL_TIMING.speedup}
    assert times[0].baselines_ms == medians
    assert found.device == "NVIDIA H200"
    assert found.environment["torch"] == "2.11.0"
    assert "[2/2] segment 4 KiB, tensor 128 KiB: ✓ PASSED" in result.stderr


@pytest.mark.parametrize(
    ("status", "code"),
    [(Status.WRONG_VALUES, 1), (Status.INVALID_PROBLEM, 2), (Status.NO_DEVICE, 3)],
)
def test_a_point_that_fails_stays_and_decides_the_code(
    lane: type[FakeLane], tmp_path: Path, status: Status, code: int
) -> None:
    result = swept(lane, tmp_path, failed_verdict(status), passed())
    assert result.exit_code == code
    first, second = read_sweep(tmp_path / "run.json").points
    assert (first.status, first.time) == (status, None)
    assert first.reason.startswith("softmax_4096_65536.py:3: what"), "no temporary folder"
    assert second.passed


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_an_interrupted_sweep_keeps_what_is_known(
    lane: type[FakeLane], tmp_path: Path, stop: BaseException, code: int
) -> None:
    result = swept(lane, tmp_path, passed(), stop)
    assert result.exit_code == code
    assert "interrupted; 1 of 2 points graded before it" in result.stderr
    found = read_sweep(tmp_path / "run.json")
    assert (len(found.points), found.planned) == (1, 2)
    assert "1 not graded" in result.stdout


def test_nothing_is_graded_where_a_later_point_is_wrong(
    lane: type[FakeLane], tmp_path: Path
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(TWO_POINTS.replace("batch_size: 32", "batch_size: -1"), encoding="utf-8")
    result = invoke(str(file))
    assert (result.exit_code, result.stdout, lane.asked) == (2, "", [])
    assert f"{file}:6: points[1].constants: --set batch_size: " in result.stderr


def test_parts_of_a_sweep_become_one(lane: type[FakeLane], tmp_path: Path) -> None:
    parts = [tmp_path / "first.json", tmp_path / "second.json"]
    lane.answers = (full(),)
    file = tmp_path / "sweep.yaml"
    file.write_text(TWO_POINTS, encoding="utf-8")
    for number, part in enumerate(parts, start=1):
        chosen = ("--points", str(number), "--json", str(part))
        result = invoke(str(file), "--backend", "cuda", *chosen)
        assert result.exit_code == 0, result.stderr
        assert "1 of 1 points passed on NVIDIA H200; 1 not graded" in result.stdout
        assert "interrupted" not in result.stderr
    whole = invoke("--from", str(parts[0]), "--from", str(parts[1]), "--json", "-")
    found = msgspec.json.decode(whole.stdout, type=Sweep)
    assert [point.labels["tensor"] for point in found.points] == [65536, 131072]
    assert (found.planned, "2 of 2 points passed" in whole.stderr) == (2, True)
    twice = invoke("--from", str(parts[0]), "--from", str(parts[0]))
    assert (twice.exit_code, twice.stdout) == (2, "")
    assert "segment 4 KiB, tensor 64 KiB is in an earlier file as well" in twice.stderr


def test_points_of_a_record(tmp_path: Path) -> None:
    record = recorded(tmp_path)
    chosen = invoke("--from", record, "--points", "2-3", "--json", "-")
    assert msgspec.json.decode(chosen.stdout, type=Sweep).points == MIXED.points[1:3]
    beyond = invoke("--from", record, "--points", "2-30")
    assert (beyond.exit_code, beyond.stdout) == (2, "")
    count = len(MIXED.points)
    assert f"--points {count + 1}: there are {count} points" in beyond.stderr


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("device", "NVIDIA A100", "device is NVIDIA A100, there NVIDIA H200"),
        ("problem_sha256", "00", "problem_sha256 is 00"),
        ("environment", {"torch": "2.12.0"}, "torch is 2.12.0, there 2.11.0"),
    ],
)
def test_parts_of_two_sweeps_are_refused(
    tmp_path: Path, field: str, value: object, complaint: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    second = recorded(other, msgspec.structs.replace(MIXED, points=(), **{field: value}))
    result = invoke("--from", recorded(tmp_path), "--from", second)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{second}: no part of the sweep in" in result.stderr
    assert complaint in result.stderr


@pytest.mark.parametrize("points", ["0-1", "2-1", "1-3", "first", "-1", "1-", ""])
def test_points_that_are_not_there_are_refused(
    lane: type[FakeLane], tmp_path: Path, points: str
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(TWO_POINTS, encoding="utf-8")
    result = invoke(str(file), f"--points={points}")
    assert (result.exit_code, result.stdout, lane.asked) == (2, "", [])
    told = "there are 2 points" if points in ("0-1", "1-3") else "expected numbers and ranges"
    assert told in result.stderr


@pytest.mark.ci
def test_two_tiny_points_on_the_cpu(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(TWO_POINTS, encoding="utf-8")
    run = tmp_path / "run.json"
    result = invoke(str(file), "--backend", "cpp", "--timing-budget", "1", "--json", str(run))
    assert result.exit_code == 0, result.stderr
    found = read_sweep(run)
    assert [point.status for point in found.points] == [Status.PASSED] * 2
    assert found.baselines == ("eager",)
    for point, least in zip(found.points, (2 * 65536, 2 * 131072), strict=True):
        if point.time is not None:
            assert point.time.minimal_bytes == least
        else:
            # On a machine that is busy with other tests.
            assert UNKNOWN_TIME in "".join(point.remarks)


def test_a_recorded_sweep_is_shown_without_torch(tmp_path: Path) -> None:
    import subprocess

    arguments = ["sweep", "--from", recorded(tmp_path)]
    script = (
        "import sys\nfrom kernelgen.cli import program\n"
        f"try:\n    program({arguments!r})\n"
        "except SystemExit as leaving:\n    assert leaving.code == 0, leaving.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
