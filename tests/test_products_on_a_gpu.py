"""Rendered matrix products on a GPU, at shapes and layouts that take each way through the kernels.

tests/test_product_emulation.py, tests/test_slim_emulation.py and tests/test_hopper_emulation.py
have their arithmetic. Graphs need a device, and so does what its own instructions make of it.
"""

import functools
import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch

from kernelgen.engines.product import claims
from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render
from kernelgen.solution.importing import import_file

pytestmark = pytest.mark.gpu

LOGGER = logging.getLogger(__name__)

# Of (batches, rows, columns, depth), for the general kernel: tiles, tails and every kind of size.
SHAPES = [
    (1, 128, 168, 128),
    (1, 257, 333, 1000),
    (16, 130, 169, 72),
    (3, 200, 150, 77),
    (1, 64, 200, 20_000),
    (2, 300, 400, 8256),
    (1, 2500, 700, 1984),
    (1, 256, 256, 65_536),
    (1, 33, 1, 4097),
    (2, 3, 300, 5000),
    (1, 4000, 16, 1000),
    (2, 40, 2000, 700),
    (70, 9, 800, 132),
    (4, 128, 128, 1),
    (1, 4000, 3000, 8),
    (1, 2999, 3001, 31),
]
LAYOUTS = ["rows", "columns", "unaligned", "padded", "every second", "broadcast"]
# Whether a problem's inputs are the transposes of a (rows, depth) and b (columns, depth).
TRANSPOSED = {
    "matmul": (False, True),
    "matmul_transposed_left": (True, True),
    "matmul_transposed_right": (False, False),
    "matmul_transposed_both": (True, False),
}
Product = Callable[[Any, Any], Any]
Products = Callable[[str, int, int, int], Product]


@pytest.fixture(scope="session")
def products(tmp_path_factory: pytest.TempPathFactory) -> Products:
    """Return what renders a product for its number of rows, columns and its depth."""

    @functools.cache
    def product_for(name: str, rows: int, columns: int, depth: int) -> Product:
        sizes = {"rows": rows, "columns": columns, "depth": depth}
        named = {f"constants.{key}": str(value) for key, value in sizes.items()}
        model = imported(name, tmp_path_factory.mktemp(name), named).ModelNew()
        of_a, of_b = TRANSPOSED[name]

        def product(a: Any, b: Any) -> Any:
            with torch.no_grad():
                return model(a.mT if of_a else a, b.mT if of_b else b)

        return product

    return product_for


@pytest.fixture
def multiply(products: Products) -> Product:
    """Return a product whose shape no test has, so that the general kernel does it."""
    return products("matmul", 4096, 4096, 4096)


def imported(name: str, folder: Path, sizes: dict[str, str] | None = None) -> ModuleType:
    path = folder / f"{name}.py"
    problem = load_problem(name)
    # Of batches too, which have no .T.
    problem = msgspec.structs.replace(problem, model=re.sub(r"\.T\b", ".mT", problem.model))
    with mock.patch.object(claims, "_pays", return_value=True):  # however small it is
        path.write_text(render(problem, "cuda", sizes))
    return import_file(f"rendered_{name}", path)


def laid_out(x: Any, layout: str) -> Any:
    if layout == "columns":
        return x.mT.contiguous().mT
    if layout == "unaligned":
        return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)
    if layout == "padded":
        return torch.nn.functional.pad(x, (0, 4))[..., : x.shape[-1]]
    if layout == "every second":
        return x.repeat_interleave(2, dim=-1)[..., ::2]
    return x[:1].expand(x.shape) if layout == "broadcast" else x


def errors(a: Any, b: Any, out: Any) -> tuple[float, float]:
    """Return the largest error of a result and of torch's, relative to its row's largest.

    A row of one element may be near 0, so that one is relative to the column's largest.
    """
    exact = a.double() @ b.double().mT
    along = -1 if exact.shape[-1] > 1 else -2
    size = exact.abs().amax(along, keepdim=True).clamp_min(1e-300)
    own, of_torch = (float(((c.double() - exact).abs() / size).max()) for c in (out, a @ b.mT))
    size_of_it = f"{out.shape[-2]} x {out.shape[-1]} x {a.shape[-1]}"
    # `pytest -m gpu -rP --log-level=INFO` shows these.
    LOGGER.info("%s: %.1e, torch %.1e", size_of_it, own, of_torch)
    return own, of_torch


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_shape_and_layout_in_fp32(
    shape: tuple[int, int, int, int], layout: str, multiply: Product
) -> None:
    batches, rows, columns, depth = shape
    torch.manual_seed(sum(shape))
    a = laid_out(torch.randn(batches, rows, depth, device="cuda"), layout)
    for other in ("rows", layout):
        b = laid_out(torch.randn(batches, columns, depth, device="cuda"), other)
        error, of_torch = errors(a, b, multiply(a, b))
        # Of sums of 65 to 300 products, torch's are hardly rounded.
        assert error <= max(2 * of_torch, 8e-7)


# Each with a name of TRANSPOSED: how rows lie, of how much depth, and so many columns.
CHAINS = [
    ("matmul", 168, 128),
    ("matmul", 1000, 4096),
    ("matmul", 300, 4100),
    ("matmul", 400, 16_384),
    ("matmul_transposed_right", 333, 1000),
    ("matmul_transposed_right", 512, 10_000),
    ("matmul_transposed_left", 1024, 8192),
    ("matmul_transposed_both", 700, 520),
    # No whole vectors, and runs of the depth whose products are added up.
    ("matmul", 5921, 2949),
    ("matmul_transposed_left", 333, 701),
    ("matmul", 256, 65_536),
]


@pytest.mark.parametrize("data", ["normal", "wide", "not finite"])
@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_any_rows_and_batches_of_a_chain(
    chain: tuple[str, int, int], data: str, products: Products
) -> None:
    name, columns, depth = chain
    torch.manual_seed(depth)
    for main, batches, rows in (100_000, 1, 1000), (100_000, 3, 136), (256, 1, 256):
        a = torch.randn(batches, rows, depth, device="cuda")
        b = torch.randn(batches, columns, depth, device="cuda")
        if data == "wide":
            b[:, ::7] *= torch.exp2(torch.randint(-20, 21, b[:, ::7].shape, device="cuda"))
        if data == "not finite":
            b[0, columns // 2, depth - 1] = float("nan")
            b[-1, 3, 0] = float("-inf")
        of_a, of_b = TRANSPOSED[name]
        a, b = (
            laid_out(a, "columns" if of_a else "rows"),
            laid_out(b, "columns" if of_b else "rows"),
        )
        product = products(name, main, columns, depth)
        out, of_torch = product(a, b), a @ b.mT
        assert torch.equal(out.isnan(), of_torch.isnan())
        assert torch.equal(out.isinf(), of_torch.isinf())
        if data != "not finite":
            error, of_torch_s = errors(a, b, out)
            assert error <= max(2 * of_torch_s, 8e-7)
        assert torch.equal(product(a, b).nan_to_num(), out.nan_to_num())


@pytest.mark.parametrize("data", ["uniform", "normal", "wide", "rows apart"])
def test_long_sums_are_more_accurate_than_torch_s(data: str, products: Products) -> None:
    rows, columns, depth = 1024, 8192, 8192
    torch.manual_seed(depth)
    make = torch.rand if data == "uniform" else torch.randn
    a, b = make(1, rows, depth, device="cuda"), make(1, columns, depth, device="cuda")
    if data == "uniform":
        b = (2 * b - 1) / depth**0.5
    if data == "wide":
        a *= torch.exp2(torch.randint(-20, 21, a.shape, device="cuda"))
        b *= torch.exp2(torch.randint(-20, 21, b.shape, device="cuda"))
    if data == "rows apart":
        a *= 10.0 ** torch.randint(-15, 16, (1, rows, 1), device="cuda")
        b *= 10.0 ** torch.randint(-15, 16, (1, columns, 1), device="cuda")
    error, of_torch = errors(
        a, b, products("matmul_transposed_right", *(rows, columns, depth))(a, b)
    )
    assert error <= of_torch


@pytest.mark.parametrize("data", ["uniform", "normal"])
@pytest.mark.parametrize("depth", [12, 16, 32, 48, 64])
def test_short_sums_are_as_accurate_as_torch_s(depth: int, data: str, products: Products) -> None:
    torch.manual_seed(depth)
    make = torch.rand if data == "uniform" else torch.randn
    a, b = (make(1, count, depth, device="cuda") for count in (3000, 4000))
    error, of_torch = errors(a, b, products("matmul_transposed_right", 3000, 4000, depth)(a, b))
    assert error <= 2 * of_torch


@pytest.mark.parametrize("data", ["uniform", "normal", "wide"])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("shape", [(8000, 32, 64), (4000, 16, 1000), (3000, 64, 8192)], ids=str)
def test_narrow_products_are_as_accurate_as_torch_s(
    shape: tuple[int, int, int], layout: str, data: str, products: Products
) -> None:
    rows, columns, depth = shape
    torch.manual_seed(depth)
    make = torch.rand if data == "uniform" else torch.randn
    a, b = (make(1, count, depth, device="cuda") for count in (rows, columns))
    if data == "wide":
        a *= torch.exp2(torch.randint(-20, 21, a.shape, device="cuda"))
        b *= torch.exp2(torch.randint(-20, 21, b.shape, device="cuda"))
    a = laid_out(a, layout)
    # Of other layouts, and with few rows, by the general kernel.
    multiply = products("matmul", *shape)
    for left, right in (a, laid_out(b, "columns")), (b, a):
        error, of_torch = errors(left, right, multiply(left, right))
        assert error <= max(2 * of_torch, 3e-7)


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_what_bf16_cannot_hold(layout: str, products: Products) -> None:
    multiply = products("matmul", 3000, 40, 640)
    torch.manual_seed(3)
    a, b = torch.randn(1, 3000, 640, device="cuda"), torch.randn(1, 40, 640, device="cuda")
    a[0, 3] = 0.0
    a[0, 5] = 1e-42
    a[0, 9, 100] = float("nan")
    a[0, 11, 5] = float("inf")
    a[0, 12, :2] = torch.tensor([float("inf"), float("-inf")])
    a[0, 20] *= 1e30
    a[0, 40] *= 1e-30
    a[0, 41] *= 1e-37
    a[0, 42] = torch.finfo(torch.float32).max
    b[0, 7] = 0.0
    b[0, 13, 6] = float("-inf")
    b[0, 30] *= 1e-30
    b[0, 31] *= 1e30
    b[0, 32] = 1e-42
    b[0, 33] = torch.finfo(torch.float32).max
    for left, right in (laid_out(a, layout), b), (b, laid_out(a, layout)):
        out, exact = multiply(left, right)[0], (left.double() @ right.double().mT)[0]
        of_torch = (left @ right.mT)[0]
        magnitudes = (x.double().abs().nan_to_num(0.0, 0.0) for x in (left, right.mT))
        size = torch.matmul(*magnitudes)[0] + 1e-38
        held = size < 1e37  # so that no sum overflows on its way
        ordinary = held & exact.isfinite()
        assert bool(out[ordinary].isfinite().all())
        # Inf times what is tiny is NaN.
        spoiled = held & (size > 1e-37) & ~exact.isfinite()
        assert int(ordinary.sum()) > 100_000
        assert int(spoiled.sum()) > 2_000
        assert torch.equal(out[spoiled].isnan(), exact[spoiled].isnan())
        assert torch.equal(out[spoiled].isposinf(), exact[spoiled].isposinf())
        own, torchs = (((x.double() - exact).abs() / size)[ordinary].max()
                       for x in (out, of_torch))  # fmt: skip
        assert float(own) <= max(2 * float(torchs), 5e-7)


def test_what_short_rows_of_halves_cannot_hold(products: Products) -> None:
    multiply = products("matmul_transposed_right", 3000, 3001, 40)
    torch.manual_seed(3)
    a, b = torch.randn(1, 3000, 40, device="cuda"), torch.randn(1, 3001, 40, device="cuda")
    a[0, 3] = 0.0
    a[0, 9, 39] = float("nan")
    a[0, 1500] *= 1e30
    a[0, 2000, 1:] *= 1e-7
    b[0, 7] = 0.0
    b[0, 13, 6] = float("-inf")
    b[0, 2999] *= 1e-30
    b[0, 60, 0] = 0.0
    out, of_torch = multiply(a, b)[0], (a @ b.mT)[0]
    assert torch.equal(out.isnan(), of_torch.isnan())
    assert torch.equal(out.isinf(), of_torch.isinf())
    exact = (a.double() @ b.double().mT)[0]
    size = (a.double().abs() @ b.double().abs().mT)[0] + 1e-38
    finite = of_torch.isfinite()
    # The largest value of row 2000 meets a zero, and the others count. Of 16 products that are
    # summed at once, each may lose 2^-24 of the largest: 9.5e-7.
    assert float(((out.double() - exact).abs() / size)[finite].max()) <= 1e-6


def test_what_halves_cannot_hold(products: Products) -> None:
    multiply = products("matmul_transposed_right", 300, 400, 640)
    torch.manual_seed(3)
    a, b = torch.randn(1, 300, 640, device="cuda"), torch.randn(1, 400, 640, device="cuda")
    a[0, 3] = 0.0
    a[0, 5] = 1e-42
    a[0, 9, 100] = float("nan")
    a[0, 11, 5] = float("inf")
    a[0, 20] *= 1e30
    a[0, 40] *= 1e-30
    a[0, 41, 0] = 1e30
    a[0, 60] = 0.0
    a[0, 60, :6] = torch.tensor([1e30, 1.0, 1e-3, 2e-3, 3e-3, 4e-3])
    b[0, 7] = 0.0
    b[0, 13, 6] = float("-inf")
    b[0, 30] *= 1e-30
    b[0, 60, 0] = 0.0
    out, of_torch = multiply(a, b)[0], (a @ b.mT)[0]
    assert torch.equal(out.isnan(), of_torch.isnan())
    assert torch.equal(out.isinf(), of_torch.isinf())
    finite = of_torch.isfinite()
    assert bool((out[3][finite[3]] == 0.0).all())
    # The largest value of row 60 meets a zero, and the others count.
    exact = (a[0, 60].double() * b[0, 60].double()).sum()
    assert abs(out[60, 60].double() - exact) <= 1e-6 * abs(exact)


def test_the_same_bits_again(products: Products) -> None:
    multiply = products("matmul_transposed_right", 90, 80, 12_000)
    a, b = torch.randn(1, 90, 12_000, device="cuda"), torch.randn(1, 80, 12_000, device="cuda")
    first = multiply(a, b)
    assert all(torch.equal(multiply(a, b), first) for _ in range(3))


def test_a_graph_replays_on_new_inputs(products: Products) -> None:
    multiply = products("matmul_transposed_right", 500, 400, 3000)
    a, b = torch.randn(1, 500, 3000, device="cuda"), torch.randn(1, 400, 3000, device="cuda")
    multiply(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = multiply(a, b)
    for _ in range(3):
        a.copy_(torch.randn_like(a) * 4.0)
        graph.replay()
        error, of_torch = errors(a, b, out)
        # Of sums of 65 to 300 products, torch's are hardly rounded.
        assert error <= max(2 * of_torch, 8e-7)


@pytest.mark.parametrize(
    "sizes", [(300, 200, 500), (12, 16, 20_000), (200, 3, 1000), (3000, 12, 200), (3000, 2999, 20)],
    ids=str,
)  # fmt: skip
def test_the_epilogue_follows_every_kernel(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    rows, columns, depth = sizes
    named = zip(("rows", "columns", "depth"), sizes, strict=True)
    constants = {f"constants.{name}": str(size) for name, size in named}
    model = imported("matmul_add_gelu", tmp_path, constants).ModelNew()
    for count in rows, 150:
        a = torch.randn(count, depth, device="cuda")
        b = torch.randn(depth, columns, device="cuda") / depth**0.5
        y = torch.randn(count, columns, device="cuda")
        with torch.no_grad():
            out = model(a, b, y)
        exact = torch.nn.functional.gelu(a.double() @ b.double() + y.double())
        assert float((out.double() - exact).abs().max()) <= 5e-6
