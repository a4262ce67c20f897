"""Recurrent layers: their kernels, in the emulation and on a GPU, and which layers have none."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
from planned_models import Planned, problem_of

from kernelgen.engines import recurrence
from kernelgen.engines.recurrence import spread_of
from kernelgen.problem.record import Device
from kernelgen.rendering.planned import render_planned

torch = pytest.importorskip("torch")


@pytest.fixture
def every_size_pays() -> Iterator[None]:
    with mock.patch.multiple(recurrence, _LEAST_STEPS=1, _LEAST_WEIGHTS=0):
        yield


def planned(folder: Path, cache: Path, sample: tuple[str, str, str], device: Device) -> Planned:
    """Return a layer of inputs and first states of these shapes."""
    layer, x, h = sample
    is_lstm = layer.startswith("LSTM")
    given = {"x": f"torch.randn({x})", "h": f"torch.randn({h})"}
    given |= {"c": given["h"]} if is_lstm else {}
    before = f"out, end = self.rnn(x, {'(h, c)' if is_lstm else 'h'})\n"
    forward = "(out * 2, *end)" if is_lstm else "(out * 2, end)"
    problem = problem_of(folder, forward, layers=f"self.rnn = nn.{layer}", before=before, **given)
    return Planned(problem, "cuda", cache, device)


LAYERS = [
    # A block of few units, and units, sequences and parts of a warp that are not there.
    ("LSTM(3, 5)", "4,1,3", "1,1,5"),
    ("GRU(3, 5)", "4,3,3", "1,3,5"),
    ("RNN(3, 5)", "4,2,3", "1,2,5"),
    ("RNN(3, 9, nonlinearity='relu', bidirectional=True)", "5,3,3", "2,3,9"),
    # Clusters of several blocks, and several clusters.
    ("LSTM(4, 35, batch_first=True)", "5,3,4", "1,5,35"),
    ("GRU(4, 70, bidirectional=True)", "3,2,4", "2,2,70"),
    ("RNN(2, 130)", "3,5,2", "1,5,130"),
    # Weights in shared memory.
    ("LSTM(3, 420)", "2,1,3", "1,1,420"),
    ("RNN(3, 640)", "2,2,3", "1,2,640"),
    ("LSTM(7, 6, num_layers=3, bidirectional=True)", "4,9,7", "6,9,6"),
    ("GRU(7, 6, num_layers=2, bias=False, batch_first=True)", "2,6,7", "2,2,6"),
    # One step, without and with others.
    ("GRU(3, 5)", "1,3,3", "1,3,5"),
    ("LSTM(3, 5, bidirectional=True)", "2,3,3", "2,3,5"),
]
# Of each kind of layer, of each way to keep weights, and of several layers.
FIRST = {LAYERS[n] for n in (0, 1, 6, 7, 9)}


@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(
    "sample", [pytest.param(x, marks=[pytest.mark.ci] * (x not in FIRST)) for x in LAYERS]
)
def test_layers(sample: tuple[str, str, str], tmp_path: Path, compiled_folder: Path) -> None:
    it = planned(tmp_path, compiled_folder, sample, "cpu")
    for capability in (9, 8):  # with clusters, and by the general kernel
        it.library.set_capability(capability)
        it.check()
        assert it.launched, "no kernel of its own"


@pytest.mark.gpu
@pytest.mark.usefixtures("every_size_pays")
@pytest.mark.parametrize(
    "sample",
    [
        *LAYERS,
        ("LSTM(20, 400)", "30,5,20", "1,5,400"),
        ("LSTM(20, 512, bidirectional=True)", "30,5,20", "2,5,512"),
        ("GRU(9, 256)", "70,40,9", "1,40,256"),
    ],
)
def test_layers_on_a_gpu(sample: tuple[str, str, str], tmp_path: Path) -> None:
    planned(tmp_path, tmp_path, sample, "cuda").check()


@pytest.mark.usefixtures("every_size_pays")
def test_other_sizes_layouts_and_values(tmp_path: Path, compiled_folder: Path) -> None:
    it = planned(tmp_path, compiled_folder, ("GRU(4, 6)", "5,3,4", "1,3,6"), "cpu")
    for steps, sequences in ((1, 1), (2, 7), (9, 2)):
        x, h = torch.randn(steps, sequences, 4), torch.randn(1, sequences, 6)
        it.check(x, h)
        it.check(x.mT.contiguous().mT, h.mT.contiguous().mT)
    x, h = torch.randn(5, 3, 4), torch.randn(1, 3, 6)
    for value in (torch.inf, -torch.inf, torch.nan):
        x[2, 1, 3], h[0, 2, 4] = value, value
        it.check(x, h)
    outs = it.run(torch.randn(5, 0, 4), torch.randn(1, 0, 6))
    assert [tuple(out.shape) for out in outs] == [(5, 0, 6), (1, 0, 6)]
    with pytest.raises(ValueError, match="no step"):
        it.run(torch.randn(0, 3, 4), h)
    with pytest.raises(ValueError, match="shape of hidden"):
        it.run(x, torch.randn(1, 1, 6))


@pytest.mark.usefixtures("every_size_pays")
def test_only_what_is_read_is_made(tmp_path: Path, compiled_folder: Path) -> None:
    for forward in ("self.rnn(x)[0]", "self.rnn(x)[1][0]", "self.rnn(x)[1][1]"):
        layers = "self.rnn = nn.LSTM(4, 5, num_layers=2)"
        problem = problem_of(tmp_path, forward, layers=layers, x="torch.randn(3, 2, 4)")
        it = Planned(problem, "cuda", compiled_folder)
        it.check()
        assert it.text.count("aten.cat") == (forward != "self.rnn(x)[0]")


@pytest.mark.parametrize(
    ("layer", "steps"),
    [
        ("LSTM(4, 256, proj_size=3)", 90),
        ("GRU(4, 256, num_layers=2, dropout=0.5)", 90),
        ("LSTM(4, 1000)", 90),  # more weights than a cluster holds
        ("LSTM(4, 256)", 15),
        ("GRU(4, 128)", 90),
    ],
)
def test_others_stay_in_torch(layer: str, steps: int, tmp_path: Path) -> None:
    x = f"torch.randn({steps}, 2, 4)"
    problem = problem_of(tmp_path, "self.rnn(x)[0]", layers=f"self.rnn = nn.{layer}", x=x)
    text = render_planned(problem, "cuda", {})
    assert "st.async" not in text
    assert f"{layer[:4].strip('(').lower()} stays in torch" in text


def test_units_fit_a_cluster() -> None:
    for units, gates in product(range(1, 1200), (1, 3, 4)):
        g = spread_of(units, gates)
        if g is None:
            assert units > 512
            continue
        of_warp = g.of_lane * (4 if gates == 1 else 1)
        assert units <= g.blocks * g.of_block <= g.padded
        assert g.padded % 32 == g.of_block % of_warp == 0
        assert 0 < g.held <= g.padded // 8
        assert g.of_block // of_warp <= 16
