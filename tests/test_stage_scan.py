"""Scans: cumulative sums and products in one pass, in C++ and in the CUDA emulation."""

from pathlib import Path

import pytest
from planned_models import Planned, plan_in, problem_of

from kernelgen.planning.plan import Scan
from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
FROM_END = "torch.cumsum(x.flip({0}), dim={0}).flip({0})"
EXCLUSIVE = (
    "torch.cat((torch.zeros_like(x.select({0}, 0).unsqueeze({0})),"
    " torch.cumsum(x.narrow(dim={0}, start=0, length=x.size({0}) - 1), dim={0})), dim={0})"
)


def planned(folder: Path, forward: str, backend: Backend, compiled: Path, **inputs: str) -> Planned:
    return Planned(problem_of(folder, forward, **inputs), backend, compiled)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "shape"),
    [
        ("torch.cumsum(x, 1)", "3, 4100"),
        ("torch.cumprod(x, 1)", "3, 300"),
        (FROM_END.format(1), "2, 2308"),
        (EXCLUSIVE.format(1), "2, 2308"),
        ("torch.cumsum(x, 0)", "37, 5"),
        ("torch.cumprod(x, 1)", "2, 19, 7"),
        (FROM_END.format(1), "2, 19, 70"),
        (EXCLUSIVE.format(0), "19, 3"),
        ("torch.cumsum(torch.relu(x) * 2 - 1, -1)", "5, 33"),
        ("torch.cumsum(torch.relu(x) * 2 - 1, 0)", "5, 33"),
    ],
)
def test_kinds_and_dimensions(
    backend: Backend, forward: str, shape: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    made = planned(tmp_path, forward, backend, compiled_folder, x=f"torch.randn({shape})")
    torch.manual_seed(1)
    made.check()
    assert len(made.launched) == 1
    # Rows that are not aligned, of one element, more and fewer than the main shape's; none at all.
    sizes = [int(size) for size in shape.split(", ")]
    for size in (1, 2, 131, 515):
        other = [size, *sizes[1:-1], size]
        made.check(torch.randn(other))
    made.check(torch.randn([*sizes, 2]).select(-1, 1))
    made.check(torch.randn(4 * 132 + 1)[1:].view(4, *[1] * (len(sizes) - 2), 132))
    empty = torch.empty([0, *sizes[1:]] if "dim=0" not in forward else [sizes[0], 0])
    assert made.run(empty).shape == empty.shape


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", ["torch.randn(3, 132) > 0", "torch.randn(132) > 0"])
def test_a_masked_scan_is_one_kernel(
    backend: Backend, mask: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    made = planned(
        tmp_path,
        "torch.cumsum(x * mask, dim=1)",
        backend,
        compiled_folder,
        x="torch.randn(3, 132)",
        mask=mask,
    )
    made.check()
    assert len(made.launched) == 1
    made.check(torch.randn(3, 132), torch.rand(3, 1) > 0)
    made.check(torch.randn(5, 30), torch.randn(30) > 0)
    made.check(torch.randn(5, 33), torch.randn(5, 33) > 0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_repeats_over_rows(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    made = planned(
        tmp_path,
        "torch.cumsum((x + b) * s, dim=-1)",
        backend,
        compiled_folder,
        x="torch.randn(3, 5, 64)",
        b="torch.randn(5, 1)",
        s="0.5",
    )
    made.check()
    made.check(torch.randn(2, 7, 13), torch.randn(7, 1), -2.0)
    made.check(torch.randn(2, 7, 12), torch.randn(2, 1, 12), 3.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_that_cancel_stay_exact(
    backend: Backend, dim: int, tmp_path: Path, compiled_folder: Path
) -> None:
    """Rows of 32768 elements, of both signs and of sizes far apart, whose sums come back to 0."""
    import torch

    shape = (2, 32768) if dim == 1 else (32768, 2)
    made = planned(
        tmp_path, f"torch.cumsum(x, {dim})", backend, compiled_folder, x=f"torch.randn{shape}"
    )
    made.check()
    half = torch.randn(2, 16384) * 10.0 ** torch.randint(-3, 5, (2, 16384))
    x = torch.stack((half, -half), dim=2).view(2, 32768)
    made.check(x if dim == 1 else x.t())
    made.check(torch.rand(shape))


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_over_all_of_doubles_range(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    """A zero stays zero however large the product of what follows."""
    import torch

    made = planned(
        tmp_path, "torch.cumprod(x, 1)", backend, compiled_folder, x="torch.rand(2, 4096)"
    )
    made.check()
    x = torch.full((2, 4096), 30.0)
    x[:, 1] = 0
    assert made.run(x)[:, 1:].abs().max() == 0
    signs = torch.where(torch.rand(3, 4096) > 0.5, 1.0, -1.0)
    made.check(signs * torch.exp(0.001 * torch.randn(3, 4096)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_and_infinity_reach_what_follows(
    backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    made = planned(tmp_path, "torch.cumsum(x, 1)", backend, compiled_folder, x="torch.randn(3, 40)")
    x = torch.randn(3, 40)
    x[0, 7], x[1, 9], x[2, 20], x[2, 30] = float("nan"), float("inf"), float("inf"), -float("inf")
    made.check(x)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (FROM_END.format(1), (1, True, False)),
        (FROM_END.format(-1), (-1, True, False)),
        (EXCLUSIVE.format(1), (1, False, True)),
    ],
)
def test_spellings_become_one_scan(
    forward: str, expected: tuple[int, bool, bool], tmp_path: Path
) -> None:
    (scan,) = plan_in(tmp_path, forward, x="torch.randn(4, 9)").stages
    assert isinstance(scan, Scan)
    assert (scan.dim, scan.reverse, scan.exclusive) == expected
    assert scan.result.type.shape == (4, 9)


@pytest.mark.parametrize(
    "forward",
    [
        "torch.cumsum(x.flip(0), dim=1).flip(0)",
        "torch.cumsum(x.flip(1), dim=1).flip(0)",
        "torch.cumsum(x.flip(0, 1), dim=1).flip(1)",
        "torch.cat((torch.ones_like(x[:, :1]), torch.cumsum(x[:, :-1], 1)), 1)",
        "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, 1:], 1)), 1)",
        "torch.cat((torch.zeros_like(x[:, :1]), torch.cumsum(x[:, :-2], 1)), 1)",
    ],
)
def test_what_only_looks_like_a_spelling_is_a_plain_scan(forward: str, tmp_path: Path) -> None:
    stages = plan_in(tmp_path, forward, x="torch.randn(4, 9)").stages
    (scan,) = [stage for stage in stages if isinstance(stage, Scan)]
    assert (scan.reverse, scan.exclusive) == (False, False)
    assert len(stages) > 1


def test_whole_numbers_stay_in_torch(tmp_path: Path) -> None:
    stages = plan_in(tmp_path, "torch.cumsum(x, 1)", x="torch.randint(0, 9, (4, 9))").stages
    assert not any(isinstance(stage, Scan) for stage in stages)
