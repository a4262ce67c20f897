"""`kernelgen profile`, with a stand-in for ncu that runs the program and reports."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from tool_stand_in import StandIn, on_path

from kernelgen.build import toolchain
from kernelgen.cli import program
from kernelgen.errors import ToolchainError
from kernelgen.grading.tools import workplace
from kernelgen.grading.tools.workplace import Workplace
from kernelgen.hardware.device import DeviceFacts, GpuSurvey
from kernelgen.profile import profiling
from kernelgen.profile.ncu import collect, dram_bytes_in, explain, find_ncu, launches_in
from kernelgen.profile.record import Facts
from kernelgen.sandbox.contained import Ended
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Limits, Plan

HERE = Path(__file__).parent
UNCONTAINED = Plan(level="none", landlock_abi=0, scratch=str(HERE / "unused"), limits=None)
TINY = HERE / "problems" / "tiny_polynomial.yaml"
REPORTS = """
runs = sorted(here.glob("run_*.json"))
(here / f"run_{len(runs)}.json").write_text(seen)
log.write_text((here / "report").read_text())
sys.stdout.write((here / "printed").read_text())
sys.exit(int((here / "code").read_text()) or code)
"""
MISSING = "(!) n/a"
RULE = "    -------------------- ----------- ------------\n"


def report(*launches: tuple[str, str]) -> str:
    """Return a log in the form of ncu 2025.3.1: of a copy, and of launches that moved so much."""
    head = '==PROF== Profiling "copy" - 0 (1/1): 0%....50%....100% - 19 passes\n'
    return head + "".join(
        "  void copy<float, 4>(float *) (1056, 1, 1)x(512, 1, 1), Context 1, Stream 7, CC 9.0\n"
        f"    Section: Command line profiler metrics\n{RULE}"
        f"    dram__bytes_read.sum  {read:>24}\n    dram__bytes_write.sum {written:>24}\n{RULE}\n"
        "    OPT   Est. Speedup: 25%\n\n"
        for read, written in (("byte 1,000,000,000", "B 980000000.5"), *launches)
    )


SOLUTION = """\
# problem: {problem}
import os
import sys
import torch
import torch.nn as nn
{top}

calls = 0


class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        {forward}
        return x * x + x
"""


class FakeNcu(StandIn):
    """Stands for ncu on PATH."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder / "ncu", REPORTS)
        self._patch = patch
        self.says(report())

    def says(self, text: str, *, code: int = 0, printed: str = "") -> None:
        """Say what it is to report."""
        (self.folder / "report").write_text(text)
        (self.folder / "code").write_text(str(code))
        (self.folder / "printed").write_text(printed)

    def idle(self) -> None:
        """Only report from now on."""
        super().idle()
        facts = Facts(device="cpu", minimal_bytes=1776)
        self._patch.setattr(profiling, "_rehearse", lambda *_: facts)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Return how it was called, each time."""
        files = sorted(self.folder.glob("run_*.json"))
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    gpu = DeviceFacts(
        name="NVIDIA H200", compute_capability=(9, 0), sm_count=132, free_bytes=None,
        memory_bytes=150 << 30, driver="580.65.06",
    )  # fmt: skip
    monkeypatch.setattr(profiling, "survey_gpus", lambda: GpuSurvey(devices=(gpu,)))
    monkeypatch.setattr(profiling, "_DEVICE", "cpu")
    return FakeNcu(on_path(tmp_path / "bin", monkeypatch), monkeypatch)


def profiled(
    tmp_path: Path, *arguments: str, top: str = "", forward: str = "pass", sandbox: str = "off"
) -> Result:
    file = tmp_path / "solution_under_test.py"
    file.write_text(SOLUTION.format(top=top, forward=forward, problem=TINY.stem))
    # Off by default: the stand-in keeps notes in the test's own folder.
    given = ["--problem", str(TINY), "--sandbox", sandbox, *arguments]
    return CliRunner().invoke(program, ["profile", str(file), *given])


def test_a_profile_is_ncu_s_log_and_the_bytes_of_dram(tmp_path: Path, fake: FakeNcu) -> None:
    fake.says(report(("byte 1000000000", "byte 0")))
    result = profiled(tmp_path, "-v")
    assert result.exit_code == 0, result.stderr
    log, _, below = result.stdout.partition("cpu: ")
    assert log.split() == report(("byte 1000000000", "byte 0")).split()
    # 6 by 37 floats in, as many out.
    assert "the problem needs to move 0.00178 MB; the call moved 2980 MB of DRAM (" in below
    assert "each kernel of the second call" in below
    assert "building and calling it, without ncu" in result.stderr
    assert "profiling under ncu" in result.stderr
    assert len(fake.runs) == 1


@pytest.mark.parametrize("count", [MISSING, "Kbyte 12", "byte"])
def test_bytes_that_were_not_counted_are_no_sum(tmp_path: Path, fake: FakeNcu, count: str) -> None:
    fake.idle()
    fake.says(report((count, "byte 1")))
    result = profiled(tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "MB; not all bytes of DRAM were counted" in result.stdout


def test_launches_and_their_bytes_are_read_from_the_log() -> None:
    log = report(("B 1", "byte 2"), ("byte 3", "byte 4"))
    assert (launches_in(log), dram_bytes_in(log)) == (3, 1980000010.5)
    assert (launches_in(report((MISSING, MISSING))), launches_in("==PROF== nothing\n")) == (2, 0)


def test_ncu_is_called_as_it_has_to_be(tmp_path: Path, fake: FakeNcu) -> None:
    fake.idle()
    assert profiled(tmp_path, "--launches", "7").exit_code == 0
    (run,) = fake.runs
    assert " ".join(run["options"]) == (
        "--target-processes application-only --profile-from-start off --replay-mode kernel "
        "--cache-control all --clock-control none --launch-count 7 --page details "
        "--print-units base --log-file ncu.log --section SpeedOfLight "
        "--section ComputeWorkloadAnalysis --section LaunchStats --section Occupancy "
        "--section SchedulerStats --section WarpStateStats --metrics "
        "dram__bytes_read.sum,dram__bytes_write.sum"
    )
    environment = run["environment"]
    assert environment["LC_ALL"] == "C"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert run["folder"] == environment["TMPDIR"] == environment["HOME"]


def test_a_solution_that_hangs_is_ended(tmp_path: Path, fake: FakeNcu) -> None:
    result = profiled(tmp_path, "--timeout", "8", forward="import time; time.sleep(1000)")
    assert result.exit_code == 1
    assert "TIMEOUT: building and calling it took longer than 8 s" in result.stderr
    assert "--timeout gives it more" in result.stderr
    assert fake.runs == []


def test_a_reference_that_fails_is_the_problem_s(tmp_path: Path, fake: FakeNcu) -> None:
    broken = tmp_path / "broken.yaml"
    text = TINY.read_text().replace("torch.randn(batch_size, features)", "1 // 0")
    broken.write_text(text)
    result = profiled(tmp_path, "--problem", str(broken))
    assert result.exit_code == 2
    assert "INVALID_PROBLEM: the problem's reference fails: ZeroDivisionError" in result.stderr
    assert fake.runs == []


PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0. For instructions on enabling permissions and to "
    "get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


INCOMPATIBLE = "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
OLD = "==ERROR== unrecognised option '--cache-control'. Use --help for further details.\n"
long = partial(pytest.param, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("text", "printed", "words"),
    [
        (PERMISSION, "", "ncu: ERR_NVGPUCTRPERM: the driver lets only administrators read"),
        (
            "==WARNING== No kernels were profiled.\n",
            "",
            "ncu: it saw no kernel in a call of forward",
        ),
        (INCOMPATIBLE, "", "ncu: Cuda driver is not compatible with Nsight Compute."),
        long("", OLD, "ncu: unrecognised option '--cache-control'"),
    ],
)
def test_an_ncu_that_fails_is_explained_in_one_line(
    tmp_path: Path, fake: FakeNcu, text: str, printed: str, words: str
) -> None:
    fake.idle()
    fake.says(text, printed=printed)
    result = profiled(tmp_path, "-q")
    assert result.exit_code == 3
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")


def test_a_forward_that_fails_only_under_ncu_is_told_so(tmp_path: Path, fake: FakeNcu) -> None:
    fake.says(report())
    condition = "if 'NCU_STARTED_IT' in os.environ: raise ValueError('only here')"
    script = fake.path.read_text().replace(
        "code = subprocess.run(command)",
        "code = subprocess.run(command, env={**os.environ, 'NCU_STARTED_IT': '1'})",
    )
    fake.path.write_text(script)
    result = profiled(tmp_path, "-q", forward=condition)
    assert result.exit_code == 3
    assert "under ncu, forward did not return, though it does without" in result.stderr


def test_an_ncu_that_takes_too_long_is_ended(tmp_path: Path, fake: FakeNcu) -> None:
    script = fake.path.read_text().replace("code = 0", "os.system('sleep 500')\ncode = 0")
    fake.path.write_text(script)
    folder = tmp_path / "folder"
    folder.mkdir()
    inside = Workplace(plan=UNCONTAINED, folder=folder, environment={}, deadline_s=2.0)
    with pytest.raises(ToolchainError, match="ncu was killed after 2 s") as raised:
        collect(find_ncu(), 7, inside)
    assert "--launches" in str(raised.value)


def test_a_solution_that_takes_too_much_memory_is_ended(
    tmp_path: Path, fake: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = msgspec.structs.replace(usual_limits(), memory_bytes=1 << 30)
    monkeypatch.setattr(workplace, "usual_limits", lambda: limits)
    plan = msgspec.structs.replace(UNCONTAINED, limits=limits)
    monkeypatch.setattr(profiling, "plan_for", lambda *_: plan)
    forward = "held = b'x' * (1 << 30); import time; time.sleep(1000)"
    result = profiled(tmp_path, "-q", forward=forward)
    assert result.exit_code == 1
    assert "OUT_OF_MEMORY: memory ran out while it was built and called: its " in result.stderr
    assert "GiB; 1.00 GiB may be" in result.stderr
    assert fake.runs == []


def test_errors_beside_results_are_shown(tmp_path: Path, fake: FakeNcu) -> None:
    fake.idle()
    fake.says(report() + "==ERROR== The application returned an error code (11).\n", code=11)
    result = profiled(tmp_path, "--launches", "1")
    assert result.exit_code == 0, result.stderr
    assert "==ERROR== The application returned an error code (11)." in result.stdout
    assert "only the first 1 launches of the call were profiled" in result.stdout


def test_without_ncu_the_message_says_how_to_get_it(
    tmp_path: Path, fake: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    del fake
    monkeypatch.setattr(toolchain, "tool_folders", lambda _: iter([str(tmp_path)]))
    result = profiled(tmp_path)
    assert result.exit_code == 3
    assert "no ncu was found" in result.stderr
    assert "apt-get install" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_a_gpu_nothing_is_started(
    tmp_path: Path, fake: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "survey_gpus", lambda: GpuSurvey(reason="there is none"))
    result = profiled(tmp_path)
    assert result.exit_code == 3
    assert "no GPU to profile on: there is none" in result.stderr
    assert fake.runs == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--case", "long_row"], "tiny_polynomial has no such case, but main, long_rows"),
        (["--problem", "no_such_problem"], "no problem is called 'no_such_problem'"),
        (["-q", "-v"], "--quiet and --verbose exclude each other"),
        (["--timeout", "nan"], "not a number of seconds"),
        (["--launches", "0"], "--launches"),
    ],
)
def test_a_mistake_in_the_command_is_refused_before_anything_runs(
    tmp_path: Path, fake: FakeNcu, arguments: list[str], words: str
) -> None:
    result = profiled(tmp_path, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert fake.runs == []


def test_a_contained_process_is_told_to_do_without_containment(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(UNCONTAINED, level="landlock", limits=usual_limits())
    inside = Workplace(plan=plan, folder=tmp_path, environment={}, deadline_s=2.0)
    said = explain(PERMISSION, Ended(log="", code=1), inside)
    assert "a contained process is none: run as root with --sandbox off" in said
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said


def test_ncu_and_what_it_starts_are_contained_together(tmp_path: Path, fake: FakeNcu) -> None:
    # Its notes would go where a contained process cannot write: it keeps none.
    script = fake.path.read_text().replace('(here / f"run_', 'Path(f"run_')
    fake.path.write_text(script)
    secret = tmp_path / "secret"
    secret.write_text("not for solutions")
    result = profiled(
        tmp_path,
        "-q",
        sandbox="auto",
        forward=f"assert not os.path.exists({str(secret)!r}), 'it is seen'",
    )
    if "was not contained" in result.stdout:
        pytest.skip("containment is not to be had here")
    assert result.exit_code == 0, result.stderr
    assert "copy<float, 4>" in result.stdout


def test_a_solution_cannot_pass_its_own_failure_off_as_one_of_containment(
    tmp_path: Path, fake: FakeNcu
) -> None:
    words = "kernelgen could not contain python: SandboxError: unshare: Invalid argument"
    for end in ("os._exit(125)", "os.kill(os.getpid(), 9)"):
        result = profiled(tmp_path, "-q", top=f"print({words!r}, flush=True); {end}")
        assert result.exit_code == 1, result.stderr
        assert result.stderr.startswith("CRASHED: its process ended: ")
    assert fake.runs == []


def test_what_cannot_be_contained_is_the_machine_s_fault(
    tmp_path: Path, fake: FakeNcu, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = msgspec.structs.replace(
        UNCONTAINED,
        level="landlock",
        scratch=str(tmp_path / "absent"),
        limits=Limits(
            scratch_bytes=1 << 30, file_bytes=1 << 30, memory_bytes=1 << 33, processes=99,
            open_files=99,
        ),
    )  # fmt: skip
    monkeypatch.setattr(profiling, "plan_for", lambda *_: plan)
    result = profiled(tmp_path, "-q")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: kernelgen could not contain ")
    assert fake.runs == []


@pytest.mark.gpu
@pytest.mark.nvcc
def test_ncu_itself_profiles_a_kernel() -> None:
    try:
        find_ncu()
    except ToolchainError:
        pytest.skip("no ncu")
    path = str(HERE / "candidates" / "cuda" / "honest_polynomial.py")
    arguments = ["profile", path, "--problem", str(TINY), "--case", "long_rows"]
    result = CliRunner().invoke(program, [*arguments, "--sandbox", "off"])
    if "only administrators" in result.stderr:
        pytest.skip("no right to read counters")
    assert result.exit_code == 0, result.stderr
    assert (launches_in(result.stdout), "polynomial_kernel" in result.stdout) == (1, True)
    assert "Section: Launch Statistics" in result.stdout
    moved = dram_bytes_in(result.stdout)
    assert moved is not None
    assert moved >= 3 * 1003 * 4 / 2
