"""Solutions that are planned from a Model: those committed, and of Models of odd structure."""

import copy
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from click.testing import CliRunner
from planned_models import Planned, problem_of
from shipped import TEMPLATES

from kernelgen.cli import program
from kernelgen.rendering.solution import render
from kernelgen.solution.file import STAYS

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions" / "cpu"


@pytest.mark.long
def test_planned_solutions_pass_on_the_cpu(tmp_path: Path) -> None:
    names = [name for name, template in TEMPLATES.items() if not template]
    files = [str(SOLUTIONS / f"{name}.py") for name in names]
    record = tmp_path / "run.json"
    options = ["--device", "cpu", "--no-timing", "--no-build-cache", "--json", str(record)]
    result = CliRunner().invoke(program, ["grade", *files, *options])
    assert result.exit_code == 0, result.output
    found = msgspec.json.decode(record.read_bytes())
    assert [one["status"] for one in found["verdicts"]] == ["PASSED"] * len(names)


X = "torch.randn(4, 8)"
FC = "self.fc = nn.Linear(8, 8)\n"


def assert_same(found: Any, expected: Any) -> None:
    """Compare what a solution returns with what its reference does, in structure and values."""
    if isinstance(expected, torch.Tensor):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    elif isinstance(expected, dict):
        assert [*found] == [*expected]
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert (type(found), found) == (type(expected), expected)


def check(planned: Planned) -> None:
    """Compare two Models in two calls each: parameters, inputs and state differ."""
    for seed in range(2):
        reference, candidate = planned.models(seed)
        for _ in range(2):
            given = planned.reference["get_inputs"]()
            with torch.no_grad():
                expected = reference(*copy.deepcopy(given))
            assert_same(planned.run(*copy.deepcopy(given), model=candidate), expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        ("nn.MaxPool2d(2)", "2, 8, 9, 10"),
        ("nn.Softmax(1)", "2, 8, 9, 10"),
        ("nn.GroupNorm(4, 8)", "2, 8, 9, 10"),
        ("nn.Linear(10, 12)", "8, 10"),
        ("nn.Conv2d(8, 12, 3)", "2, 8, 9, 10"),
    ],
)
def test_a_map_of_two_results_stays_whole(
    layer: str, shape: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(
        tmp_path,
        "(y.relu(), y.tanh())",
        layers=f"self.layer = {layer}",
        before="y = self.layer(x)",
        x=f"torch.randn({shape})",
    )
    check(Planned(problem, "cpp", compiled_folder))


@pytest.mark.parametrize(
    ("takes", "given", "forward"),
    [
        (
            "batch, flag=True",
            f"[{{'x': {X}, 'more': [None, (torch.randn(8), 3)], 'y z': {X}}}, False]",
            "(batch['x'].relu() * batch['more'][1][1] + batch['y z'], flag)",
        ),
        ("d", f"[{{0: {X}, 1: {X}}}]", "d[0].relu() * 2 + d[1]"),
        ("pair", f"[Pair({X}, torch.randn(8))]", "pair.left.relu() * 2 + pair.right"),
        ("x, *rest", f"[{X}, {X}, torch.randn(8)]", "x.relu() * 2 + sum(rest)"),
        ("x, *rest", f"[{X}]", "x.relu() * 2 + len(rest)"),
        ("x, y=None, *, scale=2.0", f"[{X}]", "x.relu() * scale if y is None else y"),
        (
            "x, size, dtype, empty, word, none",
            f"[{X}, (2, 16), torch.float16, [], 'some', None]",
            "((x.reshape(size).relu() * 2).to(dtype), empty, word, none)",
        ),
        ("x, size", f"[{X}, torch.Size([8, 4])]", "x.reshape(size).relu() * 2"),
        ("x, a, b", f"[{X}, 0.3, 1.7]", "x.relu() * (1 - a) + a * b"),
        ("x, a", f"[{X}, 0.0]", "F.dropout(x.relu() * 2, a) + (1 if a else 2)"),
        ("x, ab", f"[{X}, (0.3, 1.7)]", "(x.relu() * ab[0] + ab[1], ab[0])"),
        ("x, a", "[torch.randint(9, (4, 8)), 0.5]", "x * a"),
        ("x, y", "[torch.randn(8, 4).t(), torch.randn(4, 16)[:, ::2]]", "x.relu() * 2 + y"),
        ("x, y", f"(lambda x: [x, x])({X})", "x.relu() * 2 - y"),
        ("xs", f"(lambda x: [[x, x]])({X})", "xs[0].relu() * 2 - xs[1]"),
        ("x, i", f"({X}, torch.tensor([1, 0, 1, 1]).nonzero()[:, 0])", "x.relu()[i] * 2"),
        ("x, n", f"[{X}, torch.tensor([3]).item()]", "x.relu()[:, :n] * 2"),
        (
            "x, state",
            "[torch.randn(4, 5, 8), (torch.randn(1, 4, 8), torch.randn(1, 4, 8))]",
            "self.rnn(x, state)",
        ),
    ],
)
def test_inputs_of_any_structure(
    tmp_path: Path, compiled_folder: Path, takes: str, given: str, forward: str
) -> None:
    top = "from collections import namedtuple\nPair = namedtuple('Pair', 'left right')\n"
    layers = "self.rnn = nn.LSTM(8, 8, batch_first=True)"
    problem = problem_of(tmp_path, forward, layers=layers, takes=takes, given=given, top=top)
    check(Planned(problem, "cpp", compiled_folder))


def test_other_structures_and_values_are_refused(tmp_path: Path, compiled_folder: Path) -> None:
    given = f"[[{X}, {X}], {{'x': {X}}}, 3]"
    problem = problem_of(tmp_path, "ab[0] * k + ab[1] + d['x']", takes="ab, d, k", given=given)
    planned = Planned(problem, "cpp", compiled_folder)
    ab, d, k = planned.reference["get_inputs"]()
    for wrong, words in (
        (([*ab, ab[0]], d, k), "len(ab): the file is for 2, got 3"),
        ((ab, d | {"y": ab[0]}, k), "set(d): the file is for {'x'}, got"),
        ((ab, d, 4), "k: the file is for 3, got 4"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            planned.run(*wrong)


def test_one_tensor_for_two_arguments_leaves_both(tmp_path: Path, compiled_folder: Path) -> None:
    given = "(lambda x: [x, x])(torch.randn(4, 8))"
    problem = problem_of(tmp_path, "(q - 2 * k).relu()", takes="q, k", given=given)
    planned = Planned(problem, "cpp", compiled_folder)
    q, k = torch.randn(2, 4, 8)
    assert_same(planned.run(q, k), (q - 2 * k).relu())


@pytest.mark.parametrize(
    ("top", "forward"),
    [
        ("P = namedtuple('P', 'left right')", "P(x.relu() * 2, P(x + 1, 3))"),
        ("class P(NamedTuple):\n    a: object\n    b: int = 2", "[P(x.relu() * 2)]"),
        ("from collections import OrderedDict", "OrderedDict(z=x.relu() * 2, a=x)"),
        ("import collections", "(collections.OrderedDict(z=x.relu() * 2), x)"),
        ("", "(x.relu() * 2).max(1)"),
    ],
)
def test_outputs_are_of_the_same_class(
    tmp_path: Path, compiled_folder: Path, top: str, forward: str
) -> None:
    from torch.utils._pytree import tree_flatten

    top = f"from collections import namedtuple\nfrom typing import NamedTuple\n{top}"
    planned = Planned(problem_of(tmp_path, forward, top=top, x=X), "cpp", compiled_folder)
    check(planned)
    x = torch.randn(4, 8)
    found, expected = planned.run(x), planned.reference["Model"]()(x)
    forms = [re.sub("solution|reference", "", str(tree_flatten(r)[1])) for r in (found, expected)]
    assert forms[0] == forms[1]
    assert type(found).__name__ == type(expected).__name__


def test_a_dataclass_is_returned_as_one(tmp_path: Path, compiled_folder: Path) -> None:
    top = (
        "from dataclasses import dataclass\n@dataclass\nclass Out:\n"
        "    x: torch.Tensor\n    more: tuple\n    loss: torch.Tensor | None = None\n"
    )
    forward = "Out(x.relu() * 2, more=(x + 1, {'k': x.shape[1]}))"
    planned = Planned(problem_of(tmp_path, forward, top=top, x=X), "cpp", compiled_folder)
    (x,) = planned.reference["get_inputs"]()
    found, expected = planned.run(x), planned.reference["Model"]()(x)
    assert type(found).__name__ == "Out"
    assert_same(vars(found), vars(expected))


def test_a_class_without_a_name_keeps_all_in_torch(tmp_path: Path) -> None:
    top = "import collections as c\ndef pair(x):\n    return c.namedtuple('P', 'a b')(x, x)"
    text = render(problem_of(tmp_path, "pair(x.relu() * 2)", top=top, x=X), "cpp")
    assert f"{STAYS}forward returns a reference.P, which its module has no name for" in text


@pytest.mark.parametrize(
    "forward",
    [
        "{'a': x.relu() * 2, 'n': None, 1: [3, '100 %s', True], 'f': 0.5, (1, 2): (x + 1,)}",
        "(x, x.relu() * 2, x, self.w)",
        "(lambda y: (y, [y]))(x.relu() * 2)",
        "(x.relu() * 2, torch.tensor([1.0, 2.0]), torch.tensor(3), float('inf'))",
        "(x.relu() * 2, x.shape[0], x.shape, x.dtype)",
        "(x.relu() * 2).max(1)",
    ],
)
def test_outputs_of_any_structure(tmp_path: Path, compiled_folder: Path, forward: str) -> None:
    problem = problem_of(tmp_path, forward, layers="self.w = nn.Parameter(torch.rand(8))", x=X)
    check(Planned(problem, "cpp", compiled_folder))


def test_a_size_that_is_returned_is_bound(tmp_path: Path, compiled_folder: Path) -> None:
    problem = problem_of(tmp_path, "(x.relu() * 2, x.shape[0])", x=X)
    with pytest.raises(ValueError, match="sizes 0 of x"):
        Planned(problem, "cpp", compiled_folder).run(torch.randn(5, 8))


@pytest.mark.parametrize(
    ("layers", "forward"),
    [
        (FC + "self.to('cpu')", "self.fc(x).relu() * 2"),
        (FC + "self.to(device)", "self.fc(x.to(device)).relu() * 2 + torch.ones(8, device=device)"),
        (FC + "self.double()", "self.fc(x.double()).float().relu() * 2"),
        (FC + "self.fc.half()", "x.relu() * 2 + self.fc.weight.float()[0]"),
        (FC + "nn.init.trunc_normal_(self.fc.weight, std=0.02)", "self.fc(x).relu() * 2"),
        (FC + "nn.init.orthogonal_(self.fc.weight)", "self.fc(x).relu() * 2"),
        (FC + "if self.fc.weight.sum() > 99:\n    raise ValueError", "self.fc(x).relu() * 2"),
        (FC + "self.rates = torch.linspace(0, 1, 3).tolist()", "self.fc(x).relu() * self.rates[1]"),
        (FC + "self.m = float(self.fc.weight.detach().numpy().max())", "x.relu() * self.m + 1"),
        ("self.m = torch.rand(())\nself.m.item()", "x.relu() * self.m + 1"),
        (
            "self.register_buffer('b', torch.from_numpy(numpy.hanning(8)).float())",
            "x.relu() * 2 + self.b",
        ),
        (
            "self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))",
            "self.fc(x).relu() * 2",
        ),
        ("self.fc = nn.utils.spectral_norm(nn.Linear(8, 8))", "self.fc(x).relu() * 2"),
        (
            "self.fc = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))",
            "self.fc(x).relu() * 2",
        ),
        (
            "self.ts = [torch.rand(8), {'k': (torch.rand(8), 3)}]",
            "x.relu() * self.ts[0] + self.ts[1]['k'][0]",
        ),
        (
            "self.net = nn.Sequential(nn.ReLU())\nself.net[0].ts = [torch.rand(8)]",
            "x.relu() * 2 + self.net[0].ts[0]",
        ),
        (FC + "self.fc.register_forward_hook(lambda m, i, out: out * 2)", "self.fc(x).relu() * 2"),
    ],
)
def test_constructors_that_read_values_or_move_things(
    tmp_path: Path, compiled_folder: Path, layers: str, forward: str
) -> None:
    top = "import numpy\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    problem = problem_of(tmp_path, forward, layers=layers, top=top, x=X)
    check(Planned(problem, "cpp", compiled_folder))


@pytest.mark.parametrize(
    ("before", "forward"),
    [
        ("z = torch.empty_like(x)\ntorch.add(x, 1, out=z)\ntorch.mul(z, 2, out=z)", "z.relu()"),
        ("y = x.clone()\ny[:, 0] = 0\ny[0] += 1", "y.relu() * 2"),
        ("y = x.clone()\ny.data.mul_(2)", "y.relu() + 1"),
        ("self.n += 1\nself.m.mul_(0.5).add_(x.mean(0))", "x.relu() * self.n + self.m"),
        ("with torch.no_grad():\n    y = x * 2", "y.relu().detach() + 1"),
        ("", "x.relu() * torch.tensor([1.0, -2.0] * 4) + torch.tensor([[float('inf')]])"),
        ("", "x.relu()[:, torch.tensor([1, 0, 3])] * 2"),
        ("", "(torch.stack([x.mean(), torch.tensor(2.0)]), torch.tensor(1.0).view(1) * x)"),
        ("", "x.relu() * 2 if self.training else x"),
        ("s = x.double().mean()", "(x.relu() * s, s.float() + 1, (s * 2).float() + s.half())"),
        (
            "y = torch.func.functional_call(self.fc, {'weight': self.fc.weight * 2}, (x,))",
            "y.relu() * 2",
        ),
    ],
)
def test_what_a_trace_takes_apart(
    tmp_path: Path, compiled_folder: Path, before: str, forward: str
) -> None:
    buffers = {"n": "torch.zeros(())", "m": "torch.zeros(8)"}
    layers = FC + "\n".join(f"self.register_buffer({n!r}, {t})" for n, t in buffers.items())
    problem = problem_of(tmp_path, forward, layers=layers, before=before, x=X)
    check(Planned(problem, "cpp", compiled_folder))


@pytest.mark.parametrize(
    "forward",
    [
        "(x.relu(), x.relu().view(8, 4) * 2)",
        "(x * 2, (x * 2).t() + 1, ((x * 2).t() * 3).t() - x)",
        "{'half': x.tanh()[::2] * 2, 'all': x.tanh(), 'back': -x.tanh()}",
        "(x[:, :3].relu(), x + 1, x * 2, x[:, 3:6].relu())",
    ],
)
def test_results_that_are_read_by_others_are_made_once(
    forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    check(Planned(problem_of(tmp_path, forward, x=X), "cpp", compiled_folder))


RESULTS = """
from collections import namedtuple
from dataclasses import dataclass

Pair = namedtuple("Pair", "norm also")

@dataclass
class Kept:
    result: torch.Tensor

class Backwards(nn.ModuleList):
    def __getitem__(self, place):
        return super().__getitem__(len(self) - 1 - place)
"""


@pytest.mark.parametrize(
    ("layers", "forward"),
    [
        ("self.Pair = nn.BatchNorm1d(8)", "Pair(self.Pair(x), x + 1)"),
        ("self.Kept = nn.BatchNorm1d(8)", "Kept(self.Kept(x)).result"),
        (
            "self.norms = Backwards([nn.LayerNorm(8), nn.BatchNorm1d(8)])",
            "self.norms[1](self.norms[0](x))",
        ),
    ],
)
def test_names_of_modules_hide_none_of_the_problems(
    layers: str, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    problem = problem_of(tmp_path, forward, layers=layers, top=RESULTS, x=X)
    check(Planned(problem, "cpp", compiled_folder))


def test_a_view_may_read_a_size_beside_what_it_looks_at(
    tmp_path: Path, compiled_folder: Path
) -> None:
    forward = "(x.softmax(1).view(x.size(0), 2, 4) * 2).sum(1).relu()"
    planned = Planned(problem_of(tmp_path, forward, x=X), "cpp", compiled_folder)
    assert ".view([x.shape[0], 2, 4])" in planned.text
    check(planned)
    for rows in (1, 7):
        planned.check(torch.randn(rows, 8))
