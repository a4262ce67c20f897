"""Rendered solutions as text: header, lint, contract, overrides."""

import ast
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from shipped import PROBLEMS as SHIPPED
from shipped import SOLUTIONS, TEMPLATES

from kernelgen.build.toolchain import find_toolkit
from kernelgen.engines.architectures import ARCHITECTURES
from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Backend, ConstantValue, Problem, digest
from kernelgen.rendering.solution import render, render_reference
from kernelgen.solution.contract import check_contract
from kernelgen.solution.file import NO_KERNEL, SolutionFile

EVERY = SHIPPED
PROBLEMS = [problem for problem in EVERY if TEMPLATES[problem.name]]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
OUTPUTS = [
    pytest.param(problem, backend, id=f"{problem.name}-{backend}")
    for problem in EVERY
    for backend in BACKENDS
]


def committed(problem: Problem, backend: Backend) -> str:
    """Return a solution as it is committed.

    To render all takes minutes; `render --all --check` of CI does, and compares.
    """
    folder = SOLUTIONS if backend == "cuda" else SOLUTIONS / "cpu"
    return (folder / f"{problem.name}.py").read_text(encoding="utf-8")


def kernels(text: str) -> str:
    return text.split('r"""\n')[1].split('"""', maxsplit=1)[0]


def with_constant(problem: Problem, name: str, value: ConstantValue) -> Problem:
    """Return a problem with one more constant, which its inputs use."""
    first = "def get_inputs():\n"
    assert problem.get_inputs.startswith(first)
    inputs = problem.get_inputs.replace(first, f"{first}    _ = {name}\n")
    return changed(problem, constants={**problem.constants, name: value}, get_inputs=inputs)


def changed(problem: Problem, **fields: object) -> Problem:
    return msgspec.structs.replace(problem, **fields)


@pytest.mark.parametrize(("problem", "backend"), OUTPUTS)
def test_lint(problem: Problem, backend: Backend) -> None:
    text = committed(problem, backend)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\t" not in text
    assert text.isascii()
    lines = text.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert [line for line in lines if len(line) > 100] == []
    assert "\n\n\n" not in kernels(text)
    assert "\n\n\n\n" not in text
    for delimiter in ("${", "//%", "#%", "/*%", "%*/", "/*#"):
        assert delimiter not in text
    names = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    assert names == {"ModelNew"} | ({"_Differentiated"} if problem.gradients else set())
    assert "print(" not in text
    assert "__main__" not in text


@pytest.mark.parametrize(("problem", "backend"), OUTPUTS)
def test_every_function_is_used(problem: Problem, backend: Backend) -> None:
    tree = ast.parse(committed(problem, backend))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "_library" in defined
    assert defined - read == {"get_inputs", "get_init_inputs"}


@pytest.mark.parametrize(("problem", "backend"), OUTPUTS)
def test_the_contract_is_kept_without_a_warning(problem: Problem, backend: Backend) -> None:
    text = committed(problem, backend)
    solution = SolutionFile(path=Path("solution.py"), text=text, sha256=digest(text))
    assert check_contract(solution, problem) == ()


@pytest.mark.parametrize(("problem", "backend"), OUTPUTS)
def test_grading_finds_problem_and_device_in_the_file(problem: Problem, backend: Backend) -> None:
    text = committed(problem, backend)
    solution = SolutionFile(path=Path("renamed.py"), text=text, sha256=digest(text))
    assert solution.declared_problem == problem.name
    assert solution.wants == ("cuda" if backend == "cuda" else "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_constructor_that_names_its_class_is_one_of_the_solution(backend: Backend) -> None:
    problem = load_problem("groupnorm")
    older = changed(problem, model=problem.model.replace("super()", "super(Model, self)"))
    assert older.model != problem.model
    assert render(older, backend) == render(problem, backend)


def test_the_header_names_what_went_in_and_no_place() -> None:
    text = render(load_problem("groupnorm"), "cuda", {"workers": "64", "batch_size": "3"})
    header = text.split('"""')[0]
    assert re.search(r"^# source: groupnorm\.yaml \(sha256 [0-9a-f]{16}\)$", header, re.MULTILINE)
    assert re.search(r"^# templates: frame/head\.py\.jinja \(sha256 ", header, re.MULTILINE)
    assert "# backend: cuda, sm_90a\n" in header
    assert "# schedule: sets=2 workers=64 " in header
    command = "# render again: kernelgen render groupnorm --set batch_size=3 --set workers=64"
    assert command in header
    assert str(Path(__file__).resolve().parent.parent) not in text
    assert "\nbatch_size = 3\n" in text
    assert "constexpr int kWorkers = 64;" in text


def test_a_file_says_what_its_fast_kernel_is_for() -> None:
    text = render(load_problem("groupnorm"))
    assert "It is for aligned segments of 2097152 elements." in text
    assert "Written for x of shape (112, 64, 512, 512); other shapes are taken as well" in text


MOST_KERNELS = 9
LINES = {"one_pass": 890, "product": 1490}


@pytest.mark.ci
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_a_solution_stays_short(problem: Problem, arch: str) -> None:
    text = render(problem, "cuda", arch=arch)
    if NO_KERNEL in text:  # torch multiplies
        assert (TEMPLATES[problem.name], arch) in {("product", "sm_80"), ("product", "sm_100a")}
        return
    assert text.count("\n") <= LINES[TEMPLATES[problem.name]]
    assert len(text.split('"""')[0].splitlines()) <= 12
    # Each definition is launched, or called.
    for name in re.findall(r"__global__ [^;{]*?(\w+)\(\s*(?:const|[A-Z])", kernels(text)):
        assert len(re.findall(rf"\b{name}\b", kernels(text))) >= 2, name


def test_the_cpp_backend_takes_the_constants_for_a_cpu() -> None:
    assert "\nspatial = (128, 128)\n" in render(load_problem("groupnorm"), "cpp")
    assert "\nspatial = (512, 512)\n" in render(load_problem("groupnorm"), "cuda")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"worker": "64"}, r"--set worker: unknown key; did you mean workers"),
        ({"zzz": "1"}, r"--set zzz: unknown key; there are sets, workers"),
        ({"workers": "100"}, r"workers must be a multiple of 32 from 32 to 1024, not 100"),
        ({"workers": "96"}, r"workers must be a power of two, not 96"),
        ({"workers": "many"}, r"--set workers: expected a whole number, not 'many'"),
        ({"ahead": "13"}, r"ahead must be from 1 to 12, not 13"),
        ({"batch_size": "[1]"}, r"--set batch_size: expected a positive whole number, not \(1,\)"),
        ({"batch_size": "-4"}, r"--set batch_size: expected a positive whole number, not -4"),
        ({"batch_size": "0"}, r"--set batch_size: expected a positive whole number, not 0"),
        ({"batch_size": "true"}, r"--set batch_size: expected a positive whole number, not True"),
        ({"batch_size": "2001-13-99"}, r"--set batch_size: '2001-13-99' is not a YAML value"),
        ({"spatial": "3"}, r"--set spatial: expected a list of positive .* \[3, 4\], not 3"),
        ({"spatial": "[8, 0]"}, r"--set spatial: expected a list of positive .*, not \(8, 0\)"),
        ({"spatial": "[{a: 1}]"}, r"--set spatial: '\[\{a: 1\}\]' is neither a number"),
        ({"spatial": "[3"}, r"--set spatial: '\[3' is not a YAML value"),
        ({"spatial": ""}, r"--set spatial: '' is neither a number"),
        (
            {"num_groups": "7"},
            r"^--set num_groups: its code raises ValueError: num_channels",
        ),
        (
            {"num_features": "9", "num_groups": "2"},
            r"^--set num_features, num_groups: its code raises ",
        ),
    ],
)
def test_overrides_that_do_not_fit_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        render(load_problem("groupnorm"), "cuda", settings)


@pytest.mark.parametrize(
    ("known", "text", "rendered"),
    [
        (3, "0", None),
        (0, "-1", "-1"),
        (-1, "0", "0"),
        (0.5, "-2", "-2"),
        (0.5, ".inf", None),
        (0.5, ".nan", None),
        ((), "[0, a]", "(0, 'a')"),
        ((), "[.nan]", None),
        ((), "[{a: 1}]", None),
        ((3, 4), "[]", "()"),
        ((3, -1), "[0, -1]", "(0, -1)"),
        (True, "false", "False"),
        (True, "1", None),
        ("sum", "mean", "'mean'"),
    ],
)
def test_a_constant_keeps_its_kind(known: ConstantValue, text: str, rendered: str | None) -> None:
    problem = with_constant(load_problem("groupnorm"), "other", known)
    if rendered is None:
        with pytest.raises(UserError, match=r"--set other: (expected |.* is neither)"):
            render(problem, "cuda", {"other": text})
    else:
        assert f"\nother = {rendered}\n" in render(problem, "cuda", {"other": text})


def test_a_main_case_that_raises_blames_the_problem() -> None:
    base = load_problem("groupnorm")
    problem = changed(base, constants={**base.constants, "num_groups": 7})
    expected = r"groupnorm\.yaml: model: its code raises ValueError: num_channels"
    with pytest.raises(ProblemError, match=expected):
        render(problem)


def test_a_planned_solution_takes_constants_alone() -> None:
    relu = load_problem("relu")
    assert "\nbatch_size = 3\n" in render(relu, "cuda", {"batch_size": "3"})
    with pytest.raises(UserError, match="--set threads: unknown key; there are batch_size, dim"):
        render(relu, "cuda", {"threads": "3"})


def test_an_ambiguous_override_needs_its_place_in_front() -> None:
    problem = with_constant(load_problem("groupnorm"), "workers", 2)
    with pytest.raises(UserError, match=r"write schedule\.workers or constants\.workers"):
        render(problem, "cuda", {"workers": "64"})
    text = render(problem, "cuda", {"schedule.workers": "64", "constants.workers": "5"})
    assert "kWorkers = 64;" in text
    assert "\nworkers = 5\n" in text


def test_the_reference_is_a_whole_file() -> None:
    text = render_reference(load_problem("groupnorm"))
    assert text.startswith('"""GroupNorm with')
    assert "batch_size = 112" in text
    assert {"Model", "get_inputs", "get_init_inputs"} <= {
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert "spatial = (128, 128)" in render_reference(load_problem("groupnorm"), "cpp")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "name",
    ["groupnorm_silu_add", "instancenorm", "linear_instancenorm_add_mul", "rmsnorm", "softmax"],
)
def test_a_file_that_is_rendered_again_is_the_same(name: str, backend: Backend) -> None:
    problem = load_problem(name)
    assert render(problem, backend) == committed(problem, backend)


@cache
def said_by_the_compilers(source: str, architecture: str) -> str:
    """Return what nvcc and ptxas say of a source that compiles."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernels.cu")
        path.write_text(source)
        target = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        flags = ["-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas", "-v", "-cubin"]
        done = subprocess.run(
            [str(find_toolkit().nvcc), *flags, target, "-o", f"{folder}/kernels.cubin", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    # ptxas only informs of products of a warpgroup that wait for one another.
    assert "(C75" not in done.stderr, done.stderr
    return done.stderr


@pytest.mark.long
@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_kernels_compile_without_warnings_or_spills(problem: Problem, arch: str) -> None:
    text = render(problem, "cuda", arch=arch)
    if NO_KERNEL in text:  # torch multiplies
        assert TEMPLATES[problem.name] == "product"
        return
    source = kernels(text)
    said = said_by_the_compilers(source, arch.removeprefix("sm_"))
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert 1 <= len(spills) <= MOST_KERNELS
    assert set(spills) == {("0", "0")}


@pytest.mark.nvcc
def test_the_ring_of_slots_begins_at_a_whole_line_of_memory(tmp_path: Path) -> None:
    """Copies to anywhere else take several times as long, and nothing else would fail."""
    source = tmp_path / "kernels.cu"
    source.write_text(kernels(render(load_problem("groupnorm"))))
    assembly = tmp_path / "kernels.ptx"
    flags = ["-std=c++17", "-arch=sm_90a", "-ptx", "-o", str(assembly)]
    subprocess.run([str(find_toolkit().nvcc), *flags, str(source)], check=True)
    found = re.findall(
        r"^\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];", assembly.read_text(), re.MULTILINE
    )
    rings = [int(alignment) for alignment, name in found if "ring" in name]
    assert rings
    assert all(alignment % 128 == 0 for alignment in rings)
