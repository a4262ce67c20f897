"""Products of bf16 and fp16 values: read as they are, summed in fp32, rounded once."""

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import planned_models
import pytest
import torch
from planned_models import Planned, problem_of, ptx_of
from products_on_the_cpu import for_the_cpu, with_mutants

from kernelgen.engines.product import choice, claims
from kernelgen.engines.product.record import Product
from kernelgen.engines.stage import Library
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import DTYPES, MAIN, Device, Precision, Problem
from kernelgen.rendering.planned import render_planned

FAST, GENERAL = "fast::multiply", "general::multiply"
# Columns of a tile, in each of which another type is computed.
TILES: list[tuple[Precision, int]] = [("bf16", 256), ("fp16", 128)]


class Kind(NamedTuple):
    """A model with one product, whose sums are near 1."""

    forward: str
    inputs: dict[str, str]
    layers: str = "pass"
    others: int = 0  # kernels beside the product, with values between them that are rounded as well


def of(**shapes: tuple[int, ...]) -> dict[str, str]:
    """Return inputs of these shapes, whose products have sums near 1."""
    return {name: f"torch.randn{shape} / {shape[-1]} ** 0.25" for name, shape in shapes.items()}


KINDS = {
    "a matrix": Kind("x @ y", of(x=(70, 200), y=(200, 136))),
    "odd columns": Kind(
        "F.gelu(self.l(x))", of(x=(270, 72)), "self.l = nn.Linear(72, 301)"
    ),
    "a layer": Kind("F.silu(self.l(x))", of(x=(2, 150, 136)), "self.l = nn.Linear(136, 304)"),
    "the left one turned": Kind("(x.mT @ y).relu()", of(x=(136, 264), y=(136, 520))),
    "both turned": Kind("x.mT @ y.mT", of(x=(80, 136), y=(140, 80))),
    "a batch": Kind(
        "torch.bmm(x, y) + r", of(x=(3, 130, 64), y=(3, 64, 144), r=(3, 130, 144))
    ),
    "one for all of a batch": Kind("x @ y", of(x=(3, 270, 200), y=(1, 200, 264))),
    "added": Kind(
        "torch.addmm(self.b, x, self.w) * 2",
        of(x=(40, 1096)),
        "self.b = nn.Parameter(torch.randn(136))\n"
        "self.w = nn.Parameter(torch.randn(1096, 136) / 33)",
    ),
    "operands of every pattern": Kind(
        "torch.tanh(x @ y * per + tall - each) * 0.5 + torch.where(flags, 2.0, only)",
        of(x=(150, 64), y=(64, 88), per=(88,), tall=(150, 1), each=(150, 88), only=(1,))
        | {"flags": "torch.rand(88) > 0.5"},
    ),
    "in float32": Kind("(x @ y).float() * 2", of(x=(130, 96), y=(96, 136))),
    "before a softmax": Kind(
        "F.softmax(self.l(x), 1)", of(x=(70, 64)), "self.l = nn.Linear(64, 136)", 1
    ),
    "behind a map": Kind(
        "self.l(torch.sigmoid(x)) + x", of(x=(70, 136)), "self.l = nn.Linear(136, 136)", 1
    ),
    "an einsum": Kind("torch.einsum('bij,bkj->bik', x, y)", of(x=(2, 70, 72), y=(2, 136, 72))),
}  # fmt: skip


@pytest.fixture
def every_size_pays() -> Iterator[None]:
    with (
        mock.patch.object(claims, "_pays", return_value=True),
        mock.patch.object(choice, "_LEAST_FILLED", 0.0),
    ):
        yield


def problem(kind: Kind, precision: Precision, folder: Path) -> Problem:
    found = problem_of(folder, kind.forward, layers=kind.layers, **kind.inputs)
    return msgspec.structs.replace(found, precision=precision)


def planned(
    kind: Kind, precision: Precision, tile: int, folders: tuple[Path, Path], device: Device = "cpu"
) -> Planned:
    """Return a solution with tiles of so many columns; the folders are its own and for builds."""
    with mock.patch.dict("kernelgen.engines.product.choice._TILES", narrow={tile: 1.0}):
        it = Planned(problem(kind, precision, folders[0]), "cuda", folders[1], device)
    assert f"kTileColumns = {tile};" in it.text
    if device == "cpu":
        it.library.launched.restype = ctypes.c_char_p
        it.library.set_device(6, 1)
    return it


def multiplied(it: Planned) -> list[str]:
    """Return the kernels of products that were launched since it was asked last."""
    launches = it.library.launched().decode()
    assert not it.library.was_stuck()
    return re.findall(r"kKernel = &?\w+::(\w+::multiply)", launches)


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(("precision", "tile"), TILES)
@pytest.mark.parametrize("name", KINDS)
def test_a_product_in_16_bits_is_rounded_once(
    name: str, precision: Precision, tile: int, tmp_path: Path, compiled_folder: Path
) -> None:
    kind = KINDS[name]
    it = planned(kind, precision, tile, (tmp_path, compiled_folder))
    tolerance = torch.finfo(getattr(torch, DTYPES[precision])).eps if kind.others else 1e-5
    torch.manual_seed(5)
    it.check(tolerance=tolerance)
    assert multiplied(it) == [FAST]
    assert len(it.launched) == 1 + kind.others
    x, *others = it.inputs()
    x.view(-1)[3], x.view(-1)[-1] = float("nan"), float("inf")
    it.check(x, *others, tolerance=tolerance)
    assert multiplied(it) == [FAST]


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(("precision", "tile"), TILES)
def test_a_layer_takes_any_rows_and_memory(
    precision: Precision, tile: int, tmp_path: Path, compiled_folder: Path
) -> None:
    it = planned(KINDS["a layer"], precision, tile, (tmp_path, compiled_folder))
    dtype = getattr(torch, DTYPES[precision])

    def of_memory(*shape: int, shift: int = 0, pitch: int = 136) -> Any:
        memory = torch.randn(shape[0] * pitch + shape[1] + shift) / 3
        return memory.to(dtype).as_strided(shape, (pitch, 1), shift)

    for x, kernel in (
        (of_memory(1, 136), FAST),
        (of_memory(515, 136), FAST),
        (of_memory(70, 136, shift=8, pitch=144), FAST),
        (of_memory(70, 136, shift=1), GENERAL),  # not aligned
        (of_memory(70, 136, pitch=141), GENERAL),
        (of_memory(70, 136, pitch=8), GENERAL),  # rows overlap
    ):
        it.check(x[None])
        assert multiplied(it) == [kernel]
    try:
        it.library.set_capability(10)
        it.check()
        assert multiplied(it) == [GENERAL]
    finally:
        it.library.set_capability(9)


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_long_sum_of_few_results_is_shared_by_blocks(
    precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    kind = Kind("(x @ y).relu()", of(x=(24, 1096), y=(1096, 16)))
    it = planned(kind, precision, 128, (tmp_path, compiled_folder))
    x, y = it.inputs()
    shifted = torch.empty(x.numel() + 1).to(getattr(torch, DTYPES[precision]))[1:]
    it.check(shifted.view(x.shape).copy_(x), y)
    assert "add_shares" in it.text
    assert multiplied(it) == [GENERAL]


# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "both blocks copy to the same place": ("rank * (kColumnBytes / kCluster)", "0"),
    "both blocks copy the same columns": ("rank * (kTileColumns / kCluster)", "0"),
    "both warpgroups multiply the same rows": ("warpgroup * 64 * kStageDepth * 2", "0"),
    "a sum begins anew in each stage": ("goes_on || k > 0", "k > 0"),
    "a stage is let go of while it is multiplied": ("ptx::wait_for_groups<1>();", ""),
    "strips are at the same place": ("columns + strip * kStripBytes", "columns"),
    "a batch's own is read where there is one": ("args.b.batch_stride == 0", "false"),
    "the first pairs are not exchanged": ("pairs[k] = odd ? got : pairs[k];", ""),
    "the last pairs are not exchanged": ("pairs[k + 2] = high ? pairs[k + 2] : got;", ""),
    "both halves are the first rows": ("first_row + 8 * half", "first_row"),
}  # fmt: skip


@pytest.mark.mutants
@pytest.mark.usefixtures("every_size_pays")
def test_comparisons_find_what_is_wrong(tmp_path: Path, compiled_folder: Path) -> None:
    kind = Kind(
        "x @ y + self.b", KINDS["one for all of a batch"].inputs,
        "self.b = nn.Parameter(torch.randn(264))",
    )  # fmt: skip

    def wrong(source: str) -> str:
        return with_mutants(for_the_cpu(source), MUTANTS)

    with mock.patch.object(planned_models, "for_the_cpu", wrong):
        it = planned(kind, "bf16", 256, (tmp_path, compiled_folder))
    mutant = ctypes.c_int.in_dll(it.library, "mutant")
    it.check()
    try:
        for number, name in enumerate(MUTANTS, 1):
            mutant.value = number
            try:
                it.check()
            except AssertionError:
                continue
            assert it.library.was_stuck(), name
    finally:
        mutant.value = 0


SQUARE = {"x": "torch.randn(4096, 4096)", "y": "torch.randn(4096, 4096)"}
LAYER = "self.l = nn.Linear({}, {})"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (Kind("x @ y", SQUARE), True),
        (Kind("x.mT @ y.mT", SQUARE), True),
        (Kind("F.gelu(self.l(x))", of(x=(1024, 8192)), LAYER.format(8192, 8192)), True),
        (Kind("x @ y", of(x=(128, 512, 1024), y=(128, 1024, 2048))), True),
        (Kind("self.l(x)", of(x=(4096, 4098)), LAYER.format(4098, 4096)), False),
        (Kind("self.l(x)", of(x=(64, 8192)), LAYER.format(8192, 8192)), False),  # few rows
        (Kind("self.l(x)", of(x=(1024, 8192)), LAYER.format(8192, 1024)), False),  # few tiles
        (Kind("self.l(x)", of(x=(2048, 32768)), LAYER.format(32768, 4096)), False),
        (Kind("x @ y.float().mT.to(x.dtype)[:, :40]", SQUARE), False),
    ],
)
def test_large_aligned_products_are_own(
    kind: Kind,
    own: bool,  # noqa: FBT001
    precision: Precision,
    tmp_path: Path,
) -> None:
    found = problem(kind, precision, tmp_path)
    devices: tuple[tuple[Device, bool], ...] = (("cuda", own), ("cpu", False))
    for device, expected in devices:
        plan = plan_of_problem(found, MAIN, device).plan
        products = [s for s in plan.stages if isinstance(s, Product)]
        assert [s.fast.kernel for s in products] == ["narrow"] * expected
        assert not expected or not [s for s in plan.stages if isinstance(s, Library) and s.computes]


def test_other_architectures_leave_them_in_torch(tmp_path: Path) -> None:
    found = problem(Kind("F.relu(x @ y)", SQUARE), "bf16", tmp_path)
    for arch in "sm_80", "sm_100a":
        text = render_planned(found, "cuda", {}, arch=arch)
        assert "x.matmul(y)" in text
        assert "wgmma" not in text


@pytest.mark.nvcc
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_row_s_operand_is_looked_for_once(precision: Precision, tmp_path: Path) -> None:
    """Divisions for each of a thread's sums made ptxas take minutes."""
    tall = Kind("x @ y * tall", of(x=(4096, 1024), y=(1024, 4096), tall=(4096, 1)))
    entries = ptx_of(problem(tall, precision, tmp_path), tmp_path).split(".entry")
    fast = [text for text in entries if "wgmma" in text]
    assert [len(re.findall(r"\brem\.", text)) for text in fast] == [2 * 3 * 2]


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(("precision", "tile"), TILES)
@pytest.mark.parametrize("name", KINDS)
def test_a_product_in_16_bits_on_a_gpu(
    name: str, precision: Precision, tile: int, tmp_path: Path
) -> None:
    it = planned(KINDS[name], precision, tile, (tmp_path, tmp_path), "cuda")
    tolerance = torch.finfo(getattr(torch, DTYPES[precision])).eps if KINDS[name].others else 1e-5
    torch.manual_seed(5)
    it.check(tolerance=tolerance)
    x, *others = it.inputs()
    x.view(-1)[3], x.view(-1)[-1] = float("nan"), float("inf")
    it.check(x, *others, tolerance=tolerance)
