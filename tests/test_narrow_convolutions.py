"""Convolutions of bf16 and fp16 values: read as they are, summed in fp32, rounded once."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import planned_models
import pytest
import torch
from planned_models import Planned, problem_of
from products_on_the_cpu import for_the_cpu
from test_convolutions import CONV2, OTHERS, SAMPLES, TURNED2

from kernelgen.engines.convolution import convolution, tiling
from kernelgen.engines.convolution.record import Convolution
from kernelgen.engines.stage import Library
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import DTYPES, MAIN, Precision, Problem
from kernelgen.rendering.planned import render_planned

PRECISIONS: tuple[Precision, ...] = ("bf16", "fp16")
OWN = {
    "many stages": (CONV2, "96, 70, 3", "1, 96, 5, 40", "y"),
    "two tiles, turned": (TURNED2, "8, 40, 3, 2, 1, 1", "2, 8, 7, 13", "y.relu()"),
    "spread of three tiles": (TURNED2, "8, 40, 3, 2, 1, 1", "2, 8, 11, 13", "y.std((2, 3))"),
}
KINDS = SAMPLES | OWN
# Kernels beside the convolution: a mean that is gathered in fp32 is rounded by one of its own.
BESIDE = OTHERS | {
    "spread of three tiles": 1,
    "mean of pixels": 1,
    "mean of pixels, turned": 1,
    "group norm's mean, few": 2,
}


@pytest.fixture
def every_size_pays() -> Iterator[None]:
    # A few multiprocessors have tiles left for others.
    with (
        mock.patch.multiple(convolution, _LEAST_RESULTS=0, _LEAST_TILES=0),
        mock.patch.object(tiling, "_MULTIPROCESSORS", 5),
    ):
        yield


def problem(name: str, precision: Precision, folder: Path) -> Problem:
    layer, arguments, shape, after = KINDS[name]
    filters = arguments.split(", ")[1]
    ones = ", 1" * (2 if "2d" in layer else 1 if "1d" in layer else 3)
    layers = f"self.conv = {layer.format(arguments)}"
    if "self.scale" in after:
        layers += f"\nself.scale = nn.Parameter(torch.randn({filters}{ones}))"
    inputs = {"x": f"torch.randn({shape})"}
    if "other" in after:
        inputs["other"] = "torch.randn(2, 20, 6, 9)"
    found = problem_of(folder, after, layers=layers, before="y = self.conv(x)", **inputs)
    return msgspec.structs.replace(found, precision=precision)


def check(it: Planned, name: str, precision: Precision) -> None:
    """Compare with float64, also where some values are not finite."""
    # Values between kernels are rounded as well.
    several = name in BESIDE
    dtype = getattr(torch, DTYPES[precision])
    tolerance = 2 * torch.finfo(dtype).eps if several else 1e-5
    torch.manual_seed(5)
    it.check(tolerance=tolerance)
    assert len(it.launched) == 1 + BESIDE.get(name, 0), "the convolution has all that follows"
    x, *others = it.inputs()
    if not others and x.dim() > 3:
        # Another number of images is the main case's; another width is the general kernel's.
        it.check(torch.cat([x, x[:1]]), tolerance=tolerance)
        it.check(torch.cat([x, x], -1), tolerance=tolerance)
    x.view(-1)[3], x.view(-1)[-1] = float("nan"), float("inf")
    it.check(x, *others, tolerance=tolerance)
    model = it.models()[1].to(dtype)
    assert it.run(*(one.to(dtype) for one in (x, *others)), model=model).dtype == dtype


@pytest.mark.ci
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KINDS)
def test_a_convolution_in_16_bits_is_rounded_once(
    name: str, precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    it = Planned(problem(name, precision, tmp_path), "cuda", compiled_folder)
    check(it, name, precision)


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", KINDS)
def test_a_convolution_in_16_bits_on_a_gpu(name: str, precision: Precision, tmp_path: Path) -> None:
    it = Planned(problem(name, precision, tmp_path), "cuda", tmp_path, "cuda")
    check(it, name, precision)


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_a_model_wants_in_float32_is(
    precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    wide = {"3x3": (*KINDS["3x3"][:3], "torch.relu(y).float() * 3")}
    with mock.patch.dict(KINDS, wide):
        it = Planned(problem("3x3", precision, tmp_path), "cuda", compiled_folder)
    it.check(tolerance=3e-5)
    assert len(it.launched) == 1
    dtype = getattr(torch, DTYPES[precision])
    assert it.run(it.inputs()[0].to(dtype), model=it.models()[1].to(dtype)).dtype == torch.float32


# A sample, an expression of its kernel, and what is wrong instead.
MUTANTS = {
    "both tiles are the first": ("3x3", "kFilterBytes + kPixelBytes);", "kFilterBytes);"),
    "both results are those of the first": ("3x3", "total[i] = sum[i];", ";"),
    "both warpgroups have the first tile": (
        "dilated groups",
        "stage, stage + kFilterBytes + warpgroup * kPixelBytes",
        "stage, stage + kFilterBytes",
    ),
    "both fill the first tile": ("3x3", "warpgroup * kPixelBytes + place * 16", "place * 16"),
    "a stage is let go of while it is multiplied": (
        "many stages",
        "ptx::wait_for_groups<1>();",
        "",
    ),
    "shifts read the same": ("3x3", "shift * kShift", "0"),
    "inf goes to neighbours": ("turned by two", "(wide & 0x80008000u) != 0", "false"),
    "only the first tile is computed again": (
        "two tiles, turned",
        "item.first_pixel += index % 2 * kPixels;",
        "",
    ),
}


@pytest.mark.mutants
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_of_a_convolution_in_16_bits_are_found(
    mutant: str, tmp_path: Path, compiled_folder: Path
) -> None:
    name, right, wrong = MUTANTS[mutant]

    def mutated(source: str) -> str:
        assert source.count(right) == 1
        return for_the_cpu(source.replace(right, wrong))

    with mock.patch.object(planned_models, "for_the_cpu", mutated):
        it = Planned(problem(name, "bf16", tmp_path), "cuda", compiled_folder)
    with pytest.raises(AssertionError):
        check(it, name, "bf16")


LAYERS = {
    "nn.Conv2d(64, 128, 3)": ("32, 64, 128, 128", "tensor"),
    "nn.ConvTranspose3d(32, 64, 3, 2, 1)": ("32, 32, 16, 32, 32", "tensor"),
    "nn.Conv2d(512, 512, 3, padding=1)": ("64, 512, 28, 28", "tensor"),
    "nn.Conv2d(64, 64, 3, groups=64)": ("16, 64, 128, 128", "direct"),
    "nn.Conv2d(3, 16, 3)": ("64, 3, 128, 128", "few"),
    "nn.Conv2d(64, 64, 3)": ("1, 64, 14, 14", ""),
    "nn.Conv2d(4096, 64, 3)": ("16, 4096, 64, 64", ""),  # longer sums than fp32's rounding allows
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_large_convolutions_are_own(layer: str, precision: Precision, tmp_path: Path) -> None:
    shape, way = LAYERS[layer]
    found = problem_of(
        tmp_path, "self.c(x).relu()", layers=f"self.c = {layer}", x=f"torch.randn({shape})"
    )
    found = msgspec.structs.replace(found, precision=precision)
    plan = plan_of_problem(found, MAIN, "cuda").plan
    own = [stage.way for stage in plan.stages if isinstance(stage, Convolution)]
    assert own == [way] * bool(way)
    assert len([s for s in plan.stages if isinstance(s, Library) and s.computes]) == (not way)
    text = render_planned(found, "cuda", {}, arch="sm_100a")
    assert "MainSizes" not in text
