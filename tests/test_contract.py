"""The contract: what breaks it, with line and mend, and the many honest styles that do not."""

# Tables of edits read best with one edit a line.
# ruff: noqa: E501, ISC004

import time
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.errors import UserError
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.library import load_problem
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Problem, digest
from kernelgen.solution.contract import check_contract
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import LARGEST_BYTES, SolutionFile, read_solution
from kernelgen.solution.finding import Finding
from kernelgen.solution.importing import import_file
from kernelgen.solution.imports import allowed_modules
from kernelgen.solution.source import Source

GOOD = '''\
"""GroupNorm."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

batch_size = 112
num_features = 64
num_groups = 8
spatial = (512, 512)

CUDA = r"""
__global__ void kernel(float* x) { x[0] = 1.0f; }
"""
module = load_inline(name="group_norm", cpp_sources="", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int) -> None:
        super().__init__()
        self.gn = nn.GroupNorm(num_groups, num_features, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return module.run(x, self.gn.weight, self.gn.bias)


def get_inputs():
    return [torch.rand(batch_size, num_features, *spatial)]


def get_init_inputs():
    return [num_features, num_groups]
'''

CLASS = GOOD[GOOD.index("class ModelNew") : GOOD.index("def get_inputs")]
FORWARD = CLASS[CLASS.index("    def forward") :].rstrip()
BUILD = (
    'module = load_inline(name="group_norm", cpp_sources="", cuda_sources=CUDA, functions=["run"])'
)


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Return a problem that allows torch and the standard library alone."""
    return msgspec.structs.replace(load_problem("groupnorm"), allowed_imports=())


def solution(text: str) -> SolutionFile:
    return SolutionFile(path=Path("s.py"), text=text, sha256=digest(text))


def findings(text: str, problem: Problem) -> tuple[Finding, ...]:
    return check_contract(solution(text), problem)


def errors(text: str, problem: Problem) -> list[Finding]:
    return [finding for finding in findings(text, problem) if finding.severity == "error"]


def changed(*pairs: tuple[str, str]) -> str:
    text = GOOD
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_good_file_has_no_finding_even_when_strict(problem: Problem) -> None:
    assert check_contract(solution(GOOD), problem) == ()


HONEST = {
    "byte order mark": "\ufeff" + GOOD,
    "carriage returns": GOOD.replace("\n", "\r\n"),
    "other names": changed(("num_features: int, num_groups: int", "c, g"),
                           ("GroupNorm(num_groups, num_features", "GroupNorm(g, c"),
                           ("x: torch.Tensor", "inp"), ("run(x", "run(inp")),
    "variadic": changed(("(self, num_features: int, num_groups: int)", "(self, *args, **kwargs)"),
                        ("GroupNorm(num_groups, num_features", "GroupNorm(args[1], args[0]"),
                        ("(self, x: torch.Tensor)", "(self, *xs)"), ("run(x", "run(xs[0]")),
    "more parameters with defaults": changed(("num_groups: int)", "num_groups: int, eps=1e-5, *, d=0)")),
    "inference_mode": changed((FORWARD, "    @torch.inference_mode()\n" + FORWARD)),
    "unknown decorator": changed((FORWARD, "    @decorate\n" + FORWARD.replace("self, x", "x").replace(", self.gn.weight, self.gn.bias", "")),
                                 ("class ModelNew", "def decorate(f):\n    return lambda s, x: f(x)\n\n\n"
                                  "class ModelNew")),
    "static forward": changed((FORWARD, "    @staticmethod\n    def forward(x):\n        return module.run(x)")),
    "base in the file": changed(("class ModelNew(nn.Module):", "class Base(nn.Module):"),
                                ("def get_inputs", "class ModelNew(Base):\n    pass\n\n\ndef get_inputs")),
    "base from torch": changed(("class ModelNew(nn.Module):", "class ModelNew(nn.GroupNorm):"),
                               (CLASS[CLASS.index("    def __init__") : CLASS.index("    def forward")], "")),
    "own Module import": changed(("import torch.nn as nn\n", "import torch.nn as nn\nfrom torch.nn import Module\n"),
                                 ("(nn.Module)", "(Module)")),
    "torch.nn spelt out": changed(("(nn.Module)", "(torch.nn.Module)")),
    "alias": changed(("class ModelNew", "class Fast"), ("def get_inputs", "ModelNew = Fast\n\n\ndef get_inputs")),
    "made by a function": changed(("class ModelNew", "def make():\n    return Fast\n\n\nclass Fast"),
                                  ("def get_inputs", "ModelNew = make()\n\n\ndef get_inputs")),
    "class under if": changed((CLASS, "if torch.__version__:\n"
                               + "".join(f"    {line}\n" for line in CLASS.splitlines()) + "\n\n")),
    "forward assigned": changed((FORWARD, "    forward = lambda self, x: module.run(x)")),
    "forward set in the constructor": changed((FORWARD, ""), ("self.gn =", "self.forward = module.run\n        self.gn =")),
    "forward attached": changed((FORWARD, ""), ("def get_inputs", "ModelNew.forward = lambda self, x: module.run(x)\n\n\ndef get_inputs")),
    "forward attached by setattr": changed((FORWARD, ""), ("def get_inputs", "setattr(ModelNew, 'forward', lambda self, x: module.run(x))\n"
                                           "\n\ndef get_inputs")),
    "made by exec": changed((CLASS, f"exec({CLASS!r})\n\n\n")),
    "future annotations": "from __future__ import annotations\n" + GOOD.replace("x: torch.Tensor", "x: Tensor")
                          .replace('"""GroupNorm."""', ""),
    "type checking": changed(("import torch\n", "import torch\nfrom typing import TYPE_CHECKING\n"
                              "if TYPE_CHECKING:\n    import numpy as np\n")),
    "optional import": changed(("import torch\n", "import torch\ntry:\n    import triton\n"
                                "except ImportError:\n    triton = None\n")),
    "standard library": changed(("import torch\n", "import torch\nimport os, sys, functools, pathlib\n"
                                 "from dataclasses import dataclass\n")),
    "cpp_extension alias": changed(("from torch.utils.cpp_extension import load_inline",
                                    "import torch.utils.cpp_extension as ext"), ("load_inline(", "ext.load_inline(")),
    "load_inline alias": changed(("import load_inline", "import load_inline as build"), ("load_inline(", "build(")),
    "load_inline by its whole path": changed(("from torch.utils.cpp_extension import load_inline",
                                              "import torch.utils.cpp_extension"),
                                             ("load_inline(", "torch.utils.cpp_extension.load_inline(")),
    "partial": changed((BUILD, 'import functools\nbuild = functools.partial(load_inline, name="a")\n'
                        'module = build(cpp_sources="")')),
    "load": changed(("import load_inline", "import load"), ("load_inline(", "load(")),
    "build in the constructor": changed((BUILD, "_built = {}"), ("self.gn =", "global module\n        module = "
                                        'load_inline(name="a", cpp_sources="")\n        self.gn =')),
    "build in the class": changed((BUILD, ""), ("    def __init__", "    module = load_inline(name='a', cpp_sources='')\n"
                                  "    sizes = [n for n in (1, 2)]\n\n    def __init__"),
                                  ("return module", "return self.module")),
    "cached function": changed((BUILD, "import functools\n\n\n@functools.cache\ndef build():\n"
                                "    return load_inline(name='a', cpp_sources='')\n"),
                               ("return module.run", "return build().run")),
    "ctypes": changed(("from torch.utils.cpp_extension import load_inline", "import ctypes"),
                      (BUILD, "module = ctypes.CDLL('x.so')")),
    "nvrtc through torch": changed(("from torch.utils.cpp_extension import load_inline\n", ""),
                                   (BUILD, "run = torch.cuda._compile_kernel(CUDA, 'kernel')"),
                                   ("module.run", "run")),
    "jiterator": changed(("from torch.utils.cpp_extension import load_inline\n", ""),
                         (BUILD, "run = torch.cuda.jiterator._create_jit_fn(CUDA)"), ("module.run", "run")),
    "subprocess": changed(("from torch.utils.cpp_extension import load_inline", "import subprocess"),
                          (BUILD, "module = subprocess.run(['nvcc', 'x.cu'])")),
    "torch.ops": changed(("from torch.utils.cpp_extension import load_inline\n", ""),
                         (BUILD, "torch.ops.load_library('x.so')"), ("module.run", "torch.ops.my.run")),
    "autograd function": changed(("class ModelNew", "class Fn(torch.autograd.Function):\n    @staticmethod\n"
                                  "    def forward(ctx, x):\n        return module.run(x)\n\n\nclass ModelNew"),
                                 ("module.run(x, self.gn.weight, self.gn.bias)", "Fn.apply(x)")),
    "dataclass": changed(("class ModelNew", "from dataclasses import dataclass\n\n\n@dataclass\nclass Plan:\n"
                          "    rows: int = 3\n    cols: int = rows\n\n\nclass ModelNew")),
    "walrus and match": changed(("        return module.run(x", "        if (n := x.dim()) > 2:\n            pass\n"
                                 "        match n:\n            case 3:\n                m = n\n"
                                 "            case other:\n                m = other\n"
                                 "        return module.run(x * m")),
    "file and name": changed((BUILD, BUILD + "\nHERE = __file__, __name__")),
    "bound through globals": changed((BUILD, BUILD + "\nglobals()['extra'] = 3\nuse = extra")),
    "input checks": changed(("        return module.run", "        assert x.is_cuda, 'needs CUDA'\n        return module.run")),
    "reference kept beside": changed(("class ModelNew", "class Model(nn.Module):\n    def forward(self, x):\n"
                                      "        return x\n\n\nclass ModelNew")),
    "no input functions": GOOD[: GOOD.index("def get_inputs")],
    "main block with anything": GOOD + "\nif __name__ == '__main__':\n    import numpy\n    print(undefined)\n",
    "a test that grading never runs": GOOD + "\ndef test():\n    from model import Model\n    compare(Model(), ModelNew())\n\n\n"
                                             "def main():\n    test()\n\n\nif __name__ == '__main__':\n    main()\n",
    "own inputs with undefined sizes": changed(("torch.rand(batch_size,", "torch.rand(rows,")),
    "importlib": changed(("import torch\n", "import torch\nimport importlib\njson = importlib.import_module('json')\n")),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_style_is_no_error(name: str, problem: Problem) -> None:
    compile(HONEST[name].removeprefix("\ufeff"), name, "exec")

    assert errors(HONEST[name], problem) == []


BROKEN = {
    "syntax": (changed(("return module.run(", "return module.run((")), "return module.run((", "not Python"),
    "null byte": (changed(("__global__ void", "\0__global__ void")), "__global__", "null byte"),
    "nesting": ("x = " + "(" * 500 + ")" * 500, "x = ", "nested"),
    "no ModelNew": (changed(("class ModelNew", "class Norm")), None, "no class ModelNew"),
    "Model only": (changed(("class ModelNew", "class Model")), "class Model", "rename it to ModelNew"),
    "ModelNew in a function": (changed((CLASS, "def f():\n" + "".join(f"    {line}\n" for line in CLASS.splitlines()))),
                               "    class ModelNew", "move it to the top level"),
    "no base": (changed(("ModelNew(nn.Module)", "ModelNew")), "class ModelNew", "is no nn.Module"),
    "base object": (changed(("(nn.Module)", "(object)")), "class ModelNew", "is no nn.Module"),
    "constructor takes too few": (changed(("num_features: int, num_groups: int", "num_features")),
                                  "    def __init__", "__init__(num_features), the reference's"),
    "constructor takes too many": (changed(("num_groups: int)", "num_groups: int, eps)")), "    def __init__",
                                   "called with 2 positional arguments"),
    "constructor takes keywords": (changed(("self, num_features", "self, *, num_features")), "    def __init__",
                                   "__init__(*, num_features, num_groups)"),
    "no constructor": (changed((CLASS[CLASS.index("    def __init__") : CLASS.index("    def forward")], "")),
                       "class ModelNew", "no __init__"),
    "no forward": (changed((FORWARD, "")), "class ModelNew", "no forward"),
    "forward takes nothing": (changed(("(self, x: torch.Tensor)", "(self)"), ("run(x", "run(self.x")),
                              "    def forward", "Model.forward(x)"),
    "forward takes too many": (changed(("x: torch.Tensor)", "x, y)")), "    def forward", "forward(x, y)"),
    "numpy": (changed(("import torch\n", "import torch\nimport numpy as np\n")), "import numpy", "`numpy`"),
    "triton": (changed(("import torch\n", "import torch\nimport triton.language as tl\n")), "import triton", "`triton`"),
    "import in forward": (changed(("        return module", "        import cupy\n        return module")),
                          "        import cupy", "`cupy`"),
    "importlib": (changed((BUILD, BUILD + "\n__import__('numpy')")), "__import__('numpy')", "`numpy`"),
    "relative import": (changed(("import torch\n", "import torch\nfrom . import kernels\n")), "from . ", "relative"),
    "kernelgen": (changed(("import torch\n", "import torch\nimport kernelgen\n")), "import kernelgen", "`kernelgen`"),
    "guard that raises again": (changed(("import torch\n", "import torch\ntry:\n    import numpy\n"
                                         "except ImportError:\n    raise\n")), "    import numpy", "`numpy`"),
    "forgotten import": (changed(("from torch.utils.cpp_extension import load_inline\n", "")), "module =", "`load_inline`"),
    "function of a function": (changed(("class ModelNew", "def inner():\n    compare()\n\n\ndef outer():\n    inner()\n\n\n"
                                        "class ModelNew"), ("return module.run(", "return outer() or module.run(")),
                               "    compare()", "`compare`"),
    "misspelt": (changed(("return module.run(", "return modul.run(")), "        return modul.", "`modul`"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contract_is_an_error_with_its_line(name: str, problem: Problem) -> None:
    text, blamed, said = BROKEN[name]
    found = errors(text, problem)

    assert len(found) == 1
    assert found[0].status == "BROKEN_CONTRACT"
    assert said in found[0].message
    assert len(found[0].message.splitlines()) == 1
    line = None if blamed is None else text[: text.index(blamed)].count("\n") + 1
    assert found[0].line == line


PURE = changed(
    ("from torch.utils.cpp_extension import load_inline\n", ""),
    (BUILD, ""),
    ("module.run", "torch.add"),
)


@pytest.mark.parametrize(
    "text",
    [
        PURE,
        PURE.replace("import torch\n", "import torch\nfrom torch.utils.cpp_extension import load_inline\n", 1),
        PURE.replace("return torch.add", "return torch.compile(torch.add)"),
    ],
    ids=["torch only", "imported and never used", "torch.compile"],
)  # fmt: skip
def test_a_file_without_means_for_a_kernel_has_its_own_status(text: str, problem: Problem) -> None:
    found = errors(text, problem)

    assert [finding.status for finding in found] == ["NO_CUSTOM_KERNEL"]


def test_means_for_a_kernel_are_not_asked_for_where_anything_is_allowed(problem: Problem) -> None:
    anything = msgspec.structs.replace(problem, require="anything")

    assert errors(PURE, anything) == []


def test_triton_is_allowed_unless_the_problem_leaves_it_out(problem: Problem) -> None:
    text = PURE.replace(
        "import torch\n", "import torch\nimport triton\nimport triton.language as tl\n", 1
    )
    text = text.replace(
        "class ModelNew", "@triton.jit\ndef kernel(x):\n    tl.load(x)\n\n\nclass ModelNew"
    )
    anything = msgspec.structs.replace(problem, allowed_imports=None)
    allowed = msgspec.structs.replace(problem, allowed_imports=("triton",))

    assert {finding.status for finding in findings(text, problem)} == {"BROKEN_CONTRACT"}
    assert check_contract(solution(text), problem, allow_imports=("triton",)) == ()
    assert check_contract(solution(text), allowed) == ()
    assert check_contract(solution(text), anything) == ()


@pytest.mark.parametrize("name", ["scale_triton", "scale_cute"])
def test_the_kernels_in_the_examples_keep_the_contract(name: str) -> None:
    file = Path(__file__).parent.parent / "examples" / "kernels" / f"{name}.py"
    found = read_solution(file)
    asked = load_problem(found.problem_name)
    assert check_contract(found, asked, allow_imports=("triton", "cutlass", "cuda")) == ()
    assert "scale_kernel" in declared_kernels(found.text).triton


def test_one_message_names_all_that_a_problem_forbids(problem: Problem) -> None:
    closed = msgspec.structs.replace(problem, allowed_imports=("einops",), require="anything")
    imports = (
        "import torch\nimport numpy as np\nimport einops\nimport scipy.special, numpy.linalg\n"
    )
    text = PURE.replace("import torch\n", imports, 1)
    (finding,) = errors(text, closed)
    assert finding.message == (
        "imports `numpy` and `scipy`, which the problem's `allowed_imports` leaves out: torch, the "
        "standard library and einops are allowed; do without, or allow it (--allow-import numpy "
        "--allow-import scipy)"
    )
    guarded = text.replace(
        "import numpy as np\n", "try:\n    import numpy as np\nexcept ImportError:\n    pass\n"
    )
    assert len(errors(guarded, closed)) == 1


KERNELBENCH = """import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""
IMPORTS = """import torch
import torch.nn as nn
import {module}
class ModelNew(nn.Module):
    def forward(self, x):
        return {module}.run(x)
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def kernelbench(tmp_path: Path) -> Problem:
    file = tmp_path / "relu.py"
    file.write_text(KERNELBENCH, encoding="utf-8")
    return msgspec.structs.replace(read_kernelbench_problem(file), require="anything")


def test_a_kernelbench_problem_takes_what_is_installed(kernelbench: Problem) -> None:
    assert check_contract(solution(IMPORTS.format(module="numpy")), kernelbench) == ()
    (named,) = check_contract(solution(IMPORTS.format(module="msgspec")), kernelbench)
    assert (named.severity, named.line) == ("warning", 3)
    assert "`msgspec`; what that package computes is not the file's own" in named.message


def test_a_name_that_the_reference_lacks_as_well_is_no_error(tmp_path: Path) -> None:
    never = "        if not self.training and x is None:\n            return checkpoint(x)\n"
    file = tmp_path / "relu.py"
    file.write_text(KERNELBENCH.replace("        return x", never + "        return x"), "utf-8")
    lacks = msgspec.structs.replace(read_kernelbench_problem(file), require="anything")
    copied = IMPORTS.replace("        return", never + "        return").format(module="numpy")
    (named,) = check_contract(solution(copied), lacks)
    assert (named.severity, named.line) == ("warning", 7)
    assert len(errors(copied.replace("checkpoint", "another"), lacks)) == 1


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("kernelgen", "which candidates cannot see"),
        ("no_such_package", "not installed here; install it"),
        ("neighbour", "not installed here; install it"),
        ("__main__", "not installed here; install it"),
    ],
)
def test_it_takes_nothing_that_lies_beside_the_callers_files(
    module: str,
    said: str,
    kernelbench: Problem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "neighbour.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_spec("neighbour") is not None
    (refused,) = errors(IMPORTS.format(module=module), kernelbench)
    assert refused.status == "BROKEN_CONTRACT"
    assert said in refused.message
    source = Source(IMPORTS.format(module=module), parse_python(IMPORTS.format(module=module)))
    assert allowed_modules(source, kernelbench) == ()


def test_an_import_that_may_fail_is_a_warning(problem: Problem) -> None:
    text = HONEST["optional import"]
    (found,) = findings(text, problem)

    assert (found.severity, found.line) == (
        "warning",
        text[: text.index("    import triton")].count("\n") + 1,
    )
    assert "`triton`" in found.message


def test_functions_and_constants_that_grading_ignores_may_differ(problem: Problem) -> None:
    text = changed(("torch.rand(", "torch.randn("), ("batch_size = 112", "batch_size = 1"))

    assert findings(text, problem) == ()


def test_signature_of_the_linear_problem_may_leave_out_its_optional_parameters() -> None:
    linear = load_problem("linear_instancenorm_add_mul")
    text = changed(("num_features: int, num_groups: int", "in_features, out_features"),
                   ("nn.GroupNorm(num_groups, num_features", "nn.GroupNorm(in_features, out_features"),
                   ("x: torch.Tensor)", "x, y)"))  # fmt: skip

    assert errors(text, linear) == []


def test_errors_come_first_then_lines(problem: Problem) -> None:
    found = findings("import numpy\nnum_groups = 1\nimport cupy\n", problem)

    assert [finding.severity for finding in found] == sorted(f.severity for f in found)
    assert [f.line or 0 for f in found if f.severity == "error"] == [0, 1, 0]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_mutated_file_always_gets_its_findings(data: st.DataObject) -> None:
    text = GOOD
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        token = data.draw(
            st.one_of(
                st.sampled_from(["*", "(", "class ", "self", "\0", ":="]), st.text(max_size=4)
            )
        )
        text = text[:start] + token + text[start + data.draw(st.integers(0, 20)) :]

    for finding in check_contract(solution(text), load_problem("groupnorm")):
        assert len(finding.message.splitlines()) == 1


# Hypothesis found the first one.
@pytest.mark.parametrize("sign", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_a_quoted_line_with_a_sign_that_ends_lines_stays_one_line(
    sign: str, problem: Problem
) -> None:
    text = changed(("return module.run(", f"return{sign}module.run(("))
    (found,) = errors(text, problem)
    assert found.message.startswith("not Python: ")
    assert len(found.message.splitlines()) == 1


def unary(sign: str, count: int) -> str:
    return f"value = {sign * count}1\n"


LONG_TEXTS = {
    "elements": f"a = [{'0, ' * 340_000}]\n",
    "elements of a short text": f"a = [{'0,' * 49_000}]\n",
    "global": f'"""{"__global__ " * 90_000}"""\n',
    "global before a long name": f'"""{("__global__ " + "a" * 990) * 1000}"""\n',
    "jit": f'"""@{"jit." * 250_000}"""\n',
    "attributes": ("a" + ".a" * 900 + "\n") * 50,
    "bases": "class A0: pass\n" + "".join(f"class A{n}(A{n - 1}): pass\n" for n in range(1, 4000)),
    "misspelt": "".join(f"class ModelNe{n}: pass\n" for n in range(4000)),
    "main blocks": 'if __name__ == "__main__": pass\n' * 1500
    + "".join(f"u{n}\n" for n in range(6000)),
    "constants": "num_groups = " * 7000 + f"[{'0,' * 500}]\n",
    "integer": f"num_groups = 0x1{'f' * 500_000}\n",
    "complex": f"num_groups = 0x1{'f' * 400} + 5j\n",
    "signs": unary("-", 90_000),
}


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_long_text_is_read_in_seconds_and_told_of_briefly(name: str, problem: Problem) -> None:
    begin = time.process_time()
    found = check_contract(solution(LONG_TEXTS[name]), problem)
    declared_kernels(LONG_TEXTS[name])
    # A busy machine has a few times the second or two that the longest of them take.
    assert time.process_time() - begin < 15.0
    assert found[0].severity == "error"
    assert len(found) <= 201


def test_an_integer_of_any_length_is_told_of_and_no_error(problem: Problem) -> None:
    text = f"num_groups = 0x1{'f' * 4000}\n{GOOD}"
    assert errors(text, problem) == []


def test_a_long_kernel_is_read(problem: Problem) -> None:
    kernels = "__global__ void k(float* y) { y[threadIdx.x] += 1.0f; }\n" * 8000
    assert errors(f"{GOOD}\nSOURCE = r'''\n{kernels}'''\n", problem) == []


def test_a_file_is_refused_unread_where_it_is_larger_than_any_solution(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_bytes(b"#" * LARGEST_BYTES)
    read_solution(file)
    with file.open("ab") as more:
        more.write(b"#")
    with pytest.raises(UserError, match=f"larger than {LARGEST_BYTES} bytes"):
        read_solution(file)


def test_a_subclass_of_the_references_model_is_told_what_to_derive_from(problem: Problem) -> None:
    (found,) = errors(GOOD.replace("(nn.Module)", "(Model)"), problem)
    assert "derive from nn.Module" in found.message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('load_inline(name="my-ext 1", cpp_sources="")', "name='my-ext 1' is no name"),
        ('load(name="a.b", sources=[])', "name='a.b' is no name"),
        ('load_inline(name="my_ext", cpp_sources="")', ""),
        ('load_inline(name="my-ext", cpp_sources="", is_python_module=False)', ""),
        ('load_inline(name=f"ext-{1}", cpp_sources="")', ""),
    ],
)
def test_an_extension_is_called_as_a_module_is(call: str, message: str, problem: Problem) -> None:
    text = f"from torch.utils.cpp_extension import load\n{GOOD}\next = {call}\n"
    found = [one.message for one in errors(text, problem)]
    assert bool(found) is bool(message), found
    assert all(message in one for one in found)


def test_what_runs_is_the_text_that_is_checked_whatever_encoding_it_declares(
    tmp_path: Path,
) -> None:
    file = tmp_path / "solution.py"
    file.write_text("# coding: utf-7\nshown = 'ü'\n# A comment.+AAo-hidden = 1\n", encoding="utf-8")
    module = import_file("checked", file)
    assert module.shown == "ü"
    assert not hasattr(module, "hidden")
