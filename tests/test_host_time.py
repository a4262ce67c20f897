"""Calls that forward takes beside kernels: each is a tenth of a microsecond, or several."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from planned_models import Planned, problem_of

NORMS = "self.net = nn.Sequential(*(nn.BatchNorm2d(6) for _ in range(3)))"
CONV = "self.conv = nn.Conv2d(6, 5, 3)\nself.b = nn.Parameter(torch.ones(5, 1, 1))"


def calls_of(planned: Planned) -> int:
    """Return how many functions, of Python's and of C's, a second call of forward takes."""
    candidate, inputs = planned.models()[1], planned.inputs()
    found: list[str] = []

    def note(_: FrameType, event: str, of: Any) -> None:
        if event in {"call", "c_call"}:
            found.append(getattr(of, "__name__", event))

    planned.run(*inputs, model=candidate)
    with torch.no_grad(), planned.streaming():
        sys.setprofile(note)
        try:
            candidate(*inputs)
        finally:
            sys.setprofile(None)
    return len(found)


@pytest.mark.parametrize(
    ("layers", "forward", "most"),
    [
        ("", "x.relu()", 23),
        ("", "x * y + z", 30),
        ("", "(x @ y.mT).relu()", 26),
        ("", "x.softmax(1) + y", 32),
        ("", "F.max_pool2d(x, 2) * 2", 25),
        (CONV, "self.conv(x).relu() + self.b", 36),
        (NORMS, "self.net(x).relu()", 238),
    ],
)
def test_a_stage_takes_few_calls(
    layers: str, forward: str, most: int, tmp_path: Path, compiled_folder: Path
) -> None:
    shapes = {"x": "torch.rand(4, 6, 8, 8)", "y": "torch.rand(6, 8, 8)", "z": "torch.rand(6, 1, 1)"}
    given = {name: text for name, text in shapes.items() if name in forward.replace("max", "")}
    problem = problem_of(tmp_path, forward, layers=layers, **given)
    calls = calls_of(Planned(problem, "cuda", compiled_folder))
    assert calls <= most
