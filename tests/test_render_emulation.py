"""The CUDA kernels of the norms, run on the CPU by tests/cuda_emulation.

Each fast kernel runs at a small shape of its kind, and the general kernel at many. Races are for
test_norms_on_a_gpu.py.
"""

import ctypes
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from planned_models import problem_of, without_rounding
from shared_builds import EMULATION, Libraries

from kernelgen.engines.segment import ways
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import DTYPES, Problem
from kernelgen.rendering import solution

pytestmark = pytest.mark.sampled
COMPILER = (
    *("c++", "-std=c++17", "-O1", "-w", "-pthread", "-shared", "-fPIC"),
    f"-I{EMULATION}",
)
EPS = 1e-5
# Slots of 256 values, 14 a block.
RINGS = {"sets": 2, "workers": 64, "vectors": 1, "slots": 14, "ahead": 3, "listeners": 2}
# A block of four slots of 128 values: a segment of seven slices leaves two blocks one slot.
TIGHT = {"sets": 1, "workers": 32, "vectors": 1, "slots": 4, "ahead": 1, "listeners": 1}
# More slices of a segment than a warp reads at once.
MANY = {**TIGHT, "slots": 64}
COLUMNS = {"threads": 32, "ahead": 2}
GROUPS = {"num_features": 8, "num_groups": 2}
CACHE = {"threads": 32, "items": 16}
BF16, FP16 = {"precision": "bf16"}, {"precision": "fp16"}

# A solution: its problem, its fast kernel, and what makes its main shape and schedule small.
SOLUTIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "groups": ("groupnorm", "rings", {**RINGS, **GROUPS, "spatial": [16, 16]}),
    "groups-cut": ("groupnorm", "rings", {**RINGS, **GROUPS, "spatial": [17, 20]}),
    "groups-steps": ("groupnorm_silu_add", "rings", {**RINGS, **GROUPS, "spatial": [16, 16]}),
    "channels": ("instancenorm", "rings", {**RINGS, "height": 32, "width": 64}),
    "channels-tight": ("instancenorm", "rings", {**TIGHT, "height": 28, "width": 32}),
    "channels-cut": ("instancenorm", "rings", {**RINGS, "height": 19, "width": 47}),
    "channels-many": ("instancenorm", "rings", {**MANY, "height": 256, "width": 288}),
    "volumes": ("instancenorm_3d", "rings", {**RINGS, "depth": 4, "height": 16, "width": 16}),
    "l1": ("l1norm", "rings", {**RINGS, "features": 1027}),
    "l2": ("l2norm", "rings", {**RINGS, "features": 893}),
    "softmax": ("softmax", "rings", {**RINGS, "features": 1024}),
    "softmax-tight": ("softmax", "rings", {**TIGHT, "features": 893}),
    "log-softmax": ("log_softmax", "rings", {**RINGS, "features": 1024}),
    "cache": ("instancenorm_1d", "cache", {**CACHE, "length": 1536}),
    "cache-cut": ("instancenorm_1d", "cache", {**CACHE, "length": 764}),
    "cache-groups": ("groupnorm_silu_add", "cache", {**CACHE, **GROUPS, "spatial": [12, 11]}),
    "registers": ("rmsnorm", "registers", {"features": 1024}),
    "registers-cut": ("rmsnorm", "registers", {"features": 764}),
    "registers-softmax": ("softmax", "registers", {"features": 132}),
    "columns": ("layernorm", "columns", {**COLUMNS, "normalized": [3012]}),
    "columns-rms": ("rmsnorm", "columns", {**COLUMNS, "features": 3012}),
    "bf16-registers": ("rmsnorm", "registers", {**BF16, "features": 1024}),
    "bf16-registers-cut": ("groupnorm", "registers", {**BF16, **GROUPS, "spatial": [12, 14]}),
    "fp16-registers-softmax": ("softmax", "registers", {**FP16, "features": 136}),
    "bf16-cache": ("instancenorm_1d", "cache", {**BF16, **CACHE, "length": 1528}),
    "fp16-cache": ("groupnorm_silu_add", "cache", {**FP16, **CACHE, **GROUPS, "spatial": [12, 14]}),
    "bf16-rings": ("groupnorm_silu_add", "rings", {**BF16, **RINGS, **GROUPS, "spatial": [16, 32]}),
    "fp16-rings-cut": ("groupnorm", "rings", {**FP16, **RINGS, **GROUPS, "spatial": [17, 20]}),
    "bf16-rings-softmax": ("softmax", "rings", {**BF16, **TIGHT, "features": 1786}),
    "fp16-rings-l1": ("l1norm", "rings", {**FP16, **RINGS, "features": 1027}),
    "bf16-columns": ("layernorm", "columns", {**BF16, **COLUMNS, "normalized": [3016]}),
    "fp16-columns": ("rmsnorm", "columns", {**FP16, **COLUMNS, "features": 3016}),
}  # fmt: skip
# Others of their kind are run before each commit.
FOR_CI = {"groups", "groups-cut", "channels", "channels-cut", "channels-many", "cache-cut",
          "registers-cut", "columns-rms"}  # fmt: skip
KERNELS = {
    "groupnorm": "group_norm",
    "groupnorm_silu_add": "group_norm_silu_add",
    "instancenorm": "instance_norm",
    "instancenorm_1d": "instance_norm",
    "instancenorm_3d": "instance_norm",
    "l1norm": "l1_norm",
    "l2norm": "l2_norm",
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
}
BLOCKS_OF_COLUMNS = 3


def cuda_source(name: str) -> str:
    problem, kernel, overrides = SOLUTIONS[name]
    precision = overrides.get("precision", "fp32")
    of = msgspec.structs.replace(load_problem(problem), precision=precision)
    given = {key: value for key, value in overrides.items() if key != "precision"}
    return source_of(of, kernel, given)


def source_of(problem: Problem, kernel: str, overrides: dict[str, Any]) -> str:
    """Return the kernels of a problem, whose norm is for that kernel whatever its length."""
    limits: dict[str, Any] = {
        "_LEAST": 0,
        "ROW": 0,
        "_REGISTERS_LENGTH": 1 << 14 if kernel == "registers" else 0,
        "_CACHE_LENGTH": 1 << 14 if kernel in {"cache", "registers"} else 0,
        "_RING_WEIGHTS": 0,
    }
    settings = {key: str(value) for key, value in overrides.items()}
    with mock.patch.multiple(ways, **limits):
        text = solution.render(problem, overrides=settings)
    source = text.split('r"""\n')[1].split('"""')[0]
    assert f"segment_in_{kernel}(" in source
    return source


def for_the_cpu(source: str) -> str:
    """Return the source with what only nvcc knows replaced: launches, PTX, dynamic memory."""
    source = re.sub(r"namespace ptx {.*?}  // namespace ptx\n", "", source, flags=re.DOTALL)
    assert "asm" not in source
    source = source.replace(
        "extern __shared__ __align__(128) float4 ring[];",
        "static thread_local float4 ring[1 << 14];\n  emulation::use_shared(ring);",
    )
    source = re.sub(r"(kBlocks) = \d+;", rf"\1 = {BLOCKS_OF_COLUMNS};", source)
    text, launches = re.subn(
        r"(\w+)<<<(\w+), (\w+), 0, stream>>>\(", r"emulation::launch(\1, \2, \3, ", source
    )
    assert launches >= 2
    assert "<<<" not in text
    return '#include "emulation.h"\n' + text


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    sources = {
        name: partial(lambda name: for_the_cpu(cuda_source(name)), name) for name in SOLUTIONS
    }
    return Libraries(COMPILER, sources, compiled_folder)


def run(  # noqa: PLR0913 - all that a launch takes
    library: ctypes.CDLL,
    kernel: str,
    tensors: Sequence[Any],
    sizes: tuple[int, int],
    repeats: tuple[int, ...] = (),
    *,
    numbers: tuple[float, ...] = (),
) -> str:
    """Launch a kernel of that name, and return the name of the last that ran.

    The sizes are segments and length; `repeats` are inner and size of each tensor that repeats.
    """
    import torch

    long_sizes = [ctypes.c_int64(size) for size in (*sizes, 1, *repeats)]
    workspace_bytes = getattr(library, f"{kernel}_workspace_bytes")
    workspace_bytes.restype = ctypes.c_int64
    used = int(workspace_bytes(*long_sizes[:2]))
    workspace = torch.full((used + 64,), 0xAB, dtype=torch.uint8)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*tensors, workspace)]
    floats = [ctypes.c_float(number) for number in numbers]
    assert getattr(library, f"{kernel}_launch")(*pointers, *floats, *long_sizes, None) == 0
    assert not library.was_stuck()
    assert bool((workspace[used:] == 0xAB).all())
    library.launched_kernel.restype = ctypes.c_char_p
    found = re.search(r"segment_in_[a-z]+|map_slices", library.launched_kernel().decode())
    assert found
    return found[0]


class Norm:
    """A problem's arguments, and its result in float64."""

    def __init__(self, name: str) -> None:
        import torch

        self.problem, self.kernel, self.constants = SOLUTIONS[name]
        self.dtype = getattr(torch, DTYPES[self.constants.get("precision", "fp32")])
        self.by_channel = self.problem in {"groupnorm", "groupnorm_silu_add", "instancenorm_3d"}
        self.moments = self.problem not in {"rmsnorm", "l1norm", "l2norm", "softmax", "log_softmax"}

    def main_shape(self) -> tuple[int, int, int]:
        """Return the elements of a channel, the channels of a segment, segments of a sample."""
        c = self.constants
        if self.problem.startswith("groupnorm"):
            height, width = c["spatial"]
            return height * width, c["num_features"] // c["num_groups"], c["num_groups"]
        if self.problem == "instancenorm_3d":
            return c["depth"] * c["height"] * c["width"], 1, 32
        if self.problem == "instancenorm":
            return c["height"] * c["width"], 1, 1
        if "normalized" in c:
            return c["normalized"][0], 1, 1
        return next(c[key] for key in ("features", "length", "out_features") if key in c), 1, 1

    def normalised(self, x: Any) -> Any:
        """Return the rows of x, without weights and epilogue."""
        import torch

        if self.moments:
            return torch.nn.functional.layer_norm(x, x.shape[1:], eps=EPS)
        if self.problem == "rmsnorm":
            return x / (x.square().mean(1, keepdim=True) + EPS).sqrt()
        if self.problem == "l1norm":
            return x / x.abs().mean(1, keepdim=True)
        if self.problem == "l2norm":
            return x / x.norm(dim=1, keepdim=True)
        return getattr(torch, self.problem)(x, 1)

    def run(
        self,
        library: ctypes.CDLL,
        x: Any,
        shape: tuple[int, int, int] | None = None,
        *,
        shift: int = 0,
    ) -> tuple[str, Any, Any]:
        """Return the last kernel, its result and the exact one for x, of (segments, length).

        All that is read is rounded to the type of the problem before.
        """
        import torch

        inner, channels, groups = shape or self.main_shape()
        segments, length = x.shape
        assert length == inner * channels
        x = x.to(self.dtype)
        tensors = [placed(x, shift)]
        y = self.normalised(x.double())
        repeats: tuple[int, ...] = ()
        if self.by_channel:
            weight, bias = torch.randn(2, groups * channels).to(self.dtype)
            of = torch.arange(segments) % groups
            spread = [
                t.view(groups, channels)[of].repeat_interleave(inner, 1) for t in (weight, bias)
            ]
            y = y * spread[0] + spread[1]
            tensors += [weight, bias]
            repeats = (inner, groups * channels) * 2
        elif self.problem in {"layernorm", "rmsnorm"}:
            weight, bias = torch.randn(2, length).to(self.dtype)
            y = y * weight
            tensors.append(placed(weight, shift))
            repeats = (1, length)
            if self.problem == "layernorm":
                y = y + bias
                tensors.append(placed(bias, shift))
                repeats = (1, length) * 2
        if self.problem == "groupnorm_silu_add":
            tensors.append(placed(torch.randn(segments, length).to(self.dtype), shift))
            y = torch.nn.functional.silu(y) + tensors[-1]
        memory = torch.full((segments * length + 16,), 77.0, dtype=self.dtype)
        out = memory[8 : segments * length + 8].view(segments, length)
        name = KERNELS.get(self.problem, self.problem)
        kernel = run(library, name, [*tensors, out], (segments, length), repeats)
        assert bool((memory[:8] == 77.0).all())
        assert bool((memory[-8:] == 77.0).all())
        return kernel, out, y


def placed(x: Any, shift: int) -> Any:
    """Return a copy of x that begins `shift` elements after an aligned place."""
    import torch

    memory = torch.full((x.numel() + shift + 4,), float("nan"), dtype=x.dtype)
    return memory[shift : shift + x.numel()].view(x.shape).copy_(x)


def worst_error(out: Any, exact: Any) -> float:
    """Return the largest error of the finite elements, relative to the signal; others are equal.

    Rounding to 16 bits is no error.
    """
    import torch

    finite = exact.to(out.dtype).isfinite()
    assert torch.equal(out.isnan(), exact.isnan())
    assert torch.equal(out.isinf(), exact.to(out.dtype).isinf())
    out, exact = without_rounding(out, exact)[finite], exact[finite]
    if not len(exact):
        return 0.0
    rms = exact.square().mean().sqrt().item()
    allowed = (exact.abs() + min(1.0, rms)).clamp(min=1e-30)
    return float(((out - exact).abs() / allowed).max().item())


def values_of(kind: str, rows: int, length: int) -> Any:
    import torch

    x = torch.randn(rows, length)
    if kind == "offset":
        return x + 1e4
    if kind == "first-value-far-off":
        x[:, 0] = torch.tensor([1e3, -1e4, 1e5, 1e7] * rows)[:rows]
    elif kind == "not-finite":
        bad = [float("nan"), float("inf"), -float("inf")]
        for row in range(rows):
            x[row, (0, length // 2, -1)[row % 3]] = bad[row // 3 % 3]
    elif kind == "huge":
        return x * 10.0 ** torch.linspace(-20.0, 30.0, rows)[:, None]
    elif kind == "equal":
        return x[:, :1].expand(-1, length).contiguous()
    elif kind == "masked":
        x[:, : length // 2] = -float("inf")
    return x


VALUES = ["plain", "offset", "first-value-far-off", "not-finite", "equal"]


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.ci] * (n in FOR_CI)) for n in SOLUTIONS]
)
def test_the_fast_kernel(name: str, values: str, libraries: Libraries) -> None:
    import torch

    norm = Norm(name)
    inner, channels, _ = norm.main_shape()
    # Of eight values each, vectors end with so many segments of any length.
    rows = {"channels-many": 4}.get(name, 12 if norm.dtype == torch.float32 else 16)
    torch.manual_seed(len(name))
    x = values_of(values, rows, inner * channels)
    library = libraries[name]
    blocks = BLOCKS_OF_COLUMNS if norm.kernel == "columns" else 2
    library.set_device({"channels-many": 9}.get(name, blocks), 7)
    kernel, out, exact = norm.run(library, x)
    assert kernel == f"segment_in_{norm.kernel}"
    assert worst_error(out, exact) <= 5e-6


@pytest.mark.parametrize("name", ["channels-tight", "softmax-tight", "groups-steps", "l1"])
@pytest.mark.parametrize("blocks", [2, 3, 7])
@pytest.mark.parametrize("seed", range(8))
def test_blocks_wait_for_each_other_and_never_for_ever(
    name: str, blocks: int, seed: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(seed)
    norm, library = Norm(name), libraries[name]
    inner, channels, _ = norm.main_shape()
    library.set_device(blocks, seed)
    for rows in (4, 12):
        kernel, out, exact = norm.run(library, torch.randn(rows, inner * channels))
        assert kernel == "segment_in_rings"
        assert worst_error(out, exact) <= 2e-6


@pytest.mark.parametrize("name", ["columns", "columns-rms"])
@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_keep_the_weights_of_their_columns(
    name: str, rows: int, seed: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(seed)
    norm, library = Norm(name), libraries[name]
    library.set_device(BLOCKS_OF_COLUMNS, seed)
    kernel, out, exact = norm.run(library, torch.randn(rows, norm.main_shape()[0]) + 3.0 * seed)
    assert kernel == "segment_in_columns"
    assert worst_error(out, exact) <= 2e-6


def test_a_block_that_draws_regardless_of_its_slots_waits_for_ever(compiled_folder: Path) -> None:
    """The rule that keeps blocks from it is needed, and the emulation would show its loss."""
    import torch

    rule = "const bool early = shared.slices[turn.slot] / kSlices != slice / kSlices;"
    text = for_the_cpu(cuda_source("softmax-tight"))
    assert text.count(rule) == 1
    unruly = text.replace(rule, "const bool early = true;")
    library = Libraries(COMPILER, {"unruly": lambda: unruly}, compiled_folder)["unruly"]
    library.set_patience(3)
    x = torch.randn(8, 893)
    workspace = torch.empty(1 << 16)
    out = torch.empty_like(x)
    places = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, out, workspace)]
    sizes = [ctypes.c_int64(size) for size in (8, 893, 1)]
    # How blocks meet depends on the machine's other work too.
    for seed in range(20):
        library.set_device(2, seed)
        library.softmax_launch(*places, *sizes, None)
        if library.was_stuck():
            break
    assert library.was_stuck()


@pytest.mark.parametrize(
    ("name", "rows", "shift", "blocks"),
    [
        pytest.param("softmax", 4, 1, 2, id="unaligned"),
        pytest.param("l1", 3, 0, 2, id="last-vector-ends-after-x"),
        pytest.param("channels-tight", 4, 0, 1, id="too-few-slots"),
        pytest.param("columns", 4, 0, BLOCKS_OF_COLUMNS - 1, id="too-few-blocks"),
        pytest.param("columns", 4, 1, BLOCKS_OF_COLUMNS, id="unaligned-columns"),
        pytest.param("registers", 4, 2, 1, id="unaligned-rows"),
        pytest.param("cache", 4, 3, 1, id="unaligned-segments"),
    ],
)
def test_the_main_shape_where_the_fast_kernel_cannot_run(
    name: str, rows: int, shift: int, blocks: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(rows)
    norm, library = Norm(name), libraries[name]
    library.set_device(blocks, 0)
    inner, channels, _ = norm.main_shape()
    kernel, out, exact = norm.run(library, torch.randn(rows, inner * channels), shift=shift)
    assert kernel == "map_slices"
    assert worst_error(out, exact) <= 2e-6


# Of each statistic, affine map and epilogue; the main shapes are none of the shapes below.
GENERAL = ["groups-steps", "volumes", "columns", "registers", "l1", "l2", "softmax",
           "log-softmax"]  # fmt: skip


@pytest.mark.parametrize("values", [*VALUES, "huge", "masked"])
@pytest.mark.parametrize(
    ("rows", "length"), [(9, 1), (19, 6), (9, 255), (9, 1001), (9, 20_011), (1, 70_000)]
)
@pytest.mark.parametrize("name", GENERAL)
def test_the_general_kernel(
    name: str, rows: int, length: int, values: str, libraries: Libraries
) -> None:
    import torch

    norm = Norm(name)
    if values == "masked" and "softmax" not in name:
        pytest.skip("only a softmax has a value for it")
    if values == "huge" and "softmax" in name:
        pytest.skip("exponentials of such values are 0 and 1")
    torch.manual_seed(length)
    x = values_of(values, rows, length)
    shape = (length, 1, 1)
    if norm.problem == "groupnorm_silu_add" and length % 7 == 0:
        shape = (length // 7, 7, rows)
    kernel, out, exact = norm.run(libraries[name], x, shape, shift=rows % 4)
    assert kernel == "map_slices"
    assert worst_error(out, exact) <= 5e-6


@pytest.mark.parametrize("name", ["softmax", "l1", "l2"])
@pytest.mark.parametrize("length", [96, 1000, 1024, 40_001])
def test_the_values_of_a_segment_share_no_error(
    name: str, length: int, libraries: Libraries
) -> None:
    """Nothing but the last operations' rounding is left: no error of the segment's total."""
    import torch

    torch.manual_seed(length)
    norm = Norm(name)
    rows = 60 if length < 10_000 else 20
    _, out, exact = norm.run(libraries[name], torch.randn(rows, length), (length, 1, 1))
    shared = ((out.double() - exact) * exact).sum(1) / exact.square().sum(1)
    assert shared.abs().max().item() <= 1.15 * 2.0**-24


def test_an_activation_of_any_size(libraries: Libraries) -> None:
    """Its division has no branches for what is large: the bias takes it there."""
    import torch

    torch.manual_seed(5)
    x, residual = torch.randn(4, 256), torch.zeros(4, 256)
    weight = torch.full((8,), 30.0)
    bias = torch.tensor([0.0, 90.0, -90.0, 1e30, -1e30, 3e38, float("inf"), float("nan")])
    out = torch.empty_like(x)
    tensors = [x, weight, bias, residual, out]
    run(libraries["groups-steps"], "group_norm_silu_add", tensors, (4, 256), (64, 8) * 2)
    exact = torch.nn.functional.group_norm(
        x.double().view(2, 8, 64), 2, weight.double(), bias.double(), EPS
    )
    exact = torch.nn.functional.silu(exact).float().view(4, 256)
    torch.testing.assert_close(out, exact, rtol=5e-7, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    ("kernel", "numbers"),
    [("registers", {}), ("cache", CACHE), ("rings", RINGS), ("rings", {**RINGS, "workers": 32})],
)
def test_all_that_a_map_reads_beside(
    kernel: str, numbers: dict[str, Any], tmp_path: Path, compiled_folder: Path
) -> None:
    """A value each, for four neighbours, for none of them together, across, and a number."""
    import torch

    problem = problem_of(
        tmp_path,
        "(self.n(x) * self.odd - s) * self.gain + F.silu(y) * z",
        layers="self.n = nn.GroupNorm(2, 8)\nself.odd = nn.Parameter(torch.ones(33))\n"
        "self.gain = nn.Parameter(torch.ones(8, 1, 1))",
        x="torch.randn(4, 8, 4, 33)",
        s="0.5",
        y="torch.randn(4, 8, 4, 33)",
        z="torch.randn(4, 1, 4, 33)",
    )
    text = for_the_cpu(source_of(problem, kernel, numbers))
    library = Libraries(COMPILER, {"it": lambda: text}, compiled_folder)["it"]
    library.set_device(3, 0)
    torch.manual_seed(7)
    x, y = torch.randn(2, 4, 8, 4, 33)
    weight, bias, gain = torch.randn(3, 8)
    odd, z = torch.randn(33), torch.randn(4, 1, 4, 33)
    name = re.search(r"int64_t (\w+)_workspace_bytes", text)
    assert name is not None
    given = re.search(rf"int {name[1]}_launch\((.*?)\) {{", text, re.DOTALL)
    assert given is not None
    order = re.findall(r"const float\* (\w+)", given[1])
    tensors = {"x": x, "weight": weight, "bias": bias, "odd": odd, "gain": gain, "y": y, "z": z}
    repeats = {
        "weight": (132, 8),
        "bias": (132, 8),
        "odd": (1, 33),
        "gain": (132, 8),
        "z": (132, 8),
    }
    assert {*order} == {*tensors}
    out = torch.empty_like(x)
    sizes = tuple(size for one in order for size in repeats.get(one, ()))
    ran = run(
        library, name[1], [*(tensors[one] for one in order), out], (8, 528), sizes, numbers=(0.5,)
    )
    assert ran == f"segment_in_{kernel}"
    norm = torch.nn.functional.group_norm(x.double(), 2, weight.double(), bias.double())
    exact = (norm * odd - 0.5) * gain.view(8, 1, 1) + torch.nn.functional.silu(y.double()) * z
    assert worst_error(out, exact) <= 5e-6
