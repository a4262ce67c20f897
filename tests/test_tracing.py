"""From a problem's source to its graph: what it says, what is refused, and what stays contained."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from kernelgen.errors import ProblemError
from kernelgen.graph.graph import Graph, Reference
from kernelgen.kernelbench.yaml_form import yaml_form
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import MAIN_CASE, Case, Problem
from kernelgen.rendering.solution import render
from kernelgen.sandbox.survey import survey
from kernelgen.tracing import capture
from kernelgen.tracing.capture import graph_of
from kernelgen.tracing.capture_host import Trace

SOURCE = """
import torch
import torch.nn as nn
{top}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, {names}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def problem(
    folder: Path, body: str, *, layers: str = "pass", top: str = "", **inputs: str
) -> Problem:
    given = inputs or {"x": "torch.randn(4, 8)"}
    path = folder / "problem.py"
    path.write_text(
        SOURCE.format(
            top=top,
            layers="".join(f"        {line}\n" for line in layers.splitlines()),
            names=", ".join(given),
            body="".join(f"        {line}\n" for line in body.splitlines()),
            inputs=", ".join(given.values()),
        )
    )
    return read_kernelbench_problem(path)


def traced(folder: Path, body: str, *, layers: str = "pass", **inputs: str) -> Graph:
    found = problem(folder, body, layers=layers, **inputs)
    return graph_of(found, Case(name=MAIN_CASE), "cpu")


def refusal(folder: Path, body: str, *, layers: str = "pass", top: str = "", **inputs: str) -> str:
    found = problem(folder, body, layers=layers, top=top, **inputs)
    with pytest.raises(ProblemError) as error:
        graph_of(found, Case(name=MAIN_CASE), "cpu")
    assert "\n" not in str(error.value)
    return str(error.value)


def operators(graph: Graph) -> list[str]:
    return [node.aten for node in graph.nodes]


def test_arguments_have_their_defaults(tmp_path: Path) -> None:
    graph = traced(tmp_path, "return torch.add(x, y)", x="torch.rand(4, 8)", y="torch.rand(8)")

    (node,) = graph.nodes
    assert (graph.arguments, graph.outputs, graph.returns) == (("x", "y"), (node.name,), "%s")
    assert node.arguments == {"self": Reference("x"), "other": Reference("y"), "alpha": 1}
    assert node.results[0] is not None
    assert (node.results[0].shape, node.results[0].dtype) == ((4, 8), "float32")


def test_a_change_in_place_makes_a_new_value(tmp_path: Path) -> None:
    body = "y = x + 1\ny.mul_(2)\ny.relu_()\nreturn y"
    graph = traced(tmp_path, body)

    assert operators(graph) == ["add.Tensor", "mul.Tensor", "relu.default"]
    assert graph.nodes[1].argument("self") == graph.nodes[0].name
    assert graph.nodes[2].argument("self") == graph.nodes[1].name
    assert graph.outputs == (graph.nodes[2].name,)


def test_an_older_name_is_the_new_value_too(tmp_path: Path) -> None:
    body = "y = x + 1\nz = y.mul_(2)\nw = z.relu_()\nreturn y * z"
    graph = traced(tmp_path, body)

    last = graph.nodes[-1]
    assert {last.argument("self"), last.argument("other")} == {graph.nodes[2].name}


def test_a_buffer_is_updated(tmp_path: Path) -> None:
    layers = "self.register_buffer('seen', torch.zeros(8))"
    graph = traced(tmp_path, "self.seen.add_(x.sum(0))\nreturn x * self.seen", layers=layers)

    (value,) = graph.updates.values()
    assert list(graph.updates) == ["seen"]
    assert graph.nodes[-1].argument("other") == value


def test_an_attribute_is_a_value_that_forward_may_replace(tmp_path: Path) -> None:
    body = "self.hidden = torch.tanh(x + self.hidden)\nreturn self.hidden"
    graph = traced(tmp_path, body, layers="self.hidden = torch.randn(4, 8)")

    assert [(i.kind, i.path) for i in graph.inputs] == [("attribute", "hidden"), ("input", "")]
    assert list(graph.updates) == ["hidden"]


@pytest.mark.parametrize(
    ("body", "layers"),
    [
        ("return torch.min(x, torch.tensor(0.5))", "pass"),
        ("return torch.min(x, self.most)", "self.most = torch.tensor(0.5)"),
        ("return torch.min(x, torch.sqrt(torch.tensor(0.25)).to(x.device))", "pass"),
    ],
)
def test_a_tensor_of_one_number_is_that_number(tmp_path: Path, body: str, layers: str) -> None:
    (node,) = traced(tmp_path, body, layers=layers).nodes

    assert node.arguments["other"] == 0.5


def test_rates_that_a_constructor_reads_one_by_one_are_known(tmp_path: Path) -> None:
    layers = "self.rates = [x.item() for x in torch.linspace(0, 1, 3)]"
    (node,) = traced(tmp_path, "return x * self.rates[1]", layers=layers).nodes

    assert node.arguments["other"] == 0.5


def test_a_float_is_a_scalar_and_other_plain_values_are_fixed(tmp_path: Path) -> None:
    graph = traced(tmp_path, "return (x * s).sum(n)", x="torch.rand(4, 8)", s="0.5", n="1")

    assert [(i.name, i.kind) for i in graph.inputs] == [("x", "input"), ("s", "scalar")]
    assert graph.fixed == {"n": "1"}


def test_several_outputs_and_parts(tmp_path: Path) -> None:
    graph = traced(tmp_path, "a, b = x.max(1)\nreturn a, b, x * 2")

    assert operators(graph) == ["max.dim", "getitem", "getitem", "mul.Tensor"]
    assert graph.returns == "(%s, %s, %s)"
    assert len(graph.outputs) == 3
    assert [node.arguments["index"] for node in graph.nodes[1:3]] == [0, 1]


def test_dropout_works_in_training_mode_alone(tmp_path: Path) -> None:
    import msgspec

    found = problem(tmp_path, "return self.drop(x)", layers="self.drop = nn.Dropout(0.5)")
    modes = {}
    for eval_mode in (False, True):
        mode = msgspec.structs.replace(found, eval_mode=eval_mode)
        modes[eval_mode] = operators(graph_of(mode, Case(name=MAIN_CASE), "cpu"))

    assert modes == {False: ["dropout.default"], True: []}


def test_the_constructor_s_values_keep_their_types(tmp_path: Path) -> None:
    path = problem(tmp_path, "return x").path
    text = path.read_text().replace("__init__(self)", "__init__(self, sizes, shape, most)")
    path.write_text(text.replace("return []", "return [[1, 2], (3, 4), float('inf')]"))

    graph = graph_of(read_kernelbench_problem(path), Case(name=MAIN_CASE), "cpu")

    assert graph.made_with == {"sizes": [1, 2], "shape": (3, 4)}


@pytest.mark.parametrize(
    "layer",
    [
        "GRU(8, 5)",
        "GRU(8, 5, num_layers=2, bidirectional=True, batch_first=True)",
        "LSTM(8, 5, batch_first=True)",
        "LSTM(8, 5, num_layers=2, bidirectional=True)",
        "RNN(8, 5)",
        "RNN(8, 5, nonlinearity='relu', batch_first=True)",
    ],
)
def test_recurrent_layers_have_the_shapes_that_torch_gives(tmp_path: Path, layer: str) -> None:
    import torch

    layers = f"self.layer = nn.{layer}"
    graph = traced(tmp_path, "return self.layer(x)[0]", layers=layers, x="torch.rand(7, 3, 8)")
    name = "lstm" if "LSTM" in layer else "gru" if "GRU" in layer else "rnn"
    (node,) = (node for node in graph.nodes if node.aten.startswith(name))
    out, state = eval(f"torch.nn.{layer}")(torch.rand(7, 3, 8))
    whole = (out, state) if isinstance(state, torch.Tensor) else (out, *state)

    found = [(one.shape, one.strides) for one in node.results if one is not None]
    assert found == [(tuple(one.shape), one.stride()) for one in whole]


STATES = """
def called(*_, calls=[1]):
    calls.append(1)
    return len(calls)
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
def by_count(count):
    return lambda module, given, out: out * count()
def scaled():
    factor = float(torch.rand(()))
    return lambda n: n * factor
"""
BUFFER = "self.register_buffer('b', torch.zeros(8))\nself.b.data = torch.ones(8)"


@pytest.mark.parametrize(
    ("body", "layers", "words"),
    [
        (
            "y = nn.functional.dropout(x + 1, 0.0)\ny[:, 0].add_(1)\nreturn y",
            "pass",
            "a view in place",
        ),
        ("x[:, 0] = 1\nreturn x", "pass", "forward changes x in place"),
        ("x.add_(1)\nreturn x", "pass", "forward changes x in place"),
        ("self.b.data = x.mean(0)\nreturn x - self.b", BUFFER, "sets a tensor's .data"),
        ("y = x + 1\ny.data = x * 2\nreturn y", "pass", "sets a tensor's .data"),
        ("return torch.tensor(1.0).add_(x.sum())", "pass", "changes a constant in place"),
        ("return x * x.sum().item()", "pass", "depends on values of its inputs (aten.item)"),
        ("return x if x.sum() > 0 else -x", "pass", "depends on values of its inputs"),
        ("return x[x > 0]", "pass", "depends on values of its inputs"),
        ("return x + torch.tensor([[[1.0] * 8]] * 9).cumsum(0)", "pass", "with register_buffer"),
        ("return x * self.n", "self.n = int(torch.randint(9, ()))", "self.n follows from what"),
        ("return x * sum(self.n)", "self.n = torch.rand(3).tolist()", "self.n follows from what"),
        ("return x * self.n", "self.n = time.time_ns()", "self.n follows from what"),
        ("return x * T", "pass", "T differs in each process"),
        ("return x * G", "pass", "the tensor G, which no module"),
        ("return x * G.to(x.device)", "pass", "reads a tensor which no module of the Model's"),
        ("return x * K", "pass", "K differs in each process"),
        ("self.n += 1\nreturn x * self.n", "self.n = 0", "keeps state in self.n;"),
        ("self.n.append(1)\nreturn x * len(self.n)", "self.n = []", "keeps state in self.n;"),
        (
            "self.h[0] = self.h[0] + x\nreturn self.h[0]",
            "self.h = [torch.zeros(4, 8)]",
            "keeps state in self.h;",
        ),
        (
            "self.register_buffer('p', x * 2)\nreturn x * self.p",
            "pass",
            "keeps state in self.p;",
        ),
        ("C['n'] += 1\nreturn x * C['n']", "pass", "keeps state in C;"),
        ("return x + self.r.random()", "self.r = random.Random(0)", "keeps state in self.r;"),
        ("type(self).n += 1\nreturn x * self.n", "type(self).n = 0", "keeps state in Model.n;"),
        ("return x * next(self.g)", "self.g = (n for n in range(9))", "keeps state in self.g;"),
        ("return x * self.f()", "self.f = counter()", "keeps state in self.f;"),
        ("return x * self.f()", "self.f = types.MethodType(called, [])", "keeps state in called;"),
        ("called.n += 1\nreturn x * called.n", "called.n = 0", "keeps state in called;"),
        ("return x * called()", "pass", "keeps state in called;"),
        ("return x * self.f(2)", "self.f = scaled()", "self.f follows from what"),
        (
            "return self.fc(x)",
            "self.fc = nn.Linear(8, 8)\nself.fc.register_forward_hook(by_count(counter()))",
            "keeps state in hooks of fc;",
        ),
        ("return x + random.random()", "pass", "random numbers of Python's or numpy's"),
        ("return x + numpy.random.rand()", "pass", "random numbers of Python's or numpy's"),
        ("torch.manual_seed(0)\nreturn x + torch.rand_like(x)", "pass", "forward seeds"),
        ("torch.cuda.manual_seed(0)\nreturn x + torch.rand_like(x)", "pass", "forward seeds"),
        (
            "with torch.random.fork_rng():\n    torch.manual_seed(0)\n    return x + torch.rand(8)",
            "pass",
            "forward seeds",
        ),
        (
            "s = torch.get_rng_state()\nx = x + torch.rand(8)\ntorch.set_rng_state(s)\nreturn x",
            "pass",
            "or sets their state",
        ),
        (
            "try:\n    return x.view(5, 7)\nexcept RuntimeError:\n    return x",
            "pass",
            "catches an error of torch's",
        ),
        (
            "try:\n    x = x + torch.ones(7)\nexcept RuntimeError:\n    pass\nreturn x * 2",
            "pass",
            "catches an error of torch's",
        ),
        ("return x if x.is_cuda else x * 2", "pass", "on which kind of device"),
        ("return x if x.get_device() < 0 else x * 2", "pass", "on which kind of device"),
        ("return x if x.device.type == 'cpu' else x * 2", "pass", "on which kind of device"),
        ("return x if 'cuda' in str(x.device) else x * 2", "pass", "on which kind of device"),
        (
            "return x if x.device == self.d else -x",
            "self.d = torch.device('cpu')",
            "kind of device",
        ),
        ("y = x + 0\nreturn x if x is y else x * 2", "pass", "whether two tensors are one"),
        ("return x * 2 if x is not self.b else x", BUFFER, "whether two tensors are one"),
        ("return x * 2 if type(x) is nn.Parameter else x", "pass", "for the class of a tensor"),
        ("return x * 2 if type(x.size(0)) == int else x", "pass", "for the class of a tensor"),
        ("for i in (x > 0).nonzero():\n    x = x + i\nreturn x", "pass", "depends on values of"),
        ("return x[(x > 0).nonzero(as_tuple=9 > 1)]", "pass", "depends on values of its inputs"),
        ("return x + torch.rand(8, generator=torch.Generator())", "pass", "that is no tensor"),
        ("return torch.vmap(lambda row: row * 2)(x)", "pass", "forward calls vmap"),
        (
            "with torch.autocast('cpu', torch.bfloat16):\n    return self.fc(x)",
            "self.fc = nn.Linear(8, 8)",
            "forward computes under autocast",
        ),
        ("return torch.from_numpy(x.numpy() * 2)", "pass", "has numpy compute"),
        ("return self.fc(x)", "self.fc = nn.LazyLinear(8)", "lazy modules have no parameters"),
        ("return self.p(x)", "self.p = torch.jit.script(nn.ReLU())", "that torch.jit.script made"),
        ("return types.SimpleNamespace(x=x)", "pass", "an object of class SimpleNamespace"),
    ],
)
def test_what_has_no_graph_is_refused_and_can_be_graded(
    tmp_path: Path, body: str, layers: str, words: str
) -> None:
    top = "import random, time, types\nimport numpy\n" + STATES
    top += "T = time.time()\n" * ("T" in body)
    top += "G = torch.rand(8)\n" * ("G" in body)
    top += "K = torch.rand(()).item()\n" * ("K" in body)
    top += "C = {'n': 0}\n" * ("C" in body)
    message = refusal(tmp_path, body, layers=layers, top=top)

    assert words in message
    assert message.endswith("; it can still be graded")


@pytest.mark.parametrize(
    "change",
    ["d['y'] = d['x']", "d.pop('n')", "d['n'].append(3)", "d['x'] = d['x'] * 2", "del d['l'][0]"],
)
def test_a_structure_that_forward_changes_is_refused(tmp_path: Path, change: str) -> None:
    """The caller would see it, in the next call at the latest."""
    given = "{'x': torch.randn(4, 8), 'n': [1, 2], 'l': [torch.randn(8), 0.5]}"
    body = f"x = d['x']\n{change}\nreturn x * 2"
    assert "changes a list or dict that it is given" in refusal(tmp_path, body, d=given)
    copied = body.replace(change, f"d = {{**d, 'n': [*d['n']], 'l': [*d['l']]}}\n{change}")
    assert operators(traced(tmp_path, copied, d=given))[-1] == "mul.Tensor"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (
            {"x, y": "*[torch.rand(4, 8)]"},
            "returns 1 arguments, but forward takes (x, y)",
        ),
        (
            {"*, x": "*[torch.rand(4, 8)]"},
            "returns 1 arguments, but forward takes (*, x)",
        ),
    ],
)
def test_inputs_that_forward_does_not_take_are_told(
    tmp_path: Path, inputs: dict[str, str], words: str
) -> None:
    found = problem(tmp_path, "return x", **inputs)
    with pytest.raises(ProblemError) as error:
        graph_of(found, Case(name=MAIN_CASE), "cpu")
    assert words in str(error.value)
    assert "can still be graded" not in str(error.value)


@pytest.mark.parametrize("returned", ["torch.randn(4, 8)", "iter([torch.randn(4, 8)])"])
def test_inputs_that_are_no_list_are_told(tmp_path: Path, returned: str) -> None:
    found = problem(tmp_path, "return x")
    found.path.write_text(found.path.read_text().replace("[torch.randn(4, 8)]", returned))
    with pytest.raises(ProblemError, match="let it return the list of forward's arguments"):
        graph_of(read_kernelbench_problem(found.path), Case(name=MAIN_CASE), "cpu")


def test_what_the_code_raises_is_told_with_its_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, "return x", layers="raise ValueError('no such size')")

    line = (
        (tmp_path / "problem.py")
        .read_text()
        .splitlines()
        .index("        raise ValueError('no such size')")
    )
    assert f"problem.py:{line + 1}: model: its code raises ValueError: no such size" in message


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, "return x", top="import no_such_module_at_all")

    assert "needs the module no_such_module_at_all, which is not installed" in message


needs_walls = pytest.mark.skipif(
    survey().level != "namespaces", reason="this machine has no namespaces"
)


@needs_walls
def test_a_problem_s_code_reaches_nothing_outside(tmp_path: Path) -> None:
    """Note its tries in what it raises: it can say no more than that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        top = f"""
import socket
done = []
try:
    open({str(tmp_path / "out")!r}, "w").write("here")
except OSError:
    done.append("no file")
try:
    socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 1)
except OSError:
    done.append("no socket")
try:
    import os; os.kill({os.getpid()}, 0)
except OSError:
    done.append("no signal")
raise ValueError(", ".join(done))
"""
        message = refusal(tmp_path, "return x", top=top)

    assert message.endswith("ValueError: no file, no socket, no signal")
    assert not (tmp_path / "out").exists()


@needs_walls
@pytest.mark.parametrize("as_yaml", [False, True])
def test_a_rendered_problem_s_code_reaches_nothing_outside(
    tmp_path: Path, *, as_yaml: bool
) -> None:
    """Nothing of a problem runs in the process that renders it."""
    out = tmp_path / "out"
    hostile = f"try:\n    open({str(out)!r}, 'w').write('here')\nexcept OSError:\n    pass"
    found = problem(tmp_path, "return torch.softmax(x, 1)", layers=hostile)
    if as_yaml:
        path = tmp_path / "problem.yaml"
        path.write_text(yaml_form(found.path, path))
        found = load_problem(path)
    text = render(found)

    assert "'here'" in text
    assert not out.exists()


def test_a_file_is_traced_once_at_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(traces: tuple[Trace, ...], *others: Any, doubled: bool = False) -> Any:
        asked.extend(trace.source for trace in traces)
        return ask(traces, *others, doubled=doubled)

    ask = capture._traced  # noqa: SLF001 - where a process is asked
    monkeypatch.setattr(capture, "_traced", noted)
    monkeypatch.setattr(capture, "_KNOWN", {})
    found = problem(tmp_path, "return torch.softmax(x, 1)")
    render(found)
    assert asked == [found.module_source]


@pytest.mark.long
def test_a_problem_that_takes_too_much_is_stopped_and_the_next_one_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = "kept = []\nwhile True: kept.append(bytearray(b'x') * (1 << 28))"
    assert "GiB may be" in refusal(tmp_path, "return x", top=bomb)

    forks = "import os, time\nfor _ in range(20): os.fork() or time.sleep(600)\ntime.sleep(600)"
    found = problem(tmp_path, "return x", top=forks)
    with monkeypatch.context() as patched:
        patched.setattr(capture, "DEADLINE_S", 1.0)
        with pytest.raises(ProblemError, match="took longer than 1 s"):
            graph_of(found, Case(name=MAIN_CASE), "cpu")

    assert operators(traced(tmp_path, "return torch.relu(x)")) == ["relu.default"]


def test_an_end_without_an_answer_is_told(tmp_path: Path) -> None:
    message = refusal(tmp_path, "return x", top="import os; os._exit(7)")

    assert "left with exit code 7" in message


def test_a_forged_answer_is_no_graph(tmp_path: Path) -> None:
    forging = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, (9).to_bytes(8, "little") + b"not graph")
    except OSError:
        pass
"""
    message = refusal(tmp_path, "return x", top=forging)

    assert "sent no graph" in message
