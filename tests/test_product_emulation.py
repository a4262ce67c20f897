"""The general kernel of a matrix product, which is in every solution, run on the CPU.

tests/test_hopper_emulation.py has the chain for Hopper, tests/test_slim_emulation.py the kernels
for few columns and little depth.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from products_on_the_cpu import (
    LAYOUTS,
    WIDE,
    check_gelu,
    check_mutants,
    compiled,
    cuda_source,
    error_of,
    error_of_fp32,
    for_the_cpu,
    is_right,
    operands,
    run,
    spoiled,
    with_mutants,
)
from shared_builds import Libraries

pytestmark = pytest.mark.sampled
KERNEL = frozenset({"general::multiply"})
SHARED = KERNEL | {"general::add_shares"}
# Each is a statement or an expression of the source, and what is wrong instead.
READY = "__syncthreads();  // the stage is there, and nobody reads the one before it any more"
COPY = "begin_copy(stage + kStages - 1);"
FIRST_COPIES = "for (unsigned stage = 0; stage < kStages - 1; ++stage) begin_copy(stage);"
MUTANTS = {
    "a stage is filled while others read it": (
        f"{READY}\n    {COPY}",
        COPY,
    ),
    "the next tile overwrites the one before": (
        f"__syncthreads();  // nobody reads the tile before any more\n  {FIRST_COPIES}",
        FIRST_COPIES,
    ),
    "sums do not begin anew": ("sums[i] - (totals[i] - before)", "sums[i]"),
    "what totals round off is lost": ("fminf(fmaxf(rest, -kMostRest), kMostRest)", "0.0f"),
    "inf has a rest": ("fminf(fmaxf(rest, -kMostRest), kMostRest)", "rest"),
    "batches are one": ("batch * x.batch_stride", "0"),
    "the second half of a thread's rows is the first": ("i / 4 * 16", "0"),
    "a share of the depth is left out": ("share < shares", "share + 1 < shares"),
    "every share is the first": ("strip / a.batches * share", "0"),
}


def emulated(name: str) -> str:
    return for_the_cpu(cuda_source(name, {}, "sm_80"))  # for which there is no other


SOURCES: dict[str, Callable[[], str]] = {
    "matmul": partial(emulated, "matmul"),
    "gelu": partial(emulated, "matmul_add_gelu"),
    "mutants": lambda: with_mutants(emulated("matmul"), MUTANTS),
}


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    return compiled(SOURCES, compiled_folder)


# Of (batches, rows, columns, depth): tiles, tails, depths of less and more than a stage or a total,
# and tiles of which a block does several.
SHAPES = [
    (1, 1, 1, 1),
    (1, 5, 7, 0),
    (3, 5, 6, 7),
    (7, 17, 31, 65),
    (1, 128, 64, 32),
    (1, 127, 65, 33),
    (2, 129, 63, 8),
    (1, 1, 300, 96),
    (1, 300, 1, 97),
    (1, 1, 1, 5000),
    (1, 700, 140, 20),
    (40, 9, 12, 70),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("count", "seed"), [(1, 0), (1, 1), (132, 2)])
def test_sizes(
    shape: tuple[int, int, int, int], count: int, seed: int, libraries: Libraries
) -> None:
    a, b, bias = operands(*shape)
    kept = bias if (sum(shape) + seed) % 2 else None
    ran = run(libraries["matmul"], a, b, kept, shift=sum(shape) % 4, device=(count, seed))
    shared = count > 1 and shape[-1] >= 512
    assert ran.kernels == (SHARED if shared else KERNEL)
    assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, libraries: Libraries) -> None:
    """Whole vectors in all three sizes, and tails, for every pair of layouts."""
    for turn, other in enumerate(LAYOUTS):
        a, b, bias = operands(*((2, 36, 40, 60), (3, 37, 41, 33))[turn % 2])
        kept = bias if turn % 3 else None
        ran = run(libraries["matmul"], a, b, kept, layouts=(layout, other), shift=turn % 5)
        # Elements that a layout repeats in all batches.
        a = a[:1].expand_as(a) if layout.endswith("broadcast") else a
        b = b[:1].expand_as(b) if other.endswith("broadcast") else b
        assert is_right(ran.out, a, b, kept), other


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_rows_out_of_the_ordinary(how: str, side: str, libraries: Libraries) -> None:
    a, b, bias = operands(2, 37, 41, 100)
    a, b = (spoiled(a, how), b) if side == "a" else (a, spoiled(b, how))
    assert is_right(run(libraries["matmul"], a, b, bias, device=(2, 1)).out, a, b, bias)


@pytest.mark.parametrize(("depth", "share"), [(260, 0.6), (1000, 0.4), (20000, 0.1)])
def test_long_sums_are_better_than_fp32_s(depth: int, share: float, libraries: Libraries) -> None:
    """As totals keep what they round off."""
    torch.manual_seed(depth)
    a, b = torch.rand(1, 60, depth), torch.rand(1, 60, depth)
    ran = run(libraries["matmul"], a, b, device=(2, 0))
    assert error_of(ran.out, a, b) <= share * error_of_fp32(a, b)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("how", ["none", "all-ranges", "nan"])
def test_epilogue(how: str, shift: int, libraries: Libraries) -> None:
    a, b, bias = operands(2, 31, 36, 70)
    a, b = a / a.norm(dim=2, keepdim=True), spoiled(b / b.norm(dim=2, keepdim=True), how)
    y = torch.randn(2, 31, 36)
    for kept in None, bias:
        ran = run(libraries["gelu"], a, b, kept, others=(y,), shift=shift, device=(2, shift))
        check_gelu(ran.out, a, b, kept, y)


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    torch.manual_seed(11)
    tails = torch.rand(3, 140, 75) + 0.1
    long = torch.rand(1, 20, 20000) + 0.1
    for seed in 0, 1, 2:
        for layouts in ("contiguous", "transposed"), ("transposed", "contiguous"):
            out = run(library, tails, tails, layouts=layouts, device=(1, seed)).out
            yield is_right(out, tails, tails)
    for count in 1, 2:
        out = run(library, long, long, device=(count, 0)).out
        yield error_of(out, long, long) <= 1e-7
    with_inf = spoiled(tails, "-inf")
    yield is_right(run(library, with_inf, tails).out, with_inf, tails)


@pytest.mark.mutants
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["mutants"]
    check_mutants(library, MUTANTS, partial(findings, library))
