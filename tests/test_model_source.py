"""Parts of a Model's class that a planned solution keeps, and where it builds its kernels."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from planned_models import Planned, problem_of

from kernelgen.cli.render import command
from kernelgen.engines.environment import RenderError
from kernelgen.errors import ProblemError
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.record import Backend, Case, Problem
from kernelgen.rendering.planned import render_in_torch, render_planned
from kernelgen.rendering.solution import render
from kernelgen.solution.file import STAYS, read_solution
from kernelgen.solution.importing import run_text
from kernelgen.tracing.capture import NoGraphError

pytestmark = pytest.mark.sampled(rest="ci")
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    least = 0.5
{constructor}
    def forward(self, x):
        return torch.clamp(x, self.least).mul(2)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [{given}]
"""
HELPED = """
    def __init__(self, width):
        super().__init__()
        self.layer = self._layer(width)

    def _layer(self, width):
        if width == 0:
            return None
        return nn.Linear(width, 3)
"""


def written(text: str, folder: Path) -> Problem:
    """Return the problem that a file of this text is."""
    path = folder / "problem.py"
    path.write_bytes(text.encode())
    return read_kernelbench_problem(path)


@pytest.mark.parametrize(
    ("constructor", "given"), [("", []), (HELPED, [5])], ids=["none", "with another method"]
)
def test_kernels_are_built_when_the_model_is_constructed(
    constructor: str, given: list[int], tmp_path: Path
) -> None:
    problem = written(
        PROBLEM.format(constructor=constructor, given=", ".join(map(str, given))), tmp_path
    )
    text = render_planned(problem, "cpp", {})
    space: dict[str, Any] = {}
    exec(compile(text, "<solution>", "exec"), space)
    built = []
    space["_library"] = lambda: built.append(SimpleNamespace())
    model = space["ModelNew"](*given)
    assert len(built) == 1
    if constructor:
        assert model.layer.in_features == 5


IMPORTS = "import torch\nimport torch.nn as nn\n\n"
MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(SIZE))

    def forward(self, x):
        return torch.relu(x * self.w) + 1
"""
INPUTS = """

def get_inputs():
    return [torch.randn(4, SIZE)]


def get_init_inputs():
    return []
"""
PLAIN = IMPORTS + "SIZE = 8\n" + MODEL + INPUTS


def sized(before: str, model: str = MODEL) -> str:
    """Return a module with statements before its Model; they bind SIZE."""
    return IMPORTS + before + "\n" + model + INPUTS


def modelled(model: str, init_inputs: str = "[]") -> str:
    """Return a module with another Model, whose parameter w has 8 elements."""
    return IMPORTS + "SIZE = 8\n" + model + INPUTS.replace("return []", f"return {init_inputs}")


# Texts that say what PLAIN says, in another layout.
LAYOUTS = {
    "two spaces": PLAIN.replace("    ", "  "),
    "eight spaces": PLAIN.replace("    ", " " * 8),
    "tabs": PLAIN.replace("    ", "\t"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "bare CR": PLAIN.replace("\n", "\r"),
    "byte order mark": "\ufeff" + PLAIN,
    "form feeds": PLAIN.replace("\n\n", "\n\f\n# a line separator \u2028 here\n"),
    "comment at column 0": PLAIN.replace("        self.w", "#       old\n        self.w"),
    "string at column 0": PLAIN.replace(
        "        self.w", '        self.text = """\ntext\n    \n"""\n        self.w'
    ),
    "one line": PLAIN.replace(
        "):\n        super().__init__()\n        ", "): super().__init__(); "
    ),
    "spaces in super": PLAIN.replace("super()", "super ( )"),
    "super by name": PLAIN.replace("super()", "super(Model, self)"),
    "super by name, spaced": PLAIN.replace("super()", "super( Model ,self )"),
    "super by class": PLAIN.replace("super()", "super(self.__class__, self)"),
    "statements on one line": PLAIN.replace("\n\nSIZE = 8", "; SIZE = 8; OTHER = 3"),
    "continued line": PLAIN.replace("torch.rand(SIZE)", "torch.rand(\\\nSIZE)"),
    "backslashes in docstrings": PLAIN.replace(
        "Module):\n", 'Module):\n    r"""Computes \\underbrace{x} and \\x, \\"as is\\"."""\n\n'
    ).replace("def __init__(self):\n", 'def __init__(self):\n        r"""Makes \\u."""\n'),
    "quotes in docstrings": PLAIN.replace(
        "Module):\n", "Module):\n    '''Says \"\"\"x\"\"\"'''\n\n"
    ),
}
GATE = """
    class Gate(nn.Module):
        def forward(self, x):
            return torch.sigmoid(x)
"""
# Modules from which parts alone are not enough.
MODULES = {
    "appended list": sized("S = []\nfor k in range(2):\n    S.append(8)\nSIZE = S[0]"),
    "popped list": sized("S = [3, 8]\nSIZE = S.pop()"),
    "changed dict": sized("C = {}\nC['dim'] = 8\nC.update(batch=2)\nSIZE = C['dim']"),
    "if block": sized("SIZE = 3\nif torch.__version__:\n    SIZE = 8"),
    "loop": sized("SIZE = 0\nwhile SIZE < 8:\n    SIZE += 1"),
    "items in a tuple": sized("C = {}\nC['n'], OTHER = 8, 3\nSIZE = C['n']"),
    "item with a type": sized("C = {}\nC['n']: int = 8\nSIZE = C['n']"),
    "changed by a call": sized(
        "C = []\ndef fill(c):\n    c.append(8)\nOTHER = fill(C)\nSIZE = C[0]"
    ),
    "changed by another name": sized("C = []\nD = C\nD.append(8)\nSIZE = C[0]"),
    "with block": sized("import contextlib\nwith contextlib.suppress(OSError):\n    SIZE = 8"),
    "match": sized("match 3:\n    case 3:\n        SIZE = 8"),
    "global": sized("SIZE = 3\ndef wider():\n    global SIZE\n    SIZE = 8\nwider()"),
    "deleted name": sized("SIZE = 8\nOTHER = 3\ndel OTHER"),
    "star import": sized("from math import *\nSIZE = int(sqrt(64))"),
    "import in a try": sized(
        "try:\n    import no_such_module as m\nexcept ImportError:\n    m = None\n"
        "SIZE = 8 if m is None else 3"
    ),
    "__file__": sized("import os\nHERE = os.path.abspath(__file__)\nSIZE = 8 if HERE else 3"),
    "changed by a function": sized("S = {}\ndef fill():\n    S['n'] = 8\nfill()\nSIZE = S['n']"),
    "changed by a decorator": sized(
        "S = {}\ndef kept(f):\n    S[f.__name__] = 8\n    return f\n"
        "@kept\ndef size(): pass\nSIZE = S['size']"
    ),
    "changed through globals()": sized("globals()['SIZE'] = 8"),
    "annotations of types alone": "from __future__ import annotations\n"
    + sized(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy as np\nSIZE = 8",
        MODEL.replace("(self):", "(self, other: np.ndarray | Model | None = None):"),
    ),
    "a script": sized(
        "SIZE = 8\n@torch.jit.script\ndef double(x):\n    return x + x",
        MODEL.replace("+ 1", "+ double(x)"),
    ),
    "a dataclass": "from __future__ import annotations\n"
    + modelled(
        "from dataclasses import dataclass\n\n@dataclass\nclass Config:\n    dim: int = 8\n"
        + MODEL.replace("(self):", "(self, config: Config):").replace("SIZE", "config.dim"),
        "[Config()]",
    ),
    "enum": modelled(
        "import enum\n\nclass Kind(enum.Enum):\n    WIDE = 8\n"
        + MODEL.replace("(self):", "(self, kind):").replace("SIZE", "kind.value"),
        "[Kind.WIDE]",
    ),
    "base class": modelled(
        "class Base(nn.Module):\n    def scaled(self, x):\n        return x * self.w\n"
        + MODEL.replace("nn.Module", "Base").replace("x * self.w", "self.scaled(x)")
    ),
    "inherited forward": modelled(
        MODEL.replace("class Model", "class Base") + "\nclass Model(Base):\n    pass\n"
    ),
    "mixin": modelled(
        "class Sized:\n    size = 8\n"
        + MODEL.replace("(nn.Module)", "(nn.Module, Sized)").replace("SIZE", "self.size")
    ),
    "alias": modelled(MODEL.replace("class Model", "class Net") + "\nModel = Net\n"),
    "sequential": modelled(
        "class Model(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid())\n"
    ),
    "decorated": modelled(
        "def deco(cls):\n    cls.extra = 8\n    return cls\n\n@deco"
        + MODEL.replace("SIZE", "self.extra")
    ),
    "nested class": modelled(
        MODEL.replace("    def __init__", GATE + "\n    def __init__", 1)
        .replace("        self.w", "        self.gate = Model.Gate()\n        self.w")
        .replace("x * self.w", "self.gate(x) * self.w")
    ),
    "names itself": modelled(
        MODEL.replace("    def __init__", "    SIZE = 8\n\n    def __init__", 1).replace(
            "(SIZE)", "(Model.SIZE)"
        )
    ),
    "names itself in get_inputs": modelled(
        MODEL.replace("    def __init__", "    LEAST = 4\n\n    def __init__", 1)
    ).replace("torch.randn(4,", "torch.randn(Model.LEAST,"),
    "private names": modelled(MODEL.replace("self.w", "self.__w")),
    "property": modelled(
        MODEL.replace("torch.rand(SIZE)", "torch.rand(self.size)")
        + "\n    @property\n    def size(self):\n        return SIZE\n"
    ),
    "decorated method": modelled(
        MODEL.replace("    def __init__", "    @torch.no_grad()\n    def __init__")
    ),
    "early return": modelled(
        MODEL.replace("\n    def forward", "        return\n\n    def forward")
    ),
    "special methods": modelled(
        MODEL + "\n    def __call__(self, x):\n        return super().__call__(x)\n"
    ),
    "lambdas": IMPORTS
    + "SIZE = 8\n"
    + MODEL
    + "\nget_inputs = lambda: [torch.randn(4, 8)]\nget_init_inputs = list\n",
    "a partial": IMPORTS
    + "import functools\nSIZE = 8\n"
    + MODEL
    + "\ndef make(n):\n    return [torch.randn(n, 8)]\n"
    + "get_inputs = functools.partial(make, 4)\nget_init_inputs = functools.partial(list)\n",
    "functions of the file's names": modelled(
        "def _launch(n):\n    return n\n\ndef _mul_relu_add(n):\n    return _launch(n)\n"
        + MODEL.replace("(SIZE)", "(_mul_relu_add(SIZE))")
    ),
    "arguments of the file's names": modelled(
        MODEL.replace("(self):", "(self, _library, _expect, torch_):").replace("SIZE", "_library"),
        "[8, 2, 'x']",
    ),
    "main block": PLAIN + '\nif __name__ == "__main__":\n    print(Model()(*get_inputs()))\n',
    "train of its own": modelled(
        MODEL + "\n    def train(self, mode=True):\n        return super().train(False)\n"
    ),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("text", [*LAYOUTS.values(), *MODULES.values()], ids=[*LAYOUTS, *MODULES])
def test_a_problem_is_rendered_however_it_is_written(
    text: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = written(text, tmp_path)
    rendered = render(problem, "cpp")
    planned = Planned(problem, "cpp", compiled_folder)
    assert planned.text == rendered
    planned.check()
    assert planned.launched


@pytest.mark.parametrize("layout", [*LAYOUTS])
def test_a_layout_leaves_the_parts_of_a_model_apart(layout: str, tmp_path: Path) -> None:
    problem = written(LAYOUTS[layout], tmp_path)
    inherited = "class ModelNew(Model)" in render_planned(problem, "cpp", {})
    assert inherited == (layout == "super by name, spaced")


@pytest.mark.parametrize("given", ["3", "[1, 2]", "(3, 'a')", "{'a': 2.0, 'b': [1, None]}"])
@pytest.mark.parametrize("base", ["nn.Module", "Base"])
def test_a_plain_argument_is_that_of_the_file(
    base: str, given: str, tmp_path: Path, compiled_folder: Path
) -> None:
    model = MODEL.replace("(self):", "(self, config):").replace("nn.Module", base)
    problem = written(
        modelled("class Base(nn.Module):\n    pass\n" + model, f"[{given}]"), tmp_path
    )
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    model_new = planned.space["ModelNew"]
    model_new(config=eval(given))
    with pytest.raises(ValueError, match=r"the Model's arguments.*: the file is for"):
        model_new(7)


@pytest.mark.parametrize(
    "given",
    ["torch.Size([8])", "torch.float32", "torch.relu", "nn.ReLU", "np.float32(2)", "np", "Space()"],
)
def test_other_arguments_are_what_get_init_inputs_makes(
    given: str, tmp_path: Path, compiled_folder: Path
) -> None:
    before = "import numpy as np\nfrom types import SimpleNamespace as Space\n"
    model = MODEL.replace("(self):", "(self, config):")
    problem = written(modelled(before + model, f"[{given}]"), tmp_path)
    Planned(problem, "cpp", compiled_folder).check()


@pytest.mark.parametrize("base", ["nn.Module", "Base"])
@pytest.mark.parametrize(
    ("given", "other"),
    [
        ("torch.relu", "torch.tanh"),
        ("nn.ReLU", "nn.Tanh"),
        ("torch.float32", "torch.float64"),
        ("nn.Linear(2, 3)", "nn.Linear(2, 4)"),
        ("Space(a=1)", "Space(a=2)"),
        ("halved", "doubled"),
        ("float('inf')", "2.0"),
    ],
)
def test_another_argument_of_any_kind_is_refused(
    base: str, given: str, other: str, tmp_path: Path, compiled_folder: Path
) -> None:
    before = "from types import SimpleNamespace as Space\nclass Base(nn.Module):\n    pass\n"
    before += "def halved(x):\n    return x / 2\ndef doubled(x):\n    return x * 2\n"
    model = MODEL.replace("(self):", "(self, config, more=2):").replace("nn.Module", base)
    problem = written(modelled(before + model, f"[{given}]"), tmp_path)
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    own, another = (eval(text, planned.reference) for text in (given, other))
    model_new = planned.space["ModelNew"]
    model_new(own, more=2)
    for wrong in ((another,), (own, 3)):
        with pytest.raises(ValueError, match=r"the Model's arguments.*: the file is for"):
            model_new(*wrong)


@pytest.mark.parametrize("base", ["nn.Module", "Base"])
def test_what_forward_reads_of_the_model_is_what_its_constructor_left(
    base: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    top = "class Base(nn.Module):\n    gain = 2.0\n    @property\n    def half(self):\n"
    top += "        return self.gain / 2"
    layers = "self.sizes, self.shift, self.name = (1, 2), torch.tensor(0.5), 'a'\nself.gain = 3.0"
    forward = "x * self.gain * self.sizes[1] + self.shift"
    problem = problem_of(tmp_path, forward, layers=layers, top=top, x="torch.rand(4)")
    text = problem.path.read_text().replace("Model(nn.Module)", f"Model({base})")
    if base == "Base":
        text = text.replace("self.gain * ", "self.half * ").replace("\nself.gain = 3.0", "")
    problem.path.write_text(text)
    planned = Planned(read_kernelbench_problem(problem.path), "cpp", compiled_folder)
    planned.check()
    for name, value in (("shift", torch.tensor(2.0)), ("gain", 4.0), ("sizes", (1, 3))):
        model = planned.models()[1]
        setattr(model, name, value)
        with pytest.raises(ValueError, match=rf"self.{name}.*: the file is for .*, got"):
            planned.run(model=model)
    model = planned.models()[1]
    model.name = "b"
    planned.run(model=model)


def test_a_device_is_no_matter_of_the_file(tmp_path: Path, compiled_folder: Path) -> None:
    model = MODEL.replace("(self):", "(self, first, device='cpu'):")
    problem = written(modelled(model, "[torch.device('cpu')]"), tmp_path)
    planned = Planned(problem, "cpp", compiled_folder)
    planned.check()
    planned.space["ModelNew"]("cuda:0", "cuda")


@pytest.mark.parametrize(
    "given",
    [
        *("lambda x: x", "object()", "[torch.relu]", "{'a', 'b'}", "[Local]"),
        "(lambda: (f := type('f', (), {'__qualname__': 'a.<locals>.f'})))()",
    ],
)
def test_an_argument_that_no_text_tells_keeps_all_in_torch(given: str, tmp_path: Path) -> None:
    model = "class Local:\n    pass\n" + MODEL.replace("(self):", "(self, config):")
    text = render(written(modelled(model, f"[{given}]"), tmp_path), "cpp")
    assert f"{STAYS}Model is made with a" in text


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("time", "time.time()"),
        ("time", "time.perf_counter_ns() % 1000"),
        ("os", "os.urandom(4)[0] + 300 * os.urandom(4)[1]"),
        ("uuid", "uuid.uuid4().int % 999983"),
        ("datetime", "datetime.datetime.now().microsecond"),
        ("secrets", "secrets.randbelow(10**6)"),
        ("datetime", "datetime.date.today().year"),
        ("math, time", "2 if time.time() > 5 else 1"),
        ("os", "float(os.environ.get('SCALE', 2))"),
        ("os", "1 + ('SCALE' in os.environ)"),
        ("os", "float(os.getenv('SCALE', '2'))"),
        ("torch", "__import__('os').getpid()"),
        ("torch", "len(open('/proc/self/stat').read())"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_what_forward_reads_of_the_world_keeps_all_in_torch(
    module: str, number: str, tmp_path: Path, *, inside: bool
) -> None:
    path = tmp_path / "problem.py"
    forward = f"        import {module}\n" * inside + f"        x = x * ({number})\n"
    text = PLAIN.replace("        return torch.relu", f"{forward}        return torch.relu")
    path.write_text(text if inside else f"import {module}\n{text}")
    text = render(read_kernelbench_problem(path), "cpp")
    assert re.search(f"{STAYS}forward calls [a-z.0-9_]+, whose result may differ", text)


STATEMENTS = (
    "torch.set_default_dtype(torch.float64)",
    "torch.manual_seed(3)",
    "torch.backends.cudnn.benchmark = True",
    "torch.set_grad_enabled(False)",
    "import sys; sys.path.append('.')",
    "import warnings; warnings.filterwarnings('ignore')",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_binds_nothing_is_kept(statement: str, tmp_path: Path) -> None:
    assert f"\n{statement}\n" in render(written(sized(f"SIZE = 8\n{statement}"), tmp_path), "cpp")


WITHOUT_GRAPH = {
    "class": MODEL.replace("+ 1", "+ x[x > 0].sum()"),
    "class that names itself": MODEL.replace("super()", "super(Model, self)").replace(
        "+ 1", "+ (x[x > 0].sum() if type(self) is Model else 0)"
    ),
    "alias": MODEL.replace("Model", "Net").replace("+ 1", "+ x[x > 0].sum()") + "\nModel = Net\n",
    "super by class": MODEL.replace("super()", "super(self.__class__, self)").replace(
        "+ 1", "+ x[x > 0].sum()"
    ),
    "factory": MODEL.replace("Model", "Net") + "\ndef Model():\n    return Net()\n",
}


@pytest.mark.parametrize("model", WITHOUT_GRAPH.values(), ids=[*WITHOUT_GRAPH])
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_what_has_no_graph_stays_in_torch_and_says_why(
    model: str, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)

    path = tmp_path / "problem.py"
    path.write_text(modelled(model))
    outcome = CliRunner().invoke(command, [str(path), "--backend", backend, "-o", "out.py"])
    assert outcome.exit_code == 0
    text = Path("out.py").read_text()
    (why,) = re.findall(f"^{STAYS}(.*)$", text, re.MULTILINE)
    assert "\nModelNew = Model\n" in text
    assert f"out.py: written, no kernel of its own: all of it stays in torch ({why})" in (
        outcome.stderr
    )
    assert read_solution(Path("out.py")).has_no_kernel
    space, reference = (
        run_text("solution", text, "<s>"),
        run_text("reference", path.read_text(), "<r>"),
    )
    x = torch.randn(4, 8)
    models = []
    for made in (space.ModelNew, reference.Model):
        torch.manual_seed(0)
        models.append(made()(x))
    assert torch.equal(*models)


def test_a_reason_stays_in_its_line(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PLAIN)
    why = NoGraphError(path, "a\rprint(1)\u2028print(2)\n3").why
    problem = read_kernelbench_problem(path)
    text = render_in_torch(problem, "cpp", {}, Case(name="main"), why)
    (line,) = [line for line in text.splitlines() if "print" in line]
    assert line == f"{STAYS}a print(1) print(2) 3"


@pytest.mark.parametrize(
    "wrong", ["missing(x)", "self.missing(x)", "x if x.shape[0] == 3 else 1 / 0", "{}['key']"]
)
def test_a_problem_whose_forward_is_wrong_is_refused(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"problem.py:12: model: its code raises \w+Error: "):
        render(written(PLAIN.replace("torch.relu(x * self.w)", wrong), tmp_path), "cpp")


@pytest.mark.parametrize("error", ["RuntimeError", "TypeError"])
def test_what_forward_raises_in_eager_too_is_its_own_fault(error: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    line = "        return torch.relu"
    raises = f"        raise {error}('not for these')\n"
    path.write_text(PLAIN.replace(line, raises + line))
    with pytest.raises(ProblemError, match=f"its code raises {error}: not for these"):
        render(read_kernelbench_problem(path), "cpp")
    # Of a trace alone, it is a reason to stay in torch.
    only_traced = raises.replace("raise", "if type(x) is not torch.Tensor: raise", 1)
    path.write_text(PLAIN.replace(line, only_traced + line))
    assert STAYS in render(read_kernelbench_problem(path), "cpp")


@pytest.mark.parametrize(
    ("broken", "message"),
    [("return out +", "no Python: line "), ("return outt", "reads outt, bound nowhere")],
)
def test_rendered_text_is_read_before_it_is_written(
    broken: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rendering(*arguments: Any) -> str:
        return render_planned(*arguments).replace("return out\n", f"{broken}\n")

    monkeypatch.setattr("kernelgen.rendering.solution.render_planned", rendering)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "problem.py"
    path.write_text(PLAIN)
    outcome = CliRunner().invoke(command, [str(path), "--backend", "cpp", "-o", "out.py"])
    assert isinstance(outcome.exception, RenderError)
    assert message in str(outcome.exception)
    assert not Path("out.py").exists()
