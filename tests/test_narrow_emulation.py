"""Products of a large and a narrow matrix, run on the CPU: for any device, and Hopper's own."""

import ctypes
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from products_on_the_cpu import (
    BOTH,
    BOUND,
    NATURAL,
    SEED_OF_SLOW_ONES,
    SMALL_NARROW,
    WIDE,
    aligned_terms,
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
    with_constants,
    with_mutants,
    worst_error,
)
from shared_builds import Libraries

pytestmark = pytest.mark.sampled
# What is not narrow is not Hopper's in these.
SMALL = {"split_product": {"kLeastShare": "64"}, "narrow": SMALL_NARROW}
SMALL_ON_HOPPER = {**SMALL, "narrow_on_hopper": {"kMostStages": "4"}}
ADD = "Products::add(small, "
ARRIVE = "hopper::ptx::arrive(&source.barriers.empty[slot]);"
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "no product of first parts in long sums": (
        "Products::add(of_unit, rows[0], held_parts[0], false);",
        "Products::add(of_unit, rows[1], held_parts[0], false);",
    ),
    "no third part of what is held": (
        f"{ADD}rows[0], held_parts[2], !kShort);",
        f"{ADD}rows[2], held_parts[2], !kShort);",
    ),
    "no third part of what is streamed": (f"{ADD}rows[2], held_parts[0], true);", ";"),
    "no product of second parts": (f"{ADD}rows[1], held_parts[1], true);", ";"),
    "no second part of what is held": (f"{ADD}rows[0], held_parts[1], true);", ";"),
    "no second part of what is streamed": (f"{ADD}rows[1], held_parts[0], true);", ";"),
    "the second half of a stage is the first": ("memory + (at ^ kUnitBytes)", "memory + at"),
    "a place is filled before it is let go of": (
        "hopper::ptx::wait(&barriers.empty[freed], of_last_round ? parity ^ 1 : parity);",
        ";",
    ),
    "a stage is let go of by one warp only": (
        f"if (threadIdx.x % kWarp == 0) {ARRIVE}",
        f"for (int k = 8 * threadIdx.x; k < 8; ++k) {ARRIVE}",
    ),
    "a stage is let go of before its products are done": (
        "hopper::ptx::wait_for_groups<kLate>();",
        ";",
    ),
    "the stage that is let go of is the one in hand": ("turn.previous()", "turn.slot"),
    "parts of short sums are lost": (
        "promote_all(sums.others, sums.large);",
        "for (int k = 0; k < kHeld / 2; ++k) sums.others[k] = sums.large[k];",
    ),
    "results that are not finite stay": ("!isfinite(sums.others[k])", "false"),
    "small streamed rows do not matter": ("any = any || is_small(bits);", ";"),
    "small held rows do not matter": (
        "any = any || is_small((pairs | pairs << 16) & narrow::kPartBits);",
        ";",
    ),
}


class Narrow(NamedTuple):
    """A library in which such small products are narrow, and one as shipped."""

    small: ctypes.CDLL
    shipped: ctypes.CDLL
    on_hopper: bool

    @property
    def kernel(self) -> str:
        """Return the name of the kernel that multiplies rows whose values are neighbours."""
        return "narrow_on_hopper::multiply" if self.on_hopper else "narrow::multiply"

    def kernel_for(self, layouts: tuple[str, str]) -> str:
        """Return the same for operands that are both transposed, or neither is."""
        return self.kernel if layouts == NATURAL else "narrow::multiply"


def emulated(constants: dict[str, dict[str, str]], *, hopper: bool) -> str:
    return for_the_cpu(with_constants(cuda_source("matmul", {}), constants), hopper=hopper)


SOURCES = {
    "small": lambda: emulated(SMALL, hopper=False),
    "shipped": lambda: emulated({}, hopper=False),
    "small on Hopper": lambda: with_mutants(emulated(SMALL_ON_HOPPER, hopper=True), MUTANTS),
    "shipped on Hopper": lambda: emulated({}, hopper=True),
}


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    def prepare(key: str, library: ctypes.CDLL) -> None:
        library.set_capability(9 if key.endswith("on Hopper") else 8)

    return compiled(SOURCES, compiled_folder, prepare)


@pytest.fixture(params=["portable", "on-hopper"])
def narrow(libraries: Libraries, request: pytest.FixtureRequest) -> Narrow:
    if request.param == "portable":
        return Narrow(libraries["small"], libraries["shipped"], on_hopper=False)
    return Narrow(libraries["small on Hopper"], libraries["shipped on Hopper"], on_hopper=True)


SHAPES = [
    (1, 5, 8, 4),
    (2, 50, 5, 16),
    (1, 192, 16, 32),
    (1, 193, 17, 36),
    (1, 31, 64, 68),
    (2, 256, 33, 4),
    (1, 400, 48, 100),
    (3, 7, 260, 45),
    (1, 64, 64, 65),
    (1, 13, 333, 128),
    (1, 36, 33, 1000),
    (40, 6, 8, 40),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("streamed", ["pitched", "transposed-pitched", "transposed", "broadcast"])
@pytest.mark.parametrize("held", ["contiguous", "transposed-odd", "broadcast"])
def test_sizes(shape: tuple[int, int, int, int], streamed: str, held: str, narrow: Narrow) -> None:
    rows, columns, depth = shape[1:]
    along_rows = streamed.startswith("transposed")
    vectors = (max(rows, columns) if along_rows else depth) % 4 == 0
    layouts = (held, streamed) if columns > rows else (streamed, held)
    a, b, bias = operands(*shape)
    kept = bias if sum(shape) % 2 else None
    for count, seed in (1, 0), (132, 1):
        ran = run(narrow.small, a, b, kept, layouts=layouts, device=(count, seed))
        tiles = (min(rows, columns) + 15) // 16
        of_both = f"narrow::multiply<{tiles}, {str(along_rows).lower()}"
        # What all batches share has no place in a tensor whose rows do not overlap.
        by_hopper = (
            narrow.on_hopper and not along_rows and (streamed != "broadcast" or shape[0] == 1)
        )
        expected = f"narrow_on_hopper::multiply<{16 * tiles}>" if by_hopper else of_both
        assert (expected in ran.launches) == vectors
        left, right = (
            x[:1].expand_as(x) if layout == "broadcast" else x
            for x, layout in zip((a, b), layouts, strict=True)
        )
        # Where there are a few products only, each may lose as much; the source has 32 or more.
        assert is_right(ran.out, left, right, kept, bound=BOUND if depth >= 32 else 8e-7)


@pytest.mark.parametrize("layout", ["unaligned", "odd-pitch", "every-second", "transposed-odd"])
def test_what_is_streamed_has_to_be_vectors(layout: str, narrow: Narrow) -> None:
    a, b, bias = operands(1, 72, 20, 60)
    for left, right, layouts in (a, b, (layout, "contiguous")), (b, a, ("contiguous", layout)):
        kept = bias if right is b else None
        ran = run(narrow.small, left, right, kept, layouts=layouts, device=(132, 0))
        assert not ran.kernels & {"narrow::multiply", narrow.kernel}
        assert is_right(ran.out, left, right, kept)


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b", "both"])
@pytest.mark.parametrize("layouts", [NATURAL, BOTH], ids="/".join)
def test_rows_out_of_the_ordinary(
    how: str, side: str, layouts: tuple[str, str], narrow: Narrow
) -> None:
    """They are no trouble to bf16, but for very small ones, or not to products of first parts."""
    import torch

    torch.manual_seed(5)
    for rows, columns in (140, 30), (30, 140):
        a, b = (torch.randn(1, count, 100).sign() * (torch.rand(1, count, 100) + 0.1)
                for count in (rows, columns))  # fmt: skip
        if how == "huge":  # and yet no sum is inf on its way
            a, b = (x if side == own else x / 4096 for x, own in ((a, "a"), (b, "b")))
        a = a if side == "b" or (how, side) == ("huge", "both") else spoiled(a, how)
        b = b if side == "a" else spoiled(b, how)
        if how == "large-and-one" and side != "both":
            (b if side == "a" else a)[0, :, 7] = 0.0
        ran = run(narrow.small, a, b, layouts=layouts, device=(132, 0))
        assert narrow.kernel_for(layouts) in ran.kernels
        assert is_right(ran.out, a, b)


@pytest.mark.parametrize(
    ("size", "other"),
    [(1e-42, 1e30), (1e-38, 1e10), (1e-30, 1e30), (1e36, 1e-37), (1e37, 1.0), (3e38, 1e-4),
     (1e-25, 1e-12)],
)  # fmt: skip
@pytest.mark.parametrize("layouts", [NATURAL, BOTH], ids="/".join)
def test_products_of_any_scales(
    size: float, other: float, layouts: tuple[str, str], narrow: Narrow
) -> None:
    import torch

    torch.manual_seed(3)
    a, b = (torch.rand(1, 72, 100) + 0.1) * size, torch.randn(1, 20, 100) * other
    for left, right in (a, b), (b, a):
        ran = run(narrow.small, left, right, layouts=layouts, device=(132, 0))
        assert narrow.kernel_for(layouts) in ran.kernels
        assert is_right(ran.out, left, right)


def test_products_of_the_largest_floats(narrow: Narrow) -> None:
    """Rounded, their first parts would be inf."""
    import torch

    largest = torch.full((1, 70, 100), torch.finfo(torch.float32).max)
    other = torch.randn(1, 20, 100) / 4096
    for a, b in (largest, other), (other, largest), (other.repeat(1, 4, 1), largest[:, :9]):
        ran = run(narrow.small, a, b, device=(132, 0))
        assert narrow.kernel in ran.kernels
        assert is_right(ran.out, a, b)
    ran = run(narrow.small, largest, torch.ones(1, 9, 100), device=(132, 0))
    assert bool(ran.out.isposinf().all())


@pytest.mark.parametrize("values", ["uniform", "normal", "all-ranges"])
@pytest.mark.parametrize("depth", [32, 64, 100, 256, 1024, 4096])
@pytest.mark.parametrize("aligned", [False, True], ids=["exact-terms", "aligned-terms"])
def test_sums_are_as_accurate_as_fp32_s(
    values: str, depth: int, *, aligned: bool, narrow: Narrow
) -> None:
    """As fp32's rounded after each product."""
    import torch

    torch.manual_seed(depth)
    create = torch.rand if values == "uniform" else torch.randn
    a, b = (spoiled(create(1, count, depth), values) for count in (300, 24))
    library = narrow.small if depth <= 256 else narrow.shipped
    with aligned_terms(library, aligned=aligned):
        ran = run(library, a, b, device=(1, 0))
    assert narrow.kernel in ran.kernels
    most = 1 if values == "all-ranges" or depth > 2048 else 0.6
    assert error_of(ran.out, a, b) <= most * error_of_fp32(a, b)


@pytest.mark.parametrize("exponent", [-94, -60, 0, 60])
def test_products_lose_next_to_nothing_of_any_one(exponent: int, narrow: Narrow) -> None:
    """Parts that are left out are 2^-23 of a product; its sums are rounded, and those of others."""
    import torch

    torch.manual_seed(17)
    # Of all kinds of bits, most of them in the last ones, where parts end.
    bits = torch.cat([torch.randint(1 << 23, (3000,)), (1 << 23) - 1 - torch.arange(1000)])
    a = torch.zeros(1, 4000, 32)
    a[0, torch.arange(4000), torch.arange(4000) % 32] = (1 + bits / (1 << 23)).float()
    b = (1 + torch.randint(1 << 23, (1, 40, 32)) / (1 << 23)) * 2.0**-exponent
    b[0, 7] = 2.0 - 2.0**-23
    a *= 2.0**exponent
    for left, right in (a, b), (b, a):
        ran = run(narrow.small, left, right, device=(132, 0))
        assert narrow.kernel in ran.kernels
        assert worst_error(ran.out, left, right) <= 2.0**-23 + 1.25 * 2.0**-24


def test_what_is_lost_of_rows_with_denormals_is_2_to_the_38_smaller(
    narrow: Narrow,
) -> None:
    import torch

    torch.manual_seed(19)
    small = torch.ldexp(torch.rand(1, 72, 64), torch.randint(-149, -110, (1, 72, 64)))
    small[:, :, 5] = 2.0**-95
    other = torch.randn(1, 20, 64) * 2.0**100
    other[:, :, 5] = 0.0
    for a, b in (small, other), (other, small):
        ran = run(narrow.small, a, b, device=(132, 0))
        assert narrow.kernel in ran.kernels
        lost = (ran.out - exact_product(a, b)).abs()
        most = 2.0**-133 * exact_product(*(torch.ones_like(x) if x is small else x.abs()
                                           for x in (a, b)))  # fmt: skip
        assert bool((lost <= most + 1e-6 * exact_product(a.abs(), b.abs())).all())


def test_inf_times_what_is_tiny(narrow: Narrow) -> None:
    """It is inf, also where bf16 has only 0 of it."""
    import torch

    ones, one_inf = torch.ones(1, 72, 64), torch.ones(1, 20, 64)
    one_inf[0, 3, 7] = torch.inf
    for size in (2.0**-133, 2.0**-149):
        tiny = ones.clone()
        tiny[:, :, 7] = size
        streamed = run(narrow.small, tiny, one_inf, device=(132, 0)).out[0]
        assert bool(streamed[:, 3].isposinf().all())
        assert bool((streamed[:, :3] == 63.0).all())
        held = run(narrow.small, ones.index_fill(2, torch.tensor([7]), torch.inf),
                   tiny[:, :20], device=(132, 0)).out  # fmt: skip
        assert bool(held.isposinf().all())


def test_nan_by_its_last_bits(narrow: Narrow) -> None:
    """Whose first part is inf."""
    import torch

    ones, others = torch.ones(1, 72, 64), torch.ones(1, 20, 64)
    with_nan = ones.clone()
    with_nan.view(torch.int32)[0, 3, 7] = 0x7F800001
    assert bool(with_nan[0, 3, 7].isnan())
    for a, b in (with_nan, others), (others, with_nan):
        ran = run(narrow.small, a, b, device=(132, 0))
        assert narrow.kernel in ran.kernels
        assert torch.equal(ran.out.isnan(), exact_product(a, b).isnan())


def test_rows_that_overlap_are_no_tensor(narrow: Narrow) -> None:
    import torch

    _, held, bias = operands(1, 1, 20, 60)
    windows = torch.randn(1, 400).unfold(1, 60, 4)
    ran = run(narrow.small, windows, held, bias, layouts=("sliding", "contiguous"))
    assert "narrow::multiply" in ran.kernels
    assert is_right(ran.out, windows, held, bias)


def test_rows_in_other_orders(narrow: Narrow) -> None:
    """Batches between rows are a tensor as well, but not one whose batches follow one another."""
    a, b, bias = operands(3, 140, 20, 60)
    ran = run(narrow.small, a[:1], b[:1], bias, layouts=("pitched", "batch-inside"))
    assert narrow.kernel in ran.kernels
    assert is_right(ran.out, a[:1], b[:1], bias)
    between = a.transpose(0, 1).contiguous().transpose(0, 1)
    out = run(narrow.small, a, b, bias, layouts=("contiguous", "batch-inside")).out
    assert is_right(out, between, b, bias)


def test_whole_numbers_are_exact(narrow: Narrow) -> None:
    import torch

    torch.manual_seed(3)
    for rows, columns in (300, 20), (9, 140):
        a, b = (torch.randint(-30, 30, (2, count, 300)).float() for count in (rows, columns))
        ran = run(narrow.small, a, b)
        assert narrow.kernel in ran.kernels
        assert torch.equal(ran.out, a @ b.mT)


@pytest.mark.parametrize("depth", [240, 900])
def test_the_same_bits_in_whatever_order(depth: int, narrow: Narrow) -> None:
    import torch

    a, b, bias = operands(2, 300, 33, depth)
    a = spoiled(a, "denormal")
    outs = [
        run(narrow.small, a, b, bias, device=(132, seed)).out
        for seed in (0, 0, 1, SEED_OF_SLOW_ONES)
    ]
    assert is_right(outs[0], a, b, bias)
    for out in outs[1:]:
        assert torch.equal(out, outs[0])


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    import torch

    torch.manual_seed(11)
    many, held = torch.rand(1, 300, 240) + 0.1, torch.rand(1, 20, 240) + 0.1
    long_many, long_held = torch.rand(1, 140, 2000) + 0.1, torch.rand(1, 9, 2000) + 0.1
    # So few products that fp32 rounds little.
    three_parts = (1.0 + 2.0**-9 + 2.0**-18) * (torch.arange(240) % 30 == 0)
    products = [
        (many, held),
        (long_many, long_held),
        (three_parts.expand_as(many), three_parts.expand_as(held)),
        (spoiled(many, "denormal"), 1e30 * held),
        (1e30 * many, spoiled(held, "denormal")),
        (spoiled(many, "inf"), held),
    ]
    seeds = (0, 1, SEED_OF_SLOW_ONES)
    for (a, b), seed in itertools.product(products, seeds):
        yield holds(library, a, b, seed)


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
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["small on Hopper"]
    mutant = ctypes.c_int.in_dll(library, "mutant")
    assert all(findings(library))
    library.set_patience(3)
    try:
        for number, name in enumerate(MUTANTS, 1):
            mutant.value = number
            assert not all(findings(library)), name
    finally:
        mutant.value = 0
        library.set_patience(20)
