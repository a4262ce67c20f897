"""Pools: maxima and means over windows, in C++ and in the CUDA emulation."""

from pathlib import Path

import pytest
from planned_models import Planned, plan_in, problem_of

from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.planning.plan import Library, Map, Pool, Reduce, Stage
from kernelgen.problem.record import MAIN_CASE, Backend, Case, Problem

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")


def with_operands(folder: Path, forward: str, height: int, width: int) -> Problem:
    """Return a problem with operands of each pattern beside x."""
    return problem_of(
        folder,
        forward,
        x=f"torch.randn(2, 5, {height}, {width})",
        y=f"torch.randn(2, 5, {height}, {width})",
        b="torch.randn(5, 1, 1)",
        c=f"torch.randn(2, 1, {height}, {width})",
        p="torch.randn(())",
        s="0.5",
    )


# The options of KernelBench's problems 41 to 46, and others; for each, other sizes of the last
# dimensions, down to those smaller than a window.
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "shapes"),
    [
        ("F.max_pool1d(x, 8, 1, 4, dilation=3)", [(2, 3, 3000), (40,), (31,), (14,)]),
        ("F.max_pool1d(x, 3, 2, 1, ceil_mode=True)", [(2, 3, 16), (15,), (2,), (1,)]),
        ("F.max_pool2d(x, 4, 1, 1)", [(2, 3, 12, 20), (9, 33), (2, 2), (5, 4)]),
        ("F.max_pool2d(x, (2, 3), (3, 1), (0, 1), (1, 2))", [(3, 9, 12), (8, 7), (2, 3)]),
        ("F.max_pool2d(x, 3, 2, 1, ceil_mode=True)", [(3, 8, 12), (7, 13), (1, 1)]),
        ("F.max_pool3d(x, 3, 2, 1, 3)", [(2, 8, 9, 12), (7, 5, 6), (5, 10, 21)]),
        ("F.avg_pool1d(x, 8, 1, 4)", [(2, 3, 3000), (40,), (5,), (1,)]),
        ("F.avg_pool1d(x, 4, 3, 2, True, False)", [(3, 12), (14,), (15,), (2,)]),
        ("F.avg_pool2d(x, 11)", [(2, 3, 24, 44), (33, 23), (11, 11)]),
        ("F.avg_pool2d(x, 3, 2, 1, True)", [(2, 8, 12), (7, 13), (6, 6), (2, 1)]),
        ("F.avg_pool2d(x, 3, 2, 1, False, False)", [(2, 8, 12), (7, 13), (2, 2)]),
        ("F.avg_pool2d(x, (2, 3), (1, 2), divisor_override=5)", [(2, 8, 12), (4, 7)]),
        ("F.avg_pool2d(x, (80, 2), 1)", [(1, 81, 12), (83, 5)]),
        ("F.avg_pool3d(x, 3, 2, 1)", [(2, 6, 8, 16), (5, 6, 7), (3, 4, 3)]),
        ("F.avg_pool3d(x, 2, 3, 1, True, False)", [(2, 6, 5, 8), (5, 6, 7)]),
    ],
)
def test_windows(
    backend: Backend,
    forward: str,
    shapes: list[tuple[int, ...]],
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    import torch

    shape, *others = shapes
    problem = problem_of(tmp_path, forward, x=f"torch.randn({shape})")
    planned = Planned(problem, backend, compiled_folder)
    torch.manual_seed(2)
    planned.check()
    assert len(planned.launched) == 1
    before = shape[: len(shape) - len(others[0])]
    for last in others:
        planned.check(torch.randn(*before, *last))
    planned.check(torch.randn(5, *before[1:], *shape[len(before) :]))
    x = torch.randn(*shape[:-1], 2 * shape[-1] + 1)
    planned.check(x[..., 1::2])
    count = x[..., 1::2].numel()
    planned.check(torch.randn(count + 1)[1:].view(shape))
    if len(before) == 2:
        empty = planned.run(torch.empty(0, *shape[1:]))
        assert empty.shape == (0, *planned.run(torch.empty(shape)).shape[1:])


@pytest.mark.parametrize("backend", BACKENDS)
def test_maxima_of_negatives_nan_and_infinity(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    """The padding of a maximum is -inf, and a NaN in a window is its maximum."""
    import torch

    problem = problem_of(tmp_path, "F.max_pool2d(x, 3, 2, 1)", x="torch.randn(2, 8, 12)")
    planned = Planned(problem, backend, compiled_folder)
    for width in (12, 13):
        planned.check(-1 - torch.rand(2, 8, width))
        x = torch.randn(2, 8, width)
        x[0, 3, 5], x[0, 0, 0], x[1, 7, width - 1] = float("nan"), float("nan"), float("nan")
        x[1, 2, 2], x[1, 5, 5] = float("inf"), -float("inf")
        planned.check(x)
        planned.check(torch.full((2, 8, width), -float("inf")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_before_a_pool_are_in_its_kernel(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    problem = problem_of(
        tmp_path,
        "F.avg_pool2d(torch.relu(x + b) * s + 1, 3, 2, 1)",
        x="torch.randn(2, 5, 8, 16)",
        b="torch.randn(5, 1, 1)",
        s="0.5",
    )
    planned = Planned(problem, backend, compiled_folder)
    planned.check()
    assert len(planned.launched) == 1
    planned.check(torch.randn(3, 2, 9, 7), torch.randn(2, 1, 1), -2.0)
    planned.check(torch.randn(3, 2, 8, 16), torch.randn(1, 8, 16), 2.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "F.max_pool2d((x - c.exp()) * b + p * s, 3, 2, 1)",
        "F.avg_pool2d(torch.tanh(x * b + p), (3, 4), (2, 1), (1, 2))",
        "F.max_pool3d(x * b + c, (1, 2, 3)) * s",
    ],
)
def test_what_repeats_is_read_once_a_line_of_any_width(
    forward: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    """Once a line at the main sizes; element by element at others, and in another pattern."""
    import torch

    problem = with_operands(tmp_path, forward, 7, 13)
    planned = Planned(problem, backend, compiled_folder)
    planned.check()
    assert len(planned.launched) == 1
    if backend == "cuda":
        assert "is_for_lines" in planned.text
    p = torch.randn(())
    for size in ((7, 13), (14, 13), (9, 7), (8, 16)):
        x, y = torch.randn(2, 3, 5, *size)
        planned.check(x, y, torch.randn(5, 1, 1), torch.randn(3, 1, *size), p, -2.0)
        planned.check(x, y, torch.randn(1, *size), torch.randn(1, 5, *size), p, 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "forward",
    [
        "F.mish(F.max_pool2d(x, 2)) * s + b",
        "F.max_pool2d(x, 3, 1, 1).mul(s) + y * c",
        "torch.relu(F.avg_pool2d(torch.tanh(x) * s + b, 3, 1, 1) + b) * y",
        "s - F.avg_pool2d(x, 3, 2, 1, True, False) * s * b",
        "F.avg_pool3d(x, (1, 3, 3), 1, (0, 1, 1), count_include_pad=False) / (2 + c.abs())",
        "F.max_pool2d(x, 3, 1, 1) > c",
    ],
)
def test_operators_after_a_pool_are_in_its_kernel(
    forward: str, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    """Operands of each pattern, at the main sizes, at others, and in another pattern there."""
    import torch

    problem = with_operands(tmp_path, forward, 8, 16)
    planned = Planned(problem, backend, compiled_folder)
    planned.check()
    assert len(planned.launched) == 1
    p = torch.randn(())
    for size in ((8, 16), (9, 7), (16, 20)):
        x, y = torch.randn(2, 3, 2, *size)
        b, c = torch.randn(1, 1, 1), torch.randn(1, 1, *size)
        planned.check(x, y, torch.randn(2, 1, 1), torch.randn(3, 1, *size), p, -2.0)
        planned.check(x, y.mT.contiguous().mT, b, c, p, 0.0)
        planned.check(x, y[:, :1], torch.randn(2, 1, 1), torch.randn(1, 2, *size), p, 1.0)


@pytest.mark.parametrize(
    ("forward", "kinds"),
    [
        ("p(x), torch.relu(p(x))", [Pool, Pool]),
        ("(lambda q: (q, torch.relu(q)))(p(x))", [Pool, Map]),
        ("(lambda q: torch.relu(q) + torch.linalg.inv(q))(p(x))", [Pool, Library, Map]),
        ("torch.relu(p(x)) + y", [Pool, Map]),
        ("torch.relu(p(x)).sum(-1)", [Pool, Reduce]),
        ("(lambda q: torch.relu(q) * q)(p(x))", [Pool]),
    ],
)
def test_what_else_is_read_of_a_pool_is_written(
    forward: str, kinds: list[type[Stage]], tmp_path: Path
) -> None:
    """By who calls forward, by torch, or by a map that is larger than the pool's result."""
    forward = forward.replace("p(x)", "F.max_pool2d(x, 3, 1, 1)")
    problem = problem_of(tmp_path, forward, x="torch.randn(2, 8, 8)", y="torch.randn(3, 2, 8, 8)")
    plan = plan_of_problem(problem, Case(name=MAIN_CASE, constants={}), "cpu").plan
    assert [type(stage) for stage in plan.stages] == kinds


@pytest.mark.parametrize(
    ("forward", "x", "kinds"),
    [
        ("F.max_pool2d(F.group_norm(x, 2), 2)", "torch.randn(3, 8, 6, 5)", [Reduce, Pool]),
        ("F.avg_pool1d(F.group_norm(x, 4).tanh(), 3)", "torch.randn(2, 8, 12)", [Reduce, Pool]),
        # Its windows go along the groups.
        ("F.max_pool2d(F.group_norm(x, 2), 2)", "torch.randn(3, 8, 6)", [Reduce, Map, Pool]),
    ],
)
def test_a_pool_goes_with_the_norm_before_it(
    forward: str, x: str, kinds: list[type[Stage]], tmp_path: Path, compiled_folder: Path
) -> None:
    stages = plan_in(tmp_path, forward, x=x).stages
    assert [type(stage) for stage in stages if not isinstance(stage, Library)] == kinds
    for backend in BACKENDS:
        Planned(problem_of(tmp_path, forward, x=x), backend, compiled_folder).check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_window_larger_than_its_input_is_refused(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    problem = problem_of(tmp_path, "F.avg_pool1d(x, 6)", x="torch.randn(2, 12)")
    planned = Planned(problem, backend, compiled_folder)
    with pytest.raises(ValueError, match="a window of 6, dilation 1, is larger than size 5"):
        planned.run(torch.randn(2, 5))


def test_options_of_a_window(tmp_path: Path) -> None:
    forward = "F.avg_pool2d(x, (3, 2), padding=1, divisor_override=4)"
    (pool,) = plan_in(tmp_path, forward, x="torch.randn(2, 8, 9)").stages
    assert isinstance(pool, Pool)
    assert (pool.kind, pool.kernel, pool.stride, pool.padding) == ("mean", (3, 2), (3, 2), (1, 1))
    assert (pool.dilation, pool.ceil_mode, pool.count_padding) == ((1, 1), False, True)
    assert pool.divisor == 4
    (pool,) = plan_in(tmp_path, "F.max_pool1d(x, 3, dilation=2)", x="torch.randn(2, 9)").stages
    assert isinstance(pool, Pool)
    assert (pool.kind, pool.stride, pool.dilation) == ("max", (3,), (2,))


@pytest.mark.parametrize(
    "forward",
    [
        "F.max_pool1d(x, 3, return_indices=True)",
        "F.adaptive_avg_pool1d(x, 2)",
        "F.max_pool1d(x, 3073)",
    ],
)
def test_other_poolings_stay_in_torch(forward: str, tmp_path: Path) -> None:
    stages = plan_in(tmp_path, forward, x="torch.randn(2, 4000)").stages
    assert not any(isinstance(stage, Pool | Reduce) for stage in stages)


@pytest.mark.parametrize(
    ("forward", "dims"),
    [
        ("F.adaptive_avg_pool2d(x, 1)", (2, 3)),
        ("F.adaptive_avg_pool2d(x, (1, 1))", (2, 3)),
        ("F.adaptive_avg_pool3d(x, 1)", (1, 2, 3)),
    ],
)
def test_an_adaptive_mean_of_all_is_a_reduction(
    forward: str, dims: tuple[int, ...], tmp_path: Path
) -> None:
    (reduce,) = plan_in(tmp_path, forward, x="torch.randn(2, 3, 4, 5)").stages
    assert isinstance(reduce, Reduce)
    assert (reduce.dims, reduce.keepdim) == (dims, True)
    assert [a.kind for a in reduce.accumulators] == ["mean"]
