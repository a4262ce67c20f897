"""Convolutions of our own: which taps read where, and the kernels in the emulation and on a GPU."""

import ctypes
import random
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import planned_models
import pytest
from planned_models import Planned, emulated, problem_of
from products_on_the_cpu import for_the_cpu

from kernelgen.engines.convolution import convolution, tiling
from kernelgen.engines.convolution.record import Geometry
from kernelgen.engines.convolution.tiling import STAGE_DEPTH, Tiling, tiling_of
from kernelgen.problem.record import Device
from kernelgen.rendering.planned import render_planned

TRIES = 150
SHIPPED = {name: getattr(convolution, name) for name in ("_LEAST_RESULTS", "_LEAST_TILES")}


@pytest.fixture(autouse=True)
def every_size_pays() -> Iterator[None]:
    # A few multiprocessors have tiles left for others.
    with (
        mock.patch.multiple(convolution, _LEAST_RESULTS=0, _LEAST_TILES=0),
        mock.patch.object(tiling, "_MULTIPROCESSORS", 5),
    ):
        yield


def geometry(rng: random.Random, *, transposed: bool) -> Geometry | None:
    """Return a convolution of any kind; None if it has no result."""
    dims = rng.randint(1, 3)

    def three(choices: tuple[int, ...], missing: int) -> tuple[int, int, int]:
        found = [missing] * (3 - dims) + [rng.choice(choices) for _ in range(dims)]
        return (found[0], found[1], found[2])

    size, kernel = three((1, 4, 5, 7, 9), 1), three((1, 2, 3, 4, 5, 7), 1)
    stride, dilation = three((1, 1, 2, 3), 1), three((1, 1, 2, 3), 1)
    padding = three((0, 1, 2), 0)
    extra = [rng.randrange(max(s, d)) for s, d in zip(stride, dilation, strict=True)]
    extra = [one if transposed and dim >= 3 - dims else 0 for dim, one in enumerate(extra)]
    output = []
    for n, k, s, p, d, e in zip(size, kernel, stride, padding, dilation, extra, strict=True):
        if transposed:
            output.append((n - 1) * s - 2 * p + d * (k - 1) + e + 1)
        else:
            output.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    if min(output) < 1:
        return None
    return Geometry(
        images=rng.randint(1, 2),
        groups=rng.choice((1, 1, 2)),
        channels=rng.choice((1, 3, 8)),
        filters=rng.choice((1, 5, 16, 40)),
        input=size,
        kernel=kernel,
        output=(output[0], output[1], output[2]),
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
    )


def by_tables(t: Tiling, g: Geometry, x: Any, weight: Any) -> Any:
    """Return the convolution that a kernel computes by its tables, in float64."""
    import torch

    out = torch.full((g.images, g.groups * g.filters, *g.output), torch.nan, dtype=torch.float64)
    strides = g.stride if g.transposed else (1, 1, 1)
    steps = (1, 1, 1) if g.transposed else g.stride
    flat = x.flatten(2)
    beside = [t.residues >= 8, t.residues >= 4, t.residues >= 2]
    neighbours = list(product(*[range(2) if one else range(1) for one in beside]))
    for phase, place in product(t.phases, product(*map(range, t.lattice))):
        if place[2] >= t.width:
            continue
        first = [at * step for at, step in zip(place, steps, strict=True)]
        for number, neighbour in enumerate(neighbours):
            at = [
                p * s + r + n
                for p, s, r, n in zip(place, strides, phase[4:], neighbour, strict=True)
            ]
            if any(one >= size for one, size in zip(at, g.output, strict=True)):
                continue
            total = torch.zeros((g.images, g.groups * g.filters), dtype=torch.float64)
            for tap in t.taps[phase.first_tap : phase.first_tap + phase.taps]:
                for shift in range(t.shifts):
                    of = tap.weights[shift * t.residues + number]
                    read = [
                        one + far[index]
                        for one, far, index in zip(first, t.distances, tap[1:4], strict=True)
                    ]
                    read[2] += shift * t.step
                    inside = all(0 <= one < n for one, n in zip(read, g.input, strict=True))
                    assert inside or t.padded or of < 0
                    if not inside or of < 0:
                        continue
                    index = (read[0] * g.input[1] + read[1]) * g.input[2] + read[2]
                    linear = (first[0] * g.input[1] + first[1]) * g.input[2] + first[2]
                    assert index == linear + tap.offset + shift * t.step
                    values = flat[:, :, index].view(g.images, g.groups, 1, g.channels)
                    total += (values * weight[..., of]).sum(-1).flatten(1)
            assert out[:, :, at[0], at[1], at[2]].isnan().all(), "a result has two places"
            out[:, :, at[0], at[1], at[2]] = total
    return out


@pytest.mark.parametrize("transposed", [False, True])
def test_tables_of_taps_are_the_convolution(*, transposed: bool) -> None:
    import torch

    rng = random.Random(7)
    found = [geometry(rng, transposed=transposed) for _ in range(TRIES)]
    tried = 0
    for g in filter(None, found):
        t = tiling_of(g)
        assert t is not None
        x = torch.randn(g.images, g.groups * g.channels, *g.input, dtype=torch.float64)
        weight = torch.randn(g.groups, g.filters, g.channels, *g.kernel, dtype=torch.float64)
        if g.transposed:
            extra = [
                o - ((n - 1) * s - 2 * p + d * (k - 1) + 1)
                for o, n, k, s, p, d in zip(
                    g.output, g.input, g.kernel, g.stride, g.padding, g.dilation, strict=True
                )
            ]
            exact = torch.nn.functional.conv_transpose3d(
                x,
                weight.transpose(1, 2).flatten(0, 1),
                None,
                g.stride,
                g.padding,
                extra,
                g.groups,
                g.dilation,
            )
        else:
            exact = torch.nn.functional.conv3d(
                x, weight.flatten(0, 1), None, g.stride, g.padding, g.dilation, g.groups
            )
        torch.testing.assert_close(by_tables(t, g, x, weight.flatten(3)), exact)
        depth = sum(-(-phase.taps * g.channels // STAGE_DEPTH) for phase in t.phases)
        assert depth == t.blocks
        tried += 1
    assert tried > TRIES // 3


@pytest.mark.parametrize(
    ("sizes", "way"),
    [
        ((10, 512, 512, 14, 3), "tensor"),
        ((10, 64, 64, 56, 3), "tensor"),
        ((10, 128, 128, 28, 3), "tensor"),
        ((10, 256, 64, 56, 1), None),  # gains less than the host takes
        ((1, 2048, 2048, 7, 1), None),  # tiles of few multiprocessors
        ((10, 512, 512, 7, 3), None),
        ((10, 3, 64, 112, 7), None),  # few channels
        ((1, 8, 64, 16, 3), None),  # over before the kernels around it
        ((10, 1, 32, 224, 3), "direct"),
        ((2, 1, 32, 56, 3), None),
    ],
)
def test_networks_have_convolutions_where_these_are_sooner(
    sizes: tuple[int, ...], way: str | None
) -> None:
    images, channels, filters, size, kernel = sizes
    g = Geometry(
        images=images,
        groups=1,
        channels=channels,
        filters=filters,
        input=(1, size, size),
        kernel=(1, kernel, kernel),
        output=(1, size, size),
        stride=(1, 1, 1),
        padding=(0, kernel // 2, kernel // 2),
        dilation=(1, 1, 1),
        transposed=False,
    )
    with (
        mock.patch.multiple(convolution, **SHIPPED),
        mock.patch.object(tiling, "_MULTIPROCESSORS", 132),
    ):
        assert convolution.way_of(g) == way


CONV1, CONV2, CONV3 = ("nn.Conv1d({})", "nn.Conv2d({})", "nn.Conv3d({})")
TURNED1, TURNED2, TURNED3 = (
    "nn.ConvTranspose1d({})",
    "nn.ConvTranspose2d({})",
    "nn.ConvTranspose3d({})",
)
# A layer, the shape of its input, and what is made of its result.
SAMPLES = {
    "3x3": (CONV2, "16, 70, 3", "2, 16, 9, 13", "torch.relu(y) + self.scale"),
    "three channels": (CONV3, "3, 16, 3, padding=1", "2, 3, 5, 6, 7", "torch.tanh(y) * 0.5"),
    "unbatched": (CONV2, "8, 4, (2, 3), bias=False", "8, 5, 40", "y"),
    "strided": (CONV2, "8, 24, 3, stride=(2, 3), padding=2", "1, 8, 15, 17", "y"),
    "dilated groups": (CONV1, "16, 12, 5, dilation=3, groups=2", "3, 16, 90", "y.clamp(-0.1, 0.1)"),
    "one tap": (CONV2, "24, 136, 1", "1, 24, 7, 20", "y * torch.sigmoid(y)"),
    "same": (CONV2, "8, 6, (3, 5), padding='same', dilation=2", "2, 8, 7, 15", "torch.relu(y)"),
    "one pixel": (CONV2, "8, 8, 3, padding=1", "1, 8, 1, 1", "y"),
    "wide filters": (CONV2, "3, 8, (1, 11), padding=(0, 5)", "1, 3, 4, 50", "y"),
    "few, many blocks": (CONV2, "2, 4, 3", "2, 2, 30, 60", "y.amax(1)"),
    "few, causal": (CONV1, "2, 4, 4, padding=3", "2, 2, 300", "y.relu()"),
    "few, strided": (CONV2, "3, 24, (5, 3), (3, 2), (2, 1)", "2, 3, 33, 41", "torch.relu(y)"),
    "few, planes": (CONV3, "4, 12, (3, 2, 3), 2, 1, 2", "2, 4, 9, 10, 21", "y.softmax(1)"),
    "few, mostly outside": (CONV2, "2, 4, 3, padding=4", "2, 2, 4, 5", "y"),
    "few, turned": (
        TURNED3,
        "3, 8, (2, 3, 2), padding=(0, 1, 0), dilation=(1, 1, 2)",
        "2, 3, 5, 6, 9",
        "y",
    ),
    # There are more tiles than blocks, so that some have two.
    "few, many images": (CONV2, "2, 24, 3, padding=1", "600, 2, 2, 3", "y"),
    "turned": (TURNED2, "8, 20, 3, padding=1", "2, 8, 6, 9", "y + other"),
    "turned by two": (
        TURNED2,
        "8, 40, 3, 2, 1, 1",
        "2, 8, 5, 9",
        "(y + self.scale).clamp(max=1.0)",
    ),
    "turned by two, few": (TURNED3, "3, 16, 3, 2, 1", "1, 3, 4, 5, 6", "y"),
    "turned by two, 4x4": (TURNED2, "16, 9, 4, 2", "1, 16, 6, 5", "torch.mul(y, 2.0)"),
    "turned by three": (TURNED1, "8, 6, 2, 3, bias=False", "2, 8, 33", "y"),
    "turned, no taps": (TURNED2, "8, 6, 1, 2", "1, 8, 5, 5", "y"),
    "depthwise": (CONV2, "6, 6, 3, padding=1, groups=6", "2, 6, 11, 13", "torch.relu(y)"),
    "depthwise, two filters": (CONV2, "4, 8, (3, 2), stride=2, groups=4", "2, 4, 9, 8", "y"),
    "depthwise, dilated": (CONV1, "5, 5, 3, dilation=2, groups=5", "2, 5, 30", "y"),
    "largest of two": (CONV2, "8, 20, 3", "2, 8, 9, 15", "F.max_pool2d(torch.tanh(y), (1, 2))"),
    "mean of four": (CONV2, "16, 70, 3", "2, 16, 5, 40", "F.avg_pool2d(y, (1, 4)) * self.scale"),
    "mean of eight neighbours": (
        TURNED3,
        "3, 16, 3, 2, 1",
        "2, 3, 4, 5, 6",
        "F.avg_pool3d(torch.tanh(y) * self.scale, 2) + self.scale",
    ),
    "largest of four neighbours": (TURNED2, "8, 16, 4, 2, 1", "1, 8, 7, 9", "F.max_pool2d(y, 2)"),
    "largest of eight neighbours": (
        TURNED3,
        "16, 20, 3, 2, 1, 1",
        "1, 16, 3, 4, 5",
        "F.max_pool3d(F.leaky_relu(y) * self.scale, 2)",
    ),
    "least channel": (CONV2, "16, 70, 3", "2, 16, 9, 13", "y.amin(1, keepdim=True).tanh()"),
    "logsumexp": (TURNED3, "3, 16, 3, 2, 1", "1, 3, 4, 5, 6", "y.logsumexp(1)"),
    "softmax": (
        CONV2,
        "16, 70, 3",
        "2, 16, 9, 13",
        "torch.softmax(y, 1).mul(self.scale).sigmoid()",
    ),
    "softmax of neighbours": (TURNED2, "8, 40, 3, 2, 1, 1", "2, 8, 5, 9", "y.softmax(1)"),
    "least channel, turned": (TURNED2, "8, 72, 3, 2, 1, 1", "2, 8, 5, 9", "y.relu().amin(1)"),
    "mean of pixels": (CONV2, "16, 70, 3", "3, 16, 14, 13", "F.gelu(y).mean((2, 3))"),
    "mean of pixels, turned": (
        TURNED2,
        "8, 40, 3, 2, 1, 1",
        "3, 8, 11, 13",
        "y.mul(0.5).tanh().mean((2, 3), keepdim=True)",
    ),
    "spread of pixels": (CONV2, "16, 70, 3", "3, 16, 14, 13", "y.std((2, 3)) * 2"),
    "spread of groups": (CONV1, "16, 12, 5, groups=2", "3, 16, 300", "y.relu().var((0, 2))"),
    "sum of pixels": (TURNED1, "8, 6, 2, 3, bias=False", "2, 8, 300", "y.sigmoid().sum(-1)"),
    "group norm's mean, few": (
        CONV3,
        "3, 24, 3",
        "4, 3, 7, 9, 8",
        "F.group_norm(F.hardswish(y), 8).mean((2, 3, 4)) * self.scale.flatten()",
    ),
    "batch norm's pool, few": (
        TURNED3,
        "3, 16, 3, 2, 1",
        "4, 3, 5, 6, 7",
        "F.avg_pool3d(F.batch_norm(y, None, None, self.scale.flatten(), training=True), 2)",
    ),
    "batch norm, turned": (
        TURNED2,
        "8, 48, 3, 2, 1, 1",
        "3, 8, 11, 13",
        "F.batch_norm(y.tanh(), None, None, training=True)",
    ),
    "mean of channels": (CONV1, "8, 5, 3", "8, 70", "y.abs().mean(0)"),
}

# Kernels beside the convolution, which gathers for them.
OTHERS = {
    "group norm's mean, few": 3,
    "spread of pixels": 1,
    "sum of pixels": 1,
    "spread of groups": 1,
    "batch norm's pool, few": 2,
    "batch norm, turned": 2,
}


def planned(tmp: Path, cache: Path, name: str, device: Device = "cpu") -> Planned:
    layer, arguments, shape, after = SAMPLES[name]
    filters = arguments.split(", ")[1]
    ones = ", 1" * (2 if "2d" in layer else 1 if "1d" in layer else 3)
    layers = f"self.conv = {layer.format(arguments)}"
    if "self.scale" in after:
        layers += f"\nself.scale = nn.Parameter(torch.randn({filters}{ones}))"
    inputs = {"x": f"torch.randn({shape})"}
    if "other" in after:
        inputs["other"] = "torch.randn(2, 20, 6, 9)"
    problem = problem_of(tmp, after, layers=layers, before="y = self.conv(x)", **inputs)
    return Planned(problem, "cuda", cache, device)


@pytest.mark.ci
@pytest.mark.parametrize("name", SAMPLES)
def test_a_convolution_gives_what_torch_gives(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    it = planned(tmp_path, compiled_folder, name)
    it.check()
    assert len(it.launched) == 1 + OTHERS.get(name, 0), "the convolution has all that follows"
    x, *others = it.inputs()
    if not others and x.dim() > 3:
        # Another number of images is the main case's; another width is the general kernel's.
        it.check(torch.cat([x, x[:1]]))
        it.check(torch.cat([x, x], -1))


# In place of what reads an input.
_WATCHED = """
static const float *begin, *end;
extern "C" { int outside = 0; }
static float watched(const float* at) { return at >= begin && at < end ? *at : ++outside; }
"""


@pytest.mark.ci
@pytest.mark.parametrize("name", [*(n for n in SAMPLES if n.startswith("few")), "logsumexp"])
def test_few_read_nothing_outside_of_their_input(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    def watching(source: str) -> str:
        size = "images * channels * in_d * in_h * in_w"
        given = "Arguments arguments = {input, weight};"
        assert given in source
        source = source.replace(given, f"{given} begin = input, end = input + {size};")
        source, count = re.subn(r"__ldg\((channel|from|of_row) \+", r"watched(\1 +", source)
        assert count
        return emulated(_WATCHED + source)

    with mock.patch.object(planned_models, "emulated", watching):
        it = planned(tmp_path, compiled_folder, name)
    it.check()
    assert not ctypes.c_int.in_dll(it.library, "outside").value


@pytest.mark.ci
def test_several_results_behind_a_convolution(tmp_path: Path, compiled_folder: Path) -> None:
    name = "3x3"
    with mock.patch.dict(SAMPLES, {name: (*SAMPLES[name][:3], "(y.relu(), y.tanh() + y)")}):
        it = planned(tmp_path, compiled_folder, name)
    it.check()
    assert len(it.launched) == len(("convolution", "map"))


# Expressions of a convolution's result y and of others' values of its shape.
BESIDE = {
    "of all channels": "y * other[:, :1]",
    "of all channels and images": "y + other[:1, :1]",
    "of an image": "y * other[:, :1, :1, :1]",
    "of a column": "y - other[:, :, :1]",
    "gathered and returned": "(y := (y + other).relu(), y.mean((2, 3)))",
    "gathered of all channels": "(y * other[:, :1]).mean((2, 3))",
    "a norm of what is returned": "(y := y * other[:, :1], F.instance_norm(y))",
    "windows": "F.max_pool2d(y * other[:, :1], (1, 2))",
    "all channels": "(y + other[:, :1]).sum(1)",
}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        *((name, "nn.Conv2d(16, 64, 3)") for name in BESIDE),
        *((name, "nn.Conv2d(2, 4, 3)") for name in ("of all channels", "gathered and returned")),
    ],
)
def test_what_pixels_have_beside_them(
    name: str, layer: str, tmp_path: Path, compiled_folder: Path
) -> None:
    channels, filters = layer[10:].split(", ")[:2]
    problem = problem_of(
        tmp_path,
        BESIDE[name],
        layers=f"self.c = {layer}",
        before="y = self.c(x)",
        x=f"torch.randn(2, {channels}, 20, 20)",
        other=f"torch.randn(2, {filters}, 18, 18)",
    )
    Planned(problem, "cuda", compiled_folder).check()


@pytest.mark.ci
def test_a_pool_gathers_what_lines_leave(tmp_path: Path, compiled_folder: Path) -> None:
    name = "mean of four"
    with mock.patch.dict(
        SAMPLES, {name: (*SAMPLES[name][:3], "F.avg_pool2d(y + 1, (3, 4)).tanh()")}
    ):
        it = planned(tmp_path, compiled_folder, name)
    it.check()
    assert len(it.launched) == len(("convolution", "pool"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SAMPLES)
def test_a_convolution_gives_what_torch_gives_on_a_gpu(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    it = planned(tmp_path, compiled_folder, name, "cuda")
    it.check()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["3x3", "turned by two", "turned by two, few", "one tap"])
@pytest.mark.parametrize("kind", ["inf", "nan", "wide", "huge", "tiny"])
def test_what_halves_do_not_hold_is_computed_again(
    name: str, kind: str, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    it = planned(tmp_path, compiled_folder, name, "cuda")
    (x,) = it.inputs()
    match kind:
        case "inf" | "nan":
            x.flatten()[7] = float(kind)
        case "wide":
            x *= torch.logspace(-30, 30, x.shape[-1], base=2.0, device=x.device)
        case "huge":
            x *= 1e30
        case "tiny":
            x *= 1e-36
    reference, candidate = it.models()
    with torch.no_grad():
        exact = reference.double()(x.double())
        found = it.run(x, model=candidate)
    exact = exact.float()
    assert torch.equal(found.isnan(), exact.isnan())
    assert torch.equal(found.isinf(), exact.isinf())
    # Each result by what its own filters and pixels allow, where columns differ by 2^60.
    scale = exact.abs().nan_to_num(0.0, 0.0, 0.0).amax(tuple(range(exact.dim() - 1)), keepdim=True)
    near = (found - exact).abs().nan_to_num(0.0) <= 3e-5 * scale + 1e-37
    assert near.all()


def test_operands_have_other_names_than_a_convolution(
    tmp_path: Path, compiled_folder: Path
) -> None:
    names = ("convolved", "input", "weight", "bias", "channels", "sizes", "column", "at", "lead")
    inputs = {"x": "torch.randn(2, 8, 5, 9)"} | dict.fromkeys(names, "torch.randn(5, 3, 7)")
    after = "torch.tanh(y" + "".join(f" + 0.{n} * {name}" for n, name in enumerate(names, 1)) + ")"
    problem = problem_of(
        tmp_path,
        after,
        layers="self.conv = nn.Conv2d(8, 5, 3)",
        before="y = self.conv(x)",
        **inputs,
    )
    it = Planned(problem, "cuda", compiled_folder)
    it.check()
    assert len(it.launched) == 1


@pytest.mark.parametrize("names", [("pixels", "tiles", "partials"), ("means", "pixel_counts")])
def test_operands_have_other_names_than_what_is_gathered(
    names: tuple[str, ...], tmp_path: Path, compiled_folder: Path
) -> None:
    inputs = {"x": "torch.randn(2, 8, 14, 13)"} | dict.fromkeys(names, "torch.randn(5)")
    after = " + ".join(["y.sum((2, 3))", *names])
    problem = problem_of(
        tmp_path,
        after,
        layers="self.conv = nn.Conv2d(8, 5, 3)",
        before="y = self.conv(x)",
        **inputs,
    )
    Planned(problem, "cuda", compiled_folder).check()


# A sample, an expression of its kernel, and what is wrong instead.
MUTANTS = {
    "no lo of filters": (
        "3x3",
        "add(filter_lo, pixel_hi, false);",
        "add(filter_hi, pixel_hi, false);",
    ),
    "no lo of pixels": ("3x3", "add(filter_hi, pixel_lo, true);", ""),
    "only the last stage counts": (
        "3x3",
        "fmaf(sum[i], inverse, total[i])",
        "sum[i] * inverse",
    ),
    "shifts read the same": ("3x3", "shift * kShift", "0"),
    "scales of one warp": ("3x3", "largest = max(largest, of_warps[i]);", ";"),
    "the next image loses a tile": ("spread of pixels", "if (shares && slice == 0)", "if (false)"),
    "a tile is the next image's too": (
        "spread of pixels",
        "begin + static_cast<int>(shares) + slice",
        "begin + slice",
    ),
    "means do not differ": ("spread of pixels", "of.squares + n * mean * mean", "of.squares"),
    "what is no result counts": ("spread of pixels", "if (bits & 1)", "if (true)"),
    "one neighbour counts": ("batch norm, turned", "if (bits & 2)", "if (false)"),
    "lanes have each other's": (
        "group norm's mean, few",
        "(upper ? values[i + kHalf]",
        "(!upper ? values[i + kHalf]",
    ),
    "what is no pixel counts": ("group norm's mean, few", "if (exists[p][residue]) add", "add"),
    "wide pixels count as they were": (
        "spread of pixels",
        "gather_again(a, item, pixels, items, threadIdx.x, kRepairThreads);",
        ";",
    ),
    "what is left has as many tiles": (
        "mean of pixels, turned",
        "min(kAtOnce, pixel_tiles - turn * kAtOnce)",
        "kAtOnce",
    ),
    "images have one place": ("3x3", "image * (kColumns * kPlane)", "0"),
    "wide pixels do not matter": ("3x3", "__any_sync(kAllLanes, wide)", "false"),
    "wide pixels are not gathered": ("least channel", "__any_sync(kAllLanes, wide)", "false"),
    "windows lie beside each other": (
        "mean of four",
        "first_pixel + column * kWindowW",
        "first_pixel + column",
    ),
    "a pixel has a channel": ("softmax", "line_of(filter, slab) * kLinePitch", "0"),
    "few channels are one": ("logsumexp", "from += kPlane;", ";"),
    "blocks are the first": ("group norm's mean, few", "start_of(at) - low", "start_of(at)"),
    "all tiles of a block are the first": (
        "few, many images",
        "place_of(first)",
        "place_of(blockIdx.x * kTile)",
    ),
    "what is copied is not kept": ("few, many blocks", "turn ^= 1", "turn"),
    "neighbours are one": ("mean of eight neighbours", "sums[residue][filter]", "sums[0][filter]"),
}


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_of_a_convolution_are_found(
    mutant: str, tmp_path: Path, compiled_folder: Path
) -> None:
    name, right, wrong = MUTANTS[mutant]

    def mutated(source: str) -> str:
        assert source.count(right) == 1
        prepare = for_the_cpu if "wgmma" in source else emulated
        return prepare(source.replace(right, wrong))

    with mock.patch.multiple(planned_models, for_the_cpu=mutated, emulated=mutated):
        it = planned(tmp_path, compiled_folder, name)
    with pytest.raises(AssertionError):
        it.check(*_uneven(it, special="wide" in mutant))


@pytest.mark.ci
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    "name", ["3x3", "least channel", "softmax", "largest of two", "mean of pixels", *OTHERS]
)
def test_uneven_pixels_are_right(
    name: str, tmp_path: Path, compiled_folder: Path, *, special: bool
) -> None:
    it = planned(tmp_path, compiled_folder, name)
    it.check(*_uneven(it, special=special))


def _uneven(it: Planned, *, special: bool) -> tuple[Any, ...]:
    """Return an input whose lines differ, so that one warp's scale is not that of all."""
    (x,) = it.inputs()
    x *= 2.0 ** -x.new_tensor(range(x.shape[-2]))[:, None]
    if special:
        x[1, 2, ..., 4] = float("inf")
        x[0, 1, ..., 3] = float("nan")
    return (x,)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        ("nn.Conv2d(512, 512, 3)", "4, 512, 9, 9"),
        ("nn.Conv2d(64, 64, 3, groups=64)", "1, 64, 32, 32"),
    ],
)
def test_a_small_convolution_stays_in_torch(layer: str, shape: str, tmp_path: Path) -> None:
    problem = problem_of(
        tmp_path, "self.c(x)", layers=f"self.c = {layer}", x=f"torch.randn({shape})"
    )
    with mock.patch.multiple(convolution, **SHIPPED):
        text = render_planned(problem, "cuda", {})
    assert "MainSizes" not in text
