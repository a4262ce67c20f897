"""Compiling ahead what a candidate builds, and keeping it where no candidate can write."""

import ctypes
import shutil
import subprocess
import time
import types
from pathlib import Path

import msgspec
import pytest
from warm_lane import graded
from warm_lane import tell as tell_by_a_fork

from kernelgen.build import prebuild as prebuilding
from kernelgen.build.prebuild import Prebuilt, Wanted, prebuild
from kernelgen.build.recipe import Recipe, read_recipe
from kernelgen.build.source import CaptureReply
from kernelgen.build.store import BuildStore
from kernelgen.build.torch_build import Ready, shorten_builds
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Status
from kernelgen.problem.library import load_problem
from kernelgen.sandbox import view
from kernelgen.sandbox.survey import Support, survey
from kernelgen.selftest.corpus import read_corpus
from kernelgen.selftest.running import misses
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import read_solution

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    survey().level != "namespaces", reason="nothing is compiled ahead without namespaces"
)

TEXT = """
import torch
from torch.utils.cpp_extension import load_inline
path = load_inline(
    "number", 'extern "C" int number() {{ return {number}; }}', {options}
    no_implicit_headers=True, is_python_module=False)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""


def text(number: object = 1, options: str = "") -> str:
    return TEXT.format(number=number, options=options)


def ahead(folder: Path, source: str, **given: object) -> Prebuilt:
    """Compile ahead into the store `folder / "store"`."""
    (folder / "store").mkdir(exist_ok=True)
    file = folder / "candidate.py"
    file.write_text(source)
    wanted = Wanted(
        solution=read_solution(file),
        reference_source="def get_init_inputs():\n    return []\n",
        capability=None,
        **{"timeout_s": 60.0, "tell": tell_by_a_fork, **given},  # type: ignore[arg-type]
    )
    return prebuild(wanted, BuildStore(folder / "store"))


def number_in(folder: Path, library: bytes) -> int:
    file = folder / f"{time.monotonic_ns()}.so"
    file.write_bytes(library)
    return int(ctypes.CDLL(str(file)).number())


@pytest.mark.ci
def test_the_second_time_it_is_found_whichever_file_asks(tmp_path: Path) -> None:
    first = ahead(tmp_path, text(41))
    (library,) = first.ready.libraries.values()
    assert (first.cached, number_in(tmp_path, library)) == (False, 41)
    assert ahead(tmp_path, text(41)) == _with_seconds_of(first, cached=True)
    # The same extension in another file, which has to be imported to see that.
    assert ahead(tmp_path, text(41) + "# other\n").cached
    other = ahead(tmp_path, text(42))
    assert not other.cached
    assert number_in(tmp_path, *other.ready.libraries.values()) == 42


KERNELS = """
#define KERNEL(name) extern "C" __global__ void name##_kernel(float* y)
KERNEL(poly) { y[0] = 1.0f; }
namespace ns { template <int W> __global__ void wide(float* y) { y[0] = W; } }
void linked(float* y);
extern "C" void launch(float* y) { poly_kernel<<<1, 1>>>(y); ns::wide<4><<<1, 1>>>(y); linked(y); }
"""
LIBRARY = """
__global__ void others_kernel(float* y) { y[0] = 2.0f; }
void linked(float* y) { others_kernel<<<1, 1>>>(y); }
"""
# As torch names rules and objects; a library that lies ready is made here first.
NINJA = """
rule cuda_compile
  command = nvcc -arch=sm_90 -Xcompiler -fPIC -c $in -o $out
rule archive
  command = ar rcs $out $in
rule link
  command = nvcc -shared $in -o $out
build others.o: cuda_compile others.cu
build libothers.a: archive others.o
build cuda.cuda.o: cuda_compile cuda.cu
build kernels.so: link cuda.cuda.o libothers.a
default kernels.so
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_of_a_module_the_kernels_are_told_that_its_sources_hold(tmp_path: Path) -> None:
    files = {"cuda.cu": KERNELS, "others.cu": LIBRARY}
    recipe = Recipe(library="kernels.so", ninja=NINJA, files=files)

    def tell(*_: object, **__: object) -> CaptureReply:
        return CaptureReply(recipes=(recipe,))

    for cached in (False, True):
        made = ahead(tmp_path, text(), tell=tell, timeout_s=300.0)
        assert made.cached is cached
        assert declared_kernels("", made.stubs).compiled == {"poly_kernel", "ns::wide"}
    (library,) = made.ready.libraries.values()
    assert library.startswith(b"\x7fELF")
    assert b"others_kernel" in library


class _AnyTime(float):
    """Equal to every time."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float)

    __hash__ = float.__hash__


def _with_seconds_of(one: Prebuilt, *, cached: bool) -> Prebuilt:
    return Prebuilt(ready=one.ready, seconds=_AnyTime(), cached=cached)


@pytest.mark.long
def test_flags_and_toolchain_have_entries_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead(tmp_path, text("N", 'extra_cflags=["-DN=1"],'))
    other = ahead(tmp_path, text("N", 'extra_cflags=["-DN=2"],'))
    assert not other.cached
    assert number_in(tmp_path, *other.ready.libraries.values()) == 2
    monkeypatch.setattr(prebuilding, "_toolchain", lambda: "another nvcc")
    assert not ahead(tmp_path, text("N", 'extra_cflags=["-DN=2"],')).cached


def test_what_does_not_compile_is_told_and_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        found = ahead(tmp_path, text("undefined_name"))
        assert not found.ready.libraries
        (said,) = found.ready.failures.values()
        assert "undefined_name" in said
    assert not list((tmp_path / "store").iterdir())


@pytest.mark.ci
def test_what_needs_a_file_beside_is_left_to_the_candidates_process(tmp_path: Path) -> None:
    header = (
        "import os, pathlib\n"
        'place = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"])\n'
        "place.mkdir(parents=True, exist_ok=True)\n"
        '(place / "own.h").write_text("#define OWN 5")\n'
    )
    call = text("OWN", "extra_include_paths=[str(place)],").replace(
        "'extern", "'#include <own.h>\\nextern"
    )
    found = ahead(tmp_path, header + call)
    assert not found.ready.libraries
    assert not found.ready.failures
    source = (
        '(place / "own.cpp").write_text("int f() { return 1; }")\n'
        "from torch.utils.cpp_extension import load\n"
        'load("own", [str(place / "own.cpp")], is_python_module=False)\n'
    )
    alone = ahead(tmp_path, text())
    for _ in range(2):
        both = ahead(tmp_path, header + source + text())
        assert both.ready == alone.ready
        assert not both.cached  # not all of it


@pytest.mark.long
def test_it_ends_by_its_deadline(tmp_path: Path) -> None:
    endless = "import time\ntime.sleep(100)\n" + text()
    begin = time.monotonic()
    assert ahead(tmp_path, endless, timeout_s=2.0).ready == Ready()
    assert time.monotonic() - begin < 30


def test_without_namespaces_nothing_is_compiled_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilding, "survey", lambda: Support(level="landlock", landlock_abi=6))
    assert ahead(tmp_path, text()) == Prebuilt()


def test_a_forged_recipe_is_never_served_to_who_asks_for_the_honest_one(tmp_path: Path) -> None:
    forge = (
        "from pathlib import Path\n"
        "from torch.utils import cpp_extension\n"
        "tell = cpp_extension._run_ninja_build\n"
        "def forge(build_directory, verbose, error_prefix):\n"
        '    plan = Path(build_directory) / "build.ninja"\n'
        "    evil = '''command = printf 'extern \"C\" int number() { return 666; }' > e.cpp; '''\n"
        "    evil += 'c++ -shared -fPIC e.cpp -o $out'\n"
        "    text = plan.read_text()\n"
        "    assert 'command = $cxx $in $ldflags -o $out' in text\n"
        "    plan.write_text(text.replace('command = $cxx $in $ldflags -o $out', evil))\n"
        "    tell(build_directory, verbose, error_prefix)\n"
        "cpp_extension._run_ninja_build = forge\n"
    )
    forged = ahead(tmp_path, forge + text(7))
    assert number_in(tmp_path, *forged.ready.libraries.values()) == 666  # so it was worth a try
    honest = ahead(tmp_path, text(7))
    assert not honest.cached
    assert number_in(tmp_path, *honest.ready.libraries.values()) == 7
    assert not set(forged.ready.libraries) & set(honest.ready.libraries)


CORPUS = {candidate.path.stem: candidate for candidate in read_corpus(HERE)}


@pytest.mark.parametrize(
    "name",
    [
        "honest_lent_helper",
        "honest_lent_names_bound_anew",
        "honest_lent_class_extended",
        "hostile_calls_the_lender",
        "hostile_reference_in_a_recipe",
        "hostile_says_it_is_not_contained",
    ],
)
def test_what_is_told_ahead_changes_no_verdict(tmp_path: Path, name: str) -> None:
    candidate = CORPUS[name]
    options = msgspec.structs.replace(candidate.options(), build_cache=tmp_path)
    verdict = graded(candidate.path, options)
    assert misses(candidate, verdict) == (), verdict.reason


def test_recipes_without_end_are_not_compiled(tmp_path: Path) -> None:
    head, call, model = (
        text()
        .replace("path = ", "@")
        .replace("class ", "@class ")
        .replace('"number"', 'f"n{n}"')
        .split("@")
    )
    source = f"{head}for n in range(200):\n  path = {call}{model}"
    assert ahead(tmp_path, source).ready == Ready()
    assert not list((tmp_path / "store").iterdir())
    assert ahead(tmp_path, source.replace("200", "2")).ready != Ready()


def test_what_is_too_much_for_a_record_is_left_to_the_candidates_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilding, "_LIBRARIES_BYTES", 1000)
    assert ahead(tmp_path, text()).ready == Ready()


def test_a_build_error_that_is_caught_is_told_where_no_kernel_ran(tmp_path: Path) -> None:
    file = tmp_path / "falls_back.py"
    broken = text("undefined_name").replace("path = load_inline(", "try:\n  load_inline(")
    broken = broken.replace("class ModelNew", "except RuntimeError:\n  pass\nclass ModelNew")
    file.write_text(broken.replace("return x\n", "return x * x + x\n"))
    (tmp_path / "store").mkdir()
    problem = load_problem(HERE / "problems" / "tiny_polynomial.yaml")
    options = GradeOptions(problem=problem, time=False, build_cache=tmp_path / "store")
    verdict = graded(file, options)
    assert verdict.status is Status.NO_CUSTOM_KERNEL
    assert "undefined_name" in verdict.reason
    assert f"{file}:" in verdict.reason


def test_what_runs_ahead_sees_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_NODES", ("zero",))
    monkeypatch.setattr(view, "_GPU_NODES", ("nul*",))
    plan = prebuilding._plan(tmp_path, tmp_path)  # noqa: SLF001
    assert view.view_of(plan).devices == ("/dev/zero",)
    usual = msgspec.structs.replace(plan, gpu=True)
    assert view.view_of(usual).devices == ("/dev/zero", "/dev/null")


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".", "a/b", "", "a\n"])
def test_names_that_leave_the_folder_are_not_sound(name: str) -> None:
    assert Recipe(library="a.so", ninja="", files={"main.cpp": ""}).is_sound()
    assert not Recipe(library=name, ninja="", files={}).is_sound()
    assert not Recipe(library="a.so", ninja="", files={name: ""}).is_sound()


@pytest.mark.parametrize("candidate", ["honest_softmax.py", "hostile_plants_a_library.py"])
def test_a_second_grade_finds_what_the_first_compiled_unchanged(
    tmp_path: Path, candidate: str
) -> None:
    problem = load_problem(HERE / "problems" / "tiny_softmax.yaml")
    options = GradeOptions(problem=problem, time=False, build_cache=tmp_path)
    held, cached = [], []
    for _ in range(2):
        verdict = graded(HERE / "candidates" / candidate, options)
        assert verdict.status is Status.PASSED
        assert verdict.build is not None
        cached.append(verdict.build.cached)
        held.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert cached == [False, True]
    assert held[0] == held[1]
    assert len(held[0]) == 2


MAKES_A_HEADER = """
from pathlib import Path
folder = Path("/tmp/headers_of_its_own")
folder.mkdir(exist_ok=True)
(folder / "search.h").write_text("#define OWN 1\\n")
"""


@pytest.mark.parametrize(
    ("includes", "options"),
    [
        # glibc has one of this name.
        ("#include <search.h>", "extra_include_paths=['/tmp/headers_of_its_own'],"),
        ('#if __has_include("/tmp/headers_of_its_own/search.h")\\n#define OWN 1\\n#endif', ""),
    ],
    ids=["another of its name", "none"],
)
def test_what_would_do_without_a_file_beside_it_is_left_to_the_candidates_process(
    tmp_path: Path, includes: str, options: str
) -> None:
    source = text("OWN + 0", options).replace("'extern", f"'{includes}\\nextern")
    assert ahead(tmp_path, MAKES_A_HEADER + source).ready == Ready()
    assert ahead(tmp_path, text(options="extra_include_paths=['/usr/include'],")).ready != Ready()


def test_a_program_that_lies_ready_can_be_run(tmp_path: Path) -> None:
    cpp_extension = types.ModuleType("cpp_extension")
    cpp_extension._run_ninja_build = None  # type: ignore[attr-defined] # noqa: SLF001
    (tmp_path / "build.ninja").write_text("build program: link main.o\n")
    program = Path("/bin/true").read_bytes()
    ready = Ready(libraries={read_recipe(tmp_path).digest: program})
    shorten_builds(cpp_extension, ready)
    cpp_extension._run_ninja_build(str(tmp_path), verbose=False, error_prefix="")  # noqa: SLF001
    assert subprocess.run([tmp_path / "program"], check=False).returncode == 0
