"""Attention: its kernels in the emulation and on a GPU, and which forwards have them."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from planned_models import Planned, problem_of

from kernelgen.engines import attention
from kernelgen.engines.attention import tile_of
from kernelgen.problem.record import Device
from kernelgen.rendering.planned import render_planned

torch = pytest.importorskip("torch")

Sample = tuple[str, str, dict[str, str]]  # a forward, shapes of queries, keys and values, others
FUSED = "F.scaled_dot_product_attention(q, k, v{})"
WRITTEN_OUT = "torch.softmax({}, -1) @ v"


@pytest.fixture
def every_size_pays() -> Iterator[None]:
    with mock.patch.multiple(attention, _LEAST_ROWS=1, _LEAST_PRODUCTS=0):
        yield


def planned(folder: Path, cache: Path, sample: Sample, device: Device) -> Planned:
    """Return attention as a forward writes it, of queries, keys and values of these shapes."""
    forward, shapes, others = sample
    given = {
        name: f"torch.randn({shape})" for name, shape in zip("qkv", shapes.split(), strict=True)
    }
    problem = problem_of(folder, forward, **given, **others)
    return Planned(problem, "cuda", cache, device)


ATTENTION = [
    (FUSED.format(""), "1,3,16 1,5,16 1,5,16", {}),
    (FUSED.format(""), "2,3,70,32 2,3,150,32 2,3,150,32", {}),
    (FUSED.format(", is_causal=True"), "1,2,140,8 1,2,140,8 1,2,140,8", {}),
    (FUSED.format(", is_causal=True"), "1,1,130,24 1,1,70,24 1,1,70,40", {}),
    (FUSED.format(", scale=0.3"), "2,5,96 2,200,96 2,200,128", {}),
    (FUSED.format(", attn_mask=m"), "2,2,9,7 2,2,66,7 2,2,66,13", {"m": "torch.randn(2,1,9,66)"}),
    (FUSED.format(", m"), "2,2,9,8 2,2,66,8 2,2,66,8", {"m": "torch.rand(9,66) > 0.9"}),
    (WRITTEN_OUT.format("q @ k.mT"), "3,5,17 3,70,17 3,70,9", {}),
    (WRITTEN_OUT.format("q @ k * 0.2"), "2,2,5,8 2,2,8,70 2,2,70,8", {}),
    (
        WRITTEN_OUT.format("(q @ k.mT / 4).masked_fill(m == 0, float('-inf'))"),
        "2,2,140,16 2,2,140,16 2,2,140,16",
        {"m": "torch.tril(torch.ones(1, 1, 140, 140))"},
    ),
    (
        WRITTEN_OUT.format("50 * torch.tanh((q @ k.mT + key) * score)"),
        "2,2,5,8 2,2,70,8 2,2,70,8",
        {"key": "torch.randn(2,1,70)", "score": "torch.rand(2,2,5,1)"},
    ),
    (
        "torch.einsum('bij,bjd->bid', torch.einsum('bid,bjd->bij', q, k).softmax(-1), v)",
        "3,5,16 3,70,16 3,70,16",
        {},
    ),
    (
        "torch.bmm(torch.baddbmm(m, q, k.mT).softmax(-1), v)",
        "3,5,16 3,70,16 3,70,16",
        {"m": "torch.randn(3,1,70)"},
    ),
]


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize("sample", ATTENTION)
def test_attention(sample: Sample, tmp_path: Path, compiled_folder: Path) -> None:
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    for capability in (9, 8):  # with tensor cores, and by the general kernel
        it.library.set_capability(capability)
        it.check()
        assert it.launched == ["attention"], it.launched


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(
    "sample",
    [
        *ATTENTION[3:10:3],
        (FUSED.format(""), "3,7,515,64 3,7,1030,64 3,7,1030,64", {}),
        (FUSED.format(", is_causal=True"), "2,9,777,128 2,9,777,128 2,9,777,128", {}),
    ],
)
def test_attention_on_a_gpu(sample: Sample, tmp_path: Path) -> None:
    planned(tmp_path, tmp_path, sample, "cuda").check()


@pytest.mark.usefixtures("every_size_pays")
def test_values_that_halves_do_not_hold(tmp_path: Path, compiled_folder: Path) -> None:
    shapes = "1,2,130,16 1,2,70,16 1,2,70,16"
    sample: Sample = (FUSED.format(""), shapes, {})
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    for place in range(3):
        for value in (torch.inf, -torch.inf, torch.nan, 1e15):
            given = [torch.randn(1, 2, rows, 16) for rows in (130, 70, 70)]
            given[place][0, 1, 66, 3] = value
            it.check(*given)
    given = [torch.randn(1, 2, rows, 16) for rows in (130, 70, 70)]
    given[2][..., 5] *= 1e-7  # a column that is small beside the others
    it.check(*given)
    given[2] = torch.rand(1, 2, 70, 16) * torch.logspace(-9, 9, 70)[:, None]
    it.check(*given)


@pytest.mark.usefixtures("every_size_pays")
def test_other_sizes_and_layouts(tmp_path: Path, compiled_folder: Path) -> None:
    sample = (
        FUSED.format(", attn_mask=m"),
        "2,2,9,8 2,2,66,8 2,2,66,8",
        {"m": "torch.randn(9,66)"},
    )
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    for sizes in ("1 1 1 1 8", "3 2 140 5 8", "0 2 9 66 8", "2 2 0 3 8"):
        *lead, queries, keys, depth = map(int, sizes.split())
        q, k, v = (torch.randn(*lead, rows, depth) for rows in (queries, keys, keys))
        m = torch.randn(queries, keys)
        it.check(q, k, v, m)
        it.check(
            q.mT.contiguous().mT,
            k.transpose(1, 2).contiguous().transpose(1, 2),
            v,
            m.mT.contiguous().mT,
        )
    q, k, v = torch.randn(2, 2, 9, 8), torch.randn(2, 1, 66, 8), torch.randn(1, 1, 66, 8)
    it.check(q, k.expand(2, 2, 66, 8), v.expand(2, 2, 66, 8), torch.randn(9, 66))
    m = torch.full((9, 66), -torch.inf)
    m[3, 5] = 0.0
    it.check(q, k.expand(2, 2, 66, 8), v.expand(2, 2, 66, 8), m)  # other rows have no key
    with pytest.raises(ValueError, match="columns of query"):
        it.run(q[..., :7], k.expand(2, 2, 66, 8)[..., :7], v.expand(2, 2, 66, 8), m)
    with pytest.raises(ValueError, match="render it again"):
        it.run(q, k.expand(2, 2, 66, 8)[..., :7], v.expand(2, 2, 66, 8), m)
    with pytest.raises(ValueError, match="shape of m"):
        it.run(q, k.expand(2, 2, 66, 8), v.expand(2, 2, 66, 8), torch.randn(3, 2, 2, 9, 66))


@pytest.mark.usefixtures("every_size_pays")
def test_other_depths(tmp_path: Path, compiled_folder: Path) -> None:
    sample: Sample = (WRITTEN_OUT.format("q @ k.mT"), "2,9,8 2,66,8 2,66,8", {})
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    for depth, width in ((1, 1), (8, 700), (200, 8)):
        it.check(torch.randn(2, 9, depth), torch.randn(2, 70, depth), torch.randn(2, 70, width))


@pytest.mark.usefixtures("every_size_pays")
def test_a_written_out_row_without_keys_is_nan(tmp_path: Path, compiled_folder: Path) -> None:
    forward = WRITTEN_OUT.format("(q @ k.mT).masked_fill(m, -torch.inf)")
    sample = (forward, "2,9,8 2,66,8 2,66,8", {"m": "torch.zeros(9,66).bool()"})
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    q, k, v, m = it.inputs()
    m[3], m[5, :60] = True, True
    it.check(q, k, v, m)
    assert bool(it.run(q, k, v, m)[:, 3].isnan().all())


@pytest.mark.parametrize(
    "forward",
    [
        FUSED.format(", dropout_p=0.5"),
        "(w := torch.softmax(q @ k.mT, -1)) @ v + w.mean()",  # read again
        "torch.softmax(q @ k.mT, -2) @ v",
        "torch.log_softmax(q @ k.mT, -1) @ v",
        "(torch.softmax(q @ k.mT, -1) * 2) @ v",
        "torch.softmax(q @ k.mT, -1).mT @ v",
    ],
)
@pytest.mark.usefixtures("every_size_pays")
def test_others_have_no_attention(forward: str, tmp_path: Path) -> None:
    given = dict.fromkeys("qkv", "torch.randn(2,70,70)")
    text = render_planned(problem_of(tmp_path, forward, **given), "cuda", {})
    assert "attention_launch" not in text


def test_a_softmax_that_names_its_own_dtype_is_one(tmp_path: Path) -> None:
    given = dict.fromkeys("qkv", "torch.randn(8,8,512,64)")
    forward = "torch.softmax(q @ k.mT / 8, -1, dtype=torch.float32) @ v"
    assert "attention_launch" in render_planned(problem_of(tmp_path, forward, **given), "cuda", {})


def test_sizes_fit_a_block() -> None:
    for depth in range(1, 129):
        for width in (1, 16, 64, 65, depth, 128):
            t = tile_of(depth, width)
            assert t.stages >= 2
            shared = 4 * 64 * t.groups * t.depth + t.stages * 4 * t.keys * (t.depth + t.width)
            assert shared + 1024 <= 227 << 10


def test_wide_keys_are_products_and_a_softmax(tmp_path: Path) -> None:
    given = dict.fromkeys("qkv", "torch.randn(8,2,512,1024)")
    text = render_planned(problem_of(tmp_path, FUSED.format(""), **given), "cuda", {})
    assert text.count("hopper::launch") >= 1
    assert "stays in torch" not in text
    # Scores of 16 bits would be rounded, which torch's kernel does not do.
    problem = msgspec.structs.replace(
        problem_of(tmp_path, FUSED.format(""), **given), precision="bf16"
    )
    narrow = render_planned(problem, "cuda", {})
    assert "scaled_dot_product_attention stays in torch" in narrow
