"""Models in bf16 and fp16: kernels read and write 16 bits, and compute in float32."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from planned_models import Planned, problem_of, without_rounding

from kernelgen.engines.map import Map
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Library
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.record import DTYPES, MAIN, Backend, Device, Precision, Problem

X = "torch.randn(6, 40)"
IMAGE = "torch.randn(2, 6, 8, 12)"
# forward, the constructor's statements, the input, and how many kernels are queued
MODELS: dict[str, tuple[str, str, str, int]] = {
    "chain": ("F.gelu(x * self.w + 0.5).relu()", "self.w = nn.Parameter(torch.rand(40))", X, 1),
    "mixed": ("x + torch.linspace(-1.0, 1.0, 40)", "pass", X, 1),
    "mask": ("torch.where(x > 0.25, x.exp(), -x)", "pass", X, 1),
    "odd": ("F.silu(x) * x", "pass", "torch.randn(5, 13)", 1),
    "softmax": ("F.softmax(x, 1) * 2", "pass", X, 1),
    "layer norm": ("self.n(x).tanh()", "self.n = nn.LayerNorm(40)", X, 1),
    "group norm": ("self.n(x)", "self.n = nn.GroupNorm(3, 6)", IMAGE, 1),
    "sum": ("x.sum(1)", "pass", X, 1),
    "means": ("x.mean((2, 3)) * 2", "pass", IMAGE, 1),
    "largest": ("x.amax(0)", "pass", X, 1),
    "index": ("x.argmax(1)", "pass", X, 1),
    "largest of a pair": ("torch.max(x, 0)[0] * 2", "pass", X, 1),
    "index of a pair": ("x.min(1).indices", "pass", X, 1),
    "a pair": ("(lambda p: p.values * p.indices)(x.max(1))", "pass", X, 2),
    "wide softmax": ("F.softmax(x.float(), 1)", "pass", X, 1),
    "wide norm": ("F.layer_norm(x.float(), (40,)) * 2", "pass", X, 1),
    "wide pool": ("F.max_pool2d(x.float(), 2)", "pass", IMAGE, 1),
    "wide sum": ("x.float().square().sum(1)", "pass", X, 1),
    "pool": ("F.max_pool2d(x, 2).sigmoid()", "pass", IMAGE, 1),
    "mean pool": ("F.avg_pool2d(x, 3, 2, 1)", "pass", IMAGE, 1),
    "adaptive pool": ("F.adaptive_avg_pool2d(x, 3) * 2", "pass", IMAGE, 1),
    "adaptive mean": ("F.adaptive_avg_pool2d(x, 1)", "pass", IMAGE, 1),
    "volumes": ("F.max_pool3d(F.silu(x), 3, 1, 1) + 1", "pass", "torch.randn(1, 2, 6, 7, 8)", 1),
    "scan": ("x.cumsum(1)", "pass", "torch.randn(3, 300)", 1),
    "scan of columns": ("torch.cumprod(x.tanh() + 1, 0)", "pass", "torch.randn(9, 13)", 1),
    "exclusive scan": (
        "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)",
        "pass",
        X,
        1,
    ),
    "no element": ("torch.cat((torch.zeros_like(x[:, :1]), F.silu(x)), 1)", "pass", X, 2),
    "loss": ("F.mse_loss(x, x.roll(1, 0))", "pass", X, 1),
    "behind a product": ("F.relu(self.l(x)) + 1", "self.l = nn.Linear(40, 24)", X, 1),
    "before a product": ("self.l(x.sigmoid() * 2)", "self.l = nn.Linear(40, 24)", X, 1),
    "batch norm": ("self.n(x).relu()", "self.n = nn.BatchNorm2d(6)", IMAGE, 2),
    "product alone": ("self.l(x)", "self.l = nn.Linear(40, 24)", X, 0),
    "view": ("x * self.b", "self.register_buffer('b', torch.rand(2, 40)[1])", X, 1),
    "attribute": ("x * self.b", "self.b = torch.linspace(-1.0, 1.0, 40)", X, 1),
    "casts": ("(x.float() * 3).to(x.dtype) + 1", "pass", X, 1),
    "convolution of groups": (
        "self.c(x).relu()",
        "self.c = nn.Conv2d(6, 8, 1, groups=2, bias=False)",
        IMAGE,
        1,
    ),
    "steps of a cell": (
        "[h for h in [None] for t in range(5) for h in [self.c(x[:, t], h)]][-1] * 2",
        "self.c = nn.GRUCell(8, 8)",
        "torch.randn(3, 5, 8)",
        1,
    ),
}
LAYER, RMS = "self.n = nn.LayerNorm({})", "self.n = nn.RMSNorm({})"
STATISTICS = "self.m = nn.Parameter(torch.randn(6))\nself.v = nn.Parameter(torch.rand(6) + 1)"
# forward, the constructor's statements and the input of a norm that is one stage
NORMS: dict[str, tuple[str, str, str]] = {
    "layer norm": ("self.n(x)", LAYER.format(40), X),
    "of four": ("self.n(x)", LAYER.format(36), "torch.randn(6, 36)"),
    "of an odd length": ("self.n(x)", LAYER.format(13), "torch.randn(7, 13)"),
    "of a block": ("self.n(x)", LAYER.format(1032), "torch.randn(3, 1032)"),
    "of a row that is cut": ("self.n(x)", RMS.format(1030), "torch.randn(3, 1030)"),
    "long": ("self.n(x)", RMS.format(9216), "torch.randn(2, 9216)"),
    "in a cache": ("self.n(x)", LAYER.format(16384), "torch.randn(2, 16384)"),
    "in slices": ("self.n(x)", LAYER.format(33001), "torch.randn(2, 33001)"),
    "rms norm": ("self.n(x)", RMS.format(40), X),
    "group norm": ("self.n(x)", "self.n = nn.GroupNorm(3, 6)", IMAGE),
    "group norm, odd": ("self.n(x)", "self.n = nn.GroupNorm(2, 6)", "torch.randn(3, 6, 5, 7)"),
    "instance norm": ("self.n(x)", "self.n = nn.InstanceNorm2d(6, affine=True)", IMAGE),
    "of an image": ("self.n(x)", "self.n = nn.InstanceNorm2d(6)", "torch.randn(6, 8, 12)"),
    "batch norm": ("F.batch_norm(x, self.m, self.v)", STATISTICS, IMAGE),
    "softmax": ("F.softmax(x, 1)", "pass", X),
    "softmax, long": ("F.softmax(x, 1)", "pass", "torch.randn(3, 2048)"),
    "of channels": ("F.softmax(x, 1)", "pass", IMAGE),
    "log softmax": ("F.log_softmax(x, -1)", "pass", X),
    "l1": ("x / x.abs().mean(1, keepdim=True)", "pass", "torch.randn(5, 1024)"),
    "l2": ("x / torch.norm(x, p=2, dim=1, keepdim=True)", "pass", X),
    "normalize": ("F.normalize(x, dim=1)", "pass", X),
    "after a step": ("F.softmax(F.gelu(x) * 3, 1)", "pass", X),
    "after a step, apart": ("F.layer_norm(F.silu(x), (40,))", "pass", X),
    "before steps": ("F.gelu(self.n(x)) * 2 + x", LAYER.format(40), X),
    "between": ("torch.tanh(F.softmax(x + self.b, 1) - x)",
                "self.b = nn.Parameter(torch.randn(40))", X),
    "of halves": ("F.softmax(x.float(), 1, dtype=torch.float32).to(x.dtype)", "pass", X),
    "in float32": ("F.softmax(x, 1, dtype=torch.float32)", "pass", X),
}  # fmt: skip


# Models of one kernel that have no norm.
OTHERS = ("chain", "odd", "sum", "means", "pool", "mean pool", "volumes", "scan", "scan of columns")


def narrow_model(name: str, precision: Precision, folder: Path) -> Problem:
    """Return a problem in 16 bits with the norm of that name, or another one of one kernel."""
    forward, layers, given = MODELS[name][:3] if name in OTHERS else NORMS[name]
    problem = problem_of(folder, forward, layers=layers, x=given)
    return msgspec.structs.replace(problem, precision=precision)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_in_16_bits_is_one_stage(name: str, precision: Precision, tmp_path: Path) -> None:
    problem = narrow_model(name, precision, tmp_path)
    devices: tuple[Device, ...] = ("cuda", "cpu")
    for device in devices:
        plan = plan_of_problem(problem, MAIN, device).plan
        (stage,) = [s for s in plan.stages if not (isinstance(s, Library) and s.view)]
        assert isinstance(stage, Map if name == "batch norm" else Segment)
        assert {o.type.dtype for o in stage.operands} == {DTYPES[precision]}
        wide = name == "in float32"
        assert stage.result.type.dtype == ("float32" if wide else DTYPES[precision])
        assert not [step for step in stage.all_steps if step.operator.endswith("_float")]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
@pytest.mark.parametrize("name", [*NORMS, *OTHERS])
def test_what_is_computed_of_16_bits_is_rounded_once(
    name: str, backend: Backend, precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(narrow_model(name, precision, tmp_path), backend, compiled_folder)
    torch.manual_seed(5)
    (plain,) = planned.inputs()
    not_finite = plain.clone()
    not_finite.view(-1)[3], not_finite.view(-1)[-1] = float("nan"), float("inf")
    for x in (plain, plain + 100.0, not_finite):
        planned.check(x)
        assert len(planned.launched) == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["layer norm", "of a block", "softmax", "group norm"])
def test_a_norm_in_16_bits_of_what_is_not_aligned(
    name: str, precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(narrow_model(name, precision, tmp_path), "cuda", compiled_folder)
    (x,) = planned.inputs()
    dtype = getattr(torch, DTYPES[precision])
    for shift in (1, 4):
        memory = torch.empty(x.numel() + shift, dtype=dtype)
        planned.check(memory[shift:].view(x.shape).copy_(x))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
@pytest.mark.parametrize("name", MODELS)
def test_a_narrow_model_is_computed_as_torch_does(
    name: str,
    backend: Backend,
    precision: Precision,
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    forward, layers, given, kernels = MODELS[name]
    problem = problem_of(tmp_path, forward, layers=layers, x=given)
    problem = msgspec.structs.replace(problem, precision=precision)
    planned = Planned(problem, backend, compiled_folder)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    model, own = (one.to(dtype) for one in planned.models())
    torch.manual_seed(3)
    for _ in range(2):
        (x,) = (one.to(dtype) for one in planned.inputs())
        with torch.no_grad():
            expected: Any = model(x)
            exact: Any = model.double()(x.double()) if name not in {"mixed", "casts"} else expected
            model.to(dtype)
        found = planned.run(x, model=own)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if not found.is_floating_point():
            assert torch.equal(found, expected)
            continue
        step = torch.finfo(dtype).eps * (expected.double().abs() + 0.25)
        assert bool(((found.double() - expected.double()).abs() <= 2 * step).all())
        assert bool(((found.double() - exact.double()).abs() <= 2 * step).all())
    assert len(planned.launched) == kernels


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_16_bits_that_a_model_asks_for_round_each_value(
    backend: Backend, dtype: str, tmp_path: Path, compiled_folder: Path
) -> None:
    forward = f"(x.to(torch.{dtype}) * 1.3 + 0.125).float() - y"
    planned = Planned(problem_of(tmp_path, forward, x=X, y=X), backend, compiled_folder)
    given = planned.inputs()
    torch.testing.assert_close(planned.run(*given), planned.models()[0](*given), rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_running_statistics_are_rounded_once(
    backend: Backend, precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    forward, layers, given, _ = MODELS["batch norm"]
    problem = problem_of(tmp_path, forward, layers=layers, x=given)
    problem = msgspec.structs.replace(problem, precision=precision)
    planned = Planned(problem, backend, compiled_folder)
    dtype = getattr(torch, DTYPES[precision])
    model, own = (one.to(dtype) for one in planned.models())
    (x,) = (one.to(dtype) * 3 + 1 for one in planned.inputs())
    model.double()(x.double())
    planned.run(x, model=own)
    exact = dict(model.named_buffers())
    for name, found in own.named_buffers():
        wanted = exact[name]
        if not wanted.is_floating_point():
            assert torch.equal(found, wanted)
            continue
        assert found.dtype == dtype
        torch.testing.assert_close(without_rounding(found, wanted), wanted, rtol=1e-5, atol=1e-5)
