"""Random parameters, and their way into a candidate."""

from typing import TypeVar

import pytest
import torch
from torch import nn

from kernelgen.grading.parameters import Given, give, randomise, state_of

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


def given_to(candidate: nn.Module, reference: nn.Module) -> Given:
    state = state_of(reference)
    return give(candidate, tuple(name for name, _ in state), [value for _, value in state])


def test_names_win() -> None:
    reference, candidate = drawn(nn.GroupNorm(2, 8)), nn.GroupNorm(2, 8)
    given = given_to(candidate, reference)
    assert given.mapping == {"weight": "weight", "bias": "bias"}
    assert (given.missing, given.own) == ((), ())
    assert torch.equal(candidate.bias, reference.bias)


def test_renamed_parameters_are_matched_by_shape_and_order() -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(8))
            self.beta = nn.Parameter(torch.zeros(8))

    reference, candidate = drawn(nn.GroupNorm(2, 8)), Renamed()
    given = given_to(candidate, reference)
    assert given.mapping == {"gamma": "weight", "beta": "bias"}
    assert given.missing == ()
    assert torch.equal(candidate.gamma, reference.weight)


def test_a_right_name_with_a_wrong_shape_is_not_filled() -> None:
    class Short(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.scale = nn.Parameter(torch.ones(8))

    given = given_to(Short(), drawn(nn.GroupNorm(2, 8)))
    assert given.mapping == {"scale": "weight"}
    assert given.missing == ("bias (8,)",)
    assert given.own == ("weight (4,)",)


def test_the_last_name_wins_over_the_order() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(8))
            self.weight = nn.Parameter(torch.ones(8))

    reference = nn.Sequential(nn.GroupNorm(2, 8))
    assert given_to(Flat(), drawn(reference)).mapping == {"weight": "0.weight", "bias": "0.bias"}


def test_the_only_one_with_as_many_elements_takes_a_scalar() -> None:
    class One(nn.Module):
        def __init__(self, *shape: int) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(shape))

    reference, candidate = drawn(One()), One(1)
    assert given_to(candidate, reference).mapping == {"scale": "scale"}
    assert torch.equal(candidate.scale.detach()[0], reference.scale.detach())


def test_a_mask_and_a_small_constant_stay() -> None:
    module = nn.Module()
    mask = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -torch.inf)
    module.mask = nn.Parameter(mask.clone())
    module.register_buffer("eps", torch.tensor(1e-6))
    drawn(module)
    assert torch.equal(module.mask, mask)
    assert float(dict(module.named_buffers())["eps"]) == pytest.approx(1e-6)


def test_plain_attributes_are_given_by_name() -> None:
    class Holder(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.start = torch.full((4,), value)

    candidate = Holder(0.0)
    given = given_to(candidate, Holder(3.0))
    assert given.mapping == {"start": "start"}
    assert torch.equal(candidate.start, torch.full((4,), 3.0))
