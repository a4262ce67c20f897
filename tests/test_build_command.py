"""`kernelgen build`, from its command line to its exit code."""

import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from planned_models import problem_of
from warm_lane import tell

from kernelgen.build.nvcc import DEFAULT_ARCHS, Tools, parse_archs, refuse_unknown_archs
from kernelgen.build.recipe import Recipe
from kernelgen.build.solution_build import build_solution, undefined_functions
from kernelgen.build.toolchain import HostCompiler, Toolkit
from kernelgen.cli.build import command
from kernelgen.errors import ExitCode, ToolchainError, UserError
from kernelgen.rendering.planned import render_planned
from kernelgen.sandbox.survey import survey
from kernelgen.solution.file import NO_KERNEL, read_solution

SOLUTION = '''\
import torch
from torch.utils.cpp_extension import load_inline

{kind} = r"""
{source}"""
load_inline("ext", cpp_sources={cpp}, cuda_sources={cuda}, no_implicit_headers=True,
            is_python_module=False)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
'''
KERNEL = "__global__ void twice(float* y) { y[threadIdx.x] *= 2; }\n"


def _cuda(source: str) -> str:
    return SOLUTION.format(kind="CUDA", source=source, cpp='""', cuda="CUDA")


def _cpp(source: str) -> str:
    return SOLUTION.format(kind="CPP", source=source, cpp="CPP", cuda="None")


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.nvcc
def test_a_folder_is_built_and_one_bad_file_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(_cuda(KERNEL))
    (tmp_path / "wrong.py").write_text(_cuda(KERNEL.replace("2", "two")))
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "unseen.py").write_text("not python")

    result = _run(tmp_path, "--arch", "sm_80,sm_90a", "--json", tmp_path / "out.json")

    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert f'{tmp_path / "wrong.py"}:5: identifier "two" is undefined' in result.stdout
    assert "twice" in result.stdout
    good, wrong = json.loads((tmp_path / "out.json").read_text())["builds"]
    assert (good["ok"], wrong["ok"]) == (True, False)
    assert [kernel["arch"] for kernel in good["kernels"]] == ["sm_80", "sm_90a"]
    assert wrong["kernels"] == []


@pytest.mark.nvcc
def test_a_failure_on_one_architecture_only_names_it(tmp_path: Path) -> None:
    source = (
        "__global__ void k(float* y) {\n"
        '#if __CUDA_ARCH__ < 900\n#error "needs sm_90"\n#endif\n  y[0] = 1;\n}\n'
    )
    (tmp_path / "new.py").write_text(_cuda(source))
    result = _run(tmp_path / "new.py", "--arch", "sm_80", "--arch", "sm_90a")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "needs sm_90" in result.stdout
    assert "(fails for sm_80)" in result.stdout


def test_a_cpp_solution_needs_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_toolkit() -> None:
        raise ToolchainError("none here")

    monkeypatch.setattr("kernelgen.cli.build.find_toolkit", no_toolkit)
    (tmp_path / "plain.py").write_text(
        _cpp("int f() { return 1; }\n").replace("cuda_sources=None, ", "")
    )
    result = _run(tmp_path / "plain.py", "--json", "-")
    assert result.exit_code == ExitCode.OK
    report = json.loads(result.stdout)
    assert report["nvcc"] is None
    assert report["builds"][0]["ok"]
    assert "no kernels" in result.stderr


def test_what_only_cuda_has_is_no_header_of_a_cpp_solution(tmp_path: Path) -> None:
    text = "#include <cublas_v2.h>\nint f() { return 1; }\n"
    (tmp_path / "plain.py").write_text(_cpp(text))
    result = _run(tmp_path / "plain.py")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "cublas_v2.h: No such file or directory" in result.stdout


def test_a_file_of_a_problem_that_has_no_name_brings_its_own_arguments(tmp_path: Path) -> None:
    text = "# problem: 1_Twice\n" + _cpp("int f() { return 1; }\n").replace(
        "cuda_sources=None, ", ""
    )
    path = tmp_path / "level_1_problem_1_sample_0_kernel.py"
    path.write_text(text)
    lost = _run(path)
    assert lost.exit_code == ExitCode.USAGE
    assert "no problem is called '1_Twice'" in lost.output
    constructor = (
        "    def __init__(self, n):\n        assert n == 3\n        super().__init__()\n\n"
    )
    text = text.replace("    def forward", f"{constructor}    def forward")
    path.write_text(f"{text}\n\ndef get_init_inputs():\n    return [3]\n")
    assert _run(path).exit_code == ExitCode.OK


def test_a_cuda_solution_without_nvcc_ends_in_a_toolchain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_toolkit() -> None:
        raise ToolchainError("none here")

    monkeypatch.setattr("kernelgen.cli.build.find_toolkit", no_toolkit)
    (tmp_path / "kernel.py").write_text(_cuda(KERNEL))
    result = _run(tmp_path / "kernel.py")
    assert isinstance(result.exception, ToolchainError)
    assert result.exception.exit_code == ExitCode.GRADER_FAULT


@pytest.mark.nvcc
def test_a_solution_may_ask_first_for_the_gpu(tmp_path: Path) -> None:
    asks = (
        "if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0):\n    load_"
    )
    (tmp_path / "asks.py").write_text(_cuda(KERNEL).replace("\nload_", f"\n{asks}"))
    result = _run(tmp_path / "asks.py", "--arch", "sm_80,sm_90a")
    assert result.exit_code == ExitCode.OK, result.output
    result = _run(tmp_path / "asks.py", "--arch", "sm_80")
    assert "before any extension was built" in " ".join(result.stdout.split()), result.output


def test_a_solution_that_builds_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "pure.py").write_text(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self):\n        return 1\n"
    )
    result = _run(tmp_path / "pure.py")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "builds no extension" in result.stdout


def test_a_rendered_file_without_a_kernel_of_its_own_is_no_failure(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, "torch.matmul(x, x)", x="torch.randn(4, 4)")
    path = tmp_path / "library.py"
    path.write_text(render_planned(problem, "cuda", {}))
    assert NO_KERNEL in path.read_text().splitlines()
    result = _run(path)
    assert result.exit_code == ExitCode.OK
    assert f"{path}: nothing to build, no kernel of its own" in result.stdout
    path.write_text(path.read_text().replace("def forward(self,", "def forward(self, _,"))
    result = _run(path)
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "TypeError in forward on meta tensors" in result.stdout


@pytest.mark.long
@pytest.mark.nvcc
def test_torch_headers_compile_although_torch_has_no_cuda(tmp_path: Path) -> None:
    source = (
        "#include <ATen/cuda/CUDAContext.h>\n"
        "__global__ void k(float* y) { y[0] = 1; }\n"
        "void go(float* y) { k<<<1, 1, 0, at::cuda::getCurrentCUDAStream()>>>(y); }\n"
    )
    (tmp_path / "aten.py").write_text(_cuda(source))
    result = _run(tmp_path / "aten.py", "--arch", "sm_90a")
    assert result.exit_code == ExitCode.OK, result.stdout


def test_an_empty_folder_is_a_mistake(tmp_path: Path) -> None:
    result = _run(tmp_path)
    assert isinstance(result.exception, UserError)
    assert "holds no .py file" in str(result.exception)


def test_architectures_may_be_repeated_and_listed() -> None:
    assert parse_archs(("sm_80,sm_90a", "sm_80")) == ("sm_80", "sm_90a")
    assert parse_archs(()) == DEFAULT_ARCHS
    with pytest.raises(UserError, match=r"--arch '9\.0': expected a name such as sm_80"):
        parse_archs(("9.0",))


def test_an_architecture_that_nvcc_does_not_know_is_a_mistake(tmp_path: Path) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho sm_80\necho sm_90\n")
    nvcc.chmod(0o755)
    toolkit = Toolkit(nvcc=nvcc, home=tmp_path, version="13.0.88", found_by="PATH")

    refuse_unknown_archs(("sm_80", "sm_90a"), toolkit)
    with pytest.raises(UserError, match=r"--arch sm_20: nvcc 13\.0\.88 does not know it"):
        refuse_unknown_archs(("sm_20",), toolkit)
    with pytest.raises(UserError, match="--arch ''"):
        parse_archs(("",))


def test_a_file_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    (tmp_path / "plain.py").write_text(_cpp("int f() { return 1; }\n"))
    result = _run(tmp_path, "--json", tmp_path / "out.json")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    builds = json.loads((tmp_path / "out.json").read_text())["builds"]
    assert [build["ok"] for build in builds] == [False, True]
    assert "not UTF-8" in builds[0]["reason"]


def test_a_place_for_the_report_is_looked_at_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("syntax error")
    result = _run(tmp_path / "plain.py", "--json", tmp_path)
    assert isinstance(result.exception, UserError)
    assert "is a folder" in str(result.exception)


def test_a_full_disk_is_not_the_solution_s_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (tmp_path / "plain.py").write_text(_cpp("int f() { return two; }\n"))
    result = _run(tmp_path / "plain.py")
    assert isinstance(result.exception, ToolchainError)
    assert "1 MiB free" in str(result.exception)


@pytest.mark.skipif(survey().level == "none", reason=f"no containment here: {survey().missing}")
def test_a_compiler_reads_no_file_of_the_users_by_its_name(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("this is the secret\n")
    folder = tmp_path / "solutions"
    folder.mkdir()
    (folder / "plain.py").write_text(_cpp(f'#include "{secret}"\nint f() {{ return 1; }}\n'))
    result = _run(folder / "plain.py")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "secret.h" in result.output
    assert "this is the secret" not in result.output


def test_compilers_end_when_they_are_told_to(tmp_path: Path) -> None:
    compiler = tmp_path / "slow"
    compiler.write_text("#!/bin/sh\nsleep 60\n")
    compiler.chmod(0o755)
    tools = Tools(toolkit=None, compiler=HostCompiler(command=(str(compiler),), version="1.0"))
    (tmp_path / "plain.py").write_text(_cpp("int f() { return 1; }\n"))
    solution = read_solution(tmp_path / "plain.py")
    begin = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        given = solution, None, DEFAULT_ARCHS, tools, pool
        build = pool.submit(build_solution, *given, tell=tell)
        tools.stop.set()
        assert not build.result().ok
    assert time.monotonic() - begin < 30


def test_no_compiler_takes_the_temporary_files_of_another(tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    # Contained, all have one number, by which nvcc calls its files.
    nvcc.write_text("#!/bin/sh\nset -C\n: > $TMPDIR/tmpxft_2 && sleep 0.2\n")
    nvcc.chmod(0o755)
    toolkit = Toolkit(home=tmp_path, nvcc=nvcc, version="13.0", found_by="PATH")
    tools = Tools(toolkit=toolkit, compiler=HostCompiler(command=("c++",), version="1.0"))
    (tmp_path / "one.py").write_text(_cuda(KERNEL))
    with ThreadPoolExecutor(3) as pool:
        given = read_solution(tmp_path / "one.py"), None, DEFAULT_ARCHS, tools, pool
        built = build_solution(*given, tell=tell)
    assert built.ok, built.reason


def test_a_bound_function_that_nobody_defines_is_found(tmp_path: Path) -> None:
    import subprocess

    from kernelgen.build.toolchain import find_compiler

    (tmp_path / "a.cpp").write_text("int f(int); int g(int); int use() { return f(1) + g(2); }\n")
    (tmp_path / "b.cpp").write_text("int g(int x) { return x; }\n")
    for name in ("a", "b"):
        words = [*find_compiler().command, "-c", f"{name}.cpp", "-o", f"{name}.o"]
        subprocess.run(words, cwd=tmp_path, check=True)
    objects = [tmp_path / "a.o", tmp_path / "b.o"]
    (tmp_path / "room").mkdir()
    plan = survey().plan(tmp_path / "room")
    assert undefined_functions(objects, ("f", "g"), plan) == ("_Z1fi",)
    assert undefined_functions(objects, ("g",), plan) == ()
    # Flags may leave anything in an object's place, or nothing.
    (tmp_path / "c.o").write_text("no object")
    os.mkfifo(tmp_path / "d.o")
    objects += [tmp_path / "c.o", tmp_path / "d.o", tmp_path / "e.o"]
    assert undefined_functions(objects, ("f", "g"), plan) == ("_Z1fi",)


@pytest.mark.ci
def test_what_fails_among_several_is_told_as_it_is_alone(tmp_path: Path) -> None:
    good = _cpp("int f() { return 1; }\n").replace("cuda_sources=None, ", "")
    texts = {
        "aborts.py": f"import os\nprint('before it', flush=True)\nos.abort()\n{good}",
        "raises.py": f"raise ValueError('no')\n{good}",
        "right.py": good,
        "says_nothing.py": "from torch.nn import Module as ModelNew\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    def reasons(*paths: Path) -> dict[str, str]:
        report = json.loads(_run(*paths, "--json", "-").stdout)
        return {Path(one["solution"]).name: one["reason"] for one in report["builds"]}

    together = reasons(tmp_path)
    assert "SIGABRT" in together["aborts.py"]
    assert "before it" in together["aborts.py"]
    assert together["right.py"] == ""
    for name, reason in together.items():
        assert reasons(tmp_path / name) == {name: reason}


def test_what_no_compiler_can_be_given_stops_no_other_file(tmp_path: Path) -> None:
    good = _cpp("int f() { return 1; }\n").replace("cuda_sources=None, ", "")
    (tmp_path / "good.py").write_text(good)
    quote = good.replace("is_python", 'extra_cflags=["-DX=\'"], is_python')
    (tmp_path / "quote.py").write_text(quote)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.cpp").write_text("")
    sources = [str(tmp_path / folder / "same.cpp") for folder in ("a", "b")]
    load = f"load('x', {sources}, is_python_module=False)\n"
    same = good[: good.index("load_inline(")].replace("load_inline", "load") + load
    (tmp_path / "same.py").write_text(same + "class ModelNew(torch.nn.Module):\n  pass\n")

    result = _run(tmp_path, "--json", "-")

    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    built = {Path(one["solution"]).name: one for one in json.loads(result.stdout)["builds"]}
    assert built["good.py"]["ok"]
    assert "No closing quotation" in built["quote.py"]["reason"]
    assert "the objects of same.cpp and same.cpp would have one name" in built["same.py"]["reason"]


@pytest.mark.parametrize(
    "name", ["..", "/", "a/..", "a\0b.cpp", "a" * 300 + ".cpp", "kernelgen_headers", "a.cpp.tmp"]
)
def test_a_forged_name_of_a_source_is_no_file(name: str) -> None:
    ninja = "cflags = -O3\nbuild a.o: compile {}\nbuild x.so: link a.o\n"
    forged = Recipe(library="x.so", ninja=ninja.format(name), files={name: ""})
    assert "is no name of a source" in forged.fault()
    assert Recipe(library="x.so", ninja=ninja.format("/b/a$ b.cpp"), files={}).fault() == ""


@pytest.mark.skipif(survey().level == "none", reason="nothing is contained here")
def test_no_folder_is_shown_that_holds_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("secret_words\n")
    monkeypatch.setenv("HOME", str(home))
    text = _cpp('#include ".ssh/id"\n').replace("cuda_sources=None, ", "")
    given = f"extra_include_paths=[{str(home)!r}], is_python"
    (home / "own.py").write_text(text.replace("is_python", given))
    result = _run(home / "own.py")
    assert result.exit_code == ExitCode.CANDIDATE_FAILED
    assert "No such file" in result.output
    assert "secret_words" not in result.output
