"""Maps: pointwise operators in one kernel, in C++ and in the CUDA emulation."""

from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("torch.relu(x)", {"x": "torch.randn(8, 12)"}),
        ("torch.relu(x) * 2 + 1", {"x": "torch.randn(5, 7)"}),
        ("x + y", {"x": "torch.randn(6, 8)", "y": "torch.randn(8)"}),
        ("x + y", {"x": "torch.randn(6, 8)", "y": "torch.randn(6, 1)"}),
        ("x + y", {"x": "torch.randn(6, 8, 4)", "y": "torch.randn(6, 1, 4)"}),
        ("x + y", {"x": "torch.randn(3, 6, 8, 4)", "y": "torch.randn(1, 6, 1, 4)"}),
        ("x + y", {"x": "torch.randn(6, 8, 4)", "y": "torch.randn(())"}),
        ("x + y", {"x": "torch.randn(6, 1)", "y": "torch.randn(1, 5)"}),
        (
            "x * y + z",
            {"x": "torch.randn(2, 9001)", "y": "torch.rand(2, 1)", "z": "torch.rand(9001)"},
        ),
        (
            "x * a + b * c + d - e",
            {
                "x": "torch.randn(3, 6, 8, 4)",
                "a": "torch.randn(8, 4)",
                "b": "torch.randn(6, 1, 1)",
                "c": "torch.randn(3, 1, 8, 4)",
                "d": "torch.randn(())",
                "e": "torch.randn(4)",
            },
        ),
        ("x * s", {"x": "torch.randn(6, 8)", "s": "3.14"}),
        ("x * mask", {"x": "torch.randn(6, 8)", "mask": "torch.randn(6, 8) > 0"}),
        ("(x > 0, torch.exp(x))", {"x": "torch.randn(6, 8)"}),
        ("(torch.zeros_like(x) + 1, torch.relu(x))", {"x": "torch.randn(6, 8)"}),
        # Of the shape of what is not read.
        ("torch.full_like(x, 3.0) * y", {"x": "torch.randn(6, 8)", "y": "torch.randn(8)"}),
        ("torch.relu(y) - torch.ones_like(x)", {"x": "torch.randn(6, 8)", "y": "torch.randn(8)"}),
    ],
)
def test_maps(
    backend: Backend, forward: str, inputs: dict[str, str], tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(problem_of(tmp_path, forward, **inputs), backend, compiled_folder)
    planned.check()
    assert len(planned.launched) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_shapes_than_the_main_one(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    problem = problem_of(
        tmp_path, "torch.sigmoid(x) + y", x="torch.randn(6, 8)", y="torch.randn(8)"
    )
    planned = Planned(problem, backend, compiled_folder)
    for shape, other in [
        ((3, 8), (8,)),
        ((5, 7), (7,)),
        ((5, 7), (5, 7)),
        ((5, 7), (5, 1)),
        ((1,), (1,)),
        ((2, 3, 4), (3, 1)),
        ((0, 4), (4,)),
    ]:
        planned.check(torch.randn(shape), torch.randn(other))
    x = torch.randn(8, 6)
    planned.check(x.t(), torch.randn(8))
    planned.check(x.t()[:, 1:], torch.randn(7))
    planned.check(torch.randn(50)[1:49].view(6, 8), torch.randn(8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "(x * y, torch.relu(x))",
        "((x * y).sum(0), x.amax(0))",
        "torch.softmax(x, 1) * y",
        "x / (x * y).sum(1, keepdim=True)",
        "(x * z * y, torch.relu(x) + z)",
    ],
)
def test_what_an_input_alone_has_the_shape_of_is_refused_where_it_has_not(
    backend: Backend, forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    inputs = {"x": "torch.randn(6, 9)", "y": "torch.randn(9)", "z": "torch.randn(6, 1)"}
    read = {name: text for name, text in inputs.items() if name in forward}
    planned = Planned(problem_of(tmp_path, forward, **read), backend, compiled_folder)
    others = [torch.randn(4, 1)] if "z" in read else []
    planned.check(torch.randn(4, 9), torch.randn(9), *others)
    with pytest.raises(ValueError, match=r"the shape of x.*: the file is for torch.Size"):
        planned.run(torch.randn(4, 1), torch.randn(9), *others)


def test_an_input_may_be_called_by_a_word_of_cpp(tmp_path: Path, compiled_folder: Path) -> None:
    words = {"mutable": "torch.randn(6, 8)", "catch": "torch.randn(8)", "typeid": "torch.randn(8)"}
    problem = problem_of(tmp_path, "torch.relu(mutable) * catch + typeid", **words)
    Planned(problem, "cpp", compiled_folder).check()
