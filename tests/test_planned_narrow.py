"""Models in bf16 and fp16: kernels read and write 16 bits, and compute in float32."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend, Precision

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
    "group norm": ("self.n(x)", "self.n = nn.GroupNorm(3, 6)", IMAGE, 0),
    "sum": ("x.sum(1)", "pass", X, 1),
    "means": ("x.mean((2, 3)) * 2", "pass", IMAGE, 1),
    "largest": ("x.amax(0)", "pass", X, 1),
    "index": ("x.argmax(1)", "pass", X, 1),
    "wide softmax": ("F.softmax(x.float(), 1)", "pass", X, 2),
    "wide norm": ("F.layer_norm(x.float(), (40,)) * 2", "pass", X, 2),
    "wide pool": ("F.max_pool2d(x.float(), 2)", "pass", IMAGE, 1),
    "wide sum": ("x.float().square().sum(1)", "pass", X, 1),
    "pool": ("F.max_pool2d(x, 2).sigmoid()", "pass", IMAGE, 1),
    "mean pool": ("F.avg_pool2d(x, 3, 2, 1)", "pass", IMAGE, 0),
    "loss": ("F.mse_loss(x, x.roll(1, 0))", "pass", X, 1),
    "behind a product": ("F.relu(self.l(x)) + 1", "self.l = nn.Linear(40, 24)", X, 1),
    "before a product": ("self.l(x.sigmoid() * 2)", "self.l = nn.Linear(40, 24)", X, 1),
    "batch norm": ("self.n(x).relu()", "self.n = nn.BatchNorm2d(6)", IMAGE, 1),
    "product alone": ("self.l(x)", "self.l = nn.Linear(40, 24)", X, 0),
    "casts": ("(x.float() * 3).to(x.dtype) + 1", "pass", X, 1),
}


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
