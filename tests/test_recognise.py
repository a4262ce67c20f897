"""Graphs that a template computes: the shipped problems, others, and those that are not quite."""

import pytest
from shipped import PROBLEMS, TEMPLATES

from kernelgen.planning.recognition.forms import SegmentNorm, Step
from kernelgen.planning.recognition.recognise import form_of
from kernelgen.planning.tracing import trace
from kernelgen.problem.record import MAIN_CASE, Case, Problem

_MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, {names}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def found(forward: str, layers: str = "pass", **inputs: str) -> SegmentNorm | None:
    """Return what a template computes of a forward whose inputs have shapes such as `4, 8`."""
    text = _MODEL.format(
        layers="\n".join(f"        {line}" for line in layers.splitlines()),
        names=", ".join(inputs),
        forward=forward,
        inputs=", ".join(f"torch.randn({shape})" for shape in inputs.values()),
    )
    return form_of(trace(text))


@pytest.mark.filterwarnings("ignore:input's size:UserWarning")  # of nn.InstanceNorm2d
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_shipped_problems_have_the_template_of_their_solution(problem: Problem) -> None:
    case = Case(name=MAIN_CASE)
    form = form_of(trace(problem.reference_source(case, "cuda"), eval_mode=problem.eval_mode))
    assert (form is not None) == (TEMPLATES[problem.name] == "segment_norm")


ADD_Y = Step(symbol="+", operand="y")
GROUPS = "self.gn = nn.GroupNorm(2, 8)"


@pytest.mark.parametrize(
    ("forward", "layers", "inputs", "expected"),
    [
        (
            "torch.tanh(y + self.gn(x)) * z",
            GROUPS,
            {"x": "3, 8, 5", "y": "3, 8, 5", "z": "3, 8, 5"},
            {
                "statistics": "moments",
                "normalises": "groups",
                "affine": "channel",
                "steps": (ADD_Y, Step(activation="tanh"), Step(symbol="*", operand="z")),
                "layer": "gn",
                "bias": True,
                "segments": 6,
                "length": 20,
                "inner": 5,
                "channels": 4,
                "groups": 2,
            },
        ),
        (
            "F.relu(self.ln(x)) - y",
            "self.ln = nn.LayerNorm(8, bias=False)",
            {"x": "3, 8", "y": "3, 8"},
            {
                "statistics": "moments",
                "normalises": "rows",
                "affine": "element",
                "steps": (Step(activation="relu"), Step(symbol="-", operand="y")),
                "layer": "ln",
                "bias": False,
                "segments": 3,
                "length": 8,
            },
        ),
        (
            "self.norm(x)",
            "self.norm = nn.RMSNorm(8, elementwise_affine=False)",
            {"x": "3, 8"},
            {"statistics": "rms", "normalises": "rows", "affine": "none"},
        ),
        (
            "torch.log_softmax(x, -1)",
            "pass",
            {"x": "3, 8"},
            {
                "statistics": "log_softmax",
                "normalises": "rows",
                "affine": "none",
                "dim": -1,
                "segments": 3,
                "length": 8,
            },
        ),
        (
            "x / x.norm(dim=2, keepdim=True)",
            "pass",
            {"x": "3, 8, 5"},
            {
                "statistics": "l2",
                "normalises": "rows",
                "affine": "none",
                "dim": 2,
                "segments": 24,
                "length": 5,
            },
        ),
    ],
)
def test_others_that_a_template_computes(
    forward: str, layers: str, inputs: dict[str, str], expected: dict[str, object]
) -> None:
    form = found(forward, layers, **inputs)
    assert form is not None
    assert {name: getattr(form, name) for name in expected} == expected


IMAGE = {"x": "3, 8, 5, 5"}


@pytest.mark.parametrize(
    ("forward", "layers", "inputs"),
    [
        ("self.bn(x)", "self.bn = nn.BatchNorm2d(8)", IMAGE),
        ("self.n(x)", "self.n = nn.InstanceNorm2d(8, track_running_stats=True)", IMAGE),
        ("self.net(x)", "self.net = nn.Sequential(nn.GroupNorm(2, 8))", IMAGE),
        ("F.group_norm(x, 2)", "pass", IMAGE),
        ("F.group_norm(x, 2, self.gn.weight, self.gn.bias, 1e-2)", GROUPS, IMAGE),
        ("self.gn(self.gn(x))", GROUPS, IMAGE),
        ("(self.gn(x), x)", GROUPS, IMAGE),
        ("(self.gn(x),)", GROUPS, IMAGE),
        ("self.gn(x) + x", GROUPS, IMAGE),
        ("self.gn(x) + y", GROUPS, {**IMAGE, "y": "8, 5, 5"}),
        ("self.gn(x) + y", GROUPS, {**IMAGE, "y": "3, 8, 1, 1"}),
        ("self.gn(y) + x", GROUPS, {**IMAGE, "y": "3, 8, 5, 5"}),
        ("y - self.gn(x)", GROUPS, {**IMAGE, "y": "3, 8, 5, 5"}),
        ("self.gn(x) / y", GROUPS, {**IMAGE, "y": "3, 8, 5, 5"}),
        ("torch.add(self.gn(x), y, alpha=2)", GROUPS, {**IMAGE, "y": "3, 8, 5, 5"}),
        ("self.gn(x) * 2.0", GROUPS, IMAGE),
        ("self.gn(x)", GROUPS, {**IMAGE, "y": "3, 8, 5, 5"}),
        ("F.gelu(self.gn(x), approximate='tanh')", GROUPS, IMAGE),
        ("self.gn(torch.relu(x))", GROUPS, IMAGE),
        ("self.gn(x).flatten(1)", GROUPS, IMAGE),
        ("self.n(x)", "self.n = nn.InstanceNorm2d(8)", {"x": "8, 5, 5"}),
        ("torch.softmax(x, 1).softmax(2)", "pass", IMAGE),
        ("torch.softmax(x.flatten(2), 2)", "pass", IMAGE),
        ("torch.softmax(x, 1, dtype=torch.float64)", "pass", IMAGE),
        ("x / x.abs().mean(dim=(1, 2), keepdim=True)", "pass", IMAGE),
        ("x / x.abs().mean(dim=0)", "pass", {"x": "4, 4"}),
        ("x / x.abs().sum(dim=1, keepdim=True)", "pass", IMAGE),
        ("x / y.abs().mean(dim=1, keepdim=True)", "pass", {**IMAGE, "y": "3, 8, 5, 5"}),
        ("x / (x.abs().mean(dim=1, keepdim=True) + 1e-6)", "pass", IMAGE),
        ("x * x.abs().mean(dim=1, keepdim=True)", "pass", IMAGE),
        ("x / x.norm(p=1, dim=1, keepdim=True)", "pass", IMAGE),
        ("x / x.norm()", "pass", IMAGE),
        ("F.normalize(x)", "pass", IMAGE),
    ],
)
def test_what_is_not_quite_a_template(forward: str, layers: str, inputs: dict[str, str]) -> None:
    assert found(forward, layers, **inputs) is None


OWN = """
class GroupNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        return F.group_norm(x, 2, self.weight, self.bias, 1e-2)


"""


def test_a_layer_that_is_not_torch_s_is_none() -> None:
    """A file reads its sizes and eps from the attributes of torch's."""
    text = _MODEL.format(
        layers="        self.gn = GroupNorm()",
        names="x",
        forward="self.gn(x)",
        inputs="torch.randn(3, 8, 5)",
    )
    assert form_of(trace(text.replace("class Model", f"{OWN}class Model"))) is None
    assert form_of(trace(text.replace("GroupNorm()", "nn.GroupNorm(2, 8)"))) is not None


@pytest.mark.parametrize(
    ("parameter", "given", "forward", "recognised"),
    [
        ("groups", "2", "self.gn(x)", True),
        ("affine", "True", "self.gn(x)", False),
        ("kind", "'softmax'", "torch.softmax(x, 1)", False),
        ("dim", "1", "torch.softmax(x, 1)", False),
        ("features", "8", "torch.softmax(x, 1)", True),
    ],
)
def test_what_a_model_is_made_with_does_not_say_its_form(
    parameter: str, given: str, forward: str, *, recognised: bool
) -> None:
    """A file is for any Model that is made with other numbers."""
    layer = GROUPS if "self.gn" in forward else "pass"
    text = _MODEL.format(
        layers=f"        {layer}", names="x", forward=forward, inputs="torch.randn(3, 8, 5)"
    )
    text = text.replace("__init__(self)", f"__init__(self, {parameter})")
    text = text.replace("return []", f"return [{given}]")
    assert (form_of(trace(text)) is not None) == recognised


def test_numbers_and_halves_are_none() -> None:
    scalar = _MODEL.format(
        layers="        pass", names="x, s", forward="x.softmax(1) * s", inputs="{}"
    )
    assert form_of(trace(scalar.replace("{}", "torch.randn(3, 6), 2.0"))) is None
    half = scalar.replace("x.softmax(1) * s", "x.softmax(1)").replace("x, s", "x")
    assert form_of(trace(half.replace("{}", "torch.ones(3, 6)"))) is not None
    assert form_of(trace(half.replace("{}", "torch.ones(3, 6).half()"))) is None
