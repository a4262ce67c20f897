"""A sweep's file: what it means, what is refused, and the sizes of those that are shipped."""

import re
from pathlib import Path

import pytest
import yaml
from sweep_records import KIB, MIB, SWEEPS

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import Minimal
from kernelgen.rendering.context import Backend
from kernelgen.sweep.plan import name_of, read_plan

GOOD = """\
problem: softmax
series: segment
x: tensor
points:
  - {labels: {segment: 4096, tensor: 65536}, constants: {batch_size: 16, features: 1024}}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_point_is_the_problem_at_its_size_and_nothing_else(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD), "cpp")
    (point,) = plan.points
    assert (plan.problem.name, plan.series, plan.x) == ("softmax", "segment", "tensor")
    assert point.labels == {"segment": 4096, "tensor": 65536}
    assert point.problem.constants == {"batch_size": 16, "features": 1024}
    assert point.problem.cpu_constants == {}
    assert [case.name for case in point.problem.all_cases()] == ["main"]
    assert "batch_size = 16\nfeatures = 1024\n" in point.source
    assert "--set constants.features=1024" in point.source


def test_what_a_point_leaves_out_is_the_problem_s_own_on_that_device(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD.replace(", features: 1024", ""))
    features: dict[Backend, int] = {"cuda": 393216, "cpp": 32768}
    for backend, own in features.items():
        (point,) = read_plan(file, backend).points
        assert point.problem.constants == {"batch_size": 16, "features": own}


def test_bytes_that_the_problem_declares_are_of_another_size(tmp_path: Path) -> None:


def test_names_are_in_readable_units() -> None:
    assert name_of({"segment": 256, "tensor": 1 << 33}) == "segment 256 B, tensor 8 GiB"


SEGMENTS = [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
TENSORS = [MIB, 16 * MIB, 256 * MIB, 2048 * MIB, 8192 * MIB]


@pytest.mark.parametrize("name", ["instancenorm", "softmax"])
def test_the_shipped_sweeps_have_the_sizes_that_they_say(name: str) -> None:
    whole = yaml.safe_load((SWEEPS / f"{name}.yaml").read_text(encoding="utf-8"))
    for point in whole["points"]:
        size = point["constants"]
        if name == "softmax":
            elements, segments = size["features"], size["batch_size"]
        else:
            elements, segments = (
                size["height"] * size["width"],
                (size["batch_size"] * size["num_features"]),
            )
        assert point["labels"] == {"segment": 4 * elements, "tensor": 4 * elements * segments}
    given = [tuple(point["labels"].values()) for point in whole["points"]]
    assert given == [(s, t) for t in TENSORS for s in SEGMENTS if s <= t]
    assert len(read_plan(SWEEPS / f"{name}.yaml", "cuda").points) == len(given)
