"""Products with few columns, or of little depth, run on the CPU: each one's fast kernel.

The files are rendered for small shapes. What a fast kernel does not take is the general one's.
"""

import ctypes
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from products_on_the_cpu import (
    SEED_OF_SLOW_ONES,
    WIDE,
    Ran,
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
    worst_error,
)
from shared_builds import Libraries

pytestmark = [pytest.mark.sampled, pytest.mark.ci]


class Kind(NamedTuple):
    """A file that is rendered for so many columns and so much depth, and its kernels."""

    problem: str
    columns: int
    depth: int
    kernels: frozenset[str]
    rows: int = 300
    of_b: str = "contiguous"

    def render(self) -> str:
        """Return its source for the CPU."""
        constants = {"rows": str(self.rows), "columns": str(self.columns), "depth": str(self.depth)}
        if self.problem == "matmul_vector":
            del constants["columns"]
            constants["rows"] = "20000"  # so many that a split begins several sums
        return for_the_cpu(cuda_source(self.problem, constants))


GENERAL = frozenset({"general::multiply"})
ADDED = frozenset({"general::add_shares"})  # where blocks share the depth
VECTOR = frozenset({"fast::multiply", "fast::add_splits"})
SHALLOW = frozenset({"fast::split", "fast::multiply"}) | GENERAL
SKINNY = frozenset({"skinny::split_rows", "skinny::multiply"}) | GENERAL
KINDS = {
    "vector": Kind("matmul_vector", 1, 9004, VECTOR),  # several splits, and a tail
    "short-vector": Kind("matmul_vector", 1, 512, VECTOR),
    "shallow": Kind("matmul_tall_skinny", 516, 32, SHALLOW),
    "least-shallow": Kind("matmul_tall_skinny", 260, 3, SHALLOW),
    "odd-shallow": Kind("matmul_tall_skinny", 68, 47, SHALLOW),
    "most-shallow": Kind("matmul_tall_skinny", 256, 64, SHALLOW),
    "skinny": Kind("matmul_narrow", 23, 520, SKINNY, 160),
    "least-skinny": Kind("matmul_narrow", 5, 36, SKINNY),
    "most-skinny": Kind("matmul_narrow", 64, 516, SKINNY),
    # The other factor is the larger one, whose neighbours lie along the depth or along its columns.
    "few": Kind("matmul_transposed_right", 204, 132, SKINNY, 40),
    "few-turned": Kind("matmul", 300, 580, SKINNY, 23, "transposed"),
    "shares": Kind("matmul_transposed_right", 133, 2100, SKINNY | ADDED, 33),
    "gelu-vector": Kind("matmul_add_gelu", 1, 516, VECTOR),
    "gelu-shallow": Kind("matmul_add_gelu", 132, 20, SHALLOW),
    "gelu-skinny": Kind("matmul_add_gelu", 20, 132, SKINNY),
}
MAIN = ("vector", "shallow", "skinny")
ADD = "ptx::multiply_rows(sum, rows."
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "vector": {
        "a split is left out": ("split < kSplits", "split + 1 < kSplits"),
        "totals are lost": ("totals[r] += sums[r];", "totals[r] = sums[r];"),
        "the tail is left out": (
            "add_products<false>(sums, rows, x, k, end - lane * 4);",
            "add_products<false>(sums, rows, x, k, k);",
        ),
    },
    "shallow": {
        "only one step counts": ("promote(promoted, sums, 1.0f);", ";"),
        "lo's own scale stays": ("1.0f / kLoScale", "1.0f"),
        "two lanes keep what they should exchange": (
            "odd ? first : second",
            "odd ? second : first",
        ),
        "no lo of a": ("ptx::multiply_add(with_lo[t], hi, rows + 2);", ";"),
        "no lo of b": ("ptx::multiply_add(with_lo[t], columns[1][step][t], rows);", ";"),
        "nothing lost is counted": ("lost > 0", "false"),
        "scales are not limited": ("max(largest >> 23, 15u)", "(largest >> 23)"),
        "wide rows of b do not matter": ("halves.lost[row] = lost;", "halves.lost[row] = 0;"),
    },
    "skinny": {
        "no lo of the larger factor": (
            f"{ADD}lo[first + k], hi + 2 * k, k > 0);",
            f"{ADD}hi[first + k], hi + 2 * k, k > 0);",
        ),
        "no lo of the few rows": (f"{ADD}hi[first + k], lo + 2 * k, true);", ";"),
        "no product of hi": (f"{ADD}hi[first + k], hi + 2 * k, true);", ";"),
        "only the last sum counts": (
            "totals[n] = fmaf(sum[n], n / 2 % 2 ? inverses.y : inverses.x, totals[n]);",
            "totals[n] = sum[n] * inverses.x;",
        ),
        "both rows of a thread have one scale": (
            "n / 2 % 2 ? inverses.y : inverses.x",
            "inverses.x",
        ),
        "four lanes tell only two": (
            "largest = max(largest, __shfl_xor_sync(kAllLanes, largest, 1));",
            ";",
        ),
        "both blocks copy the same share": ("ptx::cluster_rank() * kShareBytes", "0"),
        "a stage is read before it is there": (
            "ptx::wait(&barriers.full[turn.slot], turn.parity);",
            ";",
        ),
        "a slot is released in one block only": (
            "is_last && threadIdx.x % kWarp < kCluster",
            "is_last && threadIdx.x % kWarp < 1",
        ),
        "the few rows lie one below the other": (
            "k % kStageDepth / kRun ^ within % 8",
            "k % kStageDepth / kRun",
        ),
        "nothing lost is counted": ("if (count == 0) return;", "return;"),
        "nothing lost of the larger factor is looked for": ("from.least[half] >= bound", "true"),
        "magnitudes have room however large": ("!has_room && largest != 0", "false"),
    },
}


def prepared(_: str, library: ctypes.CDLL) -> None:
    library.set_capability(9)


def mutated(name: str) -> str:
    return with_mutants(KINDS[name].render(), MUTANTS[name])


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    sources = {name: kind.render for name, kind in KINDS.items()}
    mutants = {f"{name} mutants": partial(mutated, name) for name in MUTANTS}
    return compiled(sources | mutants, compiled_folder, prepared)


def operands_of(name: str, rows: int, batches: int = 1) -> tuple[Any, Any, Any]:
    return operands(batches, rows, KINDS[name].columns, KINDS[name].depth)


def run_fast(libraries: Libraries, name: str, a: Any, b: Any, *others: Any, **options: Any) -> Ran:
    """Multiply by the fast kernel."""
    layouts = ("contiguous", KINDS[name].of_b)
    ran = run(libraries[name], a, b, *others, **{"device": (132, 0), "layouts": layouts, **options})
    assert ran.kernels == KINDS[name].kernels
    return ran


LAYOUTS = ("contiguous", "pitched", "transposed", "transposed-odd", "every-second", "broadcast")


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("gelu")])
@pytest.mark.parametrize(("batches", "rows"), [(1, 1), (1, 31), (1, 300), (2, 129), (3, 7)])
def test_any_number_of_rows_and_batches(
    name: str, batches: int, rows: int, libraries: Libraries
) -> None:
    a, b, bias = operands_of(name, rows, batches)
    turn = batches + rows
    of_a = "pitched" if turn % 2 else "contiguous"
    of_b = "contiguous" if "vector" in name else LAYOUTS[turn % 5]
    if KINDS[name].rows < KINDS[name].columns:  # then b is read as a is elsewhere
        of_a, of_b = LAYOUTS[turn % 5], KINDS[name].of_b
    for kept, seed in itertools.product((None, bias), (0, 1)):
        ran = run_fast(libraries, name, a, b, kept, layouts=(of_a, of_b), device=(132, seed))
        assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["shallow", "skinny"])
def test_layouts_of_the_split_operands(name: str, layout: str, libraries: Libraries) -> None:
    a, b, bias = operands_of(name, 70, 2)
    of_a = layout if name == "shallow" else "contiguous"
    ran = run_fast(libraries, name, a, b, bias, layouts=(of_a, layout))
    if layout == "broadcast":
        b = b[:1].expand_as(b)
        a = a[:1].expand_as(a) if name == "shallow" else a
    assert is_right(ran.out, a, b, bias)


@pytest.mark.parametrize("name", MAIN)
def test_other_products_are_for_the_general_kernel(name: str, libraries: Libraries) -> None:
    """Of another shape; of operands that are no vectors, or overlap; or of another layout."""
    kind, library = KINDS[name], libraries[name]
    shapes = [(2, 70, kind.columns, kind.depth + 4), (1, 70, kind.columns + 1, kind.depth)]
    for shape in shapes:
        a, b, bias = operands(*shape)
        ran = run(library, a, b, bias, device=(132, 0))
        assert ran.kernels in (GENERAL, GENERAL | ADDED)
        assert is_right(ran.out, a, b, bias)
    a, b, bias = operands_of(name, 70)
    if name == "shallow":  # where it is out that has to be vectors
        ran = run(library, a, b, bias, shift=1, device=(132, 0))
        assert ran.kernels in (GENERAL, GENERAL | ADDED)
        assert is_right(ran.out, a, b, bias)
        return
    for layout in "unaligned", "odd-pitch", "every-second", "transposed":
        ran = run(library, a, b, bias, layouts=(layout, "contiguous"), device=(132, 0))
        assert ran.kernels in (GENERAL, GENERAL | ADDED)
        assert is_right(ran.out, a, b, bias)
    if name == "skinny":
        windows = torch.randn(1, kind.depth + 4 * 69).unfold(1, kind.depth, 4)
        ran = run(library, windows, b, bias, layouts=("sliding", "contiguous"), device=(132, 0))
        assert ran.kernels in (GENERAL, GENERAL | ADDED)
        assert is_right(ran.out, windows, b, bias)


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b", "both"])
@pytest.mark.parametrize("name", ["short-vector", "shallow", "least-skinny", "most-skinny", "few"])
def test_rows_out_of_the_ordinary(name: str, side: str, how: str, libraries: Libraries) -> None:
    """With inf, NaN, elements that halves do not hold, and next to fp32's ends."""
    torch.manual_seed(5)
    kind = KINDS[name]
    a, b = (torch.randn(1, count, kind.depth).sign() * (torch.rand(1, count, kind.depth) + 0.1)
            for count in (140, kind.columns))  # fmt: skip
    if how == "huge":  # and yet no sum is inf on its way
        a, b = (x if side == own else x / 4096 for x, own in ((a, "a"), (b, "b")))
    a = a if side == "b" or (how, side) == ("huge", "both") else spoiled(a, how)
    b = b if side == "a" else spoiled(b, how)
    if how == "large-and-one" and side != "both":
        (b if side == "a" else a)[0, :, 7] = 0.0
    assert is_right(run_fast(libraries, name, a, b).out, a, b)


@pytest.mark.parametrize(
    ("size", "other"),
    [(1e-42, 1e30), (1e-38, 1e10), (1e-30, 1e30), (1e36, 1e-37), (1e37, 1.0), (3e38, 1e-4),
     (1e-25, 1e-12)],
)  # fmt: skip
@pytest.mark.parametrize("name", ["short-vector", "least-shallow", "least-skinny"])
def test_products_of_any_scales(name: str, size: float, other: float, libraries: Libraries) -> None:
    torch.manual_seed(3)
    kind = KINDS[name]
    sizes = torch.rand(1, 72, kind.depth) + 0.1, torch.randn(1, kind.columns, kind.depth)
    for of_a, of_b in (size, other), (other, size):
        a, b = sizes[0] * of_a, sizes[1] * of_b
        assert is_right(run_fast(libraries, name, a, b).out, a, b)


def test_the_largest_floats(libraries: Libraries) -> None:
    name = "least-skinny"
    largest = torch.finfo(torch.float32).max
    a, b, _ = operands_of(name, 72)
    for left, right in (
        (torch.full_like(a, largest), b / 4096),
        (a / 4096, torch.full_like(b, largest)),
    ):
        assert is_right(run_fast(libraries, name, left, right).out, left, right)
    out = run_fast(libraries, name, torch.full_like(a, largest), torch.ones_like(b)).out
    assert bool(out.isposinf().all())


def test_inf_times_what_is_tiny(libraries: Libraries) -> None:
    name = "least-skinny"
    a, b, _ = operands_of(name, 72)
    ones, with_inf, with_nan = torch.ones_like(a), torch.ones_like(b), torch.ones_like(a)
    with_inf[0, 3, 7] = torch.inf
    for size in (2.0**-133, 2.0**-149):
        ones[:, :, 7] = size
        out = run_fast(libraries, name, ones, with_inf).out[0]
        assert bool(out[:, 3].isposinf().all())
        assert bool((out[:, :3] == KINDS[name].depth - 1).all())
    with_nan.view(torch.int32)[0, 3, 7] = 0x7F800001
    out = run_fast(libraries, name, with_nan, torch.ones_like(b)).out[0]
    assert bool(out[3].isnan().all())
    assert not bool(out[:3].isnan().any())


@pytest.mark.parametrize("exponent", [-70, 0, 60])
def test_halves_lose_next_to_nothing_of_a_product(exponent: int, libraries: Libraries) -> None:
    """Halves hold 22 bits of each factor, and the product of both lo is 2^-22 of it."""
    torch.manual_seed(17)
    name = "least-skinny"
    depth = KINDS[name].depth
    # Of all kinds of bits, most of them in the last ones, where lo ends.
    bits = torch.cat([torch.randint(1 << 23, (3000,)), (1 << 23) - 1 - torch.arange(1000)])
    a = torch.zeros(1, 4000, depth)
    a[0, torch.arange(4000), torch.arange(4000) % depth] = (1 + bits / (1 << 23)).float()
    b = 1 + torch.randint(1 << 23, (1, KINDS[name].columns, depth)) / (1 << 23)
    b[0, 3] = 2.0 - 2.0**-23
    a, b = a * 2.0**exponent, b * 2.0**-exponent
    assert worst_error(run_fast(libraries, name, a, b).out, a, b) <= 2.0**-21


@pytest.mark.parametrize("values", ["uniform", "normal"])
@pytest.mark.parametrize("name", ["vector", "shallow", "odd-shallow", "most-shallow", "skinny",
                                  "most-skinny"])  # fmt: skip
def test_sums_are_as_accurate_as_fp32_s(name: str, values: str, libraries: Libraries) -> None:
    """As fp32's rounded after each product."""
    torch.manual_seed(KINDS[name].depth)
    create = torch.rand if values == "uniform" else torch.randn
    kind = KINDS[name]
    a, b = create(1, 256, kind.depth), create(1, kind.columns, kind.depth)
    if kind.columns == 1 and values == "normal":
        b = b.abs()  # or the one result of a row might be next to 0
        a = a.abs()
    ran = run_fast(libraries, name, a, b)
    assert not ran.any_wide
    assert error_of(ran.out, a, b) <= 1.25 * error_of_fp32(a, b)


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("gelu")])
def test_whole_numbers_are_exact(name: str, libraries: Libraries) -> None:
    torch.manual_seed(3)
    kind = KINDS[name]
    a, b = (torch.randint(-30, 30, (2, count, kind.depth)).float() for count in (90, kind.columns))
    assert torch.equal(run_fast(libraries, name, a, b).out, (a.double() @ b.double().mT).float())


@pytest.mark.parametrize("name", MAIN)
def test_the_same_bits_in_whatever_order(name: str, libraries: Libraries) -> None:
    a, b, bias = operands_of(name, 300)
    a = spoiled(a, "denormal")
    first, *others = (
        run_fast(libraries, name, a, b, bias, device=(132, seed)).out
        for seed in (0, 1, SEED_OF_SLOW_ONES)
    )
    assert is_right(first, a, b, bias)
    for out in others:
        assert torch.equal(out, first)


@pytest.mark.parametrize("how", ["none", "all-ranges", "nan"])
@pytest.mark.parametrize("name", ["gelu-vector", "gelu-shallow", "gelu-skinny"])
def test_epilogue(name: str, how: str, libraries: Libraries) -> None:
    a, b, bias = operands_of(name, 70, 2)
    a, b = a / a.norm(dim=2, keepdim=True), spoiled(b / b.norm(dim=2, keepdim=True), how)
    y = torch.randn(2, 70, KINDS[name].columns)
    for kept in None, bias:
        out = run_fast(libraries, name, a, b, kept, others=(y,)).out
        check_gelu(out, a, b, kept, y)


def findings(library: ctypes.CDLL, kind: Kind) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    torch.manual_seed(11)
    a = torch.rand(1, kind.rows, kind.depth) + 0.1
    b = torch.rand(1, kind.columns, kind.depth) + 0.1
    but_one = torch.arange(kind.depth) != 7
    # Few products, so that fp32 rounds little.
    three_parts = (1.0 + 2.0**-9 + 2.0**-18) * (torch.arange(kind.depth) % 31 == 0)
    products = [
        (a, b),
        (three_parts.expand_as(a), three_parts.expand_as(b)),
        (spoiled(a, "denormal"), 1e30 * b),
        (1e30 * a, spoiled(b, "denormal")),
        (spoiled(a, "large-and-one"), b * but_one),
        (a * but_one, spoiled(b, "large-and-one")),
        (torch.where(but_one, a, 1e9 * a), b * but_one),
        (spoiled(a, "huge"), b / 65536),
        (spoiled(a, "inf"), b),
        (a, spoiled(b, "inf")),
    ]
    for (left, right), seed in itertools.product(products, (0, 1, SEED_OF_SLOW_ONES)):
        # A wide row is repaired, whatever made it one: of ordinary values none is.
        yield holds(library, left, right, seed, may_repair=left is not a or right is not b)


def holds(library: ctypes.CDLL, a: Any, b: Any, seed: int, *, may_repair: bool) -> bool:
    """Return whether all blocks end, and the product is right."""
    try:
        ran = run(library, a.contiguous(), b.contiguous(), device=(2, seed))
    except AssertionError:
        if library.was_stuck():
            return False
        raise
    return is_right(ran.out, a, b) and (may_repair or not ran.any_wide)


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_comparisons_find_what_is_wrong(name: str, libraries: Libraries) -> None:
    library, kind = libraries[f"{name} mutants"], KINDS[name]
    library.set_patience(10 if name == "skinny" else 3)  # its blocks wait for each other
    try:
        check_mutants(library, MUTANTS[name], partial(findings, library, kind))
    finally:
        library.set_patience(20)
