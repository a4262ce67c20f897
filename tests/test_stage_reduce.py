"""Reductions in C++ and in the CUDA emulation: kinds, patterns of dimensions, shapes."""

from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.problem.record import Backend

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")


def _planned(
    tmp_path: Path, compiled_folder: Path, backend: Backend, forward: str, **inputs: str
) -> Planned:
    return Planned(problem_of(tmp_path, forward, **inputs), backend, compiled_folder)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "case",
    [
        # Rows, short and long; of pieces.
        ((5, 12), "-1", [(5, 12), (3, 7), (2, 1), (0, 4), (4, 40)]),
        ((3, 2052), "(1,)", [(2, 2051), (1, 9)]),
        ((4, 3, 5, 8), "(0, 2, 3)", [(2, 3, 5, 8), (3, 1, 2, 3)]),
        ((4, 3, 64), "(0, 2)", [(2, 5, 7)]),
        ((2, 3, 2, 8), "(1, 3)", [(2, 2, 3, 5)]),
        # Columns.
        ((3, 20, 7), "1", [(2, 5, 70), (1, 1, 1)]),
        ((40, 6), "0", [(9, 3), (33, 65)]),
        # Neither: permuted.
        ((3, 4, 5, 6), "(0, 2)", [(2, 3, 2, 3)]),
        ((2, 3, 4, 2, 3), "(1, 3)", [(1, 2, 3, 4, 5)]),
    ],
)
def test_patterns_of_dimensions(
    backend: Backend,
    case: tuple[tuple[int, ...], str, list[tuple[int, ...]]],
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    import torch

    shape, dims, others = case
    names = ("sum", "mean", "amax", "amin") + (() if "(" in dims else ("prod",))
    results = [f"x.{name}({dims})" for name in names]
    results += [f"torch.var(x, {dims})", f"torch.logsumexp(x, {dims})"]
    results += [f"torch.square(x).mean({dims}) * 2 + x.sum({dims})"]
    forward = f"({', '.join(results)})"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x=f"torch.randn{shape}")
    planned.check()
    for other in others:
        planned.check(torch.randn(other))
    whole = torch.randn(*shape[:-1], shape[-1] + 1)
    planned.check(whole[..., 1:])
    planned.check(whole.flatten()[1 : 1 + torch.Size(shape).numel()].view(shape))
    planned.check(torch.randn(shape[::-1]).permute(*reversed(range(len(shape)))))
    assert len(planned.launched) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_slices(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward = "(x.mean(), x.var(), x.amax(), torch.argmax(x), x.logsumexp((0, 1)))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(2, 40000)")
    assert ("combine<<<" in planned.text) == (backend == "cuda")
    for x in (torch.randn(3, 10001), torch.randn(7, 3)):
        planned.check(x)
        planned.check(x + 1000)
    planned.check(torch.zeros(2, 40000))
    forward = "(x.sum(0), x.std(0), torch.argmin(x, 0))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(5000, 3)")
    assert ("combine<<<" in planned.text) == (backend == "cuda")
    for x in (torch.randn(5000, 3), torch.randn(1301, 70), torch.randn(2, 5)):
        planned.check(x)
        planned.check(x + 1000)


@pytest.mark.parametrize(
    ("results", "threads"),
    [
        (("sum(1)", "argmax(1)"), 1024),
        # Of so many states there is no room for more.
        (("var(1)", "logsumexp(1)", "argmin(1)"), 256),
    ],
)
def test_long_columns(
    results: tuple[str, ...], threads: int, tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    forward = f"({', '.join(f'x.{result}' for result in results)})"
    planned = _planned(tmp_path, compiled_folder, "cuda", forward, x="torch.randn(2, 600, 5)")
    assert f"kThreads = {threads};" in planned.text
    for x in (torch.randn(2, 600, 5), torch.randn(1, 3, 130)):
        planned.check(x)
        planned.check(x + 1000)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(3, 8), (3, 4, 7)])
def test_positions_of_extremes(
    backend: Backend, shape: tuple[int, ...], tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    forward = "(*torch.max(x, 1), *torch.min(x, 1), torch.argmax(x, 1), torch.argmin(x, 1, True))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x=f"torch.randn{shape}")
    inf, nan = float("inf"), float("nan")
    rows = [
        [1.0, 2.0, 2.0, 1.0, 0.0, 0.0],  # the first of equal ones
        [-inf] * 6,
        [inf, -inf] * 3,
        [1.0, nan, inf, nan, -inf, 3.0],  # the first NaN
        [0.0, -0.0, 0.0, -0.0, 0.0, 0.0],
        [nan] * 6,
    ]
    one = torch.tensor(rows)
    wide = one.repeat(1, 400)
    for x in (one, wide) if len(shape) == 2 else (one.t()[None], wide[:, :, None], one[..., None]):
        planned.check(x.contiguous())
    planned.check(torch.zeros(2, 9, 5)[..., 0] if len(shape) == 2 else torch.ones(2, 9, 5))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_not_finite(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward = "(x.sum(1), x.mean(1), x.amax(1), x.amin(1), x.var(1), x.logsumexp(1), x.prod(1))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(3, 8)")
    entropy = "F.cross_entropy(x, y, reduction='none')"
    inputs = {"x": "torch.randn(5, 8)", "y": "torch.ones(5, dtype=torch.int64)"}
    losses = _planned(tmp_path, compiled_folder, backend, entropy, **inputs)
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, nan, 2.0], [inf, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf] * 3, [inf, -inf, nan]]
    for width in (1, 40):
        repeated = torch.tensor(rows).repeat(1, width)
        # Over several chunks, and several shares of a long row.
        for x in (repeated, *(torch.nn.functional.pad(repeated, (0, n)) for n in (2500, 20_000))):
            planned.check(x)
            losses.check(x, torch.ones(5, dtype=torch.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_variance_far_from_zero(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward = "(x.var(1), x.std(1, correction=0), *torch.var_mean(x, 1, unbiased=False))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(3, 512)")
    torch.manual_seed(1)
    for shape in ((3, 512), (2, 77)):
        planned.check(torch.randn(shape) + 10_000)
        planned.check(torch.randn(shape) * 1e-3 - 100)
        outlier = torch.randn(shape)
        outlier[:, 0] = 1e6
        planned.check(outlier)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward = "(x.sum(1), x.mean(1), x.prod(1))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(3, 8)")
    planned.check(torch.randn(3, 0))
    planned.check(torch.randn(0, 3))
    planned = _planned(tmp_path, compiled_folder, backend, "x.amax(1)", x="torch.randn(3, 8)")
    with pytest.raises(IndexError, match="nothing to reduce"):
        planned.run(torch.randn(3, 0))
    with pytest.raises(ValueError, match="dimensions"):
        planned.run(torch.randn(3, 4, 5))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("((x - y) ** 2).mean()", {"x": "torch.randn(6, 8)", "y": "torch.randn(8)"}),
        ("(x * y).sum(1)", {"x": "torch.randn(6, 80)", "y": "torch.randn(6, 1)"}),
        ("(x * y).sum(1)", {"x": "torch.randn(3, 6, 7)", "y": "torch.randn(7)"}),
        ("(x * s).sum(1) / s + y", {"x": "torch.randn(6, 8)", "s": "3.5", "y": "torch.randn(6)"}),
        ("x.sum(1, keepdim=True) + y", {"x": "torch.randn(4, 6, 8)", "y": "torch.randn(8)"}),
        ("(x * y).sum((0, 2))", {"x": "torch.randn(3, 4, 5, 6)", "y": "torch.randn(6)"}),
        ("(x * m).amax(1)", {"x": "torch.randn(6, 8)", "m": "torch.randn(6, 8) > 0"}),
        *(
            (
                f"(x * a + b * c + d - e).sum({dims})",
                {
                    "x": "torch.randn(3, 6, 8, 40)",
                    "a": "torch.randn(8, 40)",
                    "b": "torch.randn(6, 1, 1)",
                    "c": "torch.randn(3, 1, 8, 40)",
                    "d": "torch.randn(())",
                    "e": "torch.randn(40)",
                },
            )
            for dims in ("(1, 2, 3)", "(0, 2, 3)", "1")
        ),
    ],
)
def test_operands_and_epilogues(
    backend: Backend, forward: str, inputs: dict[str, str], tmp_path: Path, compiled_folder: Path
) -> None:
    import torch

    planned = _planned(tmp_path, compiled_folder, backend, forward, **inputs)
    planned.check()
    assert len(planned.launched) == 1
    if len(inputs) == 2 and "m" not in inputs:
        x, y = planned.reference["get_inputs"]()
        planned.check(torch.cat([x, x, x[:1]]), y if y.shape[0] != x.shape[0] else y[:1])


LOSSES = [
    (
        """F.mse_loss(x, y), F.mse_loss(x, y, reduction='none'), F.l1_loss(x, y, reduction='sum'),
        F.smooth_l1_loss(x, y, beta=0.7), F.huber_loss(x, y, delta=0.6),
        F.kl_div(x, y, log_target=True, reduction='sum'),
        F.triplet_margin_loss(x, y, z, margin=0.5), F.cosine_similarity(x, y),
        F.cosine_embedding_loss(x, y, t)""",
        {**dict.fromkeys("xyz", "torch.randn(9, 20)"), "t": "torch.randn(9).sign()"},
    ),
    (
        """F.kl_div(torch.log(x), y, reduction='batchmean'), F.binary_cross_entropy(x, y),
        F.binary_cross_entropy_with_logits(x, y)""",
        {"x": "torch.rand(9, 20)", "y": "torch.rand(9, 20).round()"},
    ),
    ("F.huber_loss(x, y)", dict.fromkeys("xy", "torch.randn(9, 20)")),
    ("F.triplet_margin_loss(x, y, z)", dict.fromkeys("xyz", "torch.randn(9, 20)")),
    ("F.cross_entropy(x, y)", {"x": "torch.randn(9, 40)", "y": "torch.arange(9) * 4"}),
    (
        """F.cross_entropy(x, y), F.cross_entropy(x, y, reduction='sum'),
        F.cross_entropy(x, y, ignore_index=3), F.cross_entropy(x, y, reduction='none')""",
        {"x": "torch.randn(9, 20) * 3", "y": "torch.arange(9) % 5"},
    ),
    (
        """F.cross_entropy(x, y, label_smoothing=0.1), F.cross_entropy(x, y, label_smoothing=1.0),
        F.cross_entropy(x, y, ignore_index=3, label_smoothing=0.3)""",
        {"x": "torch.randn(9, 20) * 3", "y": "torch.arange(9) % 5"},
    ),
    (
        "F.cross_entropy(x, y)",
        {"x": "torch.randn(3, 5, 4)", "y": "torch.arange(12).view(3, 4) % 5"},
    ),
    (
        """F.nll_loss(torch.log_softmax(x, 1), y), F.nll_loss(x * 2, y, reduction='sum'),
        F.nll_loss(x, y, ignore_index=3), F.nll_loss(x, y, reduction='none')""",
        {"x": "torch.randn(9, 20) * 3", "y": "torch.arange(9) % 5"},
    ),
    ("F.nll_loss(x, y)", {"x": "torch.randn(2, 40000)", "y": "torch.arange(2) * 39999"}),
    (
        "F.nll_loss(x.exp(), y)",
        {"x": "torch.randn(3, 5, 4)", "y": "torch.arange(12).view(3, 4) % 5"},
    ),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("losses", "inputs"), LOSSES)
def test_losses(
    backend: Backend, losses: str, inputs: dict[str, str], tmp_path: Path, compiled_folder: Path
) -> None:
    forward = " ".join(f"({losses},)".split())
    planned = _planned(tmp_path, compiled_folder, backend, forward, **inputs)
    planned.check()
    assert planned.launched
    assert "torch.ops.aten" not in planned.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_norms_of_vectors(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    norms = ("x, dim=1", "x, 1", "x, float('inf'), dim=0", "x, 3, 1, True", "x")
    forward = f"({', '.join(f'torch.linalg.vector_norm({n})' for n in norms)}, torch.norm(x))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(9, 20)")
    planned.check()
    assert "torch.ops.aten" not in planned.text


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_dimensions(backend: Backend, tmp_path: Path, compiled_folder: Path) -> None:
    import torch

    forward = "(x.mean(), x.mean((0, 1), keepdim=True), torch.argmax(x), x.argmin(keepdim=True))"
    planned = _planned(tmp_path, compiled_folder, backend, forward, x="torch.randn(3, 4)")
    planned.check()
    planned.check(torch.randn(5, 7))
    planned = _planned(tmp_path, compiled_folder, backend, "x.sum()", x="torch.randn(3, 4)")
    for shape in ((), (0, 3), (2, 3, 4)):  # of any rank, as torch has it
        planned.check(torch.randn(shape))
