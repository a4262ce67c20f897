"""Shorter builds: slim headers first, torch's own where those do not compile, one target."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from kernelgen.build.recipe import read_recipe
from kernelgen.build.slim_headers import full_headers_may_mend, slim_headers
from kernelgen.build.torch_build import SLIM_FOLDER, Ready, settle_builds, shorten_builds

EXTENSION = "#include <torch/extension.h>\n"
TYPES = "#include <torch/types.h>\n"
Torch = Callable[[str, bool, str], None]


def test_a_stand_in_has_the_operators_that_a_text_names() -> None:
    files = slim_headers(
        "", TYPES + "auto y = torch::empty_like(x); y = relu(y).sum();" + "x" * 500
    )
    assert files["torch/types.h"] == files["torch/extension.h"]
    (core,) = (text for text in files.values() if "namespace torch" in text)
    for name in ("empty_like", "relu", "sum"):
        assert f"#include <ATen/ops/{name}.h>" in core
    assert "ATen/ops/softmax.h" not in core
    assert "torch/csrc" not in core


def test_each_compiler_gets_what_its_own_text_names() -> None:
    host = EXTENSION + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def(torch::relu); }"
    core = slim_headers(host, EXTENSION + "torch::zeros({1});")["kernelgen_torch.h"]
    cuda, _, rest = core.partition("#ifdef __CUDACC__\n")[2].partition("#else\n")
    assert "ops/zeros.h" in cuda
    assert "csrc/Exceptions.h" not in cuda
    assert "ops/relu.h" in rest
    assert "csrc/Exceptions.h" in rest


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k() {}",
        "#include <torch/library.h>\n",
        EXTENSION + "torch::nn::Linear layer(1, 1);",
        EXTENSION + "auto t = torch::tensor({1.0});",
        EXTENSION + "auto o = torch::TensorOptions().requires_grad(true);",
        EXTENSION + "#if __has_include(<torch/nn.h>)\n#endif\n",
    ],
)
def test_what_a_stand_in_would_change_gets_torchs_header(text: str) -> None:
    assert not slim_headers(text, "")


HEAVY = {"ATen/Context.h", "ATen/DeviceGuard.h", "ATen/TensorUtils.h"}


@pytest.mark.parametrize(
    ("text", "spared"),
    [
        ("torch::empty_like(x).sum();", HEAVY),
        ("at::globalContext();", HEAVY - {"ATen/Context.h"}),
        ("at::cuda::OptionalCUDAGuard guard(device_of(x));", HEAVY - {"ATen/DeviceGuard.h"}),
        ("at::cat({x, x}, 0);", HEAVY - {"ATen/DeviceGuard.h"}),
        ("#include <ATen/TensorUtils.h>\n", HEAVY - {"ATen/TensorUtils.h"}),
        ("#include <ATen/native/Resize.h>\n", set()),
        ("#include <torch/csrc/autograd/custom_function.h>\n", set()),
    ],
)
def test_headers_of_operators_are_spared_what_the_text_does_not_use(
    text: str, spared: set[str]
) -> None:
    files = slim_headers("", EXTENSION + text)
    assert HEAVY & files.keys() == spared


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Have torch write its build for a file in a folder, and run a given ninja in place of it."""

    def run(ninja: Torch, source: str, ready: Ready, *flags: str, name: str = "main.cu") -> Path:
        monkeypatch.setattr(cpp_extension, "_run_ninja_build", ninja)
        monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/usr/local/cuda")
        shorten_builds(cpp_extension, ready)
        path = tmp_path / name
        path.write_text(source)
        cpp_extension._write_ninja_file_to_build_library(  # noqa: SLF001
            path=str(tmp_path / "build.ninja"), name="made", sources=[str(path)], extra_cflags=[],
            extra_cuda_cflags=list(flags), extra_sycl_cflags=[], extra_ldflags=[],
            extra_include_paths=[], with_cuda=True, with_sycl=False, is_standalone=False,
        )  # fmt: skip
        cpp_extension._run_ninja_build(  # noqa: SLF001
            str(tmp_path), verbose=True, error_prefix="Error building"
        )
        return tmp_path

    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    return run


def test_the_headers_come_first_and_nothing_else_changes(build: Callable[..., Path]) -> None:
    seen = []
    folder = build(lambda d, *_: seen.append(Path(d, "build.ninja").read_text()), TYPES, Ready())
    (ninja,) = seen
    first = f"cuda_cflags = -I{folder / SLIM_FOLDER} "
    assert first in ninja
    assert (folder / SLIM_FOLDER / "torch" / "types.h").is_file()
    torchs = ninja.replace(f"-I{folder / SLIM_FOLDER} ", "")
    assert "cuda_cflags = -DTORCH_EXTENSION_NAME=made" in torchs
    assert ninja.count("-gencode") == 1
    assert (folder / "main.cu").read_text() == TYPES


def test_a_file_with_its_own_targets_keeps_them(build: Callable[..., Path]) -> None:
    seen = []
    own = "-gencode=arch=compute_90a,code=sm_90a"
    build(lambda d, *_: seen.append(Path(d, "build.ninja").read_text()), TYPES, Ready(), own)
    (ninja,) = seen
    assert own in ninja
    assert ninja.count("-gencode") == 1


def test_torchs_header_follows_where_the_stand_in_fails_and_has_the_last_word(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    tried: list[tuple[bool, bool]] = []

    def ninja(folder: str, verbose: bool, error_prefix: str) -> None:  # noqa: FBT001
        slim = SLIM_FOLDER in Path(folder, "build.ninja").read_text()
        tried.append((slim, verbose))
        raise RuntimeError("of the stand-in" if slim else f"{error_prefix}: of torch's")

    with pytest.raises(RuntimeError, match=r"^Error building: of torch's$") as caught:
        build(ninja, TYPES, Ready())
    assert caught.value.__context__ is None
    assert tried == [(True, False), (False, True)]
    assert not (tmp_path / SLIM_FOLDER).exists()


OWN = """#include <torch/extension.h>
int f(int n) {
  HERE
}
"""


@pytest.mark.parametrize(
    ("line", "said", "may_mend"),
    [
        ("int i = 0", 'main.cpp(4): error: expected a ";"', False),
        ("int i = 0", "main.cpp:3:12: error: expected ',' or ';' before '}' token", False),
        ("return m;", 'main.cpp(3): error: identifier "m" is undefined', False),
        (
            "f(nm);",
            "main.cpp:3:1: error: \u2018nm\u2019 was not declared in this scope",
            False,
        ),
        ("flaot y;", "main.cpp:3:3: error: 'flaot' does not name a type", False),
        ("warpSumm(n);", 'main.cpp(3): error: identifier "warpSumm" is undefined', False),
        ("at::empti();", 'main.cpp(3): error: namespace "at" has no member "empti"', False),
        # A function, a macro and a name of torch's; what is called may be any header's.
        ("at::init_num_threads();", 'main.cpp(3): error: "at" has no member "x"', True),
        ("TORCH_LIBRARY(a, b) { }", "main.cpp:3:1: error: expected ';' before '{' token", True),
        ("load(n);", 'main.cpp(3): error: identifier "load" is undefined', True),
        # Of types, of headers and of what is used in headers, other words decide.
        ("f(f);", 'main.cpp(3): error: argument of type "int" is incompatible', True),
        ("return n;", 'header.h(3): error: expected a ";"', True),
        ("return n;", "ld: cannot find -lcudart", True),
        ("return n;", "nvcc was killed", True),
    ],
)
def test_torchs_headers_do_not_follow_what_they_cannot_mend(
    build: Callable[..., Path], *, line: str, said: str, may_mend: bool
) -> None:
    text = OWN.replace("HERE", line)
    assert full_headers_may_mend(said, {"main.cpp": text}) is may_mend
    tried: list[str] = []

    def ninja(folder: str, _: bool, error_prefix: str) -> None:  # noqa: FBT001
        tried.append(folder)
        raise RuntimeError(f"{error_prefix}: [1/2]\n{said.replace('main.cpp', 'main.cu')}")

    with pytest.raises(RuntimeError, match="Error building: "):
        build(ninja, text, Ready())
    assert len(tried) == 1 + may_mend


def test_what_is_ready_is_taken_and_what_failed_is_told(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("ninja was run")

    build(lambda *_: None, "int f();", Ready())
    recipe = read_recipe(tmp_path)
    assert recipe is not None
    assert str(tmp_path) not in recipe.ninja
    build(never, "int f();", Ready(libraries={recipe.digest: b"library"}))
    assert (tmp_path / "made.so").read_bytes() == b"library"
    with pytest.raises(RuntimeError, match="Error building: it says"):
        build(never, "int f();", Ready(failures={recipe.digest: "it says"}))


def test_one_target_unless_torch_does_not_know_it_or_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = "torch._C._cuda_getArchFlags"
    monkeypatch.setattr(known, lambda: "sm_80 sm_90 compute_90", raising=False)
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setenv("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", "0")
    for target in (None, (12, 0)):
        settle_builds(target)
        assert "TORCH_CUDA_ARCH_LIST" not in os.environ
    settle_builds((9, 0))
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0"
    settle_builds((8, 0))
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0"


USE = """
import sys
from pathlib import Path
import torch
from torch.utils import cpp_extension
from kernelgen.build.torch_build import Ready, shorten_builds
folders = []
ninja = cpp_extension._run_ninja_build
def counted(folder, *given, **named):
    folders.append("kernelgen_headers" in Path(folder, "build.ninja").read_text())
    return ninja(folder, *given, **named)
cpp_extension._run_ninja_build = counted
shorten_builds(cpp_extension, Ready())
"""


def run_python(folder: Path, text: str) -> str:
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder)}
    command = [sys.executable, "-c", USE + text]
    done = subprocess.run(
        command, check=False, env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_an_own_module_and_a_file_beside_compile_with_a_stand_in(tmp_path: Path) -> None:
    (tmp_path / "beside.h").write_text("inline int64_t count(at::Tensor x) { return x.numel(); }\n")
    (tmp_path / "own.cpp").write_text(
        '#include <torch/extension.h>\n#include "beside.h"\n'
        "using namespace torch::indexing;\n"
        "std::vector<torch::Tensor> parts(at::Tensor x, torch::optional<at::Tensor> bias) {\n"
        "  TORCH_CHECK(x.dtype() == torch::kFloat32, x.sizes());\n"
        "  auto y = torch::zeros({count(x)}, x.options()) + 2 * x.flatten();\n"
        "  if (bias) y += *bias;\n"
        "  at::parallel_for(0, 4, 1, [](int64_t, int64_t) {});\n"
        "  return {y, x.index({Slice(0, 1)}), at::cat({y, y}, 0)};\n"
        "}\n"
        "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n"
        '  m.def("parts", &parts, py::arg("x"), py::arg("bias") = py::none());\n'
        "}\n"
    )
    said = run_python(
        tmp_path,
        'made = cpp_extension.load("own", ["own.cpp"])\n'
        "y, row, both = made.parts(torch.ones(2, 3), torch.ones(1))\n"
        "print(folders, y.tolist(), row.tolist(), both.shape[0])\n",
    )
    assert said.split("\n")[-2] == "[True] [3.0, 3.0, 3.0, 3.0, 3.0, 3.0] [[1.0, 1.0, 1.0]] 12"


@pytest.mark.long
def test_what_only_torchs_header_has_is_built_with_it(tmp_path: Path) -> None:
    said = run_python(
        tmp_path,
        "source = 'int64_t g(at::Tensor x) {'\n"
        "source += ' return torch::nn::utils::parameters_to_vector({x}).numel(); }'\n"
        "source = source.replace('torch::nn', 'torch :: nn')\n"
        "made = cpp_extension.load_inline('whole', source,\n"
        "    functions=['g'])\n"
        "print(folders, made.g(torch.ones(3)))\n",
    )
    assert said.split("\n")[-2] == "[True, False] 3"
