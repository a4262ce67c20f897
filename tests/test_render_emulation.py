"""The CUDA kernels' arithmetic and indices, run on the CPU by tests/cuda_emulation.

All schedules, both vector widths and every way of cutting segments are reached at small sizes by
schedules with small numbers. Races are for test_norms_on_a_gpu.py.
"""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from shared_builds import EMULATION, Libraries

from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render

pytestmark = pytest.mark.sampled
# Segments longer than 64 * 4 values are cut into slices of about 150.
SMALL = {
    "threads": "32",
    "map_threads": "32",
    "items": "4",
    "row_threads": "64",
    "cache_threads": "32",
    "rows_per_block": "2",
    "min_slice": "100",
    "max_slice": "150",
    "max_slices": "9",
}
# The emulated device has one multiprocessor, whose 14 slots of 256 values hold a segment.
RINGS = {
    **SMALL,
    "ring_sets": "2",
    "ring_workers": "64",
    "ring_vectors": "1",
    "ring_slots": "14",
    "ring_ahead": "3",
    "ring_listeners": "2",
    "least_rings": "1",
}
# Whole segments of 260 to 768 values are read twice.
CACHE = {**RINGS, "cache_threads": "96"}
# As they are shipped, on a device with one multiprocessor.
WIDE = {"least_rings": "1"}
# Two blocks of four slots: a segment of seven slices leaves one slot.
TIGHT = {
    **SMALL,
    "ring_sets": "1",
    "ring_workers": "32",
    "ring_vectors": "1",
    "ring_slots": "4",
    "ring_ahead": "1",
    "ring_listeners": "1",
    "least_rings": "2",
}
# Nine blocks of 64 slots of 128 values: more slices of a segment than a warp hears of at once.
MANY = {**TIGHT, "ring_slots": "64", "least_rings": "9"}
# Segments with many weights go through fixed columns: chunks of 256 values, in 13 slots.
COLUMNS = {**RINGS, "ring_weights": "1"}
KINDS = {
    "small": SMALL,
    "rings": RINGS,
    "shipped": {},
    "cache": CACHE,
    "wide": WIDE,
    "tight": TIGHT,
    "many": MANY,
    "columns": COLUMNS,
}


COMPILER = (
    *("c++", "-std=c++17", "-O1", "-w", "-pthread", "-shared", "-fPIC"),
    f"-I{EMULATION}",
)


def cuda_source(name: str, overrides: dict[str, str]) -> str:
    source = render(load_problem(name), "cuda", overrides).split('r"""\n')[1].split('"""')[0]
    # A product before the norm is for test_product_emulation.py.
    return re.sub(
        r"\A.*\nextern \"C\" [^\n]*product_error_name[^}]*}\n", "", source, flags=re.DOTALL
    )


def for_the_cpu(source: str) -> str:
    """Return the source with what only nvcc knows replaced: launches, PTX, dynamic memory."""
    source = re.sub(r"namespace ptx {.*?}  // namespace ptx\n", "", source, flags=re.DOTALL)
    assert "asm" not in source
    source = source.replace(
        "extern __shared__ __align__(128) float4 ring[];",
        "static thread_local float4 ring[1 << 14];\n  emulation::use_shared(ring);",
    )
    text, launches = re.subn(
        r"(\w+(?:<[\w, ]+>)?)<<<(\w+), (\w+), 0, stream>>>\(",
        r"emulation::launch(\1, \2, \3, ",
        source,
    )
    assert launches >= 3
    assert "<<<" not in text
    return '#include "emulation.h"\n' + text


NAMES = (
    "groupnorm", "instancenorm", "linear_instancenorm_add_mul", "groupnorm_silu_add",
    "layernorm", "rmsnorm", "l1norm", "l2norm", "softmax", "log_softmax",
)  # fmt: skip


def emulated(name: str, kind: str) -> str:
    return for_the_cpu(cuda_source(name, KINDS[kind]))


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    sources = {f"{name}-{kind}": partial(emulated, name, kind) for name in NAMES for kind in KINDS}
    return Libraries(COMPILER, sources, compiled_folder)


@pytest.fixture(params=["small", "rings", "cache"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(
    library: ctypes.CDLL, tensors: Sequence[Any], sizes: list[int], eps: float | None = None
) -> int:
    """Launch, and return how many bytes of workspace were used; some kernels take no eps."""
    import torch

    long_sizes = [ctypes.c_int64(size) for size in sizes]
    library.segment_norm_workspace_bytes.restype = ctypes.c_int64
    used = int(library.segment_norm_workspace_bytes(*long_sizes))
    guard = 64
    workspace = torch.full((used + guard,), 0xAB, dtype=torch.uint8)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    place = ctypes.c_void_p(workspace.data_ptr())
    scalars = [] if eps is None else [ctypes.c_float(eps)]
    status = library.segment_norm_launch(
        *pointers, place, *long_sizes, *scalars, ctypes.c_void_p(None)
    )
    assert status == 0
    assert bool((workspace[used:] == 0xAB).all())
    return used


GROUP_SHAPES = [
    # (samples, channels, groups, spatial); each takes its own way with SMALL
    pytest.param((2, 8, 2, (3, 4)), id="warp-vector"),
    pytest.param((5, 6, 2, (3,)), id="warp-scalar-partial-last-block"),
    pytest.param((2, 8, 2, (7, 9)), id="block-scalar"),
    pytest.param((2, 8, 2, (8, 8)), id="block-vector-exactly-full"),
    pytest.param((3, 12, 3, ()), id="no-spatial"),
    pytest.param((2, 8, 2, (13, 20)), id="slices-long-channels-vector"),
    pytest.param((2, 6, 2, (17, 19)), id="slices-long-channels-scalar"),
    pytest.param((2, 8, 2, (16, 16)), id="slices-tiles-in-one-channel"),
    pytest.param((2, 40, 2, (5, 8)), id="slices-many-channels-vector"),
    pytest.param((2, 16, 2, (6, 10)), id="cache-many-channels"),
    pytest.param((3, 2, 2, (16, 48)), id="cache-exactly-full"),
    pytest.param((2, 30, 2, (5, 7)), id="slices-many-channels-scalar"),
    pytest.param((2, 20, 1, (12, 10)), id="slices-more-channels-than-slices"),
    pytest.param((1, 3, 3, (50, 60)), id="slices-channel-a-segment"),
]


@pytest.mark.parametrize("shape", GROUP_SHAPES)
@pytest.mark.parametrize("shift", [0, 1], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("mean", [0.0, 1.0e4])
def test_group_norm(
    shape: tuple[int, int, int, tuple[int, ...]],
    shift: int,
    mean: float,
    kind: str,
    libraries: Libraries,
) -> None:
    import torch

    samples, channels, groups, spatial = shape
    torch.manual_seed(samples * channels + len(spatial))
    count = samples * channels * torch.Size(spatial).numel()
    x = (torch.randn(count + 4) + mean)[shift : count + shift].view(samples, channels, *spatial)
    weight, bias = torch.randn(channels), torch.randn(channels)
    memory = torch.full((count + 8,), 77.0)
    out = memory[4 : count + 4].view_as(x)
    inner = torch.Size(spatial).numel()
    length = channels // groups * inner
    used = run(
        libraries[f"groupnorm-{kind}"],
        [x, weight, bias, out],
        [samples * groups, length, inner, groups],
        1e-5,
    )
    assert (used > 0) == (length > 256)
    exact = torch.nn.functional.group_norm(x.double(), groups, weight.double(), bias.double())
    assert (out.double() - exact).abs().max().item() <= 5e-6
    assert bool((memory[:4] == 77.0).all())
    assert bool((memory[count + 4 :] == 77.0).all())


@pytest.mark.parametrize("length", [1, 9, 64, 255, 256, 257, 260, 700, 1000, 1348, 3001])
def test_instance_norm(length: int, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x = torch.rand(4, length)
    out = torch.empty_like(x)
    run(libraries[f"instancenorm-{kind}"], [x, out], [4, length], 1e-5)
    exact = torch.nn.functional.layer_norm(x.double(), [length], eps=1e-5)
    assert (out.double() - exact).abs().max().item() <= 2e-6


@pytest.mark.parametrize("length", [6, 96, 515, 516, 1024])
def test_row_norm_in_place_with_its_epilogue(length: int, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    h, y = torch.randn(4, length) * 100.0, torch.randn(4, length)
    exact = torch.nn.functional.layer_norm(h.double(), [length], eps=1e-5)
    exact = (exact + y.double()) * y.double()
    kept = y.clone()
    run(libraries[f"linear_instancenorm_add_mul-{kind}"], [h, y, h], [4, length], 1e-5)
    assert (h.double() - exact).abs().max().item() <= 5e-6
    assert torch.equal(y, kept)


@pytest.mark.parametrize(
    "length", [1, 132, 200, 256, 260, 511, 512, 10240, 10244, 16384, 32768, 32772, 70000]
)
def test_the_shipped_schedule(length: int, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x = torch.randn(2, length) + 50.0
    out = torch.empty_like(x)
    used = run(libraries["instancenorm-shipped"], [x, out], [2, length], 1e-5)
    assert (used > 0) == (length > 10240)
    exact = torch.nn.functional.layer_norm(x.double(), [length], eps=1e-5)
    assert (out.double() - exact).abs().max().item() <= 2e-6


# Each takes its own way with SMALL: warps, a block, slices; with vectors and without.
LENGTHS = [1, 9, 64, 255, 256, 257, 260, 512, 764, 1000, 1348, 3001]
# A part of a warp a segment; 333 of them leave the last block half empty.
SHORT = [4, 28, 32, 36, 48, 64, 68, 124, 128]


@pytest.mark.parametrize("length", [4, 32, 60, 128])
@pytest.mark.parametrize("name", ["instancenorm", "softmax"])
def test_so_many_short_segments_that_lanes_hold_two(
    name: str, length: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(length)
    rows = (1 << 19) // length + 37
    x = torch.randn(rows, length) + 3.0
    out = torch.empty_like(x)
    eps = 1e-5 if name == "instancenorm" else None
    assert run(libraries[f"{name}-shipped"], [x, out], [rows, length], eps) == 0
    assert worst_error(out, exact_rows(name, x)) <= 2e-6


def rings_launched(library: ctypes.CDLL) -> int:
    return ctypes.c_int.in_dll(library, "cooperative_launches").value


@pytest.mark.parametrize(
    ("shape", "shift", "rings"),
    [
        pytest.param((4, 256), 0, 0, id="registers"),
        pytest.param((4, 257), 0, 1, id="rows-begin-anywhere"),
        pytest.param((4, 1027), 0, 1, id="last-slices-of-3-values-or-none"),
        pytest.param((4, 3553), 0, 1, id="all-slots"),
        pytest.param((4, 3557), 0, 0, id="more-than-all-slots"),
        pytest.param((3, 257), 0, 0, id="last-vector-ends-after-x"),
        pytest.param((4, 1024), 1, 0, id="unaligned"),
        pytest.param((50, 300), 0, 1, id="slots-many-times-over"),
    ],
)
@pytest.mark.parametrize("name", ["instancenorm", "l2norm", "softmax"])
def test_when_segments_go_through_rings(
    name: str, shape: tuple[int, int], shift: int, rings: int, libraries: Libraries
) -> None:
    import torch

    library = libraries[f"{name}-rings"]
    rows, length = shape
    torch.manual_seed(length)
    x = (torch.randn(rows * length + 4) + 3.0)[shift : rows * length + shift].view(rows, length)
    memory = torch.full((rows * length + 8,), 77.0)
    out = memory[4 : rows * length + 4].view(rows, length)
    before = rings_launched(library)
    run(library, [x, out], [rows, length], 1e-5 if name == "instancenorm" else None)
    assert rings_launched(library) - before == rings
    assert worst_error(out, exact_rows(name, x)) <= 2e-6
    assert bool((memory[:4] == 77.0).all())
    assert bool((memory[-4:] == 77.0).all())


@pytest.mark.parametrize("name", ["instancenorm", "softmax"])
@pytest.mark.parametrize("kind", ["tight", "rings"])
@pytest.mark.parametrize("blocks", [2, 3, 7])
@pytest.mark.parametrize("seed", range(12))
def test_blocks_wait_for_each_other_and_never_for_ever(
    name: str, kind: str, blocks: int, seed: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(seed)
    library = libraries[f"{name}-{kind}"]
    library.set_device(blocks, seed)
    before = rings_launched(library)
    for rows, length in [(4, 896), (8, 893), (12, 385)]:
        x = torch.randn(rows, length)
        out = torch.empty_like(x)
        run(library, [x, out], [rows, length], 1e-5 if name == "instancenorm" else None)
        assert not library.was_stuck()
        assert worst_error(out, exact_rows(name, x)) <= 2e-6
    library.set_device(1, 0)
    assert rings_launched(library) == before + 3


def test_a_block_that_draws_regardless_of_its_slots_waits_for_ever(tmp_path: Path) -> None:
    """The rule that keeps blocks from it is needed, and the emulation would show its loss."""
    import torch

    rule = "if (plan.by_slices.quotient(shared.slices[turn.slot]) == newest) {"
    text = for_the_cpu(cuda_source("softmax", TIGHT))
    assert text.count(rule) == 1
    source = tmp_path / "unruly.cpp"
    source.write_text(text.replace(rule, "if (false) {"))
    subprocess.run([*COMPILER, str(source), "-o", str(tmp_path / "unruly.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "unruly.so"))
    library.set_patience(3)
    # How blocks meet depends on the machine's other work too.
    for seed in range(20):
        library.set_device(2, seed)
        x = torch.randn(8, 893)
        run(library, [x, torch.empty_like(x)], [8, 893])
        if library.was_stuck():
            break
    assert library.was_stuck()


@pytest.mark.long
@pytest.mark.parametrize("name", ["instancenorm", "l1norm", "softmax"])
@pytest.mark.parametrize("length", [65_536, 65_540, 73_001])
def test_segments_of_more_slices_than_a_warp_hears_of_at_once(
    name: str, length: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(length)
    library = libraries[f"{name}-many"]
    library.set_device(9, length)
    x = torch.randn(4, length) + torch.linspace(0.0, 5.0, length)
    out = torch.empty_like(x)
    before = rings_launched(library)
    run(library, [x, out], [4, length], 1e-5 if name == "instancenorm" else None)
    assert not library.was_stuck()
    assert rings_launched(library) == before + 1
    library.set_device(1, 0)
    assert worst_error(out, exact_rows(name, x)) <= 2e-6


@pytest.mark.parametrize(("length", "rings"), [(20_000, 0), (40_000, 1), (51_200, 1), (53_240, 1)])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_a_first_value_far_from_all_others(
    length: int, rings: int, mean: float, libraries: Libraries
) -> None:
    """Blocks tell means relative to the first value: what rounding loses must stay small."""
    import torch

    torch.manual_seed(length)
    x = torch.randn(4, length) + mean
    x[:, 0] = torch.tensor([1e3, -1e4, 1e5, 1e7])
    x[1, -1] = 1e4
    out = torch.empty_like(x)
    library = libraries["instancenorm-wide"]
    before = rings_launched(library)
    run(library, [x, out], [4, length], 1e-5)
    assert rings_launched(library) == before + rings
    exact = torch.nn.functional.layer_norm(x.double(), [length], eps=1e-5)
    assert (out.double() - exact).abs()[:, 1:-1].max().item() <= 2e-6
    assert worst_error(out, exact) <= 2e-6


@pytest.mark.parametrize("name", ["instancenorm", "l2norm", "softmax"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_goes_from_block_to_block(
    name: str, bad: float, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(1)
    x = torch.randn(4, 3000)
    x[1, 0], x[2, 1500], x[3, 2999] = bad, bad, bad
    out = torch.empty_like(x)
    run(libraries[f"{name}-rings"], [x, out], [4, 3000], 1e-5 if name == "instancenorm" else None)
    if name == "instancenorm":
        expected = torch.nn.functional.layer_norm(x, [3000], eps=1e-5)
    elif name == "l2norm":
        expected = x / x.norm(dim=1, keepdim=True)
    else:
        expected = torch.softmax(x, 1)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.isinf(), expected.isinf())


def exact_rows(name: str, x: Any) -> Any:
    """Return the rows of x in float64, normalised as the problem of that name does it."""
    import torch

    rows = x.double()
    if name in {"softmax", "log_softmax"}:
        return getattr(torch, name)(rows, 1)
    if name == "l1norm":
        return rows / rows.abs().mean(dim=1, keepdim=True)
    if name == "l2norm":
        return rows / rows.norm(dim=1, keepdim=True)
    assert name == "instancenorm"
    return torch.nn.functional.layer_norm(rows, rows.shape[1:], eps=1e-5)


def worst_error(out: Any, exact: Any) -> float:
    """Return the largest error of the finite elements, relative to the signal; others are equal."""
    import torch

    finite = exact.isfinite()
    assert torch.equal(out[~finite].double(), exact[~finite])
    out, exact = out[finite].double(), exact[finite]
    rms = exact.square().mean().sqrt().item()
    allowed = (exact.abs() + min(1.0, rms)).clamp(min=1e-30)
    return float(((out - exact).abs() / allowed).max().item())


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mean", [0.0, 1.0e4])
def test_layer_norm(length: int, mean: float, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x, weight, bias = torch.randn(4, length) + mean, torch.randn(length), torch.randn(length)
    out = torch.empty_like(x)
    run(libraries[f"layernorm-{kind}"], [x, weight, bias, out], [4, length], 1e-5)
    exact = torch.nn.functional.layer_norm(
        x.double(), [length], weight.double(), bias.double(), 1e-5
    )
    assert worst_error(out, exact) <= 2e-6


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_blocks_keep_the_weights_of_their_columns(
    name: str, blocks: int, seed: int, libraries: Libraries
) -> None:
    """Whole chunks and parts of them, last blocks with less or nothing, one segment and many."""
    import torch

    torch.manual_seed(seed)
    library = libraries[f"{name}-columns"]
    eps = 1e-5
    for rows, of_block in [(1, 1536), (2, 1472), (7, 1056), (12, 1100)]:
        length = blocks * of_block - 36 * (seed % 2)
        weight, bias = torch.randn(length), torch.randn(length)
        x = torch.randn(rows, length) + 3.0 * seed
        x[-1, length // 2] = (1e4, float("nan"), float("inf"))[seed % 3]
        out = torch.empty_like(x)
        library.set_device(blocks, seed)
        before = rings_launched(library)
        tensors = [x, weight, bias, out] if name == "layernorm" else [x, weight, out]
        run(library, tensors, [rows, length], eps)
        assert not library.was_stuck()
        assert rings_launched(library) == before + 1
        exact = x.double()
        if name == "layernorm":
            affine = weight.double(), bias.double()
            exact = torch.nn.functional.layer_norm(exact, [length], *affine, eps)
        else:
            exact = torch.nn.functional.rms_norm(exact, [length], weight.double(), eps)
        assert torch.equal(out.isnan(), exact.isnan())
        assert worst_error(out.nan_to_num(), exact.nan_to_num()) <= 2e-6
    library.set_device(1, 0)


@pytest.mark.parametrize(
    ("blocks", "length", "resident"),
    [
        pytest.param(2, 2 * 18 * 256, 0, id="more-chunks-than-slots"),
        pytest.param(2, 2 * 12 * 256, 0, id="no-slot-beside-a-segment"),
        pytest.param(2, 2 * 11 * 256, 1, id="slots-for-a-segment-and-for-what-comes"),
        pytest.param(2, 2 * 256, 0, id="too-few-chunks"),
        pytest.param(3, 3 * 9 * 256 - 2, 0, id="no-whole-vectors"),
    ],
)
def test_when_blocks_have_columns(
    blocks: int, length: int, resident: int, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(length)
    library = libraries["layernorm-columns"]
    library.set_device(blocks, length)
    x, weight, bias = torch.randn(4, length), torch.randn(length), torch.randn(length)
    out = torch.empty_like(x)
    before = rings_launched(library)
    run(library, [x, weight, bias, out], [4, length], 1e-5)
    library.set_device(1, 0)
    assert rings_launched(library) == before + resident
    affine = weight.double(), bias.double()
    exact = torch.nn.functional.layer_norm(x.double(), [length], *affine, 1e-5)
    assert worst_error(out, exact) <= 2e-6


@pytest.mark.parametrize("length", SHORT)
@pytest.mark.parametrize("name", ["instancenorm", "layernorm", "l1norm", "softmax"])
@pytest.mark.parametrize("kind", ["small", "shipped"])
def test_short_segments(name: str, length: int, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x, weight, bias = torch.randn(333, length) + 3.0, torch.randn(length), torch.randn(length)
    memory = torch.full((333 * length + 8,), 77.0)
    out = memory[4 : 333 * length + 4].view(333, length)
    beside = [weight, bias] if name == "layernorm" else []
    eps = 1e-5 if name in {"instancenorm", "layernorm"} else None
    assert run(libraries[f"{name}-{kind}"], [x, *beside, out], [333, length], eps) == 0
    exact = x.double()
    if name == "instancenorm":
        exact = torch.nn.functional.layer_norm(exact, [length], eps=1e-5)
    elif name == "layernorm":
        affine = weight.double(), bias.double()
        exact = torch.nn.functional.layer_norm(exact, [length], *affine, eps=1e-5)
    elif name == "l1norm":
        exact = exact / exact.abs().mean(dim=1, keepdim=True)
    else:
        exact = torch.softmax(exact, 1)
    assert worst_error(out, exact) <= 2e-6
    assert bool((memory[:4] == 77.0).all())
    assert bool((memory[-4:] == 77.0).all())


def kernel_launched(library: ctypes.CDLL) -> str:
    """Return the last kernel's name and template arguments, such as `norm_in_lanes 8 1 2 0`."""
    library.launched_kernel.restype = ctypes.c_char_p
    mangled = library.launched_kernel().decode()
    name = re.search(r"norm_in_[a-z]+|map_tiles", mangled)
    assert name, mangled
    return " ".join([name[0], *re.findall(r"L[ib](\d+)E", mangled)])


@pytest.mark.parametrize(
    ("rows", "length", "kernel"),
    [
        # A block has 128 lanes: 16, 8 or 4 segments a turn.
        pytest.param(32, 32, "norm_in_lanes 8 1 1 1", id="8-lanes"),
        pytest.param(33, 32, "norm_in_lanes 8 1 1 0", id="8-lanes-and-part-of-a-block"),
        pytest.param(32, 28, "norm_in_lanes 8 1 1 0", id="7-of-8-lanes"),
        pytest.param(24, 64, "norm_in_lanes 16 1 1 1", id="16-lanes"),
        pytest.param(20, 64, "norm_in_lanes 16 1 1 0", id="16-lanes-and-half-a-block"),
        pytest.param(12, 128, "norm_in_lanes 32 1 1 1", id="32-lanes"),
        pytest.param(12, 124, "norm_in_lanes 32 1 1 0", id="31-of-32-lanes"),
        pytest.param(8208, 64, "norm_in_lanes 16 1 2 1", id="two-turns"),
        pytest.param(8200, 64, "norm_in_lanes 16 1 2 0", id="two-turns-and-one"),
        pytest.param(12, 256, "norm_in_lanes 32 2 1 1", id="two-vectors"),
        pytest.param(11, 256, "norm_in_lanes 32 2 1 0", id="two-vectors-and-part-of-a-block"),
        pytest.param(12, 252, "norm_in_lanes 32 2 1 0", id="two-vectors-and-one"),
        pytest.param(2056, 256, "norm_in_lanes 16 4 1 1", id="four-vectors"),
        pytest.param(2057, 256, "norm_in_lanes 16 4 1 0", id="four-vectors-and-part-of-a-block"),
        pytest.param(4096, 132, "norm_in_lanes 16 4 1 0", id="four-vectors-and-fewer"),
        pytest.param(3, 512, "norm_in_registers 4 16 0", id="a-warp"),
        pytest.param(3, 1024, "norm_in_registers 4 4 256", id="a-vector-each"),
        pytest.param(3, 1020, "norm_in_registers 4 4 0", id="a-vector-each-but-for-one"),
        pytest.param(513, 1024, "norm_in_registers 4 16 64", id="64-threads"),
        pytest.param(517, 1020, "norm_in_registers 4 16 0", id="63-threads-and-a-part"),
        pytest.param(3, 4096, "norm_in_registers 4 16 256", id="256-threads"),
        pytest.param(3, 4092, "norm_in_registers 4 16 0", id="256-threads-but-for-one"),
        pytest.param(3, 8192, "norm_in_registers 4 16 0", id="512-threads"),
    ],
)
@pytest.mark.parametrize("name", ["instancenorm", "softmax", "log_softmax", "l1norm", "rmsnorm"])
def test_kernels_for_whole_segments_where_all_are_whole(
    name: str, rows: int, length: int, kernel: str, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(length)
    x, weight = torch.randn(rows, length) + 3.0, torch.randn(length)
    memory = torch.full((rows * length + 8,), 77.0)
    out = memory[4 : rows * length + 4].view(rows, length)
    tensors = [x, weight, out] if name == "rmsnorm" else [x, out]
    library = libraries[f"{name}-shipped"]
    eps = 1e-5 if name in {"instancenorm", "rmsnorm"} else None
    assert run(library, tensors, [rows, length], eps) == 0
    if name in {"log_softmax", "rmsnorm"}:  # which need more registers
        kernel = kernel.replace("lanes 16 4", "lanes 32 2")
    assert kernel_launched(library) == kernel
    if name == "rmsnorm":
        exact = torch.nn.functional.rms_norm(x.double(), [length], weight.double(), 1e-5)
    else:
        exact = exact_rows(name, x)
    assert worst_error(out, exact) <= 2e-6
    assert bool((memory[:4] == 77.0).all())
    assert bool((memory[-4:] == 77.0).all())


@pytest.mark.parametrize("length", LENGTHS)
def test_rms_norm(length: int, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x, weight = torch.randn(4, length) * 3.0, torch.randn(length)
    out = torch.empty_like(x)
    run(libraries[f"rmsnorm-{kind}"], [x, weight, out], [4, length], 1e-5)
    exact = torch.nn.functional.rms_norm(x.double(), [length], weight.double(), 1e-5)
    assert worst_error(out, exact) <= 1e-6


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["l1norm", "l2norm"])
def test_magnitudes(length: int, name: str, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x = torch.randn(4, length)
    out = torch.empty_like(x)
    run(libraries[f"{name}-{kind}"], [x, out], [4, length])
    exact = x.double()
    size = (
        exact.abs().mean(1, keepdim=True) if name == "l1norm" else exact.norm(dim=1, keepdim=True)
    )
    assert worst_error(out, exact / size) <= 1e-6


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("values", ["plain", "huge", "masked", "equal"])
def test_softmax(length: int, name: str, values: str, kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(length)
    x = torch.randn(4, length)
    if values == "huge":
        x = x * 1e3 - 5e4
    elif values == "masked":
        # Whole threads and whole slices have nothing but -inf.
        x[:, : length // 2] = -torch.inf
    elif values == "equal":
        x = torch.full_like(x, -7.0)
    out = torch.empty_like(x)
    run(libraries[f"{name}-{kind}"], [x, out], [4, length])
    exact = getattr(torch, name)(x.double(), 1)
    assert worst_error(out, exact) <= 2e-6


# A way that each kernel of the shipped schedule goes: lanes, registers, cache, slices, rings.
WAYS = [
    pytest.param((400, 96, "shipped"), id="lanes"),
    pytest.param((400, 128, "shipped"), id="all-lanes"),
    pytest.param((200, 256, "shipped"), id="a-warp"),
    pytest.param((100, 777, "shipped"), id="scalars"),
    pytest.param((60, 1024, "shipped"), id="a-block"),
    pytest.param((40, 5000, "shipped"), id="a-large-block"),
    pytest.param((10, 16_384, "shipped"), id="cache"),
    pytest.param((4, 40_001, "shipped"), id="slices"),
    pytest.param((4, 40_000, "wide"), id="rings"),
    pytest.param((120, 900, "rings"), id="rings-of-small-slots"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("values", ["random", "large", "constant"])
@pytest.mark.parametrize("name", ["softmax", "l1norm", "l2norm"])
def test_the_values_of_a_segment_share_no_error(
    name: str, values: str, way: tuple[int, int, str], libraries: Libraries
) -> None:
    """Nothing but the last operations' rounding is left: no error of the segment's total."""
    import torch

    rows, length, kind = way
    torch.manual_seed(length)
    x = torch.randn(rows, length)
    if values == "large":
        x = x + 1e4 if name == "softmax" else x * 1e4
    elif values == "constant":
        x = x[:, :1].expand(-1, length).contiguous()
    out = torch.empty_like(x)
    run(libraries[f"{name}-{kind}"], [x, out], [rows, length])
    exact = exact_rows(name, x)
    shared = ((out.double() - exact) * exact).sum(1) / exact.square().sum(1)
    # Half a unit in the last place, of a result that is not far above a power of two; and what a
    # root leaves of a square whose threads were joined in float.
    most = 1.5 if name == "l2norm" else 1.15
    assert shared.abs().max().item() <= most * 2.0**-24


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mean", [0.0, 1.0e4])
def test_a_logarithm_of_softmax_is_rounded_once(
    way: tuple[int, int, str], mean: float, libraries: Libraries
) -> None:
    import torch

    rows, length, kind = way
    torch.manual_seed(length)
    x = torch.randn(rows, length) + mean
    out = torch.empty_like(x)
    run(libraries[f"log_softmax-{kind}"], [x, out], [rows, length])
    exact = torch.log_softmax(x.double(), 1)
    unit = torch.exp2(exact.abs().log2().floor() - 23)
    # What is added is of the logarithm of the total, which is not rounded correctly.
    assert ((out.double() - exact).abs() <= 0.51 * unit + 1.2e-7).all()


@pytest.mark.parametrize("length", [9, 256, 1000])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "l1norm", "l2norm"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_spreads_as_in_the_reference(
    length: int, name: str, bad: float, kind: str, libraries: Libraries
) -> None:
    import torch

    torch.manual_seed(length)
    x = torch.randn(2, length)
    x[0, length // 2] = bad
    out = torch.empty_like(x)
    run(libraries[f"{name}-{kind}"], [x, out], [2, length])
    if name == "l1norm":
        expected = x / x.abs().mean(1, keepdim=True)
    elif name == "l2norm":
        expected = x / x.norm(dim=1, keepdim=True)
    else:
        expected = getattr(torch, name)(x, 1)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.isinf(), expected.isinf())


@pytest.mark.parametrize("spatial", [(3, 4), (8, 8), (13, 20), (17, 19), (16, 16)])
def test_activation_and_residual(spatial: tuple[int, int], kind: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(sum(spatial))
    x, residual = torch.randn(2, 8, *spatial), torch.randn(2, 8, *spatial)
    weight, bias, out = torch.randn(8), torch.randn(8), torch.empty_like(x)
    inner = spatial[0] * spatial[1]
    tensors = [x, weight, bias, residual, out]
    run(libraries[f"groupnorm_silu_add-{kind}"], tensors, [4, 4 * inner, inner, 2], 1e-5)
    exact = torch.nn.functional.group_norm(x.double(), 2, weight.double(), bias.double(), 1e-5)
    exact = torch.nn.functional.silu(exact) + residual.double()
    assert worst_error(out, exact) <= 2e-6


def test_an_activation_of_any_size(kind: str, libraries: Libraries) -> None:
    """Its division has no branches for what is large: the bias takes it there."""
    import torch

    torch.manual_seed(5)
    x, residual = torch.randn(2, 8, 8, 8), torch.zeros(2, 8, 8, 8)
    weight = torch.full((8,), 30.0)
    bias = torch.tensor([0.0, 90.0, -90.0, 1e30, -1e30, 3e38, float("inf"), float("nan")])
    out = torch.empty_like(x)
    tensors = [x, weight, bias, residual, out]
    run(libraries[f"groupnorm_silu_add-{kind}"], tensors, [4, 256, 64, 2], 1e-5)
    exact = torch.nn.functional.group_norm(x.double(), 2, weight.double(), bias.double(), 1e-5)
    exact = torch.nn.functional.silu(exact).float()
    torch.testing.assert_close(out, exact, rtol=5e-7, atol=1e-5, equal_nan=True)
