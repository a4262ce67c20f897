"""Forward and backward that are planned from a Model, against autograd in float64."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from planned_models import Planned, problem_of
from torch.utils._pytree import tree_leaves, tree_map_only

from kernelgen.problem.library import load_problem
from kernelgen.problem.record import DTYPES, Backend, Precision, Problem
from kernelgen.rendering.solution import render
from kernelgen.solution.file import NO_KERNEL, STAYS

X = {"x": "torch.randn(6, 12)"}
XY = {**X, "y": "torch.randn(6, 12)"}
IMAGES = {"x": "torch.randn(3, 4, 6, 8)"}
MLP = {
    "forward": "x + self.b(F.silu(self.a(x)))",
    "layers": "self.a, self.b = nn.Linear(12, 20), nn.Linear(20, 12)",
    "x": "torch.randn(2, 5, 12)",
}
# As of `problem_of`.
MODELS: dict[str, dict[str, str]] = {
    "gelu": {"forward": "F.gelu(x)", **X},
    "extremes of a pool": {"forward": "F.avg_pool1d(x, 2).amax(1)", "x": "torch.randn(6, 4, 8)"},
    "joined": {
        "forward": "torch.tanh(x.flatten(1) * self.w)",
        "layers": "self.w = nn.Parameter(torch.rand(24))",
        "x": "torch.randn(5, 3, 8)",
    },
    "activations": {"forward": "F.mish(x) + F.elu(x) * F.softplus(x) + x.clamp(-0.5, 0.5)", **X},
    "mlp": MLP,
    "product": {"forward": "torch.relu(x @ y.mT) @ y", **XY},
    "products": {
        "forward": "torch.tanh(x @ y)",
        "x": "torch.randn(3, 6, 5)",
        "y": "torch.randn(3, 5, 4)",
    },
    "softmax": {"forward": "x.softmax(-1)", **X},
    "log-softmax": {"forward": "x.log_softmax(1)", "x": "torch.randn(3, 7, 5)"},
    "layer-norm": {"forward": "self.n(x)", "layers": "self.n = nn.LayerNorm(12)", **X},
    "rms-norm": {"forward": "self.n(x)", "layers": "self.n = nn.RMSNorm(12)", **X},
    "norm-by-hand": {
        "forward": "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.w",
        "layers": "self.w = nn.Parameter(torch.randn(12))",
        **X,
    },
    "normalize": {"forward": "F.normalize(x, dim=-1)", **X},
    "spread": {"forward": "(x - x.mean(-1, keepdim=True)).pow(2).mean(-1)", **X},
    "group-norm": {"forward": "self.n(x)", "layers": "self.n = nn.GroupNorm(2, 4)", **IMAGES},
    "batch-norm": {"forward": "self.n(x)", "layers": "self.n = nn.BatchNorm2d(4)", **IMAGES},
    "mse": {"forward": "F.mse_loss(x, y)", **XY},
    "cross-entropy": {
        "forward": "F.cross_entropy(x, i)",
        **X,
        "i": "torch.randint(0, 12, (6,))",
    },
    "pools": {"forward": "F.max_pool2d(x, 2) * F.avg_pool2d(x, 2)", **IMAGES},
    "convolution": {
        "forward": "F.gelu(self.c(x))",
        "layers": "self.c = nn.Conv2d(4, 5, 3)",
        **IMAGES,
    },
    "attention": {"forward": "F.scaled_dot_product_attention(x, x, x)", **IMAGES},
    "logsumexp": {"forward": "x.logsumexp(1) + x.std(1)", **X},
    "largest": {"forward": "x.max(1) + (x.amin(0),)", **X},
    "broadcast": {
        "forward": "x * self.w + y * x",
        "layers": "self.w = nn.Parameter(torch.randn(6, 1))",
        **X,
        "y": "torch.randn(12)",
    },
    "read-again": {"forward": "x * x.sigmoid() + x.sum(0, keepdim=True) * x", **X},
    "parameter-read-twice": {
        "forward": "torch.tanh(x @ self.w) @ self.w.t()",
        "layers": "self.w = nn.Parameter(torch.randn(12, 12))",
        **X,
    },
    "tied-layers": {
        "forward": "self.b(torch.tanh(self.a(x)))",
        "layers": "self.a, self.b = nn.Linear(12, 12), nn.Linear(12, 12)\n"
        "self.b.weight = self.a.weight",
        **X,
    },
    "frozen-parameter": {
        "forward": "self.a(x).relu()",
        "layers": "self.a = nn.Linear(12, 5)\nself.a.weight.requires_grad_(False)",
        **X,
    },
    "whole-numbers": {
        "forward": "self.e(i) * x * (i > 3)[:, None]",
        "layers": "self.e = nn.Embedding(9, 12)",
        **X,
        "i": "torch.randint(0, 9, (6,))",
    },
    "number": {"forward": "x * s + s", **X, "s": "0.5"},
    "in-place": {"forward": "h.add_(1.0).mul_(x)", "before": "h = x * 2.0", **X},
    "where": {"forward": "torch.where(x > y, x * y, y.exp())", **XY},
    "masked": {
        "forward": "x.masked_fill(self.m, float('-inf')).softmax(-1)",
        "layers": "self.register_buffer('m', torch.ones(6, 12).triu(1) > 0)",
        **X,
    },
    "detached": {"forward": "x * x.detach().exp() + (x - x.detach())", **X},
    "no-grad": {
        "forward": "x / s",
        "before": "with torch.no_grad():\n    s = x.abs().amax(1, keepdim=True)",
        **X,
    },
    "dropout-of-nothing": {"forward": "F.dropout(x, 0.0).exp()", **X},
    "buffer-that-follows": {
        "forward": "x * self.b + self.n",
        "before": "self.n.copy_(self.n * 0.9 + x.detach().mean(0) * 0.1)",
        "layers": "self.register_buffer('b', torch.randn(12))\n"
        "self.register_buffer('n', torch.zeros(12))",
        **X,
    },
    "buffer-that-changes": {
        "forward": "x * t",
        "before": "t = self.n * 0.9\nself.n.copy_(t + x.detach().mean(0) * 0.1)",
        "layers": "self.register_buffer('n', torch.ones(12))",
        **X,
    },
    "outputs-alike": {
        "forward": "h, h, h.view(-1), h.detach(), x, x.t()",
        "before": "h = x.exp()",
        **X,
    },
    "structures": {
        "forward": "{'a': xs[0] * xs[1], 'b': [xs[0].argmax(1), d['k'] + 1.0]}",
        "takes": "xs, d",
        "given": "[[torch.randn(4, 6), torch.randn(6)], {'k': torch.randn(4, 1)}]",
    },
    "own-function": {
        "forward": "Rounded.apply(x) * x",
        "top": "class Rounded(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x): return x.round()\n"
        "    @staticmethod\n"
        "    def backward(ctx, g): return g * 2.0",
        **X,
    },
    "hook": {
        "forward": "h.exp()",
        "before": "h = x * 2.0\nh.requires_grad and h.register_hook(lambda g: g * 3.0)",
        **X,
    },
    "einsum": {
        "forward": "torch.einsum('bdij,bdj->bid', x, y)",
        "x": "torch.randn(2, 4, 6, 6)",
        "y": "torch.randn(2, 4, 6)",
    },
    "reversed-scan": {"forward": "x.flip(1).cumsum(1).flip(1)", **X},
    "asserted": {
        "forward": "x * F.one_hot(i, 12)",
        **X,
        "i": "torch.randint(0, 12, (6,))",
    },
    "names": {
        "forward": "ctx * upstream + upstream_0",
        **dict.fromkeys(("ctx", "upstream", "upstream_0"), "torch.randn(4, 6)"),
    },
    "capitals": {"forward": "W * w + K", **dict.fromkeys("wWK", "torch.randn(4, 6)")},
    "builtins": {"forward": "input * len", **dict.fromkeys(("input", "len"), "torch.randn(6)")},
    "parts": {"forward": "a * F.silu(b)", "before": "a, b = x.chunk(2, -1)", **X},
    "nothing-of-it": {
        "forward": "x * self.w",
        "layers": "self.w, self.u = (nn.Parameter(torch.randn(12)) for _ in 'wu')",
        **XY,
    },
}
Upstream = Callable[[torch.Tensor], torch.Tensor]


def with_gradients(folder: Path, forward: str, **others: str) -> Problem:
    return msgspec.structs.replace(problem_of(folder, forward, **others), gradients=True)


def gradients_of(
    model: Any, given: Any, upstream: Upstream
) -> tuple[list[torch.Tensor], list[Any]]:
    """Return outputs, and gradients of all inputs and parameters that may have one."""

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone().requires_grad_(tensor.is_floating_point())

    given = tree_map_only(torch.Tensor, leaf, given)
    outputs = [one for one in tree_leaves(model(*given)) if isinstance(one, torch.Tensor)]
    leaves = [one for one in tree_leaves(given) if getattr(one, "requires_grad", False)]
    leaves += [one for one in model.parameters() if one.requires_grad]
    recorded = [one for one in outputs if one.requires_grad]
    ups = [upstream(one) for one in recorded]
    return outputs, [*torch.autograd.grad(recorded, leaves, ups, allow_unused=True)]


def of_values(out: torch.Tensor) -> torch.Tensor:
    """Return an upstream gradient that depends on an output's shape alone."""
    numbers = torch.linspace(-1.0, 2.0, out.numel(), dtype=torch.float64)
    return (numbers.sin() + 0.3).view(out.shape).to(out.dtype)


def check(planned: Planned, given: Any = None, upstream: Upstream = of_values) -> None:
    """Compare with autograd in float64, at the tolerance that a grade has."""
    reference, candidate = planned.models()
    torch.manual_seed(1)
    given = planned.inputs() if given is None else given
    wide = tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, given)
    outputs, exact = gradients_of(reference.double(), wide, upstream)
    with planned.streaming():
        planned.launched.clear()
        found, gradients = gradients_of(candidate, given, upstream)
    assert planned.launched or not found[0].numel()
    buffers = dict(candidate.named_buffers())
    pairs = [
        *zip(found, outputs, strict=True),
        *zip(gradients, exact, strict=True),
        *((buffers[name], one) for name, one in reference.named_buffers()),
    ]
    assert [one.requires_grad for one in found] == [one.requires_grad for one in outputs]
    for ours, wanted in pairs:
        if ours is None or wanted is None:
            assert ours is None or not ours.any()
            assert wanted is None or not wanted.any()
            continue
        assert (ours.shape, ours.dtype.is_floating_point) == (
            wanted.shape,
            wanted.dtype.is_floating_point,
        )
        assert ours.dtype != torch.float64
        size = wanted[wanted.isfinite()].detach().double().square().mean().sqrt().item()
        scale = min(1.0, size) if size > 1e-9 else 1.0
        torch.testing.assert_close(
            ours.double(), wanted.double(), rtol=1e-5, atol=1e-5 * scale, equal_nan=True
        )


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_autograd(name: str, tmp_path: Path, compiled_folder: Path) -> None:
    planned = Planned(with_gradients(tmp_path, **MODELS[name]), "cpp", compiled_folder)
    assert "torch.autograd.Function" in planned.text
    check(planned)


@pytest.mark.parametrize(
    ("name", "launches"),
    [("softmax", 3), ("layer-norm", 3), ("norm-by-hand", 3), ("normalize", 2), ("spread", 3)],
)
def test_one_kernel_sums_rows_and_has_their_gradients(
    name: str, launches: int, tmp_path: Path, compiled_folder: Path
) -> None:
    """One has a norm and what backward reads of rows as well; parameters have one of their own."""
    planned = Planned(with_gradients(tmp_path, **MODELS[name]), "cuda", compiled_folder)
    assert ".expand(" not in planned.text.partition("def backward(")[2]
    check(planned)
    assert len(planned.launched) == launches


@pytest.mark.parametrize("name", ["activations", "read-again", "mse"])
def test_cuda_kernels_have_these_gradients(
    name: str, tmp_path: Path, compiled_folder: Path
) -> None:
    check(Planned(with_gradients(tmp_path, **MODELS[name]), "cuda", compiled_folder))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("backend", ["cpp", "cuda"])
def test_a_maximum_in_16_bits_is_found_again(
    backend: Backend, precision: Precision, tmp_path: Path, compiled_folder: Path
) -> None:
    """Forward stores it, and backward compares it with what is computed once more."""
    problem = with_gradients(tmp_path, "(x * 1.7 + 0.1).amax(1)", **X)
    problem = msgspec.structs.replace(problem, precision=precision)
    planned = Planned(problem, backend, compiled_folder)
    (x,) = (one.to(getattr(torch, DTYPES[precision])) for one in planned.inputs())
    reference, candidate = planned.models()
    _, wanted = gradients_of(reference, (x,), of_values)
    with planned.streaming():
        _, found = gradients_of(candidate, (x,), of_values)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=0.0)


@pytest.mark.parametrize(
    "upstream",
    [
        lambda out: out.new_ones(()).expand(out.shape),
        lambda out: of_values(out.mT).mT if out.dim() > 1 else of_values(out),
    ],
    ids=["expanded", "transposed"],
)
@pytest.mark.parametrize("name", ["mlp", "softmax", "log-softmax", "largest"])
def test_upstream_gradients_lie_in_any_way(
    name: str, upstream: Upstream, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(with_gradients(tmp_path, **MODELS[name]), "cpp", compiled_folder)
    check(planned, upstream=upstream)


def test_inputs_lie_in_any_way(tmp_path: Path, compiled_folder: Path) -> None:
    planned = Planned(with_gradients(tmp_path, **MLP), "cpp", compiled_folder)
    x = torch.randn(12, 5, 3)
    reference, candidate = planned.models()
    given = x.clone().requires_grad_()
    exact = reference.double()(given.double().permute(2, 1, 0))
    wanted = torch.autograd.grad(exact.sum(), given)
    found = torch.autograd.grad(candidate(given.permute(2, 1, 0)).sum(), given)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [7, 0])
@pytest.mark.parametrize(
    "name",
    ["gelu", "joined", "mlp", "softmax", "rms-norm", "norm-by-hand", "spread", "product", "number"],
)
def test_other_sizes_are_taken(name: str, rows: int, tmp_path: Path, compiled_folder: Path) -> None:
    planned = Planned(with_gradients(tmp_path, **MODELS[name]), "cpp", compiled_folder)
    more = tree_map_only(torch.Tensor, lambda x: torch.randn(rows, *x.shape[1:]), planned.inputs())
    check(planned, more)


def test_sizes_that_gradients_follow_as_numbers_are_refused(
    tmp_path: Path, compiled_folder: Path
) -> None:
    problem = with_gradients(tmp_path, **MODELS["batch-norm"])
    planned = Planned(problem, "cpp", compiled_folder)
    with pytest.raises(ValueError, match="the file is for"):
        planned.models()[1](torch.randn(5, 4, 6, 8))


@pytest.mark.parametrize(("name", "taken"), [("gelu", True), ("softmax", False)])
def test_inputs_of_another_number_of_dimensions(
    name: str, *, taken: bool, tmp_path: Path, compiled_folder: Path
) -> None:
    planned = Planned(with_gradients(tmp_path, **MODELS[name]), "cpp", compiled_folder)
    x = torch.linspace(-1.0, 1.0, 120).view(2, 5, 12)
    if taken:
        check(planned, (x,))
        return
    with pytest.raises(ValueError, match="dimensions of x"):
        planned.models()[1](x)


@pytest.fixture
def two(tmp_path: Path, compiled_folder: Path) -> Planned:
    """A Model of two outputs."""
    constructor = "self.l = nn.Linear(12, 4)"
    parts = {"forward": "(h.tanh(), h.exp())", "before": "h = self.l(x)", "layers": constructor}
    return Planned(with_gradients(tmp_path, **parts, **X), "cpp", compiled_folder)


@pytest.mark.parametrize("read", [0, 1])
def test_an_output_may_have_no_upstream_gradient(two: Planned, read: int) -> None:
    found = []
    for model in two.models():
        x = torch.linspace(-1.0, 1.0, 72).view(6, 12).requires_grad_()
        model(x)[read].sum().backward()
        found.append([x.grad, model.l.weight.grad, model.l.bias.grad])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


def test_what_asks_for_no_gradient_has_none(two: Planned) -> None:
    _, model = two.models()
    model.l.weight.requires_grad_(requires_grad=False)
    x = torch.randn(6, 12)
    model(x)[0].sum().backward()
    assert x.grad is None
    assert model.l.weight.grad is None
    assert model.l.bias.grad is not None
    with torch.no_grad():
        assert not any(one.requires_grad for one in model(x))


def test_a_change_in_place_of_what_backward_reads_is_noticed(two: Planned) -> None:
    _, model = two.models()
    x = torch.randn(6, 12, requires_grad=True)
    outputs = model(x)
    with torch.no_grad():
        model.l.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs[0].sum().backward()


def test_there_is_no_second_derivative(two: Planned) -> None:
    _, model = two.models()
    x = torch.randn(6, 12, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(model(x)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (
            {"forward": "F.dropout(x, 0.5)"},
            "torch has the gradients of what may draw numbers (aten.dropout.default)",
        ),
        (
            {"forward": "self.g(x)[0]", "layers": "self.g = nn.GRU(12, 3)"},
            "torch has the gradients of what may draw numbers (aten.gru.input)",
        ),
        ({"forward": "x.sort(1)[0]"}, "no kernel here computes it, or its gradients"),
        (
            {
                "forward": "x * self.w",
                "layers": "self.register_buffer('w', torch.ones(12, requires_grad=True))",
            },
            "no gradient of w is recorded here",
        ),
        (
            {
                "forward": "(x * torch.view_as_real(z)[..., 0], z * 2)",
                "z": "torch.randn(6, 12) * 1j",
            },
            "no gradient of z is recorded here",
        ),
        (
            {"forward": "x * (2.0 if x.sum() > 0 else 3.0)"},
            "forward depends on values of its inputs (aten._local_scalar_dense)",
        ),
    ],
)
@pytest.mark.parametrize("backend", ["cuda", "cpp"])
def test_what_has_no_gradient_here_stays_in_torch(
    parts: dict[str, str], why: str, backend: Backend, tmp_path: Path
) -> None:
    text = render(with_gradients(tmp_path, **X, **parts), backend)
    assert f"{NO_KERNEL}\n{STAYS}{why}\n" in text
    assert "ModelNew = Model" in text


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        (
            "torch.einsum('ij,kj->ik', x, x).fill_diagonal_(0.0)",
            "During torch.compile, encountered a mutation",
        ),
        ("x.exp().add_(1.0)", "one of the variables needed for gradient computation"),
    ],
)
def test_what_torch_records_no_gradients_of_stays_in_torch(
    forward: str, why: str, tmp_path: Path
) -> None:
    text = render(with_gradients(tmp_path, forward, **X), "cpp")
    assert f"{NO_KERNEL}\n{STAYS}torch records no gradients of it: {why}" in text


def test_cases_of_other_numbers_stay_in_torch(tmp_path: Path) -> None:
    path = tmp_path / "mean.yaml"
    path.write_text(
        "summary: a norm\nconstants: {n: 6}\ngradients: true\nmodel: |\n"
        "  class Model(nn.Module):\n    def __init__(self): super().__init__(); "
        "self.n = nn.BatchNorm1d(4)\n    def forward(self, x): return self.n(x)\n"
        "get_inputs: |\n  def get_inputs(): return [torch.randn(n, 4)]\n"
        "get_init_inputs: |\n  def get_init_inputs(): return []\n"
        "cases: [{name: more, why: another size, constants: {n: 9}}]\n"
    )
    text = render(load_problem(path), "cpp")
    assert f"{STAYS}case more would need other kernels\n" in text
