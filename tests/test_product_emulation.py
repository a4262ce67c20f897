"""The matrix products' arithmetic, indices and waiting, run on the CPU by tests/cuda_emulation.

Small numbers in the source let small shapes reach every kernel but Hopper's own, which
tests/test_hopper_emulation.py has, and tests/test_slim_emulation.py with those for few columns.
"""

import copy
import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from products_on_the_cpu import (
    BOTH,
    BOUND_OF_LONG,
    LAYOUTS,
    NATURAL,
    SMALL_NARROW,
    WIDE,
    Memory,
    aligned_terms,
    compiled,
    counts_bytes,
    cuda_source,
    error_of,
    error_of_fp32,
    exact_product,
    for_the_cpu,
    is_right,
    memory_of,
    operands,
    placed,
    run,
    spoiled,
    with_constants,
    with_mutants,
)
from shared_builds import Libraries

from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render

pytestmark = pytest.mark.sampled
# What constants of a namespace are in place of those of the source.
SMALL = {
    "split_product": {"kLeastShare": "64", "kPlainDepth": "8"},
    "split": {
        "kThreads": "64",
        "kHeldDepth": "192",
        "kTwiceThreads": "64",
        "kTwiceQuads": "1",
        "kManyRows": "40",
        "kSliceQuads": "1",
        "kColumnQuads": "2",
        "kColumnSlice": "96",
        "kStripThreads": "64",
        "kStripBytes": "8 << 10",
    },
    "wide": {"kLeastPart": "3"},
    "shallow": {
        "kLeastStages": "1",
        "kMostStages": "3",
        "kLeastBlocks": "1",
        "kLeastDepth": "1",
        "kLeastSide": "5",
        "kLeastResults": "5000",
    },
    "narrow": {"kMostSlice": "256", "kLeastSlice": "32"},
    "skinny": {
        "kThreads": "64",
        "kMostSlice": "256",
        "kLeastSlice": "32",
        "kSliceStep": "32",
        "kMostRowsSlice": "128",
        "kLeastRowsSlice": "32",
        "kSlots": "3",
        "kJoinBytes": "50000",
    },
}
SOURCES = {
    "shipped": ("matmul", {}, {}),
    "narrow": ("matmul", {}, {**SMALL, "narrow": SMALL_NARROW}),
    "small": ("matmul", {"group_rows": "2"}, SMALL),
    "gelu": ("matmul_add_gelu", {}, SMALL),
    "kept": ("linear_instancenorm_add_mul_kept", {}, SMALL),
    "mutants": ("matmul", {}, SMALL),
}
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "no lo * hi": ("multiply_parts<T>(sums.running, fragments, kLo, kHi);", ";"),
    "only one shallow step counts": (
        "promote(promoted, sums, 1.0f);",
        "promote(promoted, sums, 0.0f);",
    ),
    "lo's own scale stays": ("1.0f / kLoScale", "1.0f"),
    "two lanes keep what they should exchange": ("odd ? first : second", "odd ? second : first"),
    "sums are never promoted": ("(stage + 1) % (kPromotedDepth / T::kDepth) == 0", "false"),
    "sums do not begin anew": ("running = 0.0f;", ";"),
    "the last split is left out": ("split < a.splits", "split + 1 < a.splits"),
    "nothing lost is counted": ("if (count == 0) return;", "return;"),
    "scales are not limited": ("max(largest >> 23, kLeastExponent)", "largest >> 23"),
    "wide rows of b do not matter": ("of_a ? a.lost_a : a.lost_b", "a.lost_a"),
    "parts of long sums are lost": ("totals[k * kThreads] += sum;", "totals[k * kThreads] = sum;"),
    "blocks of a cluster tell only themselves": (
        "ptx::in_block(&largest[k % kRows], k / kRows)",
        "&largest[k % kRows]",
    ),
    "a slice is left out": ("s < plan.slices", "s + 1 < plan.slices"),
    "no second part of what is streamed": (
        "multiply_parts(others, held[0], rows[1]);",
        ";",
    ),
    "no third part of what is streamed": (
        "multiply_parts(others, held[0], rows[2]);",
        ";",
    ),
    "no second part of what is held": (
        "multiply_parts(others, held[1], rows[0]);",
        ";",
    ),
    "no third part of what is held": (
        "multiply_parts(others, held[2], rows[0]);",
        ";",
    ),
    "no product of second parts": (
        "multiply_parts(others, held[1], rows[1]);",
        ";",
    ),
    "results that are not finite stay": ("!isfinite(sum)", "false"),
    "small rows do not matter": (
        "any_small(sums) ? ~0u : 0",
        "0u",
    ),
}


def emulated(key: str) -> str:
    name, overrides, constants = SOURCES[key]
    text = for_the_cpu(with_constants(cuda_source(name, overrides), constants))
    return with_mutants(text, MUTANTS) if key == "mutants" else text


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    def prepare(key: str, library: ctypes.CDLL) -> None:
        if key == "kept":
            library.product_prepared_bytes.restype = ctypes.c_int64

    return compiled({key: partial(emulated, key) for key in SOURCES}, compiled_folder, prepare)


ALONG_DEPTH, ALONG_ROWS = "skinny::multiply_along_depth", "skinny::multiply_along_rows"
PLAIN = ("wide::multiply",)
PORTABLE = ("portable::multiply", *PLAIN)
HELD = ("split::split_held", *PORTABLE)
COLUMNS = ("split::find_largest_of_columns", "split::split_columns")
STRIPS = ("split::split_strips",)
SHALLOW = ("split::split_held", "shallow::multiply", *PLAIN)
SLICES = ("split::find_largest_of_slices", "split::split_slices")
OTHER = ("contiguous", "transposed")


class Way(NamedTuple):
    """How a product is done."""

    kind: str
    shape: tuple[int, int, int, int]  # batches, rows, columns, depth
    layouts: tuple[str, str]
    multiprocessors: int
    kernels: tuple[str, ...]
    clusters: bool = True


JOIN = "skinny::join_slices"
PACKED = ("narrow::pack", "narrow::multiply")
WAYS = {
    "one-element": Way("shipped", (1, 1, 1, 1), NATURAL, 132, (ALONG_DEPTH,)),
    "few-columns": Way("shipped", (1, 50, 4, 300), NATURAL, 132, (ALONG_DEPTH,)),
    "few-rows": Way("shipped", (2, 3, 50, 300), NATURAL, 132, (ALONG_DEPTH,)),
    "skinny-along-rows": Way("shipped", (1, 70, 2, 301), BOTH, 132, (ALONG_ROWS,)),
    "skinny-packs": Way("shipped", (2, 50, 3, 301), OTHER, 132, (ALONG_DEPTH, "skinny::pack_held")),
    "skinny-slices": Way("shipped", (1, 1, 2, 40_000), NATURAL, 132, (ALONG_DEPTH, JOIN)),
    "skinny-row-slices": Way("shipped", (1, 2, 30, 7000), BOTH, 132, (ALONG_ROWS, JOIN)),
    "skinny-many-slices": Way("small", (1, 1, 2, 9000), NATURAL, 132, (ALONG_DEPTH, JOIN)),
    "narrow": Way("shipped", (1, 1100, 9, 240), NATURAL, 132, PACKED),
    "narrow-rows": Way("narrow", (2, 9, 70, 60), NATURAL, 132, PACKED),
    "narrow-columns": Way("narrow", (1, 72, 20, 60), BOTH, 1, PACKED),
    "narrow-shares": Way("narrow", (1, 70, 33, 1000), NATURAL, 132, ("add_splits", *PACKED)),
    "little-depth": Way("shipped", (1, 5, 5, 64), NATURAL, 132, PLAIN),
    "large-tiles": Way("shipped", (1, 70, 90, 65), NATURAL, 1, HELD),
    "small-tiles": Way("shipped", (1, 70, 90, 65), NATURAL, 132, HELD),
    "shares": Way("shipped", (1, 20, 24, 1100), NATURAL, 132, ("add_splits", *HELD)),
    "columns": Way("shipped", (1, 20, 24, 100), BOTH, 132, (*COLUMNS, *PORTABLE), clusters=False),
    "strips": Way("shipped", (1, 66, 70, 1100), BOTH, 132, ("add_splits", *STRIPS, *PORTABLE)),
    "narrow-strips": Way("small", (1, 70, 81, 1100), BOTH, 1, (*STRIPS, *PORTABLE)),
    "too-deep": Way("small", (1, 66, 70, 2100), BOTH, 1, (*COLUMNS, *PORTABLE)),
    "slices": Way("small", (1, 20, 24, 200), NATURAL, 1, (*SLICES, *PORTABLE)),
    "twice": Way("small", (1, 45, 44, 200), NATURAL, 1, ("split::split_twice", *PORTABLE)),
    "shallow": Way("small", (1, 70, 80, 20), NATURAL, 132, SHALLOW),
    "shallow-columns": Way(
        "small", (2, 70, 41, 60), BOTH, 1, (*COLUMNS, *SHALLOW[1:]), clusters=False
    ),
    "shallow-strips": Way("small", (2, 70, 41, 60), BOTH, 1, (*STRIPS, *SHALLOW[1:])),
}


@pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in WAYS.items()])
def test_ways(way: Way, libraries: Libraries) -> None:
    a, b, bias = operands(*way.shape)
    for kept, seed in itertools.product((bias, None), (0, 1)):
        device = way.multiprocessors, seed
        ran = run(libraries[way.kind], a, b, kept, layouts=way.layouts, device=device,
                  clusters=way.clusters)  # fmt: skip
        assert ran.kernels == set(way.kernels)
        if "portable::multiply" in way.kernels:
            assert f"Tiling<{128 if way.multiprocessors == 1 else 64}" in ran.launches
        assert is_right(ran.out, a, b, kept)


def test_all_kernels_have_a_way() -> None:
    text = for_the_cpu(cuda_source("matmul", {}))
    kernels = set(re.findall(r"launch_(?:blocks|clusters|beside)<(\w+)", text))
    assert kernels == {name.split("::")[-1] for way in WAYS.values() for name in way.kernels}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", ["few-rows", "few-columns", "plain", "portable", "shallow"])
def test_layouts(way: str, layout: str, libraries: Libraries) -> None:
    """Whole vectors in all three sizes, and tails, for every pair of layouts."""
    whole, tails = {
        "few-rows": ((2, 4, 36, 100), (3, 3, 37, 99)),
        "few-columns": ((2, 36, 4, 100), (3, 37, 1, 99)),
        "plain": ((2, 36, 40, 60), (3, 37, 41, 33)),
        "portable": ((2, 36, 40, 100), (2, 37, 41, 67)),
        "shallow": ((2, 44, 60, 32), (2, 71, 43, 31)),
    }[way]
    for turn, other in enumerate(LAYOUTS):
        a, b, bias = operands(*(whole if (turn + LAYOUTS.index(layout)) % 2 else tails))
        kept = bias if turn % 3 else None
        kind = "shipped" if way == "plain" or turn % 4 < 2 else "small"
        kind = "small" if way == "shallow" else kind
        ran = run(libraries[kind], a, b, kept, layouts=(layout, other), shift=turn % 5,
                  device=(132, 0), clusters=turn % 2 == 0)  # fmt: skip
        # What a layout repeats in all batches.
        a = a[:1].expand_as(a) if layout.endswith("broadcast") else a
        b = b[:1].expand_as(b) if other.endswith("broadcast") else b
        assert is_right(ran.out, a, b, kept), other


SHAPES = [
    (1, 5, 5, 9),
    (7, 17, 31, 65),
    (1, 63, 65, 127),
    (1, 64, 64, 128),
    (2, 65, 6, 129),
    (1, 127, 129, 96),
    (1, 128, 128, 64),
    (1, 129, 127, 31),
    (3, 5, 130, 193),
    (1, 300, 10, 70),
    (1, 10, 300, 70),
    (1, 200, 200, 20),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 9, 132])
@pytest.mark.parametrize("kind", ["small", "shipped"])
def test_sizes(
    shape: tuple[int, int, int, int], count: int, kind: str, libraries: Libraries
) -> None:
    a, b, bias = operands(*shape)
    kept = bias if sum(shape) % 2 else None
    ran = run(libraries[kind], a, b, kept, shift=sum(shape) % 4, device=(count, sum(shape) % 3))
    others = {"portable::multiply", "shallow::multiply"}
    assert ran.kernels == set(PLAIN) or others & ran.kernels
    assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize(
    "shape", [(1, 200, 200, 24), (3, 150, 140, 16), (2, 300, 140, 100)], ids=str
)
@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_that_do_several_tiles_in_fp32(
    shape: tuple[int, int, int, int], seed: int, libraries: Libraries
) -> None:
    a, b, bias = operands(*shape)
    a = spoiled(a, "all-ranges")
    assert is_right(run(libraries["shipped"], a, b, bias, device=(1, seed)).out, a, b, bias)


SHALLOW_SHAPES = [
    (1, 64, 256, 16),
    (1, 63, 257, 1),
    (1, 65, 255, 17),
    (3, 130, 33, 2),
    (5, 7, 300, 33),
    (1, 700, 8, 48),
    (2, 300, 36, 49),
    (1, 5, 1030, 64),
    (1, 450, 31, 15),
    (1, 256, 512, 32),
]


@pytest.mark.parametrize("shape", SHALLOW_SHAPES, ids=str)
@pytest.mark.parametrize(("count", "seed"), [(1, 0), (1, 1), (132, 0)])
def test_shallow_sizes(
    shape: tuple[int, int, int, int], count: int, seed: int, libraries: Libraries
) -> None:
    a, b, bias = operands(*shape)
    kept = bias if (sum(shape) + count) % 2 else None
    for shift in 0, 1:
        ran = run(libraries["small"], a, b, kept, shift=shift, device=(count, seed))
        assert "shallow::multiply" in ran.kernels
        access = "kVectors" if shape[2] % 4 == 0 and shift == 0 else "kScalars"
        steps = (shape[3] + 15) // 16
        assert f"shallow::multiply<{steps}, split_product::Access::{access}>" in ran.launches
        assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("values", ["uniform", "normal"])
@pytest.mark.parametrize("depth", [9, 16, 24, 32, 48, 64])
def test_short_sums_are_as_accurate_as_fp32_s(
    values: str, depth: int, libraries: Libraries
) -> None:
    """As fp32's rounded after each product."""
    import torch

    torch.manual_seed(depth)
    create = torch.rand if values == "uniform" else torch.randn
    a, b = create(1, 256, depth), create(1, 256, depth)
    ran = run(libraries["small"], a, b)
    assert "shallow::multiply" in ran.kernels
    assert not ran.any_wide
    assert error_of(ran.out, a, b) <= (1.25 if depth >= 16 else 2) * error_of_fp32(a, b)


@pytest.mark.parametrize("values", ["uniform", "normal"])
@pytest.mark.parametrize("depth", [16, 33, 64])
def test_plain_sums_are_better_than_fp32_s(values: str, depth: int, libraries: Libraries) -> None:
    """As they are rounded less often at their own size."""
    import torch

    torch.manual_seed(depth)
    create = torch.rand if values == "uniform" else torch.randn
    a, b = create(1, 256, depth), create(1, 256, depth)
    ran = run(libraries["shipped"], a, b)
    assert ran.kernels == set(PLAIN)
    assert error_of(ran.out, a, b) <= 0.8 * error_of_fp32(a, b)


@pytest.mark.long
@pytest.mark.parametrize(("depth", "share"), [(260, 0.4), (1000, 0.3), (20000, 0.2)])
def test_sums_of_wide_rows_are_better_than_fp32_s(
    depth: int, share: float, libraries: Libraries
) -> None:
    """As they are rounded less often at their own size."""
    import torch

    torch.manual_seed(depth)
    a, b = torch.rand(1, 130, depth), torch.rand(1, 130, depth)
    a[:, :, ::7] *= 2.0**-30
    ran = run(libraries["shipped"], a, b)
    assert ran.any_wide
    assert error_of(ran.out, a, b) <= share * error_of_fp32(a, b)


@pytest.mark.parametrize("signs", [False, True], ids=["positive", "both-signs"])
@pytest.mark.parametrize(
    ("depth", "multiprocessors", "most"),
    [
        *((depth, 132, 2.5e-7) for depth in (65, 100, 128, 200, 300, 512, 800, 1000)),
        *((depth, 1, 4.5e-7) for depth in (65, 128, 300, 512)),
    ],
)
def test_sums_of_little_depth_lose_little_to_the_tensor_cores(
    depth: int,
    multiprocessors: int,
    most: float,
    *,
    signs: bool,
    libraries: Libraries,
) -> None:
    """On tensor cores that align what they sum, where rare promotions would lose 6e-7.

    One multiprocessor has large tiles, without rests.
    """
    import torch

    torch.manual_seed(depth)
    # Nothing is so small that a row is wide.
    a, b = (0.01 + 0.99 * torch.rand(1, count, depth) for count in (96, 128))
    if signs:
        a, b = a * torch.randn_like(a).sign(), b * torch.randn_like(b).sign()
    library = libraries["shipped"]
    with aligned_terms(library):
        ran = run(library, a, b, device=(multiprocessors, 0))
    assert "portable::multiply" in ran.kernels
    assert not ran.any_wide
    assert error_of(ran.out, a, b) <= most


SKINNY_SHAPES = [
    (few, many, depth)
    for (few, many), depth in zip(
        itertools.product((1, 2, 3, 4), (1, 5, 33, 64, 132, 301)),
        itertools.cycle((1, 3, 32, 127, 128, 260, 700, 1025, 2052)),
        strict=False,
    )
]


@pytest.mark.parametrize("shape", SKINNY_SHAPES, ids=str)
@pytest.mark.parametrize(
    "layouts", [NATURAL, BOTH, ("transposed-odd", "every-second")], ids="/".join
)
def test_skinny_sizes(
    shape: tuple[int, int, int], layouts: tuple[str, str], libraries: Libraries
) -> None:
    few, many, depth = shape
    for turn, (rows, columns) in enumerate([(few, many), (many, few)]):
        a, b, bias = operands(1 + depth % 2, rows, columns, depth)
        kept = bias if many % 2 else None
        for kind in "small", "shipped":
            ran = run(libraries[kind], a, b, kept, layouts=layouts, shift=turn)
            assert "skinny" in ran.launches
            assert is_right(ran.out, a, b, kept)


def whole_numbers(*shape: int) -> Any:
    import torch

    return torch.randint(-30, 30, shape).float()


@pytest.mark.parametrize("shape", [(1, 3, 70, 300), (2, 70, 90, 60), (1, 70, 90, 150)], ids=str)
@pytest.mark.parametrize("kind", ["small", "shipped", "narrow"])
def test_whole_numbers_are_exact(
    shape: tuple[int, int, int, int], kind: str, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(3)
    batches, rows, columns, depth = shape
    a, b = whole_numbers(batches, rows, depth), whole_numbers(batches, columns, depth)
    bias = whole_numbers(columns)
    for count in 1, 132:
        ran = run(libraries[kind], a, b, bias, device=(count, 0))
        assert not ran.any_wide
        assert torch.equal(ran.out, a @ b.mT + bias)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("layouts", [NATURAL, BOTH, OTHER, OTHER[::-1]], ids="/".join)
def test_hardly_any_depth(depth: int, layouts: tuple[str, str], libraries: Libraries) -> None:
    for rows, columns in (6, 7), (3, 7), (7, 3):
        a, b, bias = operands(2, rows, columns, depth)
        for kept in bias, None:
            ran = run(libraries["shipped"], a, b, kept, layouts=layouts)
            assert is_right(ran.out, a, b, kept)


def test_more_blocks_than_a_launch_can_have_are_refused(libraries: Libraries) -> None:
    """Where one block would be what is left of 2^32 + 1, whatever the results."""
    library = libraries["shipped"]
    library.set_device(132, 0)
    library.launched()
    with memory_of(library) as memory:
        a, b, out = (memory.floats(1) for _ in range(3))
        sizes = [ctypes.c_int64(size) for size in ((1 << 32) + 1, 1, 1, 1, 0, 0, 0, 0, 0, 0)]
        left, right, result = (ctypes.c_void_p(x.data_ptr()) for x in (a, b, out))
        none = ctypes.c_void_p(None)
        assert library.product_workspace_bytes(left, right, *sizes) == 0
        assert library.product_launch(left, right, none, result, none, *sizes, none) != 0
        assert library.launched() == b""
        assert bool(out.isnan().all())


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b", "both"])
@pytest.mark.parametrize("layouts", [NATURAL, ("transposed", "odd-pitch")], ids="/".join)
@pytest.mark.parametrize("split", ["strips", "columns"])
def test_rows_out_of_the_ordinary(
    how: str,
    side: str,
    layouts: tuple[str, str],
    split: str,
    libraries: Libraries,
) -> None:
    import torch

    torch.manual_seed(5)
    rows, columns = (140, 30) if side == "a" else (30, 140)
    # Neither has elements that are small by chance.
    a, b = (torch.randn(1, count, 100).sign() * (torch.rand(1, count, 100) + 0.1)
            for count in (rows, columns))  # fmt: skip
    a = a if side == "b" else spoiled(a, how)
    b = b if side == "a" else spoiled(b, how)
    if how == "large-and-one" and side != "both":
        (b if side == "a" else a)[0, :, 7] = 0.0
    for kind, count in ("shipped", 132), ("small", 132), ("small", 1):
        ran = run(libraries[kind], a, b, layouts=layouts, device=(count, 0),
                  clusters=split == "strips")  # fmt: skip
        assert ran.any_wide == (how in WIDE)
        assert is_right(ran.out, a, b)


@pytest.mark.parametrize("how", [*WIDE, "tiny", "huge", "zeros"])
@pytest.mark.parametrize("side", ["a", "b", "both"])
def test_shallow_rows_out_of_the_ordinary(how: str, side: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(7)
    a, b = (torch.randn(1, count, 30).sign() * (torch.rand(1, count, 30) + 0.1)
            for count in (140, 150))  # fmt: skip
    a = a if side == "b" else spoiled(a, how)
    b = b if side == "a" else spoiled(b, how)
    if how == "large-and-one" and side != "both":
        (b if side == "a" else a)[0, :, 7] = 0.0
    ran = run(libraries["small"], a, b, device=(132, 0))
    assert "shallow::multiply" in ran.kernels
    # Its lo has a scale of its own: more of the ranges are within what it holds.
    assert ran.any_wide or how not in WIDE or how == "range"
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("size", [2.0**-26, 2.0**-29])
def test_shallow_rows_hold_what_is_2_to_the_26_smaller(size: float, libraries: Libraries) -> None:
    """Results that rest on the small elements alone are as accurate as others."""
    import torch

    torch.manual_seed(13)
    a, b = torch.rand(1, 80, 20) + 1.0, torch.rand(1, 90, 20) + 1.0
    a[:, ::2, 1:] *= size
    b[:, ::3, 0] = 0.0
    ran = run(libraries["small"], a, b, device=(132, 0))
    assert "shallow::multiply" in ran.kernels
    assert ran.any_wide == (size < 2.0**-27)
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("how", WIDE)
@pytest.mark.parametrize("shape", [(1, 2, 70, 300), (1, 70, 3, 300), (1, 40, 50, 60)], ids=str)
@pytest.mark.parametrize("layouts", [NATURAL, BOTH], ids="/".join)
def test_values_out_of_the_ordinary_without_tensor_cores(
    how: str,
    shape: tuple[int, int, int, int],
    layouts: tuple[str, str],
    libraries: Libraries,
) -> None:
    a, b, bias = operands(*shape)
    a, b = spoiled(a, how), spoiled(b, how)
    for kind, kept in ("shipped", bias), ("shipped" if shape[3] == 60 else "small", None):
        assert is_right(run(libraries[kind], a, b, kept, layouts=layouts).out, a, b, kept)


@pytest.mark.parametrize("path", ["held", "slices", "twice", "columns", "strips"])
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("lost", [4, 5])
def test_a_row_may_lose_one_element_in_256(
    path: str, side: str, lost: int, libraries: Libraries
) -> None:
    """Tensor cores do it nevertheless; what is lost is nothing beside the rest of the row."""
    import torch

    torch.manual_seed(lost)
    rows, depth = 45 if path == "twice" else 20, 1060
    a, b = (torch.randn(1, count, depth).sign() * (torch.rand(1, count, depth) + 0.1)
            for count in (rows, rows + 1))  # fmt: skip
    small = a if side == "a" else b
    places = torch.randperm(depth)[:lost]
    small[0, 3, places] = 1e-6 * torch.randn(lost)
    small[0, 5, places[1:]] = 1e-8
    small[0, 5, places[0]] = 0.0
    layouts = BOTH if path in {"columns", "strips"} else NATURAL
    library = libraries["shipped" if path in {"held", "strips"} else "small"]
    ran = run(library, a, b, layouts=layouts, device=(2, 0), clusters=path == "strips")
    assert any(path in name for name in ran.kernels)
    assert ran.any_wide == (lost > depth // 256)
    size = a.double().norm(dim=2)[:, :, None] * b.double().norm(dim=2)[:, None]
    assert ((ran.out - exact_product(a, b)).abs() / size).max().item() <= 1e-6
    if ran.any_wide:
        assert is_right(ran.out, a, b)


@pytest.mark.parametrize(("size", "other"), [(1e36, 1e-37), (1e-37, 1e36), (1e37, 1.0)])
@pytest.mark.parametrize("depth", [20, 100])
def test_scales_are_undone_without_overflow(
    size: float, other: float, depth: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(3)
    a, b = (torch.rand(1, 20, depth) / 16 + 0.01) * size, torch.rand(1, 22, depth) * other
    ran = run(libraries["small"], a, b, device=(132, 0))
    assert bool(ran.out.isfinite().all())
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("values", ["positive", "normal", "ranges"])
@pytest.mark.parametrize(
    "shape", [(1, 33, 40, 4500), (1, 1, 6, 60_000), (1, 20, 2, 10_000)], ids=str
)
@pytest.mark.parametrize(("layouts", "count"), [(NATURAL, 1), (BOTH, 132)])
def test_sums_of_many_products(
    values: str,
    shape: tuple[int, int, int, int],
    layouts: tuple[str, str],
    count: int,
    libraries: Libraries,
) -> None:
    import torch

    torch.manual_seed(shape[3])
    batches, rows, columns, depth = shape
    create = torch.rand if values == "positive" else torch.randn
    a, b = create(batches, rows, depth), create(batches, columns, depth)
    if values == "ranges":
        a = spoiled(a, "all-ranges")
    out = run(libraries["shipped"], a, b, layouts=layouts, device=(count, 0)).out
    assert is_right(out, a, b, bound=BOUND_OF_LONG)
    exact = exact_product(a, b)
    error, reference = ((x - exact).abs().max().item() for x in (out, a @ b.mT))
    assert error <= max(2 * reference, BOUND_OF_LONG * exact.abs().max().item())


@pytest.mark.parametrize(
    ("shape", "how", "layouts"),
    [
        pytest.param((2, 50, 60, 300), "none", NATURAL, id="splits"),
        pytest.param((2, 50, 60, 300), "all-ranges", NATURAL, id="wide-rows"),
        pytest.param((1, 45, 44, 200), "range", BOTH, id="strips"),
        pytest.param((1, 45, 44, 1100), "range", BOTH, id="columns"),
        pytest.param((1, 45, 44, 200), "none", NATURAL, id="twice"),
        pytest.param((1, 90, 80, 40), "range", NATURAL, id="shallow"),
        pytest.param((1, 3, 44, 900), "none", NATURAL, id="few-rows"),
        pytest.param((1, 44, 2, 900), "none", BOTH, id="few-columns"),
        pytest.param((1, 44, 9, 900), "none", BOTH, id="narrow"),
        pytest.param((2, 9, 44, 300), "denormal", NATURAL, id="narrow-small-rows"),
    ],
)
def test_the_same_bits_in_whatever_order(
    shape: tuple[int, int, int, int],
    how: str,
    layouts: tuple[str, str],
    libraries: Libraries,
) -> None:
    import torch

    a, b, bias = operands(*shape)
    a = spoiled(a, how)
    library = libraries["narrow" if min(shape[1:3]) == 9 else "small"]
    outs = [
        run(library, a, b, bias, layouts=layouts, device=(132, seed)).out for seed in (0, 0, 1, 2)
    ]
    assert is_right(outs[0], a, b, bias)
    for out in outs[1:]:
        assert torch.equal(out, outs[0])


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        pytest.param((1, 3, 44, 900), 132, id="few-rows-slices"),
        pytest.param((2, 44, 2, 30), 132, id="few-columns"),
        pytest.param((2, 45, 50, 8), 132, id="plain"),
        pytest.param((2, 70, 47, 20), 132, id="shallow"),
        pytest.param((1, 66, 96, 33), 1, id="shallow-vectors"),
        pytest.param((2, 130, 9, 70), 1, id="large-tiles"),
        pytest.param((2, 31, 37, 70), 132, id="splits"),
        pytest.param((1, 1100, 9, 240), 1, id="narrow"),
        pytest.param((1, 8, 1100, 240), 132, id="narrow-rows-splits"),
        pytest.param((1, 31, 36, 150), 132, id="splits-of-vectors"),
    ],
)
@pytest.mark.parametrize("how", ["none", "all-ranges", "nan"])
@pytest.mark.parametrize("shift", [0, 1])
def test_epilogue(
    shape: tuple[int, int, int, int],
    count: int,
    how: str,
    shift: int,
    libraries: Libraries,
) -> None:
    import torch

    a, b, bias = operands(*shape)
    a, b = a / a.norm(dim=2, keepdim=True), spoiled(b / b.norm(dim=2, keepdim=True), how)
    y = torch.randn(shape[:3])
    for kept in None, bias:
        ran = run(libraries["gelu"], a, b, kept, others=(y,), shift=shift, device=(count, shift))
        before = exact_product(a, b, kept) + y.double()
        exact = torch.nn.functional.gelu(before)
        finite = exact.isfinite()
        assert torch.equal(ran.out.isfinite(), finite)
        size = exact_product(a.abs(), b.abs(), None if kept is None else kept.abs()) + y.abs()
        assert ((ran.out - exact).abs() / size)[finite].max().item() <= 1e-6


def parts_of(library: ctypes.CDLL, memory: Memory, b: Any, rows: int) -> ctypes.c_void_p:
    """Return where b is prepared for a product with so many rows, or null if that does without."""
    batches, columns, depth = b.shape
    sizes = [ctypes.c_int64(size) for size in (batches, columns, depth, *b.stride())]
    used = library.product_prepared_bytes(sizes[0], ctypes.c_int64(rows), *sizes[1:3])
    assert used >= 0
    if used == 0:
        return ctypes.c_void_p(None)
    memory.bytes(used)
    place = memory.address()
    status = library.product_prepare(ctypes.c_void_p(b.data_ptr()), place, *sizes, None)
    assert status == 0
    return place


@pytest.mark.parametrize("how", ["none", "range", "nan"])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        pytest.param((1, 50, 60, 300), "contiguous", id="slices"),
        pytest.param((1, 45, 44, 100), "contiguous", id="held"),
        pytest.param((2, 45, 44, 200), "transposed", id="columns"),
    ],
)
def test_what_is_prepared_serves_all_launches(
    shape: tuple[int, int, int, int], layout: str, how: str, libraries: Libraries
) -> None:
    import torch

    library = libraries["kept"]
    library.set_device(132, 0)
    a, b, bias = operands(*shape)
    b = spoiled(b, how)
    with memory_of(library) as memory:
        kept = placed(memory, b, layout)
        prepared = parts_of(library, memory, kept, shape[1])
        assert prepared.value
        for left in a, spoiled(a, "range"), a[:, :20].contiguous():
            plain = run(library, left, b, bias, layouts=("contiguous", layout),
                        device=(132, 0), prepared=(ctypes.c_void_p(None),))  # fmt: skip
            ran = run(library, left, b, bias, layouts=("contiguous", layout),
                      device=(132, 0), prepared=(prepared,))  # fmt: skip
            assert torch.equal(ran.out.nan_to_num(), plain.out.nan_to_num())
            assert is_right(ran.out, left, b, bias)
            launches = [x.launches.count("split::") for x in (ran, plain)]
            assert 0 < launches[0] < launches[1]


def split_of(library: ctypes.CDLL, b: Any, layout: str, room: int) -> tuple[bytes, str]:
    """Return all that a split leaves but what one kernel leaves another, and what was launched."""
    library.set_room_for_blocks(room)
    library.launched()
    with memory_of(library) as memory:
        kept = placed(memory, b, layout)
        prepared = parts_of(library, memory, kept, rows=70)
        whole = ctypes.string_at(prepared, memory.size())
    rows = b.shape[0] * b.shape[1]
    counts = counts_bytes(rows)
    lost = 256 + (counts - 256) // 2
    return whole[:lost] + whole[counts:], library.launched().decode()


STRIPS_OF = {
    "kVectors": [
        (1, 96, 512), (2, 68, 100), (1, 68, 64), (3, 84, 65), (1, 80, 1024), (2, 100, 600),
    ],
    "kScalars": [(1, 97, 512), (2, 69, 131), (1, 95, 577), (3, 81, 66), (1, 66, 1023)],
}  # fmt: skip


@pytest.mark.parametrize("how", ["none", "all-ranges", "range", "nan", "-inf", "denormal", "zeros"])
@pytest.mark.parametrize(
    ("access", "shape"),
    [pytest.param(access, shape, id=str(shape)) for access in STRIPS_OF
     for shape in STRIPS_OF[access]],
)  # fmt: skip
def test_strips_leave_what_two_kernels_leave(
    access: str, shape: tuple[int, int, int], how: str, libraries: Libraries
) -> None:
    """In batches, with tails, in all layouts: halves, scales, and counts of what is lost."""
    library = libraries["kept"]
    b = spoiled(operands(shape[0], shape[1], 1, shape[2])[0], how)
    aligned = ("transposed", "transposed-pitched", "transposed-broadcast")
    odd = ("transposed", "transposed-odd", "transposed-unaligned")
    for turn, layout in enumerate(aligned if access == "kVectors" else odd):
        library.set_device(132, turn)
        expected, launches = split_of(library, b, layout, room=0)
        assert "split_columns" in launches
        for room in (8, 16):
            left, launches = split_of(library, b, layout, room)
            rows = 32 if shape[2] <= 64 * room else 16
            assert f"split_strips<{rows}, split_product::Access::{access}>" in launches
            assert left == expected


def test_what_was_prepared_of_other_values_does_not_serve(
    libraries: Libraries,
) -> None:
    library = libraries["kept"]
    library.set_device(132, 0)
    a, b, bias = operands(1, 45, 44, 100)
    with memory_of(library) as memory:
        prepared = parts_of(library, memory, b, 45)
        changed = run(library, a, 2.0 * b, bias, device=(132, 0), prepared=(prepared,)).out
        assert not is_right(changed, a, 2.0 * b, bias)
        again = parts_of(library, memory, 2.0 * b, 45)
        changed = run(library, a, 2.0 * b, bias, device=(132, 0), prepared=(again,)).out
        assert is_right(changed, a, 2.0 * b, bias)


@pytest.mark.parametrize(
    "shape",
    [(1, 2, 70, 300), (1, 12, 1100, 240), (1, 90, 80, 40), (1, 44, 45, 8)],
    ids=["skinny", "narrow", "shallow", "plain"],
)
def test_products_that_do_without_what_is_prepared(
    shape: tuple[int, int, int, int], libraries: Libraries
) -> None:
    library = libraries["kept"]
    library.set_device(132, 0)
    a, b, bias = operands(*shape)
    with memory_of(library) as memory:
        assert parts_of(library, memory, b, shape[1]).value is None
        # Not even where a caller has it, for other numbers of rows.
        memory.bytes(64)
        ran = run(library, a, b, bias, device=(132, 0), prepared=(memory.address(),))
        assert is_right(ran.out, a, b, bias)


class Stream:
    """What the rendered Python asks of a stream of torch's."""

    cuda_stream = 0

    def __init__(self) -> None:
        self.waited_for: list[Any] = []

    def wait_event(self, event: Any) -> None:
        """Note the event."""
        self.waited_for.append(event)


class Event:
    """What it asks of an event."""

    def record(self, stream: Stream) -> None:
        """Note the stream."""
        self.stream = stream


class Cuda(NamedTuple):
    """What a rendered module has, in which a CPU stands for the device, and what it does."""

    names: dict[str, Any]
    streams: list[Stream]  # the last is the current one
    capturing: list[bool]  # the last says whether it is captured
    used: list[Any]  # tensors that a stream was said to use, with it


@pytest.fixture
def cuda(libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> Cuda:
    import torch

    library = libraries["kept"]
    library.set_device(132, 0)
    module = ModuleType("kept")
    exec(render(load_problem("linear_instancenorm_add_mul_kept")), vars(module))
    # As _library declares it, of which the norm is not there.
    path = vars(library)["_name"]
    loaded = ctypes.CDLL(path)
    for name in "workspace_bytes", "launch", "error_name":
        setattr(loaded, f"segment_norm_{name}", SimpleNamespace())
    monkeypatch.setattr(ctypes, "CDLL", {path: loaded}.__getitem__)
    vars(module)["load_inline"] = lambda **_: path
    found = Cuda(vars(module), [Stream()], [False], [])
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: found.streams[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing[-1])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: found.used.append((tensor, stream))
    )
    return found


def multiplied(cuda: Cuda, kept: Any, x: Any, weight: Any) -> tuple[Any, bool]:
    """Return x times the weight's transposed, and whether the weight was split ahead of it."""
    import torch

    library = cuda.names["_library"]()
    library.launched.restype = ctypes.c_char_p
    library.launched()
    halves = kept.halves_of(weight, len(x))
    split = b"split::" in library.launched()
    out = torch.full((len(x), len(weight)), torch.nan)
    cuda.names["_multiply"](x[None], weight[None], None, out, prepared=halves)
    return out, split


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda linear: linear.weight.mul_(3.0),
    "by an element": lambda linear: linear.weight[3, 5].fill_(7.0),
    "by a view": lambda linear: linear.weight.view(-1)[:40].zero_(),
    "data": lambda linear: setattr(linear.weight, "data", 2.0 * linear.weight.data),
    "another": lambda linear: setattr(linear, "weight", other_weight(linear)),
    "state": lambda linear: linear.load_state_dict({"weight": other_weight(linear)}),
    "assigned": lambda linear: linear.load_state_dict(
        {"weight": other_weight(linear)}, assign=True
    ),
    "transposed": lambda linear: setattr(linear.weight, "data", linear.weight.data.clone().t()),
}


def other_weight(linear: Any) -> Any:
    import torch

    return torch.nn.Parameter(linear.weight.detach().flip(0) + 1.0)


@pytest.mark.parametrize("change", CHANGES)
def test_results_follow_a_change_of_the_weight(change: str, cuda: Cuda) -> None:
    import torch

    torch.manual_seed(1)
    linear, kept = torch.nn.Linear(60, 60, bias=False), cuda.names["_Prepared"]()
    x = torch.randn(50, 60)
    for expected in True, False, False:
        out, split = multiplied(cuda, kept, x, linear.weight)
        assert split == expected
        assert is_right(out[None], x[None], linear.weight.detach()[None])
    with torch.no_grad():
        CHANGES[change](linear)
    out, split = multiplied(cuda, kept, x, linear.weight)
    assert split
    assert is_right(out[None], x[None], linear.weight.detach()[None])
    assert not multiplied(cuda, kept, x, linear.weight)[1]


def test_an_optimizer_s_step_is_a_change(cuda: Cuda) -> None:
    import torch

    torch.manual_seed(2)
    linear, kept = torch.nn.Linear(60, 60, bias=False), cuda.names["_Prepared"]()
    x = torch.randn(50, 60)
    for optimizer in (
        torch.optim.SGD(linear.parameters(), 1.0),
        torch.optim.Adam(linear.parameters(), 1.0, foreach=True),
    ):
        multiplied(cuda, kept, x, linear.weight)
        linear.weight.grad = torch.ones_like(linear.weight)
        optimizer.step()
        out, split = multiplied(cuda, kept, x, linear.weight)
        assert split
        assert is_right(out[None], x[None], linear.weight.detach()[None])


def test_another_stream_waits_for_what_is_kept(cuda: Cuda) -> None:
    import torch

    linear, kept = torch.nn.Linear(60, 60), cuda.names["_Prepared"]()
    multiplied(cuda, kept, torch.randn(50, 60), linear.weight)
    cuda.streams.append(Stream())
    assert not multiplied(cuda, kept, torch.randn(50, 60), linear.weight)[1]
    split_on, multiplied_on = cuda.streams
    assert [event.stream for event in multiplied_on.waited_for] == [split_on]
    assert cuda.used[-1][1] is multiplied_on


def test_nothing_is_kept_for_graphs_and_for_weights_without_a_version(cuda: Cuda) -> None:
    import torch

    weight, kept = torch.randn(60, 60), cuda.names["_Prepared"]()
    assert kept.halves_of(weight, 50) is not None
    cuda.capturing.append(True)
    assert kept.halves_of(weight, 50) is None
    out, split = multiplied(cuda, kept, x := torch.randn(50, 60), weight)
    assert not split
    assert is_right(out[None], x[None], weight[None])
    cuda.capturing.append(False)
    with torch.inference_mode():
        assert kept.halves_of(weight * 2.0, 50) is None
    assert kept.halves_of(weight, 50) is not None


def test_copies_of_a_model_keep_nothing_and_its_state_is_torch_s(cuda: Cuda) -> None:
    import torch

    model, x = cuda.names["ModelNew"](60, 60), torch.randn(50, 60)
    kept = vars(model)["_prepared"]
    multiplied(cuda, kept, x, model.linear.weight)
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]
    twin = copy.deepcopy(model)
    assert vars(twin)["_prepared"] is not kept
    assert multiplied(cuda, vars(twin)["_prepared"], x, twin.linear.weight)[1]
    assert not multiplied(cuda, kept, x, model.linear.weight)[1]


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    import torch

    torch.manual_seed(11)
    few = torch.rand(1, 9, 1300) + 0.1
    left, right = torch.rand(1, 30, 100) + 0.1, torch.rand(1, 20, 100) + 0.1
    but_one = torch.arange(100) != 7
    first_larger = torch.rand(1, 66, 300) + 0.1
    first_larger[:, :, :64] *= 1000.0
    products = [
        (left, right),
        (few, few[:, :5]),
        (few, few[:, :2]),
        (spoiled(left, "large-and-one"), right * but_one),
        (left * but_one, spoiled(right, "large-and-one")),
        (spoiled(left, "tiny"), right),
        (torch.rand(1, 80, 40) + 0.1, torch.rand(1, 72, 40) + 0.1),
        (torch.rand(1, 140, 1300) + 0.1, few),  # large tiles, without rests
    ]
    many, held = torch.rand(1, 1100, 240) + 0.1, torch.rand(1, 9, 240) + 0.1
    small = spoiled(many, "denormal"), 1e30 * held
    products += [(many, held), small, (spoiled(many, "inf"), held)]
    # So few products that fp32 rounds little.
    three_parts = (1.0 + 2.0**-9 + 2.0**-18) * (torch.arange(240) % 30 == 0)
    products.append((three_parts.expand_as(many), three_parts.expand_as(held)))
    ways = [(a, b, NATURAL) for a, b in products] + [(first_larger, first_larger, BOTH)]
    for a, b, layouts in ways:
        yield is_right(run(library, a, b, layouts=layouts, device=(2, 0)).out, a, b)


@pytest.mark.mutants
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["mutants"]
    mutant = ctypes.c_int.in_dll(library, "mutant")
    assert all(findings(library))
    try:
        for number, name in enumerate(MUTANTS, 1):
            mutant.value = number
            assert not all(findings(library)), name
    finally:
        mutant.value = 0
