"""Inputs and layers of any name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem
from kernelgen.rendering.solution import render

CPP_WORDS = ("register", "inline", "mutable", "xor", "wchar_t", "true", "errno", "NAN", "φ")


def product(
    left: str, right: str, transposed: str = "none", others: tuple[str, ...] = ()
) -> Problem:
    """Return a product of inputs of these names, to which the others are added."""
    inputs = ", ".join(dict.fromkeys((left, right, *others)))
    factors = [
        f"{left}.mT" if transposed in {"left", "both"} else left,
        f"{right}.mT" if transposed in {"right", "both"} else right,
    ]
    text = (
        "class Model(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n\n"
        f"    def forward(self, {inputs}):\n"
        f"        return {' + '.join([' @ '.join(factors), *others])}\n"
    )
    given = ", ".join(["torch.rand(depth, depth)"] * len(inputs.split(", ")))
    return msgspec.structs.replace(
        load_problem("matmul"),
        model=text,
        get_inputs=f"def get_inputs():\n    return [{given}]\n",
        cases=(),
    )


@pytest.mark.ci
@pytest.mark.parametrize("name", [*CPP_WORDS, "weight", "mean", "groups", "length", "out", "x_1"])
def test_a_norm_s_further_inputs_have_odd_names(name: str, built: Callable[..., Any]) -> None:
    import torch

    norm = load_problem("groupnorm_silu_add")
    text = norm.model.replace("residual", name)
    candidate = built(msgspec.structs.replace(norm, model=text, cases=()), 128, 32)
    x, y = torch.randn(2, 3, 128, 5, 7)
    expected = torch.nn.functional.silu(torch.nn.functional.group_norm(x, 32)) + y
    torch.testing.assert_close(candidate(x, y), expected)


@pytest.mark.parametrize("name", ["0", "group-norm"])
def test_a_layer_of_no_name_in_python_is_read_all_the_same(name: str) -> None:
    norm = load_problem("groupnorm")
    layer = re.search(r"self\.(\w+) = nn\.GroupNorm", norm.model)
    assert layer is not None
    model = norm.model.replace(f"self.{layer[1]} = nn", f"self.{layer[1]}_ = nn")
    model = re.sub(rf"self\.{layer[1]}_ = (.*)", rf'self.add_module("{name}", \1)', model)
    model = model.replace(f"self.{layer[1]}(", f'getattr(self, "{name}")(')
    odd = render(msgspec.structs.replace(norm, model=model, schedules={}, cases=()))
    assert f'getattr(self, "{name}")' in odd
    assert "segment_in_rings" in odd


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what makes a problem's rendered C++ solution."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))

    def make(problem: Problem, *arguments: int) -> Any:
        names: dict[str, Any] = {}
        exec(compile(render(problem, "cpp"), "solution.py", "exec"), names)
        return names["ModelNew"](*arguments)

    return make


# Left, right, what is transposed, and a further input.
ODD_PRODUCTS = [
    ("x", "a", "none", "b_"),
    ("b", "a", "none", "y"),
    ("b", "a", "both", "c"),
    ("a", "b", "left", "size"),
    ("batches", "workspace", "right", "library"),
    ("shapes", "stream", "none", "pointers"),
    ("left", "rows", "left", "tensor"),
    ("out", "weight", "none", "bias"),
    ("torch", "tuple", "right", "ValueError"),
    ("_multiply", "multiplied", "none", "at"),
    *(("L", "R", "none", word) for word in CPP_WORDS),
]


@pytest.mark.ci
@pytest.mark.parametrize(("left", "right", "transposed", "other"), ODD_PRODUCTS)
def test_factors_of_odd_names_are_multiplied(
    left: str, right: str, transposed: str, other: str, built: Callable[..., Any]
) -> None:
    import torch

    torch.manual_seed(2)
    candidate = built(product(left, right, transposed, (other,)))
    a, b = torch.randint(-9, 9, (2, 5, 7)).float(), torch.randint(-9, 9, (2, 6, 7)).float()
    given_a = a.mT.contiguous() if transposed in {"left", "both"} else a
    given_b = b if transposed in {"right", "both"} else b.mT.contiguous()
    y = torch.randint(-9, 9, (2, 5, 6)).float()
    assert torch.equal(candidate(given_a, given_b, y), a @ b.mT + y)
    assert torch.equal(candidate(given_a, given_b, y[:1]), a @ b.mT + y[:1])
    shapes = re.escape(f"{tuple(a.shape)} and (2, 3, 3) cannot be multiplied")
    with pytest.raises(ValueError, match=shapes):
        candidate(given_a, torch.zeros(2, 3, 3), y)


def test_an_input_may_be_both_factors(built: Callable[..., Any]) -> None:
    import torch

    candidate = built(product("a", "a", "right"))
    a = torch.randint(-9, 9, (5, 7)).float()
    assert torch.equal(candidate(a), a @ a.T)
