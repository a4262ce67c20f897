"""Hopper's chain of a matrix product, split, multiply and repair, run on the CPU.

tests/cuda_emulation/hopper.h stands for the instructions that no other device has.
"""

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from planned_models import problem_of
from products_on_the_cpu import (
    BOTH,
    NATURAL,
    SEED_OF_SLOW_ONES,
    aligned_terms,
    check_gelu,
    check_mutants,
    compiled,
    cuda_source,
    error_of,
    for_the_cpu,
    is_right,
    operands,
    product_of,
    run,
    spoiled,
    with_mutants,
)
from shared_builds import Libraries

from kernelgen.engines.product import choice, claims
from kernelgen.rendering.solution import render

pytestmark = [pytest.mark.sampled, pytest.mark.ci]
BOUND_OF_LONG_SUMS = 1.2e-6  # of which tensor cores cut off more
LONG_DEPTH = 640  # from which sums are long, instead of 4096
GENERAL = frozenset({"general::multiply"})
CHAIN = frozenset({"hopper::multiply", *GENERAL})
ROWS, STRIPS = "split::split_rows", "split::split_strips"
OTHER = ("contiguous", "transposed")


class Kind(NamedTuple):
    """A product that a solution is written for."""

    problem: str
    rows: int
    columns: int
    depth: int
    layouts: tuple[str, str]
    splits: frozenset[str]
    promoted: int
    tile: int = 40

    @property
    def sizes(self) -> dict[str, str]:
        """Return what --set takes."""
        named = {"rows": self.rows, "columns": self.columns, "depth": self.depth}
        sizes = {f"constants.{name}": str(size) for name, size in named.items()}
        return {**sizes, "schedule.tile_columns": str(self.tile), "schedule.group_rows": "2"}


# With many rows no block shares the depth, however small the tiles.
MANY = 100_000
KINDS = {
    "short": Kind("matmul", MANY, 80, 128, OTHER, frozenset({ROWS, STRIPS}), 32),
    "medium": Kind("matmul_transposed_left", MANY, 68, 600, BOTH, frozenset({STRIPS}), 64),
    "long": Kind("matmul", MANY, 76, 700, OTHER, frozenset({ROWS, STRIPS}), 128),
    "odd columns": Kind("matmul_transposed_right", MANY, 81, 700, NATURAL, frozenset({ROWS}), 128),
    "odd all": Kind("matmul", MANY, 81, 703, OTHER, frozenset({ROWS, STRIPS}), 128),
    "odd rows": Kind("matmul_transposed_left", MANY + 1, 68, 130, BOTH, frozenset({STRIPS}), 32),
    "deep": Kind("matmul_transposed_both", MANY, 72, 8260, ("transposed", "contiguous"),
                 frozenset({ROWS, STRIPS}), 128, 72),
    "shares": Kind("matmul", 100, 80, 2100, OTHER, frozenset({ROWS, STRIPS}), 64),
    "shipped tile": Kind("matmul", MANY, 168, 576, OTHER, frozenset({ROWS, STRIPS}), 64, 168),
    "gelu": Kind("matmul_add_gelu", MANY, 80, 128, OTHER, frozenset({ROWS, STRIPS}), 32),
}  # fmt: skip
ADD = "ptx::multiply_add(sum, "
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "no lo of a": (
        f"{ADD}row_lo + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
        f"{ADD}row_hi + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
    ),
    "no lo of b": (f"{ADD}row_hi + 2 * k, column_lo + 2 * k, true);", ";"),
    "no product of hi": (f"{ADD}row_hi + 2 * k, column_hi + 2 * k, true);", ";"),
    "long sums begin anew in each stage": (
        "add_steps<kSteps>(sum, stage, warpgroup, 0, piece > 0);",
        "add_steps<kSteps>(sum, stage, warpgroup, 0, false);",
    ),
    "a long sum's last stage is left out": (
        "if (piece > 0 && k + 1 < work.last_stage) continue;",
        "if (piece > 0) continue;",
    ),
    "only the last sum counts": ("total[n] += sum[n];", "total[n] = sum[n];"),
    "both blocks copy to the same place": ("rank * S::kColumnBytes", "0"),
    "both warpgroups multiply the same rows": ("warpgroup * 64 * kStageDepth * 2", "0"),
    "scales are not limited": ("max(largest >> 23, 15u)", "largest >> 23"),
    "nothing lost is counted": ("if (count == 0) return;", "return;"),
    "wide rows of b do not matter": (
        "(column < a.b.rows && of_b[column] > A::kMaxLost)",
        "false",
    ),
    "blocks of a cluster tell only themselves": (
        "__cluster_map_shared_rank(&largest[k % kStripRows], k / kStripRows)",
        "&largest[k % kStripRows]",
    ),
    "a warp tells the largest of its first lane": (
        "largest = __reduce_max_sync(kAllLanes, largest);",
        "__reduce_max_sync(kAllLanes, largest);",
    ),
}


def emulated(kind: Kind) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_LONG_DEPTH", LONG_DEPTH)
        patch.setattr(choice, "_FEW_ROWS", 0)  # they are a chain, not a skinny product
        return for_the_cpu(cuda_source(kind.problem, kind.sizes))


# Operands of every pattern, each of which another row of torch's broadcasting has.
PATTERNS = "torch.tanh(x @ y * per + tall - each) * scale + torch.where(flags, two, only)"
SHAPES = {"per": "80", "tall": "100000, 1", "each": "100000, 80", "only": "1"}


def with_patterns() -> str:
    inputs = {name: f"torch.randn({shape})" for name, shape in SHAPES.items()}
    given = {"x": "torch.randn(100000, 128)", "y": "torch.randn(128, 80)", **inputs}
    given |= {"scale": "0.5", "two": "2.0", "flags": "torch.rand(80) > 0.5"}
    with (
        TemporaryDirectory() as folder,
        mock.patch.object(claims, "_pays", return_value=True),
        mock.patch.object(choice, "_FEW_ROWS", 0),
    ):
        problem = problem_of(Path(folder), PATTERNS, **given)
        return for_the_cpu(product_of(render(problem, "cuda")))


SOURCES: dict[str, Callable[[], str]] = {
    **{name: partial(emulated, kind) for name, kind in KINDS.items()},
    "patterns": with_patterns,
    "mutants": lambda: with_mutants(emulated(KINDS["long"]), MUTANTS),
}


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    def prepare(_: str, library: ctypes.CDLL) -> None:
        library.set_capability(9)

    return compiled(SOURCES, compiled_folder, prepare)


def ordinary(*shape: int) -> tuple[Any, Any, Any]:
    """Return operands and a bias; no element is so small that its row is wide."""
    a, b, bias = operands(*shape)
    sizes = [x.abs().amax(2, keepdim=True) for x in (a, b)]
    a, b = (torch.where(x.abs() < size / 64, size / 64, x)
            for x, size in zip((a, b), sizes, strict=True))  # fmt: skip
    return a, b, bias


# Their sums are looked at by test_sums_lose_little_to_the_tensor_cores as well, in less time.
SLOW = frozenset(("medium", "deep", "shares"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in KINDS
        if name != "gelu"
    ],
)
@pytest.mark.parametrize(
    ("batches", "rows", "device"), [(1, 256, (2, 0)), (1, 600, (4, 1)), (3, 68, (6, 2))]
)
def test_any_rows_and_batches(
    name: str, batches: int, rows: int, device: tuple[int, int], libraries: Libraries
) -> None:
    kind = KINDS[name]
    a, b, bias = ordinary(batches, rows, kind.columns, kind.depth)
    kept = bias if device[1] else None
    ran = run(libraries[name], a, b, kept, layouts=kind.layouts, device=device)
    others = {"add_splits"} if name == "shares" else set()
    assert ran.kernels == CHAIN | kind.splits | others
    assert not ran.any_wide
    assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("name", KINDS)
def test_how_sums_are_promoted(name: str) -> None:
    kind = KINDS[name]
    is_short = kind.promoted < 64
    told = f"Steps = {kind.promoted // 16};" if is_short else f"Stages = {kind.promoted // 64};"
    assert f"constexpr int kPromoted{told}" in emulated(kind)


def test_all_else_takes_the_general_kernel(libraries: Libraries) -> None:
    library = libraries["short"]
    cases = [
        ((1, 8, 80, 128), ("unaligned", "transposed")),
        ((1, 8, 80, 128), ("contiguous", "transposed-unaligned")),
        ((1, 8, 80, 128), NATURAL),
        ((1, 8, 80, 128), ("odd-pitch", "transposed")),
        ((2, 8, 80, 128), ("contiguous", "transposed-odd")),
        ((1, 8, 80, 124), OTHER),
        ((1, 8, 84, 128), OTHER),
    ]
    for shape, layouts in cases:
        a, b, bias = operands(*shape)
        ran = run(library, a, b, bias, layouts=layouts)
        assert ran.kernels == GENERAL
        assert is_right(ran.out, a, b, bias)
    a, b, bias = operands(1, 8, 80, 128)
    assert run(library, a, b, bias, layouts=OTHER, shift=1).kernels == GENERAL
    try:
        library.set_capability(10)
        assert run(library, a, b, bias, layouts=OTHER).kernels == GENERAL
    finally:
        library.set_capability(9)


@pytest.mark.parametrize("layout", ["pitched", "broadcast"])
def test_aligned_layouts(layout: str, libraries: Libraries) -> None:
    a, b, bias = operands(3, 20, 80, 128)
    ran = run(libraries["short"], a, b, bias, layouts=(layout, f"transposed-{layout}"),
              device=(4, 0))  # fmt: skip
    assert ran.kernels >= CHAIN
    if layout == "broadcast":
        a, b = a[:1].expand_as(a), b[:1].expand_as(b)
    assert is_right(ran.out, a, b, bias)


@pytest.mark.parametrize("how", ["inf", "nan", "two-inf", "all-ranges", "denormal", "tiny", "huge"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_rows_out_of_the_ordinary(how: str, side: str, libraries: Libraries) -> None:
    torch.manual_seed(5)
    a, b = (torch.randn(1, count, 128).sign() * (torch.rand(1, count, 128) + 0.1)
            for count in (140, 80))  # fmt: skip
    a, b = (spoiled(a, how), b) if side == "a" else (a, spoiled(b, how))
    ran = run(libraries["short"], a, b, layouts=OTHER, device=(4, 0))
    assert ran.any_wide == (how not in {"tiny", "huge"})
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("values", ["positive", "both-signs"])
@pytest.mark.parametrize(
    ("name", "limit"),
    [("short", 5e-7), ("medium", 8e-7), ("shares", 8e-7), ("long", 1.2e-6), ("deep", 1.2e-6)],
)
def test_sums_lose_little_to_the_tensor_cores(
    values: str, name: str, limit: float, libraries: Libraries
) -> None:
    """On tensor cores that align what they sum."""
    kind = KINDS[name]
    torch.manual_seed(kind.depth)
    a, b = (0.01 + 0.99 * torch.rand(1, count, kind.depth) for count in (64, kind.columns))
    if values == "both-signs":
        a, b = a * torch.randn_like(a).sign(), b * torch.randn_like(b).sign()
    library = libraries[name]
    with aligned_terms(library):
        ran = run(library, a, b, layouts=kind.layouts, device=(2, 0))
    assert ran.kernels >= CHAIN
    assert not ran.any_wide
    assert error_of(ran.out, a, b) <= limit


def test_the_same_bits_in_whatever_order(libraries: Libraries) -> None:
    a, b, bias = operands(1, 200, 80, 2100)
    outs = [run(libraries["shares"], a, b, bias, layouts=OTHER, device=(8, seed)).out
            for seed in (0, 1, 2)]  # fmt: skip
    assert is_right(outs[0], a, b, bias)
    for out in outs[1:]:
        assert torch.equal(out, outs[0])


def test_whole_numbers_are_exact(libraries: Libraries) -> None:
    torch.manual_seed(3)
    a, b = (torch.randint(-30, 30, (2, count, 128)).float() for count in (130, 80))
    ran = run(libraries["short"], a, b, layouts=OTHER, device=(4, 1))
    assert not ran.any_wide
    assert torch.equal(ran.out, a @ b.mT)


@pytest.mark.parametrize("how", ["none", "all-ranges", "nan"])
def test_epilogue(how: str, libraries: Libraries) -> None:
    a, b, bias = operands(2, 131, 80, 128)
    a, b = a / a.norm(dim=2, keepdim=True), spoiled(b / b.norm(dim=2, keepdim=True), how)
    y = torch.randn(2, 131, 80)
    for kept in None, bias:
        ran = run(libraries["gelu"], a, b, kept, others=(y,), layouts=OTHER, device=(2, 1))
        check_gelu(ran.out, a, b, kept, y)


@pytest.mark.parametrize("rows", [131, 3])
def test_an_epilogue_reads_operands_of_every_pattern(rows: int, libraries: Libraries) -> None:
    a, b, _ = ordinary(1, rows, 80, 128)
    a, b = (x / x.norm(dim=2, keepdim=True) for x in (a, b))
    torch.manual_seed(5)
    given = {"per": torch.randn(80), "tall": torch.randn(rows, 1), "each": torch.randn(rows, 80)}
    given |= {"only": torch.randn(1), "flags": torch.rand(80) > 0.5}
    numbers = {"scale": 0.5, "two": 2.0}
    launch = with_patterns().partition("int product_launch(")[2].partition("stream) {")[0]
    tensors = re.findall(r"const \w+\* beside_(\w+),\n", launch.partition("bias,")[2])
    of_sizes = {"per": (1, 80), "flags": (1, 80), "tall": (80, rows), "only": (80 * rows, 1)}
    further: list[object] = [
        ctypes.c_float(numbers[n]) for n in re.findall(r"float beside_(\w+),", launch)
    ]
    for name in re.findall(r"int64_t beside_(\w+)_inner", launch):
        further += [ctypes.c_int64(size) for size in of_sizes[name]]
    ran = run(
        libraries["patterns"],
        a,
        b,
        others=tuple(given[name] for name in tensors),
        layouts=OTHER,
        device=(2, 1),
        further=tuple(further),
    )
    assert sorted(tensors) == sorted(given)
    product = (a @ b.mT)[0]
    names = {"torch": torch, "product": product, **given, **numbers}
    expected = eval(PATTERNS.replace("x @ y", "product"), names)
    torch.testing.assert_close(ran.out[0], expected, rtol=1e-5, atol=1e-5)


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    kind = KINDS["long"]
    torch.manual_seed(11)
    left, right = (
        torch.rand(1, 130, kind.depth) + 0.1,
        torch.rand(1, kind.columns, kind.depth) + 0.1,
    )
    first_larger = [x.clone() for x in (left, right)]
    for x in first_larger:
        x[:, :, :64] *= 1000.0
    last_larger = right.clone()
    last_larger[:, :, -8:] *= 1e5
    but_one = torch.arange(kind.depth) != 7
    products = [
        *itertools.product([(left, right)], (0, 1, SEED_OF_SLOW_ONES)),
        (tuple(first_larger), 0),
        ((left, last_larger), 0),
        ((spoiled(left, "large-and-one"), right * but_one), 0),
        ((left * but_one, spoiled(right, "large-and-one")), 0),
        ((spoiled(left, "tiny"), right), 0),
    ]
    for (a, b), seed in products:
        out = run(library, a, b, layouts=kind.layouts, device=(2, seed)).out
        yield is_right(out, a, b, bound=BOUND_OF_LONG_SUMS)


@pytest.mark.mutants
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["mutants"]
    check_mutants(library, MUTANTS, partial(findings, library))
