"""Names of operands and steps: none is one that a stage's template uses beside it."""

import inspect
import re
import subprocess
from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.engines.naming import Names
from kernelgen.installation import templates_folder
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.record import Backend
from kernelgen.rendering.solution import render

pytestmark = pytest.mark.sampled(rest="ci")

_TYPES = (
    "auto|bool|const|double|float|int|int64_t|unsigned|void|Arguments|Distances|Four|Outcome|State"
    "|Sums|T"
)
_DECLARED = re.compile(rf"\b(?:{_TYPES})[&*]* ([a-z]\w*)(?= =|[;,)\[{{])")
_DECLARED_TOO = re.compile(r"(?<=[,{]) ?([a-z]\w*)(?= = )")
_ASSIGNED = re.compile(r"^ +([a-z]\w*) = ", re.MULTILINE)  # Python
_CALLED = re.compile(r"(?<![\w.:>])([a-z]\w*)(?:<[\w, ]+>)?(?=\(|<<<)")
# Where these are named no operand is near, but for the sums `s` of a segment.
_APART = {"b", "max", "mean", "min", "s", "squares", "sum", "total", "variance", "x", "y"}
# A product's own names are told when an epilogue is fused; one by runs has none.
_APART |= {"bias", "products"}


def _names_of(path: Path) -> set[str]:
    text = path.read_text()
    text = re.sub(r"^ *(//|#)%.*", "", text, flags=re.MULTILINE)  # Jinja's
    text = re.sub(r"/\*%.*?%\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\w*\$\{.*?\}\w*", " ", text, flags=re.DOTALL)
    text = re.sub(r'//.*|"[^"\n]*"', "", text)
    return {
        name
        for form in (_DECLARED, _DECLARED_TOO, _ASSIGNED, _CALLED)
        for name in form.findall(text)
    }


def test_an_operand_is_called_like_nothing_that_the_templates_name() -> None:
    # Not the kernels of products and long segments, which keep operands in a struct of their own.
    kept = ["map/*", "pool/*", "reduce/*", "scan/*", "segment/segment*", "product/product.py*"]
    kept += ["frame/common*", "frame/fours*", "frame/beside*", "frame/operands*", "frame/parts*"]
    paths = {path for pattern in kept for path in templates_folder().glob(pattern)}
    names = {name for path in paths for name in _names_of(path)}
    assert {"add", "across_lanes", "mapped", "left", "len", "max", "warp", "windows"} <= names
    assert {name for name in names - _APART if Names().local(name) == name} == set()


# Names that a person may give, by what they could be taken for.
GIVEN = {
    "macros": "NAN INFINITY M_PI HUGE_VAL EOF BUFSIZ INT_MAX errno stdin NULL RAND_MAX linux unix",
    "functions": "isnan min max offsetof signbit expf tanhf fabsf malloc printf index y0",
    "words": "new delete default auto std template operator register int64_t size_t float4 T",
    "parts": "x x_i x_at x_size x_inner x_out x_repeats s_sum o_relu has_x d_sum out x_run",
    "kernels": "Value State Arguments Four kX threadIdx blockIdx kernel count shape a i warp",
    "Python": "torch nn F tuple float len int str getattr ValueError ctypes self_ type match _",
    "the file": "_library _launch _expect _readable _along _across _relu _sum _forward ModelNew",
    "unicode": "φ β Ω ñ 名前 x_β _é x__ X Xx xX μ_1 数",
    "numbers": "x1 x_1 x_2 x_1_1 p_x b_x p_ relu relu_1 add add_1 sum_1 mul linear",
}
KEYS = (
    "0",
    "cls-head",
    "box head",
    "β",
    "lambda",
    "None",
    "weight",
    'a"b',
    "a'b",
    "\\",
    "\n",
    "7x",
)


@pytest.mark.parametrize("backend", ["cpp", "cuda"])
@pytest.mark.parametrize("kind", GIVEN)
def test_an_argument_may_have_any_name(
    kind: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    names = GIVEN[kind].split()
    inputs = {n: f"torch.randn({'8' if i % 3 == 1 else '4, 8'})" for i, n in enumerate(names)}
    a, b, c, *_ = names
    forward = f"{' + '.join(f'{n}.relu() * {i + 2}' for i, n in enumerate(names))}, "
    forward += f"({a} * {b}).sum(1), ({a} - {b} * {c}).softmax(-1), ({a} + {b}).cumsum(-1)"
    planned = Planned(problem_of(tmp_path, forward, **inputs), backend, compiled_folder)
    planned.check()
    assert [*inspect.signature(planned.space["ModelNew"].forward).parameters][1:] == names


def test_names_may_be_almost_alike(tmp_path: Path, compiled_folder: Path) -> None:
    """Kernels have constants that are called `kWInner` for w."""
    inputs = {
        "x": "torch.randn(4, 8)",
        **dict.fromkeys(("w", "W", "w_", "aB", "ab"), "torch.rand(8)"),
    }
    forward = "x * w + W * w_ - aB * ab, (x * w).softmax(-1) * W + w_ - (x + aB).softmax(-1) * ab"
    Planned(problem_of(tmp_path, forward, **inputs), "cuda", compiled_folder).check()


@pytest.mark.parametrize("kind", GIVEN)
def test_a_parameter_may_have_any_name(kind: str, tmp_path: Path, compiled_folder: Path) -> None:
    names = [f"{name}_" if name == "_" else name for name in GIVEN[kind].split()]
    names = [name for name in names if name not in {"T", "type", "float", "_forward"}]
    layers = "\n".join(f"self.{name} = nn.Parameter(torch.rand(8))" for name in names)
    forward = " + ".join(f"x * self.{name}" for name in names)
    problem = problem_of(tmp_path, forward, layers=layers, x="torch.randn(4, 8)")
    render(problem, "cpp")
    Planned(problem, "cpp", compiled_folder).check()


@pytest.mark.parametrize(
    "layers",
    [
        "self.own = nn.ModuleDict({key: nn.Linear(8, 8) for key in KEYS})",
        "self.own = nn.ModuleDict({str(9 - n): nn.Linear(8, 8) for n in range(3)})",
        "self.own = nn.Sequential(OrderedDict((str(3 - n), nn.Linear(8, 8)) for n in range(3)))",
        "self.own = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))])",
        "self.own = nn.ModuleDict({'layers': nn.ModuleList([nn.Linear(8, 8)])})",
        "for key in KEYS: self.add_module(key, nn.Linear(8, 8))",
        "for key in KEYS: self.register_parameter(key, nn.Parameter(torch.rand(8)))",
        "self.own = nn.ParameterDict({key: nn.Parameter(torch.rand(8)) for key in KEYS})",
        "self.own = nn.ParameterList([nn.Parameter(torch.rand(8)) for _ in range(3)])",
    ],
)
def test_a_path_may_have_any_parts(layers: str, tmp_path: Path, compiled_folder: Path) -> None:
    before = (
        "y = x\nfor layer in self.modules():\n"
        "    y = layer(y).relu() if type(layer) is nn.Linear else y\n"
        "for name, p in self.named_parameters():\n    y = y * p if p.dim() == 1 else y"
    )
    problem = problem_of(tmp_path, "y", layers=layers, before=before, x="torch.rand(4, 8)")
    text = problem.module_source or ""
    head = f"from collections import OrderedDict\nKEYS = {KEYS!r}\n"
    problem.path.write_text(head + text)
    problem = read_kernelbench_problem(problem.path)
    render(problem, "cpp")
    Planned(problem, "cpp", compiled_folder).check()


@pytest.mark.parametrize("base", ["nn.Module", "Base"])
def test_a_module_may_call_its_own_like_a_file_does(
    base: str, tmp_path: Path, compiled_folder: Path
) -> None:
    top = (
        "CPP_SOURCE = CUDA_SOURCE = CPP_FLAGS = ctypes = functools = hashlib = 2.0\n"
        "def load_inline(): return 3.0\n"
        "class Base(nn.Module): pass\nclass ModelNew(nn.Linear): pass\n"
    )
    layers = (
        "self.line = ModelNew(8, 8)\n"
        "self.gain = CPP_SOURCE * CUDA_SOURCE * ctypes * functools * hashlib * load_inline()"
    )
    problem = problem_of(
        tmp_path, "self.line(x).relu() * self.gain", layers=layers, top=top, x="torch.rand(4, 8)"
    )
    problem.path.write_text((problem.module_source or "").replace("(nn.Module):\n", f"({base}):\n"))
    problem = read_kernelbench_problem(problem.path)
    planned = Planned(problem, "cpp", compiled_folder)
    assert ("(Model)" in planned.text) == (base == "Base")
    planned.check()
    for name in ("ctypes", "functools", "hashlib"):
        assert inspect.ismodule(planned.space[name])
    assert inspect.signature(planned.space["load_inline"]).parameters


def test_a_macro_of_the_headers_is_no_name() -> None:
    headers = "algorithm cmath cstdint cstring vector omp.h cfloat climits cstdio cstdlib cerrno"
    text = "".join(f"#include <{header}>\n" for header in headers.split())
    command = ["c++", "-x", "c++", "-std=gnu++17", "-fopenmp", "-dM", "-E", "-"]
    found = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    macros = set(re.findall(r"^#define ([A-Za-z]\w*) (?!\1$)", found, re.MULTILINE))
    assert {"errno", "INFINITY", "NAN", "EOF"} <= macros
    assert {name for name in macros if Names().local(name) == name} == set()
