"""What losses, norms of vectors and variances become: stages, without a compiler."""

from pathlib import Path

import pytest
from planned_models import plan_in

from kernelgen.planning.plan import Library, Map, Plan, Reduce

F = "torch.nn.functional."
X = {"x": "torch.randn(9, 20)", "y": "torch.randn(9, 20)"}
P = {"x": "torch.rand(9, 20)", "y": "torch.rand(9, 20)"}
XYZ = {**X, "z": "torch.randn(9, 20)"}
WEIGHTED = ["select.int", "ones_like.default", "nll_loss_nd.default"]
CLASSES = {"x": "torch.randn(9, 20)", "y": "torch.randint(0, 20, (9,))"}


def _stages(plan: Plan) -> list[str]:
    """Return each stage in words: what it gathers over which dimensions."""
    words = []
    for stage in plan.stages:
        if isinstance(stage, Reduce):
            kinds = " ".join(a.kind for a in stage.accumulators)
            words.append(f"{kinds} over {stage.dims}")
        elif isinstance(stage, Library):
            words.append(stage.aten)
        else:
            words.append("map" if isinstance(stage, Map) else stage.name)
    return words


@pytest.mark.parametrize(
    ("forward", "inputs", "expected"),
    [
        (F + "mse_loss(x, y)", X, ["mean over (0, 1)"]),
        (F + "mse_loss(x, y, reduction='none')", X, ["map"]),
        (F + "l1_loss(x, y, reduction='sum')", X, ["sum over (0, 1)"]),
        (F + "smooth_l1_loss(x, y)", X, ["mean over (0, 1)"]),
        (F + "smooth_l1_loss(x, y, beta=0.0)", X, ["mean over (0, 1)"]),
        (F + "huber_loss(x, y, delta=0.6)", X, ["mean over (0, 1)"]),
        (F + "kl_div(torch.log(x), y, reduction='batchmean')", P, ["sum over (0, 1)"]),
        (F + "kl_div(x, y, log_target=True, reduction='sum')", X, ["sum over (0, 1)"]),
        (F + "binary_cross_entropy(x, y)", P, ["mean over (0, 1)"]),
        (F + "binary_cross_entropy_with_logits(x, y)", P, ["mean over (0, 1)"]),
        (F + "triplet_margin_loss(x, y, z)", XYZ, ["sum sum over (1,)", "mean over (0,)"]),
        (F + "triplet_margin_loss(x, y, z, swap=True)", XYZ, ["triplet_margin_loss.default"]),
        (F + "cosine_similarity(x, y)", X, ["sum sum sum over (1,)"]),
        (
            F + "cosine_embedding_loss(x, y, t)",
            {**X, "t": "torch.ones(9)"},
            ["sum sum sum over (1,)", "mean over (0,)"],
        ),
        (F + "cross_entropy(x, y)", CLASSES, ["sumexp max pick over (1,)", "sum sum over (0,)"]),
        (F + "cross_entropy(x, y, reduction='none')", CLASSES, ["sumexp max pick over (1,)"]),
        (
            F + "cross_entropy(x, y, label_smoothing=0.1)",
            CLASSES,
            ["sumexp max pick mean over (1,)", "sum sum over (0,)"],
        ),
        (F + "cross_entropy(x, x.exp())", CLASSES, ["map", "cross_entropy_loss.default"]),
        (F + "nll_loss(torch.log(x), y)", CLASSES, ["pick over (1,)", "sum sum over (0,)"]),
        (F + "nll_loss(x, y, reduction='none')", CLASSES, ["pick over (1,)"]),
        (F + "nll_loss(x, y, weight=torch.ones_like(x[0]))", CLASSES, WEIGHTED),
        (
            F + "nll_loss(torch.log_softmax(x, -1), y)",
            CLASSES,
            ["sumexp max pick over (1,)", "sum sum over (0,)"],
        ),
        (
            F + "nll_loss(torch.log_softmax(x, 0), y, reduction='none')",
            CLASSES,
            ["sumexp max over (0,)", "pick over (1,)"],
        ),
        ("torch.mean(torch.clamp(1 - x * y, min=0))", X, ["mean over (0, 1)"]),
        ("torch.linalg.vector_norm(x, dim=1)", P, ["sum over (1,)"]),
        ("torch.linalg.vector_norm(x, float('inf'))", P, ["max over (0, 1)"]),
        ("x / torch.norm(x, p='fro')", P, ["sum over (0, 1)", "map"]),
        ("torch.std(x, 1)", P, ["variance over (1,)"]),
        ("torch.var_mean(x, 1)", P, ["variance mean over (1,)"]),
        ("torch.logsumexp(x, 1)", P, ["max sumexp over (1,)"]),
        ("torch.argmax(x)", P, ["argmax over (0, 1)"]),
    ],
)
def test_stages(forward: str, inputs: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    found = _stages(plan_in(tmp_path, forward, **inputs))
    sort = [" ".join(sorted(stage.split(" over ")[0].split())) for stage in found]
    assert sort == [" ".join(sorted(stage.split(" over ")[0].split())) for stage in expected]
    assert [s.split(" over ")[1:] for s in found] == [s.split(" over ")[1:] for s in expected]


def test_a_variance_divides_by_the_count_less_its_correction(tmp_path: Path) -> None:
    for forward, expected in (
        ("torch.var(x, 1)", 1),
        ("torch.var(x, 1, correction=3)", 3),
        ("torch.std(x, 1, unbiased=False)", 0),
    ):
        (stage,) = plan_in(tmp_path, forward, x="torch.randn(9, 20)").stages
        assert isinstance(stage, Reduce)
        assert [a.correction for a in stage.accumulators] == [expected]


def test_a_loss_reads_the_logit_at_the_target(tmp_path: Path) -> None:
    stages = plan_in(tmp_path, F + "cross_entropy(x, y)", **CLASSES).stages
    assert isinstance(stages[0], Reduce)
    (pick,) = (a for a in stages[0].accumulators if a.kind == "pick")
    assert [o.name for o in stages[0].beside if o.value == "y"] == [pick.at]
