"""`kernelgen grade`: what the command line asks for, where results go, and the exit code.

The grader itself is replaced by one that returns what a test wants and remembers what it was asked.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import msgspec
import pytest
from click.testing import CliRunner, Result
from report_runs import PLAN, failed, passed, run_of

from kernelgen.cli import program
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions, Observer, compiles_baselines
from kernelgen.grading.plan_record import PlanRecord
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.supervisor.grade import Interrupted
from kernelgen.grading.verdict import Run, Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem
from kernelgen.report.json_report import decode


class FakeGrader(ModuleType):
    """Stands for `kernelgen.grading.supervisor.grade`."""

    def __init__(self) -> None:
        super().__init__("kernelgen.grading.supervisor.grade")
        self.answer: Run | BaseException = run_of(passed())
        self.paths: Sequence[Path] = ()
        self.options: GradeOptions | None = None
        self.jobs = 0
        self.problems: Mapping[Path, Problem] | None = None
        self.gpus: Sequence[str] = ()
        self.journal: Journal | None = None
        self.plans: tuple[PlanRecord, ...] = ()

    def with_plans(self, run: Run, *_: object) -> Run:
        """Stand for the real one, which traces each problem."""
        return msgspec.structs.replace(run, plans=self.plans)

    def grade(  # noqa: PLR0913 (as the real one)
        self,
        paths: Sequence[Path],
        *,
        options: GradeOptions,
        observer: Observer | None,
        jobs: int,
        problems: Mapping[Path, Problem] | None,
        gpus: Sequence[str],
        journal: Journal | None,
        crew: Crew | None,
    ) -> Run:
        """Remember the question, tell the observer, and answer."""
        assert crew is None
        self.paths, self.options, self.jobs = paths, options, jobs
        self.problems, self.gpus, self.journal = problems, gpus, journal
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert observer is not None
        observer.begin([verdict.solution for verdict in self.answer.verdicts])
        for index, verdict in enumerate(self.answer.verdicts):
            observer.phase(index, "building")
            observer.finished(index, verdict)
        return self.answer


@pytest.fixture
def grader(monkeypatch: pytest.MonkeyPatch) -> FakeGrader:
    """Put the fake in the grader's place."""
    fake = FakeGrader()
    monkeypatch.setattr("kernelgen.grading.supervisor.grade.grade", fake.grade)
    monkeypatch.setattr("kernelgen.report.planned.with_plans", fake.with_plans)
    return fake


def graded(written: str | bytes) -> Run:
    """Return a written run without what tells of the command."""
    run = decode(written)
    told = dict(run.environment)
    assert told.pop("command").startswith("kernelgen")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", told.pop("date"))
    return msgspec.structs.replace(run, environment=told)


def invoke(*arguments: str) -> Result:
    """Run `kernelgen grade` with these arguments."""
    return CliRunner().invoke(program, ["grade", *arguments])


def options_for(grader: FakeGrader, *arguments: str) -> GradeOptions:
    """Return what the grader was asked for."""
    result = invoke("x.py", *arguments)
    assert result.exit_code == 0, result.output
    assert grader.options is not None
    return grader.options


def test_without_options_the_grader_gets_its_defaults(
    grader: FakeGrader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "kernelgen" / "builds"
    assert options_for(grader) == GradeOptions(build_cache=cache)
    assert cache.is_dir()
    own = options_for(grader, "--no-build-cache")
    assert own == GradeOptions(build_cache=own.build_cache)
    assert own.build_cache not in {None, cache}
    assert not own.build_cache.exists(), "it is the run's own, and goes with it"
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert options_for(grader).build_cache not in {None, cache}
    assert "compiled extensions are not kept" in invoke("x.py").stderr
    assert list(grader.paths) == [Path("x.py")]
    assert grader.jobs == 1


def test_gpus_are_told_by_number(grader: FakeGrader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ("0", "GPU-b", "5")
    monkeypatch.setattr("kernelgen.hardware.device.all_gpus", lambda: found)
    assert options_for(grader).device == "auto"
    assert not grader.gpus
    for text, names in (("all", found), ("2, 0", ("5", "0")), ("1,1", ("GPU-b",))):
        assert options_for(grader, "--gpus", text).device == "cuda"
        assert grader.gpus == names
    for text in ("3", "0,", "x", "-1"):
        result = invoke("x.py", "--gpus", text)
        assert result.exit_code == 2
        assert "write `all`, or numbers from 0 to 2" in result.stderr
    assert "exclude each other" in invoke("x.py", "--gpus", "0", "--device", "cpu").stderr
    monkeypatch.setattr("kernelgen.hardware.device.all_gpus", tuple)
    assert "no GPU is found" in invoke("x.py", "--gpus", "all").stderr


def test_a_journal_is_opened_made_and_closed(grader: FakeGrader, tmp_path: Path) -> None:
    options_for(grader, "--resume", str(tmp_path / "run"))
    assert grader.journal is not None
    assert grader.journal.path == tmp_path / "run"
    with Journal(tmp_path / "run") as journal:
        assert journal.count == 0
        result = invoke("x.py", "--resume", str(tmp_path / "run"))
        assert (result.exit_code, result.stdout) == (2, "")
        assert "another run is writing it" in result.stderr
    (tmp_path / "run").write_bytes((tmp_path / "run").read_bytes() + b"torn\n")
    assert "run: 1 lines cannot be read" in invoke("x.py", "--resume", str(tmp_path / "run")).stderr


def test_each_option_reaches_the_grader(grader: FakeGrader, tmp_path: Path) -> None:
    options = options_for(
        grader, "--device", "cpu", "--baseline", "compile", "--baseline", "eager",
        "--timing-budget", "2.5", "--samples", "20", "--build-timeout", "30",
        "--call-timeout", "5", "--memory-limit", "24GiB", "--build-cache", str(tmp_path / "c"),
        "--allow-import", "triton", "--allow-import", "numpy", "--sanitize", "--jobs", "3",
        "--problem", "groupnorm",
    )  # fmt: skip
    assert grader.jobs == 3
    assert options == GradeOptions(
        problem=load_problem("groupnorm"),
        device="cpu",
        baselines=("compile", "eager"),
        timing_budget_s=2.5,
        max_samples=20,
        build_timeout_s=30,
        call_timeout_s=5,
        memory_limit_bytes=24 * 2**30,
        build_cache=tmp_path / "c",
        allow_imports=("triton", "numpy"),
        sanitize=True,
    )
    assert (tmp_path / "c").is_dir()
    assert options_for(grader, "--no-baseline").baselines == ()
    assert options_for(grader, "--no-timing").time is False


def test_samples_below_the_minimum_lower_it(grader: FakeGrader) -> None:
    options = options_for(grader, "--samples", "4")
    assert (options.min_samples, options.max_samples) == (4, 4)


def test_the_rows_have_an_order_and_the_json_its_own(grader: FakeGrader, tmp_path: Path) -> None:
    grader.answer = run_of(failed(Status.CRASHED, "a.py"), passed("b.py"))
    place = tmp_path / "run.json"
    rows = invoke("x.py", "--json", str(place)).stdout.partition("\nsolution ")[2].splitlines()
    assert [line.split()[0] for line in rows[1:3]] == ["b", "a"]
    assert graded(place.read_bytes()) == grader.answer


def test_reference_is_a_kernelbench_file(grader: FakeGrader, tmp_path: Path) -> None:
    reference = tmp_path / "level1.py"
    reference.write_text(
        "import torch\nimport torch.nn as nn\n\n"
        "class Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "    def forward(self, x):\n        return torch.relu(x)\n\n"
        "def get_inputs():\n    return [torch.rand(4)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    problem = options_for(grader, "--reference", str(reference)).problem
    assert problem is not None
    assert problem.module_source == reference.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--problem", "groupnorm", "--reference", "r.py"), "--problem and --reference exclude"),
        (("--baseline", "eager", "--no-baseline"), "--baseline and --no-baseline exclude"),
        (("--baseline", "eager", "--no-timing"), "--baseline and --no-timing exclude"),
        (("-q", "-v"), "--quiet and --verbose exclude"),
        (("--problem", "gruopnorm"), "did you mean groupnorm"),
        (("--reference", "groupnorm"), "--reference groupnorm: not a Python file"),
        (("--allow-import", "torch.nn"), "--allow-import torch.nn: not a top-level module"),
        (("--html", "missing/run.html"), "missing/run.html: its folder does not exist"),
        (("--junit", "missing/run.xml"), "missing/run.xml: its folder does not exist"),
        (("--json", "-", "--html", "-"), "--json and --html both name -"),
        (("--json", "missing/run.json"), "missing/run.json: its folder does not exist"),
        (("--build-cache", "/dev/null"), "--build-cache /dev/null: cannot be made"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_is_graded(
    grader: FakeGrader, arguments: tuple[str, ...], complaint: str
) -> None:
    result = invoke("x.py", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert grader.options is None


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("x.py", "--samples", "2"),
        ("x.py", "--memory-limit", "24"),
        ("x.py", "--device", "tpu"),
        ("x.py", "--jobs", "0"),
        *(("x.py", "--timing-budget", value) for value in ("nan", "inf", "0", "-1", "soon")),
        *(("x.py", f"--interval={value}") for value in ("-1", "101", "nan", "fine")),
        *(("x.py", f"--tolerance={value}") for value in ("0", "-1", "1", "nan", "loose")),
        ("x.py", "--unknown"),
    ],
)
def test_what_click_refuses_is_a_usage_error(
    grader: FakeGrader, arguments: tuple[str, ...]
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert grader.options is None


def test_the_table_goes_to_stdout_and_progress_to_stderr(grader: FakeGrader) -> None:
    grader.answer = run_of(passed())
    result = invoke("x.py")
    assert "\nsolution " in result.stdout
    assert result.stdout.endswith("1 of 1 passed on NVIDIA H200\n")
    assert result.stderr.startswith("[1/1] groupnorm: ✓ PASSED")


def test_json_to_stdout_moves_the_table_to_stderr(grader: FakeGrader) -> None:
    grader.answer = run_of(passed())
    result = invoke("x.py", "--json", "-")
    assert json.loads(result.stdout)["schema"] == 1
    assert graded(result.stdout) == grader.answer
    assert "1 of 1 passed on NVIDIA H200" in result.stderr


def test_a_page_and_junit_are_written_beside_the_json(grader: FakeGrader, tmp_path: Path) -> None:
    grader.answer = run_of(passed(), failed(Status.TIMEOUT))
    places = {name: tmp_path / f"run.{name}" for name in ("json", "html", "junit")}
    options = [part for name, place in places.items() for part in (f"--{name}", str(place))]
    result = invoke("x.py", "-q", *options)
    assert result.exit_code == 1
    assert "1 of 2 passed" in result.stdout
    assert graded(places["json"].read_text(encoding="utf-8")) == grader.answer
    assert "✗" in places["html"].read_text(encoding="utf-8")
    assert ET.parse(places["junit"]).getroot().get("failures") == "1"


@pytest.mark.parametrize("kind", ["json", "html"])
def test_what_is_read_later_holds_the_plans(grader: FakeGrader, tmp_path: Path, kind: str) -> None:
    grader.plans = (PLAN,)
    place = tmp_path / "run"
    assert invoke("x.py", "-q", f"--{kind}", str(place)).exit_code == 0
    assert "relu(add(conv2d, 1))" in place.read_text(encoding="utf-8")


def test_nobody_traces_a_problem_for_what_shows_no_plan(
    grader: FakeGrader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def plans(*_: object) -> Run:
        raise AssertionError

    monkeypatch.setattr("kernelgen.report.planned.with_plans", plans)
    assert invoke("x.py", "--junit", str(tmp_path / "run.xml")).exit_code == 0
    grader.answer = Interrupted(run_of(passed()))
    assert invoke("x.py", "--json", str(tmp_path / "run.json")).exit_code == 130


def test_a_document_that_cannot_be_written_costs_no_other(
    grader: FakeGrader, tmp_path: Path
) -> None:
    grader.answer = run_of(passed())
    place = tmp_path / "run.xml"
    result = invoke("x.py", "-q", "--json", "/dev/full", "--junit", str(place))
    assert result.exit_code == 3
    assert result.stderr == "error: the disk is full (writing /dev/full); make room and run again\n"
    assert "1 of 1 passed" in result.stdout
    assert place.is_file()


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((passed(), passed()), 0),
        ((passed(), failed(Status.WRONG_SHAPE)), 1),
        ((passed(), failed(Status.INVALID_PROBLEM)), 2),
        ((failed(Status.NO_DEVICE),), 3),
    ],
)
def test_exit_code(grader: FakeGrader, verdicts: tuple[Verdict, ...], code: int) -> None:
    grader.answer = run_of(*verdicts)
    assert invoke("x.py").exit_code == code


def test_nothing_to_grade_is_a_usage_error(grader: FakeGrader) -> None:
    grader.answer = run_of()
    result = invoke("empty_folder", "-q")
    assert result.exit_code == 2
    assert result.stderr == "error: empty_folder: nothing to grade; a solution is a *.py file\n"
    assert result.stdout == ""


def test_a_wrong_path_is_one_line(grader: FakeGrader) -> None:
    grader.answer = UserError("nowhere.py: no such file or folder")
    result = invoke("nowhere.py")
    assert result.exit_code == 2
    assert result.stderr == "error: nowhere.py: no such file or folder\n"


def test_an_interrupt_exits_with_130(grader: FakeGrader, tmp_path: Path) -> None:
    grader.answer = KeyboardInterrupt()
    result = invoke("x.py", "--json", str(tmp_path / "run.json"))
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr == "interrupted\n"
    assert not list(tmp_path.iterdir())


def test_an_interrupt_keeps_what_was_graded(grader: FakeGrader, tmp_path: Path) -> None:
    grader.answer = Interrupted(run_of(passed()))
    result = invoke("x.py", "-q", "--json", str(tmp_path / "run.json"))
    assert result.exit_code == 130
    assert "1 of 1 passed" in result.stdout
    assert result.stderr == "interrupted; 1 graded before it\n"
    assert graded((tmp_path / "run.json").read_text()) == run_of(passed())


def test_help_imports_no_torch() -> None:
    program_text = (
        "import sys\n"
        "from kernelgen.cli.grade import command\n"
        "try:\n    command(['--help'])\n"
        "finally:\n    assert 'torch' not in sys.modules and 'rich' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program_text], capture_output=True, text=True, check=True
    )
    assert "--memory-limit SIZE" in done.stdout


def test_a_baseline_that_is_none_is_refused_in_python_too() -> None:
    with pytest.raises(UserError, match="nothing: no baseline; there are eager, compile"):
        GradeOptions(baselines=("eager", "nothing"))


def test_options_stand_in_for_the_problems_rules(grader: FakeGrader) -> None:
    modes = ("--eval-mode", "--launch-overhead")
    result = invoke("a.py", "--tolerance", "kernelbench", "--require", "anything", *modes)
    assert result.exit_code == 0
    assert grader.options is not None
    given = grader.options.applied_to(load_problem("groupnorm"))
    assert (given.tolerance, given.rule) == (1e-4, "kernelbench")
    assert (given.require, given.eval_mode, given.launch_overhead) == ("anything", True, True)
    assert grader.options.overrides() == {
        "tolerance": "kernelbench, |out - ref| <= 1e-4 + 1e-4 * |ref|, 1e-2 for bf16 and fp16",
        "require": "anything",
        "eval-mode": "reference and candidate under eval()",
        "launch-overhead": "calls begin on an idle GPU",
    }
    inexact = options_for(grader, "--tolerance", "reference")
    given = inexact.applied_to(load_problem("groupnorm"))
    assert (given.tolerance, given.rule) == (1e-5, "reference")
    assert "weaker" in inexact.overrides()["tolerance"]
    loose = options_for(grader, "--tolerance", "1e-3")
    given = loose.applied_to(load_problem("groupnorm"))
    assert (given.tolerance, given.rule, loose.overrides()) == (
        1e-3, "exact", {"tolerance": "0.001"},
    )  # fmt: skip
    plain, problem = options_for(grader), load_problem("groupnorm")
    assert plain.applied_to(problem) is problem
    assert plain.overrides() == {}


def test_quick_means_few_samples_and_no_compiler(grader: FakeGrader) -> None:
    invoke("a.py", "--quick")
    assert grader.options is not None
    assert grader.options.baselines == ("eager",)
    assert (grader.options.min_samples, grader.options.max_samples) == (3, 3)
    assert grader.options.overrides() == {"quick": "3 samples, no torch.compile"}
    assert not compiles_baselines(grader.options)


@pytest.mark.parametrize(
    "other", [("--samples", "5"), ("--baseline", "compile"), ("--no-baseline",), ("--no-timing",)]
)
def test_quick_sets_what_others_would(other: tuple[str, ...], grader: FakeGrader) -> None:
    result = invoke("a.py", "--quick", *other)
    assert result.exit_code == 2
    assert f"--quick and {other[0]} exclude each other" in result.stderr
    assert grader.options is None
