"""Random parameters, and their way into a candidate."""

import copy
import dataclasses
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import nn

from kernelgen.grading.candidate.likeness import Likeness, likeness
from kernelgen.grading.candidate.matching import Fit, fit
from kernelgen.grading.candidate.parameters import give
from kernelgen.grading.oracle.randomise import randomise
from kernelgen.grading.supervisor.evidence import Evidence, parameter_hint
from kernelgen.grading.wire.generators import set_generators
from kernelgen.grading.wire.messages import ParametersGiven as Given
from kernelgen.grading.wire.messages import ReferenceState
from kernelgen.grading.wire.module_state import (
    Definitions,
    Initial,
    changed_copy,
    held_values,
    initial_values,
    recorded_definitions,
    state_of,
)

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


NOTHING: tuple[dict[str, Initial], dict[str, Initial]] = ({}, {})


def given_to(
    candidate: nn.Module,
    reference: nn.Module,
    seen: Definitions | None = None,
    expected: Definitions | None = None,
    *,
    initial: tuple[dict[str, Initial], dict[str, Initial]] = NOTHING,
) -> Given:
    """Give a candidate the reference's values, with what was seen of their constructors.

    `initial` are the initial values of both, the candidate's first.
    """
    state = state_of(reference)
    names = tuple(name for name, _ in state)
    drawn_here, drawn_there = initial
    told = ReferenceState(
        names=names,
        ranks=(expected or Definitions()).ranks(reference, names),
        seed=0,
    )
    began = tuple(drawn_there.get(name, Initial()).plain for name in names)
    values = [value for _, value in state]
    return give(candidate, values, told, seen or Definitions(), (drawn_here, began))[1]


def under_one_seed(candidate: Callable[[], nn.Module], reference: Callable[[], nn.Module]) -> Given:
    """Construct both under one seed, redraw the reference, and give its values."""
    set_generators(5)
    model = reference()
    began = initial_values(model)
    set_generators(5)
    new = candidate()
    return given_to(new, drawn(model), initial=(initial_values(new), began))


class TwoBiases(nn.Module):
    """Two biases of one shape, both drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = nn.Linear(6, 6)
        self.bias = nn.Parameter(torch.randn(6))


class OwnTensors(nn.Module):
    """The parameters of `TwoBiases` under names that mislead, the weight transposed."""

    def __init__(self) -> None:
        super().__init__()
        linear, bias = nn.Linear(6, 6), torch.randn(6)
        self.custom_bias = nn.Parameter(bias)
        self.linear_bias = nn.Parameter(linear.bias.detach().clone())
        self.weight = nn.Parameter(linear.weight.detach().t().contiguous())


def test_equal_draws_under_one_seed_tell_renamed_parameters_apart() -> None:
    given = under_one_seed(OwnTensors, TwoBiases)
    assert given.mapping == {
        "weight": "matmul.weight, transposed",
        "linear_bias": "matmul.bias",
        "custom_bias": "bias",
    }
    assert given.by_order == ()
    assert given_to(OwnTensors(), drawn(TwoBiases())).by_order


def test_equal_draws_take_a_new_shape() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, second = (nn.Conv2d(4, 4, 2).weight.detach() for _ in range(2))
            self.p = nn.Parameter(second.reshape(8, 8))
            self.q = nn.Parameter(first.reshape(16, 4).t().contiguous())

    set_generators(5)
    reference = nn.Sequential(nn.Conv2d(4, 4, 2), nn.Conv2d(4, 4, 2))
    began = initial_values(reference)
    set_generators(5)
    candidate = Rows()
    given = given_to(candidate, drawn(reference), initial=(initial_values(candidate), began))
    assert given.mapping == {"p": "1.weight", "q": "0.weight, transposed"}
    values = dict(reference.named_parameters())
    assert torch.equal(candidate.p, values["1.weight"].reshape(8, 8))
    assert torch.equal(candidate.q, values["0.weight"].reshape(16, 4).t())


def test_an_equal_name_counts_more_than_equal_draws() -> None:
    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear = nn.Linear(6, 6)
            self.matmul = nn.Linear(6, 6)
            self.matmul.bias, self.bias = nn.Parameter(torch.randn(6)), linear.bias

    given = under_one_seed(Swapped, TwoBiases)
    assert given.mapping == {name: name for name in ("matmul.weight", "matmul.bias", "bias")}


def test_constants_are_no_evidence_and_copies_of_one_get_the_same() -> None:
    ones = initial_values(nn.GroupNorm(2, 8))
    assert ones == {"weight": Initial(), "bias": Initial()}

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            values = torch.randn(6)
            self.matmul_bias = nn.Parameter(torch.randn(6))
            self.bias_copy = nn.Parameter(values.clone())
            self.other_copy = nn.Parameter(values.clone())

    set_generators(5)
    candidate = Twice()
    drawn_here = initial_values(candidate)
    reference = TwoBiases()
    began = {"bias": drawn_here["bias_copy"]}
    given = given_to(candidate, drawn(reference), initial=(drawn_here, began))
    assert given.mapping["matmul_bias"] == "matmul.bias"
    assert given.mapping["bias_copy"] == given.mapping["other_copy"] == "bias"
    assert given.own == given.by_order == ()
    assert torch.equal(candidate.bias_copy, candidate.other_copy)


class Three(nn.Module):
    """Three layers of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))


def test_one_tensor_gets_several_that_add_up_in_one_way() -> None:
    class Joined(nn.Module):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.joined = nn.Linear(4, rows)

    reference, candidate = Three(), Joined(12)
    given = given_to(candidate, drawn(reference))
    assert given.mapping["joined.weight[4:8]"] == "key.weight"
    assert given.mapping["joined.bias[8:12]"] == "value.bias"
    assert torch.equal(candidate.joined.weight[4:8], reference.key.weight)
    assert torch.equal(candidate.joined.bias[8:12], reference.value.bias)
    # Two of the three, which could be the first or the last two.
    assert len(given_to(Joined(8), drawn(reference)).missing) == 6


@pytest.mark.parametrize(("count", "missing"), [(2, 6), (3, 0)])
def test_one_tensor_gets_all_of_those_that_are_stacked_in_it(count: int, missing: int) -> None:
    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(count, 4, 4))
            self.bias = nn.Parameter(torch.empty(count, 4))

    reference, candidate = Three(), Stacked()
    given = given_to(candidate, drawn(reference))
    assert len(given.missing) == missing
    if not missing:
        assert given.mapping["weight[1:2]"] == "key.weight"
        assert torch.equal(candidate.weight[1], reference.key.weight)
        assert torch.equal(candidate.bias[2], reference.value.bias)


def test_tensors_in_containers_are_found_copied_and_compared() -> None:
    @dataclasses.dataclass
    class Parts:
        table: torch.Tensor
        name: str = "parts"

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("offset", torch.rand(2))
            self.held = {"again": [self.linear.weight, self.offset], "pair": (torch.rand(2), 1.5)}
            self.parts = Parts(torch.rand(3))

    set_generators(5)
    one = Holder()
    names = [name for name, _ in state_of(one)]
    assert names[2:] == ["offset", "held.pair.0", "parts.table"]
    twin = changed_copy(one, torch.Tensor.double)
    assert {tensor.dtype for _, tensor in state_of(twin)} == {torch.float64}
    assert twin.held["again"][0] is twin.linear.weight
    assert twin.held["again"][1] is twin.offset
    set_generators(5)
    alike, other = Holder(), Holder()
    assert held_values(alike) == held_values(one) != held_values(other)


def test_a_plain_attribute_that_was_drawn_alike_is_filled() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Linear(6, 6).weight.detach().clone()

    reference = nn.Sequential(nn.Linear(6, 6))
    assert under_one_seed(Plain, lambda: reference).mapping == {}
    given = under_one_seed(Plain, lambda: nn.Sequential(nn.Linear(6, 6)))
    assert given.mapping == {"w": "0.weight"}


def test_a_view_of_a_parameter_does_not_take_its_place() -> None:
    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(nn.Linear(6, 6).weight.detach().clone())
            self.view = self.p.data

    assert under_one_seed(Viewed, lambda: nn.Sequential(nn.Linear(6, 6))).mapping == {
        "p": "0.weight"
    }


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


class Chain(nn.Module):
    """A reference whose order of definition is not the one in which torch lists."""

    def __init__(self, inner: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, 8)
        self.scale = nn.Parameter(torch.ones(8))


class Plain(nn.Module):
    """A candidate of plain parameters, in the order of its arguments."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


def chain_given_to(make: Callable[[], nn.Module], inner: int = 8) -> tuple[nn.Module, Chain, Given]:
    with recorded_definitions() as expected:
        reference = Chain(inner)
    with recorded_definitions() as seen:
        candidate = make()
    drawn(reference)
    return candidate, reference, given_to(candidate, reference, seen, expected)


ORDERS = {
    "as defined": (("p", "q", "r"), {"p": "linear.weight", "q": "linear.bias", "r": "scale"}),
    "as listed": (("r", "p", "q"), {"r": "scale", "p": "linear.weight", "q": "linear.bias"}),
}


@pytest.mark.parametrize(("names", "mapping"), ORDERS.values(), ids=ORDERS)
def test_the_reference_s_order_of_definition_and_torch_s_are_both_understood(
    names: tuple[str, ...], mapping: dict[str, str]
) -> None:
    shapes = {name: (8, 8) if name == "p" else (8,) for name in names}
    candidate, reference, given = chain_given_to(lambda: Plain(**shapes))
    assert given.mapping == mapping
    assert set(given.by_order) == {"q <- linear.bias", "r <- scale"}
    assert torch.equal(candidate.get_parameter("r"), reference.scale)


def test_a_candidate_s_submodules_come_where_it_defines_them() -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Plain(q=(8,))
            self.r = nn.Parameter(torch.zeros(8))

    _, _, given = chain_given_to(Inner)
    assert given.mapping == {"inner.q": "linear.bias", "r": "scale"}
    assert given.missing == ("linear.weight (8, 8)",)


def test_a_copied_module_s_parameters_come_where_it_was_registered() -> None:
    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = copy.deepcopy(Plain(a=(8,)))
            self.last = nn.Parameter(torch.zeros(8))

    with recorded_definitions() as seen:
        module = Copies()
    names = tuple(name for name, _ in module.named_parameters())
    assert names == ("last", "first.a")
    assert seen.ranks(module, names) == (1, 0)
    assert Definitions().ranks(module, names) == (0, 1)


def test_nothing_is_recorded_afterwards() -> None:
    with recorded_definitions() as seen:
        before = Plain(a=(1,), b=(1,))
    after = Plain(a=(1,), b=(1,))
    assert seen.ranks(before, ("b", "a")) == (1, 0)
    assert seen.ranks(after, ("b", "a")) == (0, 1)


NAMED = {
    "spelt with an underscore": {"scale": (8,), "linear_bias": (8,)},
    "the last word": {"s": (8,), "bias": (8,)},
    "the last word of several": {"s": (8,), "lin_bias": (8,)},
    "one letter": {"s": (8,), "b": (8,)},
    "another word for it": {"s": (8,), "beta": (8,)},
}


@pytest.mark.parametrize("shapes", NAMED.values(), ids=NAMED)
def test_a_name_that_tells_outweighs_the_order(shapes: dict[str, tuple[int, ...]]) -> None:
    factor, addend = shapes
    _, _, given = chain_given_to(lambda: Plain(**shapes))
    assert given.mapping == {factor: "scale", addend: "linear.bias"}
    assert given.by_order == ()


def test_one_place_for_two_is_in_doubt() -> None:
    _, _, given = chain_given_to(lambda: Plain(p=(8, 8), q=(8,)))
    assert given.by_order == ("q <- linear.bias",)
    assert given.missing == ("scale (8,)",)


def test_a_transposed_weight_gets_the_transposed_values() -> None:
    candidate, reference, given = chain_given_to(lambda: Plain(w=(5, 8), b=(8,), s=(8,)), inner=5)
    assert given.mapping["w"] == "linear.weight, transposed"
    assert torch.equal(candidate.get_parameter("w"), reference.linear.weight.t())
    assert (given.by_order, given.misfits) == ((), ())


def test_a_name_outweighs_a_shape_that_fits_another_transposed() -> None:
    reference = nn.ModuleDict(
        {"up": nn.Linear(3, 5, bias=False), "down": nn.Linear(5, 3, bias=False)}
    )
    candidate = Plain(up_weight=(3, 5), down_weight=(5, 3))
    assert given_to(candidate, drawn(reference)).mapping == {
        "up_weight": "up.weight, transposed",
        "down_weight": "down.weight, transposed",
    }


def test_a_shape_that_could_mean_several_things_is_named_and_left_alone() -> None:
    candidate, _, given = chain_given_to(lambda: Plain(weight=(10, 4), b=(8,), s=(8,)), inner=5)
    assert "weight" not in given.mapping
    assert given.misfits == (("linear.weight (8, 5)", "weight (10, 4)"),)
    assert not candidate.get_parameter("weight").any()
    assert parameter_hint(given) == [
        (
            "ModelNew has no parameter for the reference's linear.weight (8, 5): their values, "
            "which are random here, cannot reach it"
        ),
        (
            "ModelNew's parameters have other shapes, so nothing was copied into them: "
            "weight (10, 4) for linear.weight (8, 5); use the reference's shape, or the transposed "
            "one of a matrix"
        ),
    ]


def test_parameters_shaped_for_broadcasting_are_given() -> None:
    candidate, reference = Plain(beta=(1, 8, 1, 1), gamma=(1, 8, 1, 1)), drawn(nn.GroupNorm(2, 8))
    assert given_to(candidate, reference).mapping == {"gamma": "weight", "beta": "bias"}
    assert torch.equal(candidate.get_parameter("beta").flatten(), reference.bias)


@pytest.mark.parametrize(
    ("given", "taken", "expected"),
    [
        ((8, 5), (8, 5), Fit.SAME),
        ((8, 5), (5, 8), Fit.TRANSPOSED),
        ((8, 5), (40,), Fit.REGROUPED),
        ((8,), (8, 1, 1), Fit.REGROUPED),
        ((1, 8), (8, 1), Fit.REGROUPED),
        ((6, 4, 3, 3), (6, 36), Fit.REGROUPED),
        ((8,), (2, 4), Fit.REGROUPED),
        ((), (1,), Fit.REGROUPED),
        ((8, 5), (10, 4), None),
        ((6, 4, 3, 3), (36, 6), None),
        ((2, 3, 4), (4, 3, 2), None),
        ((8, 5), (8,), None),
        ((0, 5), (0,), None),
    ],
)
def test_how_one_shape_becomes_another(
    given: tuple[int, ...], taken: tuple[int, ...], expected: Fit | None
) -> None:
    assert fit(given, taken) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("linear.bias", "linear.bias", Likeness.SAME),
        ("linear.bias", "linear_bias", Likeness.SPELLING),
        ("linear.bias", "linearBias", Likeness.SPELLING),
        ("linear.bias", "linear_b", Likeness.MEANING),
        ("block.linear.bias", "linear_bias", Likeness.END),
        ("linear.bias", "lin_bias", Likeness.LAST),
        ("norm.weight", "gamma", Likeness.ROLE),
        ("fc1.weight", "w1", Likeness.ROLE),
        ("norm.weight", "beta", Likeness.NONE),
        ("_", "scale", Likeness.NONE),
    ],
)
def test_how_alike_two_names_are(one: str, other: str, expected: Likeness) -> None:
    assert likeness(one, other) is expected
    assert likeness(other, one) is expected


def test_a_warning_names_a_few_of_any_number_of_parameters_of_any_names() -> None:
    evidence = Evidence(expected=())
    names = ("long" * 100,) * 1000
    evidence.note_parameters(Given(mapping={}, missing=names, own=names))
    assert len(evidence.warnings) == 2
    assert all("and 992 more" in text and len(text) < 2000 for text in evidence.warnings)


def test_names_that_no_network_has_room_for_are_refused() -> None:
    with pytest.raises(ValueError, match="names of parameters over the limit"):
        Given(mapping={}, missing=("long" * 100_000,) * 3, own=())
