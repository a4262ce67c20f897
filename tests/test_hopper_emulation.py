"""Hopper's own matrix products, their arithmetic, indices and waiting, run on the CPU.

tests/cuda_emulation/hopper.h stands for the instructions that no other device has.
"""

import ctypes
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from products_on_the_cpu import (
    SEED_OF_SLOW_ONES,
    aligned_terms,
    compiled,
    cuda_source,
    error_of,
    for_the_cpu,
    is_right,
    operands,
    run,
    spoiled,
    with_constants,
    with_mutants,
)
from shared_builds import Libraries

pytestmark = pytest.mark.sampled
LONG_DEPTH = 640  # from which sums are long, instead of 4096
BOUND_OF_LONG_SUMS = 1.2e-6  # of which tensor cores cut off more
# With so few columns, tiles are as others are. What is shallow or skinny is still not Hopper's.
SMALL = {
    "split_product": {"kPlainDepth": "8"},
    "portable": {"kShortDepth": "0"},
    "narrow": {"kLeastRows": "100000"},
    "hopper": {"kLongDepth": str(LONG_DEPTH)},
}
COLUMNS = {"wide_columns": "40", "narrow_columns": "32", "group_rows": "2"}
ADD = "ptx::Products<kColumns>::add(sum, "
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "no lo of a": (
        f"{ADD}row_lo + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
        f"{ADD}row_hi + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
    ),
    "no lo of b": (f"{ADD}row_hi + 2 * k, column_lo + 2 * k, true);", ";"),
    "no product of hi": (f"{ADD}row_hi + 2 * k, column_hi + 2 * k, true);", ";"),
    "sums do not begin anew": (
        f"{ADD}row_lo + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
        f"{ADD}row_lo + 2 * k, column_hi + 2 * k, true);",
    ),
    "long sums begin anew in each stage": (
        "add_steps<kColumns, kAtOnce>(sum, at(turn), warpgroup, first, piece > 0);",
        "add_steps<kColumns, kAtOnce>(sum, at(turn), warpgroup, first, false);",
    ),
    "a long sum's last stage is left out": (
        "if (piece > 0 && k + 1 < work.last_stage) continue;",
        "if (piece > 0) continue;",
    ),
    "only the last sum counts": ("total[n] += sum[n];", "total[n] = sum[n];"),
    "both blocks copy to the same place": (
        "columns + rank * Tile<kColumns>::kColumnBytes",
        "columns",
    ),
    "a stage is let go of before it has been read": (
        "if (first + kAtOnce == kSteps) release(&barriers.empty[turn.slot]);",
        "if (first == 0) release(&barriers.empty[turn.slot]);",
    ),
    "shares of the depth have all that follows": (
        "min(first + plan.stages_of_share, plan.stages)",
        "plan.stages",
    ),
    "both warpgroups multiply the same rows": ("warpgroup * 64 * kStageDepth * 2", "0"),
}  # fmt: skip


def small() -> str:
    text = with_constants(cuda_source("matmul", COLUMNS), SMALL)
    return with_mutants(for_the_cpu(text, hopper=True), MUTANTS)


SOURCES = {
    "shipped": lambda: for_the_cpu(cuda_source("matmul", {}), hopper=True),
    "small": small,
}


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    return compiled(SOURCES, compiled_folder, lambda _, library: library.set_capability(9))


# Of (batches, rows, columns, depth), each with as many multiprocessors: whole tiles, tails, several
# tiles of a block, groups of rows, batches, and shares of the depth.
SHAPES = [
    ((1, 256, 80, 128), 2),
    ((1, 256, 80, 128), 4),
    ((1, 65, 17, 9), 2),
    ((1, 70, 33, 513), 2),
    ((1, 129, 39, 700), 4),
    ((1, 257, 100, 64), 2),
    ((1, 1100, 50, 65), 6),
    ((2, 300, 90, 100), 4),
    ((7, 66, 41, 130), 6),
    ((1, 70, 20, 4096), 8),
    ((2, 200, 40, 1500), 16),
    ((1, 100, 60, 2049), 132),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("shape", "count"), SHAPES, ids=str)
def test_sizes(
    shape: tuple[int, int, int, int], count: int, seed: int, libraries: Libraries
) -> None:
    a, b, bias = operands(*shape)
    kept = bias if sum(shape) % 2 else None
    ran = run(libraries["small"], a, b, kept, shift=sum(shape) % 4, device=(count, seed))
    assert "hopper::multiply" in ran.kernels
    assert ("add_splits" in ran.kernels) == (shape[3] >= 1024)
    in_shares = "add_splits" in ran.kernels
    steps = 2 if shape[3] <= 512 else 4 if shape[3] < LONG_DEPTH or in_shares else 8
    assert re.search(rf"hopper::multiply<\d+, {steps}>", ran.launches)
    assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize(
    ("shape", "tile"), [((1, 300, 168, 64), 168), ((1, 300, 250, 64), 128)], ids=str
)
def test_shipped_tiles(shape: tuple[int, int, int, int], tile: int, libraries: Libraries) -> None:
    """Of as many columns as are done sooner."""
    a, b, bias = operands(*shape)
    ran = run(libraries["shipped"], a, b, bias, device=(4, 1))
    # So little depth is not for Hopper's kernels as shipped, nor are so few results.
    assert "hopper::multiply" not in ran.kernels
    a, b = a.repeat(1, 1, 2), b.repeat(1, 1, 2)
    ran = run(libraries["shipped"], a, b, bias, device=(4, 1))
    assert f"hopper::multiply<{tile}, 2>" in ran.launches
    assert is_right(ran.out, a, b, bias)


@pytest.mark.parametrize("how", ["inf", "nan", "two-inf", "all-ranges", "denormal", "tiny", "huge"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_rows_out_of_the_ordinary(how: str, side: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(5)
    a, b = (torch.randn(1, count, 100).sign() * (torch.rand(1, count, 100) + 0.1)
            for count in (140, 90))  # fmt: skip
    a, b = (spoiled(a, how), b) if side == "a" else (a, spoiled(b, how))
    ran = run(libraries["small"], a, b, device=(4, 0))
    assert "hopper::multiply" in ran.kernels
    assert ran.any_wide == (how not in {"tiny", "huge"})
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("values", ["positive", "both-signs"])
@pytest.mark.parametrize("depth", [65, 300, 512, 2000, 8192])
def test_sums_lose_little_to_the_tensor_cores(
    values: str, depth: int, libraries: Libraries
) -> None:
    """On tensor cores that align what they sum."""
    import torch

    torch.manual_seed(depth)
    a, b = (0.01 + 0.99 * torch.rand(1, count, depth) for count in (66, 40))
    if values == "both-signs":
        a, b = a * torch.randn_like(a).sign(), b * torch.randn_like(b).sign()
    library = libraries["small"]
    with aligned_terms(library):
        ran = run(library, a, b, device=(2, 0))
    assert "hopper::multiply" in ran.kernels
    assert not ran.any_wide
    limit = 5e-7 if depth <= 512 else 8e-7 if depth < LONG_DEPTH else BOUND_OF_LONG_SUMS
    assert error_of(ran.out, a, b) <= limit


def test_the_same_bits_in_whatever_order(libraries: Libraries) -> None:
    import torch

    a, b, bias = operands(2, 200, 90, 1100)
    outs = [run(libraries["small"], a, b, bias, device=(8, seed)).out for seed in (0, 0, 1, 2)]
    assert is_right(outs[0], a, b, bias)
    for out in outs[1:]:
        assert torch.equal(out, outs[0])


def test_whole_numbers_are_exact(libraries: Libraries) -> None:
    import torch

    torch.manual_seed(3)
    a, b = (torch.randint(-30, 30, (2, count, 150)).float() for count in (130, 70))
    ran = run(libraries["small"], a, b, device=(4, 1))
    assert not ran.any_wide
    assert torch.equal(ran.out, a @ b.mT)


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    import torch

    torch.manual_seed(11)
    first_larger = torch.rand(1, 130, 300) + 0.1
    first_larger[:, :, :64] *= 1000.0
    few = torch.rand(1, 70, 2100) + 0.1
    # Small tiles have several stages on their way, and large ones many rounds of them.
    products = [
        (first_larger, first_larger[:, :40], 2),
        (few, few[:, :20], 8),
        (few, few[:, :20], 2),  # no shares: long sums
    ]
    for (a, b, count), seed in itertools.product(products, (0, 1, SEED_OF_SLOW_ONES)):
        out = run(library, a, b, device=(count, seed)).out
        yield is_right(out, a, b, bound=BOUND_OF_LONG_SUMS)


@pytest.mark.mutants
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["small"]
    mutant = ctypes.c_int.in_dll(library, "mutant")
    assert all(findings(library))
    try:
        for number, name in enumerate(MUTANTS, 1):
            mutant.value = number
            assert not all(findings(library)), name
    finally:
        mutant.value = 0
