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
    exact_product,
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

    def render(self) -> str:
        """Return its source for the CPU."""
        constants = {"rows": "300", "columns": str(self.columns), "depth": str(self.depth)}
        if self.problem == "matmul_vector":
            del constants["columns"]
            constants["rows"] = "20000"  # so many that a split begins several sums
        return for_the_cpu(cuda_source(self.problem, constants))


GENERAL = frozenset({"general::multiply"})
ADDED = frozenset({"general::add_shares"})  # where blocks share the depth
VECTOR = frozenset({"fast::multiply", "fast::add_splits"})
SHALLOW = frozenset({"fast::split", "fast::multiply"}) | GENERAL
NARROW = frozenset({"fast::split_columns", "fast::multiply_tiles"})
KINDS = {
    "vector": Kind("matmul_vector", 1, 9004, VECTOR),  # several splits, and a tail
    "short-vector": Kind("matmul_vector", 1, 512, VECTOR),
    "shallow": Kind("matmul_tall_skinny", 516, 32, SHALLOW),
    "least-shallow": Kind("matmul_tall_skinny", 260, 3, SHALLOW),
    "odd-shallow": Kind("matmul_tall_skinny", 68, 47, SHALLOW),
    "most-shallow": Kind("matmul_tall_skinny", 256, 64, SHALLOW),
    "narrow": Kind("matmul_narrow", 23, 1000, NARROW),
    "least-narrow": Kind("matmul_narrow", 5, 36, NARROW),
    "most-narrow": Kind("matmul_narrow", 64, 416, NARROW),
    "gelu-vector": Kind("matmul_add_gelu", 1, 516, VECTOR),
    "gelu-shallow": Kind("matmul_add_gelu", 132, 20, SHALLOW),
    "gelu-narrow": Kind("matmul_add_gelu", 20, 132, NARROW),
}
MAIN = ("vector", "shallow", "narrow")
ADD = "ptx::add_product(others, "
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
    "narrow": {
        "no product of first parts": (
            "ptx::add_product(large, rows[0], columns[0], false);",
            "ptx::add_product(large, rows[1], columns[0], false);",
        ),
        "no third part of B": (f"{ADD}rows[0], columns[2], keeps_others);", ";"),
        "no third part of A": (f"{ADD}rows[2], columns[0], true);", ";"),
        "no product of second parts": (f"{ADD}rows[1], columns[1], true);", ";"),
        "no second part of B": (f"{ADD}rows[0], columns[1], true);", ";"),
        "no second part of A": (f"{ADD}rows[1], columns[0], true);", ";"),
        "the second half of a stage is the first": ("(piece ^ 4) * 16", "piece * 16"),
        "a slot is filled before it is released": (
            "ptx::wait(&empty[freed % kSlots], freed / kSlots % 2);",
            ";",
        ),
        "a slot is released by one warp only": (
            "if (threadIdx.x % kWarp == 0) ptx::arrive(&empty[stage % kSlots]);",
            "for (int k = 8 * threadIdx.x; k < 8; ++k) ptx::arrive(&empty[stage % kSlots]);",
        ),
        "a slot is released before its products are done": (
            "ptx::wait_for_groups<decltype(late)::value>();",
            ";",
        ),
        "the stage that ends is the one that begins": (
            "if (stage > pair) end_stage(pair, std::integral_constant<int, 1>());",
            "if (stage > pair) end_stage(stage, std::integral_constant<int, 1>());",
        ),
        "results that are not finite stay": ("!isfinite(sum)", "false"),
        "small rows do not matter": ("if (is_small(bits)) wrong = ~0u;", ";"),
        "small columns do not matter": ("any && !any_large", "false"),
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
    ran = run(libraries[name], a, b, *others, **{"device": (132, 0), **options})
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
    for kept, seed in itertools.product((None, bias), (0, 1)):
        ran = run_fast(libraries, name, a, b, kept, layouts=(of_a, of_b), device=(132, seed))
        assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["shallow", "narrow"])
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
    if name == "narrow":
        windows = torch.randn(1, kind.depth + 4 * 69).unfold(1, kind.depth, 4)
        ran = run(library, windows, b, bias, layouts=("sliding", "contiguous"), device=(132, 0))
        assert ran.kernels in (GENERAL, GENERAL | ADDED)
        assert is_right(ran.out, windows, b, bias)


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b", "both"])
@pytest.mark.parametrize("name", ["short-vector", "shallow", "least-narrow", "most-narrow"])
def test_rows_out_of_the_ordinary(name: str, side: str, how: str, libraries: Libraries) -> None:
    """With inf, NaN, elements that halves or bf16 parts do not hold, and next to fp32's ends."""
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
@pytest.mark.parametrize("name", ["short-vector", "least-shallow", "least-narrow"])
def test_products_of_any_scales(name: str, size: float, other: float, libraries: Libraries) -> None:
    torch.manual_seed(3)
    kind = KINDS[name]
    sizes = torch.rand(1, 72, kind.depth) + 0.1, torch.randn(1, kind.columns, kind.depth)
    for of_a, of_b in (size, other), (other, size):
        a, b = sizes[0] * of_a, sizes[1] * of_b
        assert is_right(run_fast(libraries, name, a, b).out, a, b)


def test_the_largest_floats_as_bf16_parts(libraries: Libraries) -> None:
    """Rounded, their first parts would be inf."""
    name = "least-narrow"
    largest = torch.finfo(torch.float32).max
    a, b, _ = operands_of(name, 72)
    for left, right in (
        (torch.full_like(a, largest), b / 4096),
        (a / 4096, torch.full_like(b, largest)),
    ):
        assert is_right(run_fast(libraries, name, left, right).out, left, right)
    out = run_fast(libraries, name, torch.full_like(a, largest), torch.ones_like(b)).out
    assert bool(out.isposinf().all())


def test_inf_times_what_is_tiny_as_bf16_parts(libraries: Libraries) -> None:
    """It is inf, also where bf16 has only 0 of it, and NaN is NaN whose first part is inf."""
    name = "least-narrow"
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


@pytest.mark.parametrize("exponent", [-94, -60, 0, 60])
def test_bf16_parts_lose_next_to_nothing_of_a_product(exponent: int, libraries: Libraries) -> None:
    """Parts that are left out are 2^-22 of a product; its sums are rounded, and those of others."""
    torch.manual_seed(17)
    name = "least-narrow"
    depth = KINDS[name].depth
    # Of all kinds of bits, most of them in the last ones, where parts end.
    bits = torch.cat([torch.randint(1 << 23, (3000,)), (1 << 23) - 1 - torch.arange(1000)])
    a = torch.zeros(1, 4000, depth)
    a[0, torch.arange(4000), torch.arange(4000) % depth] = (1 + bits / (1 << 23)).float()
    b = 1 + torch.randint(1 << 23, (1, KINDS[name].columns, depth)) / (1 << 23)
    b[0, 3] = 2.0 - 2.0**-23
    a, b = a * 2.0**exponent, b * 2.0**-exponent
    assert worst_error(run_fast(libraries, name, a, b).out, a, b) <= 2.0**-22 + 1.25 * 2.0**-24


def test_bf16_parts_lose_2_to_the_38_of_a_row_with_denormals(libraries: Libraries) -> None:
    torch.manual_seed(19)
    name = "least-narrow"
    depth = KINDS[name].depth
    for small_first in True, False:
        rows = 72 if small_first else KINDS[name].columns
        exponents = torch.randint(-149, -110, (1, rows, depth))
        small = torch.ldexp(torch.rand(1, rows, depth), exponents)
        small[:, :, 5] = 2.0**-95
        others = torch.randn(1, KINDS[name].columns if small_first else 72, depth) * 2.0**100
        others[:, :, 5] = 0.0
        a, b = (small, others) if small_first else (others, small)
        lost = (run_fast(libraries, name, a, b).out - exact_product(a, b)).abs()
        most = 2.0**-133 * exact_product(*(torch.ones_like(x) if x is small else x.abs()
                                           for x in (a, b)))  # fmt: skip
        assert bool((lost <= most + 1e-6 * exact_product(a.abs(), b.abs())).all())


@pytest.mark.parametrize("values", ["uniform", "normal"])
@pytest.mark.parametrize("name", ["vector", "shallow", "odd-shallow", "most-shallow", "narrow",
                                  "least-narrow", "most-narrow"])  # fmt: skip
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
@pytest.mark.parametrize("name", ["gelu-vector", "gelu-shallow", "gelu-narrow"])
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
    a = torch.rand(1, 300, kind.depth) + 0.1
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
        (spoiled(a, "inf"), b),
        (a, spoiled(b, "inf")),
    ]
    for (left, right), seed in itertools.product(products, (0, 1, SEED_OF_SLOW_ONES)):
        yield holds(library, left, right, seed)


def holds(library: ctypes.CDLL, a: Any, b: Any, seed: int) -> bool:
    """Return whether all blocks end, and the product is right."""
    try:
        ran = run(library, a.contiguous(), b.contiguous(), device=(2, seed))
    except AssertionError:
        if library.was_stuck():
            return False
        raise
    return is_right(ran.out, a, b)


@pytest.mark.mutants
@pytest.mark.parametrize("name", MUTANTS)
def test_comparisons_find_what_is_wrong(name: str, libraries: Libraries) -> None:
    library, kind = libraries[f"{name} mutants"], KINDS[name]
    library.set_patience(3)
    try:
        check_mutants(library, MUTANTS[name], partial(findings, library, kind))
    finally:
        library.set_patience(20)
