"""`grade --sanitize`, with a stand-in for compute-sanitizer that runs the program and reports."""

import json
import os
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from test_sanitizer_log import CLEAN, MEMCHECK, RACECHECK
from tool_stand_in import StandIn, on_path
from warm_lane import graded

from kernelgen.build import toolchain
from kernelgen.cli import program
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.tools import sanitizer, workplace
from kernelgen.grading.tools.sanitizer import Outcome, find_sanitizer, sanitize
from kernelgen.grading.tools.workplace import Workplace, run_inside
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Limits, Plan
from kernelgen.solution.file import read_solution

HERE = Path(__file__).parent
UNCONTAINED = Plan(level="none", landlock_abi=0, scratch=str(HERE / "unused"), limits=None)
PROBLEM = load_problem(HERE / "problems" / "tiny_polynomial.yaml")
(SMALL,) = PROBLEM.cases
REPORTS = """
tool = options[options.index("--tool") + 1]
(here / f"{tool}.json").write_text(seen)
report = here / f"{tool}.txt"
if report.exists():
    log.write_text(report.read_text())
sys.exit(code)
"""
CANDIDATE = """\
import os
import torch
import torch.nn as nn

{top}

class ModelNew(nn.Module):
    def forward(self, x):
        {forward}
        return x * x + x
"""


class FakeSanitizer(StandIn):
    """Stands for compute-sanitizer on PATH."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "compute-sanitizer", REPORTS)
        self.report(CLEAN["memcheck"], CLEAN["racecheck"])

    def report(self, memcheck: str, racecheck: str) -> None:
        """Say what its tools are to write."""
        (self.folder / "memcheck.txt").write_text(memcheck)
        (self.folder / "racecheck.txt").write_text(racecheck)

    def seen(self, tool: str) -> dict[str, object]:
        """Return how a tool was called."""
        found: dict[str, object] = json.loads((self.folder / f"{tool}.json").read_text())
        return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSanitizer:
    return FakeSanitizer(on_path(tmp_path / "bin", monkeypatch))


def sanitized(
    tmp_path: Path,
    *,
    top: str = "",
    forward: str = "pass",
    deadline_s: float = 60.0,
    limits: Limits | None = None,
) -> Outcome:
    file = tmp_path / "candidate_under_test.py"
    file.write_text(CANDIDATE.format(top=top, forward=forward))
    folder = tmp_path / "sanitizer"
    folder.mkdir()
    inside = Workplace(
        plan=msgspec.structs.replace(UNCONTAINED, limits=limits),
        folder=folder,
        environment={"GIVEN": "yes"},
        deadline_s=deadline_s,
    )
    return sanitize(read_solution(file), PROBLEM, SMALL, "cpu", inside)


@pytest.mark.usefixtures("fake")
def test_a_clean_run_is_recorded(tmp_path: Path) -> None:
    outcome = sanitized(tmp_path, forward="assert x.shape == (3, 1003)")
    assert (outcome.reason, outcome.warnings) == ("", ())
    assert outcome.record.tools == ("memcheck", "racecheck")
    assert (outcome.record.case, outcome.record.findings) == ("long_rows", ())


def test_the_tools_are_called_as_they_have_to_be(
    tmp_path: Path, fake: FakeSanitizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.idle()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    sanitized(tmp_path)
    options = fake.seen("memcheck")["options"]
    assert isinstance(options, list)
    assert " ".join(options) == (
        "--tool memcheck --log-file memcheck.log --target-processes application-only "
        "--print-limit 1000 --show-backtrace device --launch-timeout 60 --report-api-errors no"
    )
    seen = fake.seen("racecheck")
    environment = seen["environment"]
    assert isinstance(environment, dict)
    assert environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert environment["GIVEN"] == "yes"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment
    assert seen["folder"] == environment["TMPDIR"] == str(tmp_path / "sanitizer")


def test_findings_are_listed_by_kernel(tmp_path: Path, fake: FakeSanitizer) -> None:
    fake.idle()
    fake.report(MEMCHECK, RACECHECK)
    outcome = sanitized(tmp_path)
    assert outcome.record.tools == ("memcheck", "racecheck")
    assert len(outcome.record.findings) == 4
    lines = outcome.reason.splitlines()
    assert lines[0] == "case long_rows, under compute-sanitizer:"
    assert "memcheck: invalid __global__ read of size 4 bytes in shift(" in lines[1]
    assert "racecheck: race between a write and a read in total(" in lines[3]
    (warning,) = outcome.warnings
    assert "in warp(int *), 32 times" in warning


def test_a_finding_counts_though_the_call_then_fails(tmp_path: Path, fake: FakeSanitizer) -> None:
    fake.report(MEMCHECK, CLEAN["racecheck"])
    outcome = sanitized(tmp_path, forward="raise RuntimeError('unspecified launch failure')")
    assert "invalid __global__ read" in outcome.reason
    assert outcome.record.tools == ("memcheck",)
    (warning,) = outcome.warnings
    assert "racecheck did not look at the whole of a call: exit code 1;" in warning
    assert "unspecified launch failure" in warning


@pytest.mark.parametrize(
    "text",
    [
        "# cp.async.bulk.shared",
        pytest.param("# cuda::memcpy_async(tile, x, shape, barrier);", marks=pytest.mark.long),
    ],
)
def test_bulk_copies_are_not_taken_for_races(
    tmp_path: Path, fake: FakeSanitizer, text: str
) -> None:
    fake.idle()
    fake.report(CLEAN["memcheck"], RACECHECK)
    outcome = sanitized(tmp_path, top=text)
    assert outcome.reason == ""
    assert "not held against the candidate" in outcome.warnings[0]
    assert len(outcome.record.findings) == 2


def test_a_race_in_a_library_is_not_the_candidate_s(tmp_path: Path, fake: FakeSanitizer) -> None:
    fake.idle()
    fake.report(CLEAN["memcheck"], RACECHECK.replace("total(", "void at::native::sum<float>("))
    outcome = sanitized(tmp_path)
    assert outcome.reason == ""
    assert "in a library's kernel" in outcome.warnings[0]


@pytest.mark.parametrize(
    ("forward", "deadline_s", "why"),
    [
        ("os._exit(0)", 60.0, "the process left before forward had returned"),
        pytest.param(
            "raise ValueError('no')", 60.0, "exit code 1; ValueError: no", marks=pytest.mark.long
        ),
        pytest.param(
            "import time; time.sleep(100)",
            2.0,
            "it was not finished in time",
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.usefixtures("fake")
def test_a_call_that_does_not_end_is_not_clean(
    tmp_path: Path, forward: str, deadline_s: float, why: str
) -> None:
    outcome = sanitized(tmp_path, forward=forward, deadline_s=deadline_s)
    assert (outcome.reason, outcome.record.tools) == ("", ())
    assert [why in warning for warning in outcome.warnings] == [True, True]


def test_a_run_without_the_tool_s_summary_is_not_clean(tmp_path: Path, fake: FakeSanitizer) -> None:
    fake.idle()
    fake.report("========= COMPUTE-SANITIZER\n", CLEAN["racecheck"])
    assert sanitized(tmp_path).record.tools == ("racecheck",)


def test_a_tool_that_takes_too_much_memory_is_ended_and_not_the_candidate_s_fault(
    tmp_path: Path, fake: FakeSanitizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.idle()
    hungry = 'held = b"x" * (256 << 20)\nimport time; time.sleep(1000)\ncode = 0'
    fake.path.write_text(fake.path.read_text().replace("code = 0", hungry))
    limits = msgspec.structs.replace(usual_limits(), memory_bytes=128 << 20)
    monkeypatch.setattr(workplace, "usual_limits", lambda: limits)
    outcome = sanitized(tmp_path, limits=limits)
    assert (outcome.reason, outcome.record.tools) == ("", ())
    for tool, warning in zip(("memcheck", "racecheck"), outcome.warnings, strict=True):
        assert warning.startswith(f"{tool} did not look at the whole of a call: killed: its ")
        assert "GiB; 0.12 GiB may be (a program takes more under it;" in warning


def test_a_tool_may_take_more_memory_than_the_candidate(
    tmp_path: Path, fake: FakeSanitizer
) -> None:
    fake.idle()
    script = fake.path.read_text().replace(
        "code = 0", 'held = b"x" * (64 << 20)\nimport time; time.sleep(1)\ncode = 0'
    )
    fake.path.write_text(script)
    limits = msgspec.structs.replace(usual_limits(), memory_bytes=32 << 20)
    outcome = sanitized(tmp_path, limits=limits)
    assert (outcome.warnings, outcome.record.tools) == ((), ("memcheck", "racecheck"))


@pytest.mark.parametrize("group", ["the tool's", "its own"])
def test_what_a_contained_process_started_ends_with_it(tmp_path: Path, group: str) -> None:
    inside = Workplace(
        plan=UNCONTAINED, folder=tmp_path, environment=dict(os.environ), deadline_s=1.0
    )
    start = "setsid sleep 1000" if group == "its own" else "sleep 1000"
    command = ["sh", "-c", f"{start} & echo $!; wait"]
    ended = run_inside(command, inside)
    assert ended.code is None
    # It is an orphan by now: whoever reaps it may take a moment.
    deadline = time.monotonic() + 10.0
    while (left := runs(int(ended.log))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def runs(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def verdict_on(name: str, monkeypatch: pytest.MonkeyPatch, problem: str) -> Verdict:
    monkeypatch.setattr(sanitizer, "_DEVICES", ("cuda", "cpu"))
    options = GradeOptions(
        problem=load_problem(HERE / "problems" / f"{problem}.yaml"),
        sanitize=True,
        time=False,
        sandbox="off",  # the stand-in keeps notes in the test's own folder
    )
    return graded(HERE / "candidates" / name, options)


@pytest.mark.ci
@pytest.mark.usefixtures("fake")
def test_grading_looks_at_the_smallest_case(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verdict_on("honest_groupnorm.py", monkeypatch, "tiny_groupnorm")
    assert verdict.status is Status.PASSED, verdict.reason
    assert verdict.sanitizer is not None
    assert verdict.sanitizer.case == "other_sizes"
    assert verdict.sanitizer.tools == ("memcheck", "racecheck")


def test_grading_ends_with_what_was_found(
    fake: FakeSanitizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.idle()
    fake.report(MEMCHECK, CLEAN["racecheck"])
    verdict = verdict_on("honest_serial_mean.py", monkeypatch, "tiny_mean")
    assert verdict.status is Status.RUNTIME_ERROR
    assert verdict.reason.startswith("case main, under compute-sanitizer:\n  memcheck: invalid")
    assert verdict.sanitizer is not None
    assert len(verdict.sanitizer.findings) == 2


@pytest.mark.usefixtures("fake")
def test_on_the_cpu_a_warning_says_that_nothing_was_checked() -> None:
    options = GradeOptions(
        problem=load_problem(HERE / "problems" / "tiny_mean.yaml"), sanitize=True, time=False
    )
    verdict = graded(HERE / "candidates" / "honest_serial_mean.py", options)
    assert verdict.passed
    assert verdict.sanitizer is None
    assert "--sanitize: compute-sanitizer checks CUDA; nothing was checked" in verdict.warnings


def test_without_the_tool_the_command_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(toolchain, "tool_folders", lambda _: iter([str(tmp_path)]))
    path = str(HERE / "candidates" / "honest_serial_mean.py")
    result = CliRunner().invoke(program, ["grade", path, "--sanitize"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --sanitize: no compute-sanitizer was found")
    assert len(result.stderr.splitlines()) == 1


def test_it_is_found_where_a_toolkit_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "toolkit" / "bin"
    folder.mkdir(parents=True)
    tool = FakeSanitizer(folder).path
    assert find_sanitizer({"CUDA_HOME": str(folder.parent), "PATH": ""}) == tool
    assert find_sanitizer({"CUDA_PATH": str(folder.parent), "PATH": ""}) == tool
    assert find_sanitizer({"PATH": str(folder)}) == tool
    tool.chmod(0o644)
    monkeypatch.setattr(toolchain, "tool_folders", lambda _: iter([str(folder)]))
    with pytest.raises(UserError, match="no compute-sanitizer was found"):
        find_sanitizer({})


POLYNOMIAL = HERE / "candidates" / "cuda" / "honest_polynomial.py"
READS_BEYOND = (
    "if (i < count) y[i] = x[i] * x[i] + x[i];",
    "if (i < count) y[i] = x[i] * x[i] + x[i] + 1e-30f * fminf(fabsf(x[i + 1]), 1.0f);",
)
TILE = """\
__shared__ float tile[256];
  tile[threadIdx.x] = i < count ? x[i] : 0.0f;
  const float other = tile[threadIdx.x ^ 128];
  if (i < count) y[i] = x[i] * x[i] + x[i] + 1e-30f * fminf(fabsf(other), 1.0f);"""
RACES = (READS_BEYOND[0], TILE)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (None, ""),
        (READS_BEYOND, "memcheck: invalid __global__ read of size 4 bytes in polynomial_kernel("),
        (RACES, "racecheck: race between a"),
    ],
    ids=["clean", "reads_beyond", "races"],
)
def test_compute_sanitizer_itself_finds_what_values_do_not_show(
    tmp_path: Path, change: tuple[str, str] | None, reason: str
) -> None:
    try:
        find_sanitizer()
    except UserError:
        pytest.skip("no compute-sanitizer")
    text = POLYNOMIAL.read_text(encoding="utf-8")
    if change is not None:
        assert change[0] in text
        text = text.replace(*change)
    file = tmp_path / "polynomial.py"
    file.write_text(text, encoding="utf-8")
    options = GradeOptions(problem=PROBLEM, sanitize=True, time=False)
    verdict = graded(file, options)
    assert verdict.status is (Status.RUNTIME_ERROR if reason else Status.PASSED), verdict.reason
    assert reason in verdict.reason
    assert verdict.sanitizer is not None, verdict.warnings
    assert verdict.sanitizer.tools == ("memcheck", "racecheck"), verdict.warnings
