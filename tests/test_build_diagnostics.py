"""Explanations of real compiler output: every text here comes from a compiler run by the test."""

import subprocess
import time
from pathlib import Path

import pytest

from kernelgen.build.compiler_messages import parse_diagnostics
from kernelgen.build.diagnostics import explain_build_error
from kernelgen.build.locate import find_row
from kernelgen.build.toolchain import find_compiler, find_toolkit
from kernelgen.solution.file import SolutionFile


def _nvcc(folder: Path, source: str, *flags: str) -> str:
    (folder / "cuda.cu").write_text(source)
    command = [str(find_toolkit().nvcc), "-std=c++17", "-arch=sm_80", *flags, "-c", "cuda.cu"]
    return _failing(command, folder)


def _cxx(folder: Path, source: str, *flags: str) -> str:
    (folder / "main.cpp").write_text(source)
    return _failing([*find_compiler().command, "-std=c++17", *flags, "main.cpp"], folder)


def _failing(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def _solution(source: str) -> str:
    return f'import torch\n\nSOURCE = r"""\n{source}"""\n'


def _file(text: str, path: str = "x.py") -> SolutionFile:
    return SolutionFile(path=Path(path), text=text, sha256="")


BROKEN_KERNEL = """\
__global__ void k(float* y, const float* x) {
  y[threadIdx.x] = undefined_thing + x[0];
  int z = "text";
  y[0] = blockIdx.q;
}
void go() { nowhere(); }
"""


@pytest.mark.nvcc
def test_nvcc_errors_point_into_the_solution(tmp_path: Path) -> None:
    text = _nvcc(tmp_path, BROKEN_KERNEL)
    errors = parse_diagnostics(text)
    assert [(error.line, error.severity) for error in errors] == [
        (2, "error"),
        (3, "error"),
        (4, "error"),
        (6, "error"),
    ]
    assert find_row(BROKEN_KERNEL, 2, _solution(BROKEN_KERNEL)) == 5

    reason = explain_build_error(
        text, {"cuda.cu": BROKEN_KERNEL}, _file(_solution(BROKEN_KERNEL), "solutions/x.py")
    )

    lines = reason.splitlines()
    assert lines[0] == 'solutions/x.py:5: identifier "undefined_thing" is undefined'
    assert lines[1] == "    y[threadIdx.x] = undefined_thing + x[0];"
    assert lines[2].startswith("  hint: declare it")
    assert any(line.startswith("solutions/x.py:6: ") for line in lines)
    assert lines[-1] == "and 1 more error"


@pytest.mark.nvcc
def test_the_same_error_on_two_architectures_is_said_once(tmp_path: Path) -> None:
    text = _nvcc(tmp_path, BROKEN_KERNEL)
    assert parse_diagnostics(text + text) == parse_diagnostics(text)


@pytest.mark.nvcc
def test_too_much_shared_memory_is_explained(tmp_path: Path) -> None:
    source = (
        "__global__ void k(float* y) {\n  __shared__ float big[40000];\n"
        "  big[threadIdx.x] = y[threadIdx.x];\n  __syncthreads();\n"
        "  y[0] = big[threadIdx.x + 1];\n}\n"
    )
    reason = explain_build_error(
        _nvcc(tmp_path, source), {"cuda.cu": source}, _file(_solution(source))
    )
    assert reason.startswith("x.py: ptxas: Entry function '_Z1kPf' uses too much shared data")
    assert "extern __shared__" in reason


@pytest.mark.nvcc
def test_an_unknown_instruction_is_an_error_of_ptxas_once(tmp_path: Path) -> None:
    source = '__global__ void k(float* y) {\n  asm volatile("bogus.f32 %0;" : "=f"(y[0]));\n}\n'
    (error,) = parse_diagnostics(_nvcc(tmp_path, source))
    assert (error.file, error.line) == ("ptxas", None)
    assert "bogus" in error.message


@pytest.mark.nvcc
def test_an_unknown_architecture_is_explained(tmp_path: Path) -> None:
    source = "__global__ void k() {}\n"
    text = _nvcc(tmp_path, source, "-arch=sm_30")
    reason = explain_build_error(text, {"cuda.cu": source}, _file(_solution(source)))
    assert "Unsupported gpu architecture" in reason
    assert "this nvcc does not know that architecture" in reason


@pytest.mark.nvcc
def test_a_template_that_fails_in_a_header_points_to_its_use(tmp_path: Path) -> None:
    (tmp_path / "lib.h").write_text(
        "template <class T> T twice(T x) {\n  static_assert(sizeof(T) == 1);\n  return x;\n}\n"
    )
    source = '#include "lib.h"\n\nfloat use() {\n  return twice(1.0f);\n}\n'
    reason = explain_build_error(
        _nvcc(tmp_path, source), {"cuda.cu": source}, _file(_solution(source))
    )
    assert reason.splitlines()[0].startswith("x.py:7: static assertion failed")


def test_the_same_from_the_host_compiler(tmp_path: Path) -> None:
    (tmp_path / "lib.h").write_text(
        "template <class T> T twice(T x) {\n  static_assert(sizeof(T) == 1);\n  return x;\n}\n"
    )
    source = '#include "lib.h"\n\nfloat use() {\n  return twice(1.0f);\n}\n'
    reason = explain_build_error(
        _cxx(tmp_path, source, "-c"), {"main.cpp": source}, _file(_solution(source))
    )
    assert reason.splitlines()[0].startswith("x.py:7: static assertion failed")


def test_a_missing_header_is_explained(tmp_path: Path) -> None:
    source = "int a;\n#include <not_there.h>\n"
    text = _cxx(tmp_path, source, "-c")
    reason = explain_build_error(text, {"main.cpp": source}, _file(_solution(source)))
    assert reason.splitlines()[0] == "x.py:5: not_there.h: No such file or directory"
    assert "extra_include_paths" in reason


def test_ninja_is_left_out(tmp_path: Path) -> None:
    source = "int a = b;\n"
    noise = (
        "Error building extension 'q': [1/2] c++ -MMD -MF main.o.d -c main.cpp -o main.o\n"
        "FAILED: [code=1] main.o\nc++ -MMD -MF main.o.d -c main.cpp -o main.o\n"
    )
    text = f"{noise}{_cxx(tmp_path, source, '-c')}ninja: build stopped: subcommand failed.\n"
    reason = explain_build_error(text, {"main.cpp": source}, _file(_solution(source)))
    assert "ninja" not in reason
    assert "FAILED" not in reason
    assert reason.splitlines()[0].startswith("x.py:4: ")


GLUE = "struct M {{ template <class... A> void def(A...); }} m;\nvoid init() {{\n{}\n}}\n"
SIGNATURE = "int f(int x)"


def test_a_signature_passed_as_a_name_is_recognised(tmp_path: Path) -> None:
    source = "int f(int x) { return x; }\n" + GLUE.format(
        f'm.def("{SIGNATURE}", wrap({SIGNATURE}), "{SIGNATURE}");'
    )
    solution = f'CPP = """\nint f(int x) {{ return x; }}\n"""\nload(functions=[\n"{SIGNATURE}"])\n'
    text = _cxx(tmp_path, source, "-c")
    reason = explain_build_error(text, {"main.cpp": source}, _file(solution))
    assert f'functions= has "{SIGNATURE}", which is a signature and no name' in reason
    assert 'functions=["f"]' in reason
    assert reason.startswith("x.py:5: ")


def test_a_name_that_nothing_declares_is_recognised(tmp_path: Path) -> None:
    source = GLUE.format('m.def("g", g, "g");')
    solution = 'CPP = ""\nload(functions=["g"])\n'
    text = _cxx(tmp_path, source, "-c")
    reason = explain_build_error(text, {"main.cpp": source}, _file(solution))
    assert reason.startswith('x.py:2: functions= names "g", which cpp_sources neither declares')


def test_an_undefined_symbol_is_demangled_and_led_to_its_declaration(tmp_path: Path) -> None:
    source = "int twice(int x);\nint main() { return twice(1); }\n"
    text = _cxx(tmp_path, source)
    reason = explain_build_error(text, {"main.cpp": source}, _file(_solution(source)))
    assert reason.startswith("x.py:4: twice(int) is declared and used, but defined nowhere")


def test_a_loaders_undefined_symbol_is_explained(tmp_path: Path) -> None:
    source = "int twice(int x);\nint use() { return twice(1); }\n"
    (tmp_path / "main.cpp").write_text(source)
    library = tmp_path / "x.so"
    command = [*find_compiler().command, "-shared", "-fPIC", "main.cpp", "-o", str(library)]
    subprocess.run(command, cwd=tmp_path, check=True)
    import ctypes

    with pytest.raises(OSError, match="undefined symbol") as caught:
        ctypes.CDLL(str(library), mode=2)  # RTLD_NOW, as Python loads extension modules
    reason = explain_build_error(str(caught.value), {}, _file(_solution(source)))
    assert reason.startswith("x.py:4: twice(int) is declared and used, but defined nowhere")


def test_text_without_any_error_is_passed_on() -> None:
    text = "Ninja is required to load C++ extensions (pip install ninja to get it)"
    assert explain_build_error(text, {}, _file("")) == f"x.py: {text}"


def test_warnings_are_no_reasons(tmp_path: Path) -> None:
    source = "int f() { int unused; }\nint a = b;\n"
    text = _cxx(tmp_path, source, "-c", "-Wall")
    severities = [entry.severity for entry in parse_diagnostics(text)]
    assert sorted(set(severities)) == ["error", "warning"]
    reason = explain_build_error(text, {"main.cpp": source}, _file(_solution(source)))
    assert "unused" not in reason


def test_errors_without_end_are_counted_and_not_all_looked_for() -> None:
    lines = "".join(f"int x{number};\n" for number in range(3000))
    text = "".join(f"main.cpp:{n}:1: error: no {n}\n" for n in range(1, 3001))
    for source in (lines, "int x;\n" * 100_000):
        begin = time.monotonic()
        reason = explain_build_error(text, {"main.cpp": source}, _file(_solution(source)))
        assert time.monotonic() - begin < 20
        assert "no 1\n" in reason
        assert reason.endswith("and 2997 more errors")
