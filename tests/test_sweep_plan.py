"""A sweep's file: what it means, what is refused, and the sizes of those that are shipped."""

import re
from pathlib import Path

import pytest
import yaml
from sweep_records import KIB, MIB, SWEEPS

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import Backend, Minimal
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
    problem = (SWEEPS.parent.parent / "problems" / "softmax.yaml").read_text(encoding="utf-8")
    (tmp_path / "own.yaml").write_text(problem + "minimal: {bytes: 12}\n", encoding="utf-8")
    plan = read_plan(written(tmp_path, GOOD.replace("softmax", "./own.yaml")), "cuda")
    assert plan.problem.minimal == Minimal(bytes=12)
    assert plan.points[0].problem.minimal == Minimal()


def test_a_float_constant_stays_a_number(tmp_path: Path) -> None:
    problem = (SWEEPS.parent.parent / "problems" / "softmax.yaml").read_text(encoding="utf-8")
    problem = problem.replace("  features: 393216\n", "  features: 393216\n  scale: 0.5\n")
    (tmp_path / "own.yaml").write_text(problem, encoding="utf-8")
    text = GOOD.replace("softmax", "own.yaml").replace("1024}}", "1024, scale: 1e-5}}")
    (point,) = read_plan(written(tmp_path, text), "cuda").points
    assert point.problem.constants["scale"] == 1e-5


@pytest.mark.parametrize(
    ("old", "new", "line", "complaint"),
    [
        ("problem: softmax\n", "", 1, "expected the key `problem`, found none"),
        ("x: tensor", "y: tensor", 3, "y: unknown key"),
        ("problem: softmax", "problem: softmaxx", 1, "problem: no problem is called 'softmaxx'"),
        ("x: tensor", "x: segment", 3, "x: `segment` is the series already"),
        ("tensor: 65536", "tensors: 65536", 5, "points[0].labels.tensors: unknown key; did you"),
        ("tensor: 65536", "tensor: 0", 5, "points[0].labels.tensor: expected bytes from 1"),
        ("tensor: 65536", "tensor: 64 KiB", 5, "labels.tensor: expected a whole number"),
        ("features: 1024", "feature: 1024", 5, "--set constants.feature: unknown key; did you"),
        ("features: 1024", "features: many", 5, "expected a positive whole number, not 'many'"),
        ("features: 1024", "features: 0", 5, "expected a positive whole number, not 0"),
        ("features: 1024", "block_size: 64", 5, "--set constants.block_size: unknown key"),
        ("constants", "constant", 5, "points[0].constant: unknown key; did you mean `constants`?"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, complaint: str
) -> None:
    file = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ProblemError) as refused:
        read_plan(file, "cuda")
    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD.split("  -", maxsplit=1)[0] + "  []\n", "points: expected a list of points, found"),
        (GOOD + GOOD.splitlines()[-1] + "\n", "two points are segment 4 KiB, tensor 64 KiB"),
        ("points: [", "not YAML"),
        ("", "found nothing"),
    ],
)
def test_points_are_some_and_distinct(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(complaint)):
        read_plan(written(tmp_path, text), "cuda")


def test_a_problem_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("class Model: ...\n")
    with pytest.raises(UserError):
        read_plan(written(tmp_path, GOOD.replace("softmax", "bare.py")), "cuda")
    with pytest.raises(UserError, match="cannot be read"):
        read_plan(tmp_path / "absent.yaml", "cuda")


def test_names_are_in_readable_units() -> None:
    assert name_of({"segment": 256, "tensor": 1 << 33}) == "segment 256 B, tensor 8 GiB"


SEGMENTS = [256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
TENSORS = [MIB, 16 * MIB, 256 * MIB, 2048 * MIB, 8192 * MIB]


@pytest.mark.ci
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
