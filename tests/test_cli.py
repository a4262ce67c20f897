"""The command line: help, exit codes, and what each kind of error looks like."""

import errno
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from kernelgen import __version__, cli
from kernelgen.cli import program
from kernelgen.cli.list import Row, show
from kernelgen.errors import ToolchainError, UserError
from kernelgen.installation import problems_folder
from kernelgen.problem.library import problem_names


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments, prog_name="kernelgen")


def test_help_names_every_command_and_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise AssertionError(f"imported {name}")

    monkeypatch.setattr(cli, "import_module", refuse)
    result = run("--help")

    assert result.exit_code == 0
    for name in ("render", "grade", "list", "show", "build", "doctor"):
        assert f"\n  {name} " in result.stdout


def test_version() -> None:
    assert run("--version").stdout == f"kernelgen, version {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = run("rendr")

    assert result.exit_code == 2
    assert "did you mean 'render'?" in result.stderr
    assert result.stdout == ""


def test_python_dash_m_runs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelgen", "--version"], capture_output=True, text=True, check=True
    )

    assert __version__ in done.stdout


RAISED = {
    "user": (UserError("no such thing"), 2, "error: no such thing\n"),
    "two lines become one": (UserError("a\nb"), 2, "error: a b\n"),
    "toolchain": (ToolchainError("no nvcc"), 3, "error: no nvcc\n"),
    "click": (click.ClickException("odd"), 2, "error: odd\n"),
    "interrupt": (KeyboardInterrupt(), 130, "interrupted\n"),
    "abort": (click.Abort(), 130, "interrupted\n"),
    "disk full": (OSError(errno.ENOSPC, "No space", "/x/y"), 3, "error: the disk is full"),
    "file": (PermissionError(errno.EACCES, "Permission denied", "/x"), 3, "error: /x: Permission"),
    "no folder": (FileNotFoundError(errno.ENOENT, "No usable folder"), 3, "error: No usable"),
    "bug": (KeyError("gone"), 3, "error: KeyError: 'gone'\nThis is a bug in kernelgen"),
}


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Result:
    @click.command()
    def command() -> None:
        raise error

    class Module:
        pass

    module = Module()
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setattr(cli, "import_module", lambda _: module)
    return run("list")


@pytest.mark.parametrize("name", RAISED)
def test_an_error_becomes_a_line_and_an_exit_code(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, code, said = RAISED[name]
    result = raising(monkeypatch, error)

    assert result.exit_code == code
    assert result.stderr.startswith(said)
    assert result.stdout == ""
    assert ("Traceback" in result.stderr) == (name == "bug")


def test_a_bug_is_told_with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    result = raising(monkeypatch, RuntimeError("x"))

    assert f"kernelgen {__version__}, Python " in result.stderr


@pytest.mark.parametrize("code", [0, 1, 3])
def test_an_exit_code_passes_through(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert raising(monkeypatch, SystemExit(code)).exit_code == code
    assert raising(monkeypatch, click.exceptions.Exit(code)).exit_code == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_an_interrupt_would(number: signal.Signals) -> None:
    program_text = (
        "import os, contextlib\n"
        "from kernelgen import cli\n"
        "def program(prog_name):\n"
        "    with contextlib.ExitStack() as tidied:\n"
        "        tidied.callback(print, 'tidied', flush=True)\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "cli.program = program\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program_text], capture_output=True, check=False)

    assert done.returncode == 128 + number
    assert done.stdout == b"tidied\n"
    assert done.stderr == b""


def test_a_reader_that_leaves_is_no_error() -> None:
    script = f"{sys.executable} -m kernelgen show groupnorm | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert done.stderr == ""
    assert done.stdout in ("141\n", "0\n")  # 0 where the pipe took it all before `true` ended


def test_list_is_one_line_a_problem_when_piped() -> None:
    result = run("list")

    assert result.exit_code == 0
    heading, *lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert heading == ["problem", "summary", "constants", "cases", "solution", "KernelBench"]
    assert [line[0] for line in lines] == list(problem_names())
    groupnorm = lines[[line[0] for line in lines].index("groupnorm")]
    assert "spatial=512x512" in groupnorm[2]
    assert groupnorm[3] == "11"
    assert groupnorm[-1] == "1/35"


def test_a_list_reads_again_what_has_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "problems").mkdir()
    mine = tmp_path / "problems" / "mine.yaml"
    text = (problems_folder() / "softmax.yaml").read_text()
    mine.write_text(text)
    first = run("list").stdout
    read: list[Path] = []
    monkeypatch.setattr("kernelgen.problem.yaml_file.read_raw", reading(read))
    assert (run("list").stdout, read) == (first, [])

    mine.write_text(text.replace("summary: ", "summary: changed, ", 1))
    assert "mine\tchanged, " in run("list").stdout
    assert read == [Path("problems/mine.yaml")]
    (tmp_path / "cache" / "kernelgen" / "problems.json").write_text("{")
    assert "mine\tchanged, " in run("list").stdout


def reading(read: list[Path]) -> Callable[[Path], bytes]:
    def read_raw(path: Path) -> bytes:
        read.append(path)
        return path.read_bytes()

    return read_raw


@pytest.mark.parametrize(("width", "whole"), [(120, True), (40, False)])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_names(width: int, *, whole: bool) -> None:
    row = Row(
        name="a_name_of_many_letters",
        summary="what it computes",
        constants={"n": 3},
        cases=2,
        solution="a_solution_of_many_letters",
        kernelbench="1/23",
        path="problems/a_name_of_many_letters.yaml",
    )
    file = io.StringIO()
    show([row], Console(file=file, width=width))
    heading, line = file.getvalue().splitlines()
    assert heading.startswith("problem")
    assert line.startswith("a_name_of_many_letters ")
    assert ("n=3" in line, "a_solution_of_many_letters" in line) == (whole, whole)


def test_eighty_columns_have_summaries_and_numbers() -> None:
    file = io.StringIO()
    rows = [Row(**row) for row in json.loads(run("list", "--json").stdout)]
    show(rows, Console(file=file, width=80))
    heading, *lines = file.getvalue().splitlines()
    assert heading.split() == ["problem", "summary", "KernelBench"]
    assert all(len(line) <= 80 for line in lines)
    (pool,) = (line for line in lines if line.startswith("conv_transpose3d_batchnorm_pool "))
    assert "  3-D transposed convolution of s…  2/72" in pool


def test_list_says_where_a_solution_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solutions").mkdir()
    (tmp_path / "solutions" / "groupnorm.py").touch()
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}

    assert rows["groupnorm"]["solution"] == "solutions/groupnorm.py"
    assert rows["instancenorm"]["solution"] is None
    assert rows["groupnorm"]["constants"]["spatial"] == [512, 512]
    assert rows["groupnorm"]["kernelbench"] == "1/35"
    assert rows["instancenorm_1d"]["kernelbench"] is None


def test_a_broken_problem_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "broken.yaml").write_text("a: 1\n")
    result = run("list")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: problems/broken.yaml:1: a: unknown key")
    assert "groupnorm\t" in result.stdout


def test_show_tells_constants_cases_and_model() -> None:
    result = run("show", "groupnorm")

    assert result.exit_code == 0
    assert "spatial            512x512   on a CPU: 128x128" in result.stdout
    assert "odd spatial sizes" in result.stdout
    assert re.search(r"KernelBench +1/35\n", result.stdout)
    assert "class Model(nn.Module):" in result.stdout


def test_show_takes_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((problems_folder() / "instancenorm.yaml").read_text())

    assert run("show", str(path)).stdout.startswith("mine: InstanceNorm2d")


def test_show_of_an_unknown_problem() -> None:
    result = run("show", "groupnrm")

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "did you mean groupnorm" in result.stderr


def completed(words: str) -> list[str]:
    result = CliRunner().invoke(
        program,
        [],
        prog_name="kernelgen",
        env={
            "_KERNELGEN_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
    )
    return result.stdout.splitlines()


def test_commands_and_problem_names_complete() -> None:
    assert completed("kernelgen l") == ["plain,list", "plain,lint"]
    groupnorms = ["plain,groupnorm", "plain,groupnorm_silu_add"]
    assert completed("kernelgen show group") == groupnorms
    assert completed("kernelgen render group") == groupnorms
    assert completed("kernelgen build --problem group") == groupnorms
    assert completed("kernelgen show ./x") == ["file,./x"]
