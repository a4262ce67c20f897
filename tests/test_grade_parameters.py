"""Random parameters, and their way into a candidate."""

from typing import TypeVar

import pytest
import torch
from torch import nn

from kernelgen.grading.parameters import give, randomise, state_of

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def drawn(module: ModuleT, seed: int = 3) -> ModuleT:
    randomise(module, torch.Generator().manual_seed(seed))
    return module


def test_an_affine_map_is_neither_0_nor_1() -> None:
    norm = drawn(nn.GroupNorm(4, 400))
    for start, tensor in ((1.0, norm.weight), (0.0, norm.bias)):
        distance = (tensor.detach() - start).abs()
        assert float(distance.min()) > 0.0999
        assert float(distance.max()) < 0.5001
        assert float((tensor.detach() - start).min()) < 0 < float((tensor.detach() - start).max())


def test_running_variances_stay_positive() -> None:
    norm = drawn(nn.BatchNorm2d(1000))
    assert norm.running_var is not None
    assert norm.running_mean is not None
    assert float(norm.running_var.min()) > 0.4
    assert float(norm.running_mean.abs().min()) > 0.09
    assert int(norm.num_batches_tracked or 0) == 0


def test_a_weight_keeps_its_scale_and_changes_its_values() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(256, 512)
    before = linear.weight.detach().clone()
    drawn(linear)
    after = linear.weight.detach()
    assert not torch.equal(before, after)
    assert float(after.std()) == pytest.approx(float(before.std()), rel=0.02)


def test_a_table_in_a_buffer_stays() -> None:
    module = nn.Module()
    module.register_buffer("table", torch.arange(10.0))
    drawn(module)
    assert torch.equal(dict(module.named_buffers())["table"], torch.arange(10.0))


def test_the_seed_decides() -> None:
    one, two, other = (drawn(nn.GroupNorm(2, 8), seed) for seed in (1, 1, 2))
    assert torch.equal(one.weight, two.weight)
    assert not torch.equal(one.weight, other.weight)


def given_to(candidate: nn.Module, reference: nn.Module) -> tuple[dict[str, str], object, object]:
    state = state_of(reference)
    return give(candidate, tuple(name for name, _ in state), [value for _, value in state])


def test_names_win() -> None:
    reference, candidate = drawn(nn.GroupNorm(2, 8)), nn.GroupNorm(2, 8)
    mapping, missing, own = given_to(candidate, reference)
    assert mapping == {"weight": "weight", "bias": "bias"}
    assert (missing, own) == ((), ())
    assert torch.equal(candidate.bias, reference.bias)


def test_renamed_parameters_are_matched_by_shape_and_order() -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(8))
            self.beta = nn.Parameter(torch.zeros(8))

    reference, candidate = drawn(nn.GroupNorm(2, 8)), Renamed()
    mapping, missing, _ = given_to(candidate, reference)
    assert mapping == {"gamma": "weight", "beta": "bias"}
    assert missing == ()
    assert torch.equal(candidate.gamma, reference.weight)


def test_a_right_name_with_a_wrong_shape_is_not_filled() -> None:
    class Short(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.scale = nn.Parameter(torch.ones(8))

    mapping, missing, own = given_to(Short(), drawn(nn.GroupNorm(2, 8)))
    assert mapping == {"scale": "weight"}
    assert missing == ("bias (8,)",)
    assert own == ("weight (4,)",)
