"""`kernelgen render` through click: what is written where, and the exit codes."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kernelbench_trees import PROBLEM, checkout

import kernelgen
from kernelgen.cli import program
from kernelgen.cli.render import command
from kernelgen.errors import ExitCode, KernelgenFault, UserError
from kernelgen.kernelbench.generated import Wanted, generated_files
from kernelgen.problem.library import all_problems, load_problem
from kernelgen.problem.record import Backend, Problem
from kernelgen.rendering.files import write_if_different
from kernelgen.rendering.solution import render, render_reference


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelgen", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        # The tests leave the folder in which an uninstalled kernelgen would be found.
        env={**os.environ, "PYTHONPATH": str(Path(kernelgen.__file__).parent.parent)},
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_a_problem_is_written_to_solutions_and_then_left_alone() -> None:
    first, second = invoke("groupnorm"), invoke("groupnorm")
    assert (first.exit_code, first.stdout) == (0, "")
    assert first.stderr == "solutions/groupnorm.py: written\n"
    assert second.stderr == "solutions/groupnorm.py: unchanged\n"
    assert Path("solutions/groupnorm.py").read_text() == render(load_problem("groupnorm"))


def test_another_precision_is_rendered_into_a_file_that_is_named() -> None:
    assert invoke("relu", "--precision", "bf16", "-o", "x.py").exit_code == 0
    text = Path("x.py").read_text()
    assert "bfloat16" in text
    assert "# render again: kernelgen render relu --precision bf16\n" in text
    assert "bfloat16" not in render(load_problem("relu"))
    assert invoke("relu", "--precision", "fp32", "-o", "y.py").exit_code == 0
    assert Path("y.py").read_text() == render(load_problem("relu"))


def test_files_that_stay_as_they_are_are_counted() -> None:
    names = ("relu", "tanh", "scale")
    assert invoke(*names).stderr.count(": written\n") == len(names)
    Path("solutions/tanh.py").write_text("")
    assert invoke(*names, "--check").stderr == (
        "solutions/tanh.py: differs\n2 of 3 files are up to date\n"
        "1 of 3 files are not what would be rendered now\n"
    )
    assert invoke(*names).stderr == "solutions/tanh.py: written\n2 of 3 files are unchanged\n"
    assert invoke(*names).stderr == "3 of 3 files are unchanged\n"


@pytest.mark.parametrize(
    ("named", "arch"),
    [("sm_86", "sm_80"), ("sm_89", "sm_80"), ("sm_90", "sm_90a"), ("sm_120", "sm_80")],
)
def test_a_gpu_that_no_kernel_is_written_for_gets_what_runs_on_it(named: str, arch: str) -> None:
    result = invoke("matmul", "--arch", named, "-o", "-")
    assert result.stderr == f"--arch {named}: rendered for {arch}, which runs there\n"
    assert result.stdout == render(load_problem("matmul"), arch=arch)


def test_native_is_the_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(devices=[SimpleNamespace(compute_capability=(8, 9))], reason="")
    monkeypatch.setattr("kernelgen.hardware.device.survey_gpus", lambda: found)
    result = invoke("softmax", "--arch", "native", "-o", "-")
    assert result.stderr == "--arch native: rendered for sm_80, which runs there\n"
    found.devices, found.reason = [], "no driver"
    with pytest.raises(KernelgenFault, match=r"there is no GPU: no driver; --arch names another"):
        CliRunner().invoke(command, ["relu", "--arch", "native"], catch_exceptions=False)


def test_output_to_stdout_and_to_a_file() -> None:
    shown = invoke("groupnorm", "-o", "-", "--set", "batch_size=3")
    assert shown.stdout == render(load_problem("groupnorm"), "cuda", {"batch_size": "3"})
    assert shown.stderr == ""
    assert invoke("groupnorm", "-o", "deep/er/mine.py").exit_code == 0
    assert Path("deep/er/mine.py").read_text() == render(load_problem("groupnorm"))


def test_the_reference_goes_to_stdout() -> None:
    result = invoke("instancenorm", "--reference")
    assert result.exit_code == 0
    assert "class Model(nn.Module):" in result.stdout
    assert not Path("solutions").exists()


def test_check_passes_on_what_was_rendered_and_shows_what_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"groupnorm", "instancenorm", "linear_instancenorm_add_mul", "relu"}
    Path("problems").mkdir()
    for name in names:
        file = load_problem(name).path
        Path("problems", file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr("kernelgen.problem.library.problems_folder", lambda: Path("problems"))
    assert {problem.name for problem in all_problems()} == names
    assert invoke("--all").exit_code == 0
    assert invoke("--all", "--backend", "cpp").exit_code == 0
    clean = invoke("--all", "--check")
    assert (clean.exit_code, clean.stdout) == (0, "")
    path = Path("solutions/cpu/groupnorm.py")
    path.write_text(path.read_text().replace("batch_size = 4", "batch_size = 5"))
    stale = invoke("--all", "--check")
    assert stale.exit_code == 1
    assert "-batch_size = 5\n+batch_size = 4\n" in stale.stdout
    count = len(list(Path("solutions").rglob("*.py")))
    assert count == 2 * len(names)
    assert f"1 of {count} files are not what would be rendered now" in stale.stderr
    assert "batch_size = 5" in path.read_text()
    assert invoke("--all", "--check", "--backend", "cuda").exit_code == 0


def test_a_missing_file_fails_the_check() -> None:
    result = invoke("groupnorm", "--check")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- (missing)\n+++ solutions/groupnorm.py (rendered now)\n")
    assert not Path("solutions").exists()


def test_a_missing_newline_at_the_end_is_a_difference() -> None:
    invoke("groupnorm")
    path = Path("solutions/groupnorm.py")
    path.write_text(path.read_text().rstrip("\n"))
    assert invoke("groupnorm", "--check").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either problems or --all"),
        (("groupnorm", "--all"), "give either problems or --all"),
        (("--all", "-o", "x.py"), "-o takes one problem at a time"),
        (("relu", "--precision", "fp16"), "--precision, --gradients and --simple need -o FILE"),
        (("relu", "--gradients"), "--gradients and --simple need -o FILE"),
        (("relu", "--simple"), "--simple need -o FILE"),
        (("groupnorm", "--set", "threads"), "expected key=value, not 'threads'"),
        (("groupnorm", "--reference", "--set", "a=1"), "--set changes solutions"),
        (("groupnorm", "--reference", "--check"), "--reference --check needs -o FILE"),
        (("groupnorm", "--backend", "hip"), "'hip' is not one of"),
    ],
)
def test_misuse_exits_with_2(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_user_errors_are_left_to_the_group() -> None:
    assert isinstance(invoke("groupnorm", "--set", "nothing=1").exception, UserError)


# A reference is written as a solution is, without a process that traces its Model.


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_full_disk_exits_with_3_and_one_line() -> None:
    Path("link.py").symlink_to("/dev/full")
    done = run_program("render", "groupnorm", "--reference", "-o", "link.py")
    assert done.returncode == ExitCode.GRADER_FAULT
    assert done.stderr == "error: the disk is full (writing link.py); make room and run again\n"
    assert Path("link.py").is_symlink()


def test_a_link_stays_and_its_file_is_replaced() -> None:
    Path("deep").mkdir()
    Path("deep/real.py").write_text("old\n")
    Path("link.py").symlink_to("deep/real.py")
    assert invoke("groupnorm", "--reference", "-o", "link.py").stderr == "link.py: written\n"
    assert Path("link.py").is_symlink()
    assert Path("deep/real.py").read_text() == render_reference(load_problem("groupnorm"))
    assert [path.name for path in Path("deep").iterdir()] == ["real.py"]
    assert invoke("groupnorm", "--reference", "-o", "link.py").stderr == "link.py: unchanged\n"


def test_a_link_to_no_file_makes_that_file() -> None:
    Path("link.py").symlink_to("real.py")
    assert invoke("groupnorm", "--reference", "-o", "link.py").exit_code == 0
    assert Path("link.py").is_symlink()
    assert Path("real.py").read_text() == render_reference(load_problem("groupnorm"))


def test_links_that_go_round_are_refused() -> None:
    Path("a.py").symlink_to("b.py")
    Path("b.py").symlink_to("a.py")
    error = invoke("groupnorm", "--reference", "-o", "a.py").exception
    assert isinstance(error, UserError)
    assert "a.py: cannot be written: Too many levels of symbolic links" in str(error)
    assert Path("a.py").is_symlink()


def test_a_pipe_gets_the_text_and_is_not_read() -> None:
    os.mkfifo("pipe")
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        try:
            done = run_program("render", "groupnorm", "--reference", "-o", "pipe")
            found, _ = reader.communicate(timeout=10)
        finally:
            reader.kill()
    assert (done.returncode, done.stderr) == (0, "pipe: written\n")
    assert found == render_reference(load_problem("groupnorm"))
    assert Path("pipe").is_fifo()


def test_a_file_that_is_the_same_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    assert write_if_different(path, "text\n")
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert not write_if_different(path, "text\n")
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def kernelbench(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["render", "--kernelbench", *arguments])


def test_problems_of_a_checkout_become_the_folder_of_a_run() -> None:
    level = checkout(Path("bench")) / "KernelBench" / "level1"
    (level / "2_Positive.py").write_text(PROBLEM.format(summary="Some.", forward="x[x > 0]"))
    (level / "3_Broken.py").write_text("class Model(:\n")
    first = kernelbench("bench", "--level", "1", "--problems", "1-3,12", "-o", "runs/mine")
    assert first.exit_code == ExitCode.CANDIDATE_FAILED
    twice, positive, broken, half, count = first.stderr.splitlines()
    name = "runs/mine/level_1_problem_{}_sample_0_kernel.py"
    assert twice == f"{name.format(1)}: written"
    assert positive == (
        f"{name.format(2)}: written, no kernel of its own: all of it stays in torch "
        "(forward makes a tensor whose shape depends on values of its inputs)"
    )
    assert broken.startswith(f"{name.format(3)}: not rendered: {level / '3_Broken.py'}:1: ")
    assert half == f"{name.format(12)}: written"
    assert count == "3 of 4 problems rendered, 1 of them without a kernel of their own"
    files = generated_files([Path("runs/mine")], Wanted())
    assert [file.problem for file in files] == [1, 2, 12]
    assert files[0].path.read_text() == render(load_problem(str(level / "1_Twice.py")))
    again = kernelbench("bench", "--problems", "1", "-o", "runs/mine")
    assert again.exit_code == ExitCode.OK
    assert again.stderr.splitlines() == [
        f"{name.format(1)}: unchanged",
        "runs/mine/level_2_problem_1_sample_0_kernel.py: written",
        "2 of 2 problems rendered",
    ]


def test_a_file_without_a_kernel_of_its_own_is_named_and_counted() -> None:
    level = checkout(Path("bench")) / "KernelBench" / "level1"
    (level / "2_Product.py").write_text(PROBLEM.format(summary="Some.", forward="x @ x.T @ x"))
    result = kernelbench("bench", "--problems", "1-2", "--level", "1", "-o", "run")
    twice, product, count = result.stderr.splitlines()
    assert twice == "run/level_1_problem_1_sample_0_kernel.py: written"
    assert product == (
        "run/level_1_problem_2_sample_0_kernel.py: written, no kernel of its own: all of it stays "
        "in torch"
    )
    assert count == "2 of 2 problems rendered, 1 of them without a kernel of their own"


def test_a_file_of_another_dtype_is_told_why_it_has_no_kernel() -> None:
    level = checkout(Path("bench")) / "KernelBench" / "level1"
    text = (level / "1_Twice.py").read_text()
    other = text.replace("(rows, columns)", "(rows, columns).double()")
    other = other.replace("x * 2", "x.cumsum(1)")
    (level / "1_Twice.py").write_text(other)
    result = kernelbench("bench", "--problems", "1", "--level", "1", "-o", "run")
    assert "stays in torch (x is float64, and kernels for this are for float32)" in result.stderr


def test_a_bug_that_one_problem_shows_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout(Path("bench"))

    def render_one(problem: Problem, backend: Backend, **given: Any) -> str:
        if problem.name == "1_Twice":
            raise AssertionError("no\nstage")
        return render(problem, backend, **given)

    monkeypatch.setattr("kernelgen.cli.render.render", render_one)
    result = kernelbench("bench", "--level", "1", "-o", "run")
    assert result.exit_code == ExitCode.GRADER_FAULT
    bug, half, count = result.stderr.splitlines()
    assert "not rendered: a bug in kernelgen, AssertionError: no stage; `kernelgen render" in bug
    assert half == "run/level_1_problem_12_sample_0_kernel.py: written"
    assert count == "1 of 2 problems rendered"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "-o", "run"), "nowhere: expected KernelBench's checkout"),
        (("bench",), "--kernelbench needs -o RUN_DIR"),
        (("bench", "-o", "-"), "-o -: expected the folder of a run"),
        (("bench", "-o", "bench/KernelBench/level1/1_Twice.py"), "expected the folder of a run"),
        (("bench", "--problems", "7", "-o", "run"), "bench: has none of the problems"),
        (("bench", "groupnorm", "-o", "run"), "--kernelbench and NAME exclude each other"),
        (("bench", "--check", "-o", "run"), "--kernelbench and --check exclude each other"),
    ],
)
def test_a_run_that_cannot_be_rendered_exits_with_2(
    arguments: tuple[str, ...], message: str
) -> None:
    checkout(Path("bench"))
    result = kernelbench(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr
    assert not Path("run").exists()
