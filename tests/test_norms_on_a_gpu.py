"""Rendered norms on a GPU: fast kernels at shapes that they are rendered for, and the general one.

tests/test_render_emulation.py has their arithmetic; blocks that wait for each other, streams and
graphs need a device.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelgen.problem.library import load_problem
from kernelgen.rendering.solution import render
from kernelgen.solution.importing import import_file

pytestmark = pytest.mark.gpu

# Rows for registers, the cache and rings, that begin anywhere, and too long for rings.
SHAPES = [
    (1000, 4096),
    (300, 16_384),
    (3, 16_385),
    (5, 20_000),
    (4, 24_575),
    (64, 65_535),
    (9, 131_072),
    (300, 40_001),
    (200, 786_431),
    (200, 786_432),
    (2, 2_097_152),
    (4, 2_097_151),
    (2, 4_194_304),
]


# The constant that is a segment's length.
LENGTHS = {"instancenorm_1d": "length", "layernorm": "normalized"}


@pytest.fixture(scope="session")
def solution(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ModuleType]:
    """Return what renders and imports a problem's solution, once for each length; 0 is its own."""
    folder = tmp_path_factory.mktemp("rendered")
    loaded: dict[str, ModuleType] = {}

    def load(name: str, length: int = 0) -> ModuleType:
        key = f"{name}_{length}"
        if key not in loaded:
            value = f"[{length}]" if name == "layernorm" else str(length)
            overrides = {LENGTHS.get(name, "features"): value} if length else {}
            path: Path = folder / f"{key}.py"
            path.write_text(render(load_problem(name), overrides=overrides))
            loaded[key] = import_file(f"rendered_{key}", path)
        return loaded[key]

    return load


def worst_error(out: Any, exact: Any) -> float:
    """Return the largest error, relative to 1 or the element."""
    return float(((out.double() - exact).abs() / exact.abs().clamp(min=1.0)).max().item())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shift", [0, 1, 4], ids=["aligned", "unaligned", "shifted"])
@pytest.mark.parametrize("own", [True, False], ids=["its-shape", "another-shape"])
def test_rows(
    shape: tuple[int, int], shift: int, *, own: bool, solution: Callable[..., ModuleType]
) -> None:
    import torch

    rows, length = shape
    rendered = length if own else 0
    torch.manual_seed(rows * length)
    memory = torch.randn(rows * length + 8, device="cuda") * 3.0
    x = memory[shift : shift + rows * length].view(rows, length)
    norm = x.double().norm(dim=1, keepdim=True)
    with torch.no_grad():
        softmax = solution("softmax", rendered).ModelNew()(x) * length
        assert worst_error(softmax, torch.softmax(x.double(), 1) * length) <= 2e-5
        l2 = solution("l2norm", rendered).ModelNew()(x) * length**0.5
        assert worst_error(l2, x.double() / norm * length**0.5) <= 2e-6


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_moments_of_rows(
    shape: tuple[int, int], mean: float, solution: Callable[..., ModuleType]
) -> None:
    import torch

    rows, length = shape
    torch.manual_seed(rows * length)
    x = torch.randn(rows, 1, length, device="cuda") + mean
    # A first value far from the others, a constant segment, and two spikes.
    x[0, 0, 0] += 1e5
    x[1] = 7.5
    x[-1, 0, length // 2 : length // 2 + 2] = torch.tensor([1e4, -1e4], device="cuda")
    with torch.no_grad():
        model = solution("instancenorm_1d", length).ModelNew(1)
        out = model(x)
        exact = torch.nn.functional.instance_norm(x.double(), eps=1e-5)
    assert worst_error(out, exact) <= 5e-6
    assert torch.equal(out, model(x))
    assert worst_error(solution("instancenorm_1d", 4096).ModelNew(1)(x), exact) <= 5e-6


@pytest.mark.parametrize(
    "shape",
    [
        (16, 4_194_304),
        (40, 2_500_000),
        (3, 2_097_156),
        (1, 4_000_000),
        (2, 3_000_001),
        (3, 5_000_000),
    ],
    ids=str,
)
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_rows_with_millions_of_weights(
    shape: tuple[int, int], mean: float, solution: Callable[..., ModuleType]
) -> None:
    """Through columns; the last two are for the general kernel."""
    import torch

    rows, length = shape
    torch.manual_seed(length)
    layer = solution("layernorm", length).ModelNew([length]).cuda()
    rms = solution("rmsnorm", length).ModelNew(length).cuda()
    for parameter in (*layer.parameters(), *rms.parameters()):
        torch.nn.init.normal_(parameter)
    x = torch.randn(rows, length, device="cuda") + mean
    x[0, 0] += 1e5
    x[-1, length // 2] = -1e4
    functions = torch.nn.functional
    with torch.no_grad():
        weight, bias = (parameter.double() for parameter in layer.parameters())
        out, exact = layer(x), functions.layer_norm(x.double(), [length], weight, bias, 1e-5)
        assert worst_error(out, exact) <= 5e-6
        assert torch.equal(out, layer(x))
        x[-1, 0] = float("inf")
        assert int(layer(x).isnan().sum()) == length
        x[-1, 0] = 0.0
        (weight,) = rms.parameters()
        exact = functions.rms_norm(x.double(), [length], weight.double(), 1e-5)
        assert worst_error(rms(x), exact) <= 5e-6


@pytest.mark.parametrize("channels", [8, 128, 4096])
def test_groups_of_many_channels(channels: int, solution: Callable[..., ModuleType]) -> None:
    import torch

    torch.manual_seed(channels)
    model = solution("groupnorm").ModelNew(channels, 2).cuda()
    weight, bias = model.parameters()
    torch.nn.init.normal_(weight)
    torch.nn.init.normal_(bias)
    x = torch.randn(3, channels, 4_194_304 // channels, device="cuda") + 100.0
    exact = torch.nn.functional.group_norm(x.double(), 2, weight.double(), bias.double(), 1e-5)
    with torch.no_grad():
        assert worst_error(model(x), exact) <= 2e-6


@pytest.mark.parametrize("name", ["instancenorm_1d", "softmax", "layernorm"])
def test_long_rows_are_read_once(name: str, solution: Callable[..., ModuleType]) -> None:
    """Where they may: a way round that is always taken would pass all other tests."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    if properties.major not in {9, 10} or properties.multi_processor_count < 100:
        pytest.skip("rings are not for this device")
    length = 2_500_000 if name == "layernorm" else 262_144
    channels = [1] if name == "instancenorm_1d" else []
    arguments: list[Any] = [[length]] if name == "layernorm" else channels
    model = solution(name, length).ModelNew(*arguments).cuda()
    x = torch.randn(20, *channels, length, device="cuda")
    with torch.no_grad():
        model(x)
        with torch.profiler.profile(acc_events=True) as traced:
            model(x)
            torch.cuda.synchronize()
    kernels = [event.key for event in traced.key_averages()]
    wanted = "segment_in_columns" if name == "layernorm" else "segment_in_rings"
    assert any(wanted in kernel for kernel in kernels), kernels
    assert not any("_slices" in kernel for kernel in kernels)


@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_a_graph_replays_on_new_inputs(name: str, solution: Callable[..., ModuleType]) -> None:
    import torch

    length = 262_144 if name == "softmax" else 2_500_000
    model = solution(name, length).ModelNew(*([] if name == "softmax" else [[length]])).cuda()
    x = torch.randn(40, length, device="cuda")
    with torch.no_grad():
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        for _ in range(3):
            x.copy_(torch.randn_like(x) * 4.0)
            graph.replay()
            if name == "softmax":
                assert worst_error(out * 1e5, torch.softmax(x.double(), 1) * 1e5) <= 2e-5
            else:
                exact = torch.nn.functional.layer_norm(x.double(), [length], eps=1e-5)
                assert worst_error(out, exact) <= 5e-6


def test_two_streams_at_once(solution: Callable[..., ModuleType]) -> None:
    """Neither may hold multiprocessors that the other waits for."""
    import torch

    models = [solution(name, 262_144).ModelNew() for name in ("softmax", "l2norm")]
    inputs = [torch.randn(300, 262_144, device="cuda") for _ in models]
    exact = [
        torch.softmax(inputs[0].double(), 1) * 1e5,
        inputs[1].double() / inputs[1].double().norm(dim=1, keepdim=True) * 1e2,
    ]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in models]  # type: ignore[no-untyped-call]
    outs: list[list[Any]] = [[], []]
    with torch.no_grad():
        for _ in range(20):
            for k, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    outs[k].append(models[k](inputs[k]))
    torch.cuda.synchronize()
    for out in outs[0]:
        assert worst_error(out * 1e5, exact[0]) <= 2e-5
    for out in outs[1]:
        assert worst_error(out * 1e2, exact[1]) <= 2e-5


def test_rows_with_millions_of_weights_beside_other_work(
    solution: Callable[..., ModuleType],
) -> None:
    import torch

    length = 2_500_000
    models = [
        solution("layernorm", length).ModelNew([length]).cuda(),
        solution("softmax", 262_144).ModelNew(),
    ]
    inputs = [torch.randn(20, size, device="cuda") for size in (length, 262_144)]
    with torch.no_grad():
        alone = [model(x) for model, x in zip(models, inputs, strict=True)]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in models]  # type: ignore[no-untyped-call]
        outs: list[list[Any]] = [[], []]
        for _ in range(20):
            for k, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    outs[k].append(models[k](inputs[k]))
    torch.cuda.synchronize()
    for k, expected in enumerate(alone):
        assert all(torch.equal(out, expected) for out in outs[k])
