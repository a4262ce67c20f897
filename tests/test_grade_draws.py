"""References that draw random numbers in forward: one state for both, and float64's draws."""

import contextlib
import random

import msgspec
import pytest
import torch
from oracle_references import oracle_reference

from kernelgen.grading.correctness.compare import compare, relative_reference_error
from kernelgen.grading.oracle import exact
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.soundness import require_sound
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire.generators import generator_states, set_generators
from kernelgen.problem.record import Manner

# Each draws in another way; with float64's own draws, every result would be far from float32's.
FORWARDS = {
    "randn": "x + torch.randn(x.shape)",
    "rand": "x * torch.rand(x.shape)",
    "randn_like": "x + torch.randn_like(x)",
    "normal_": "x + torch.empty(x.shape).normal_(1.0, 2.0)",
    "uniform_": "x + torch.empty_like(x).uniform_()",
    "bernoulli": "torch.bernoulli(torch.full_like(x, 0.25)) * x",
    "exponential_": "x + torch.empty_like(x).exponential_()",
    "dropout": "F.dropout(x, 0.25, training=True)",
    "alpha dropout": "F.alpha_dropout(x, 0.25, training=True)",
    "native dropout": "torch.ops.aten.native_dropout(x, 0.25, True)[0]",
    "permutation": "x[torch.randperm(len(x))]",
    "doubles": "(x + torch.randn(x.shape, dtype=torch.float64)).float()",
    "Python's": "x * random.random()",
    "normal": "torch.normal(0.0, 1.0, x.shape) + torch.normal(x, 1.0)",
    "deviations": "torch.normal(0.0, x.abs())",
    "a given place": "x + torch.randn(x.shape, out=torch.empty_like(x))",
    "gamma": "torch._standard_gamma(x.abs() + 0.5)",
    "rrelu": "F.rrelu(x, training=True)",
    "attention": "F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)",
    "a state": "torch.gru_cell(x, torch.randn(64, 8), *[torch.ones(24, 8) / 8] * 2)",
}


def made(forward: str, *, eval_mode: bool = False) -> Reference:
    source = (
        "import itertools, random, torch\n"
        "import torch.nn.functional as F\n"
        "turns = itertools.count(2e3, 301.7)\n"
        "def forked(x):\n"
        "    with torch.random.fork_rng():\n"
        "        torch.manual_seed(5)\n"
        "        return torch.randn_like(x)\n"
        "class Model(torch.nn.Module):\n"
        f"    def forward(self, x): return {forward}\n"
        "def get_inputs(): return [torch.randn(64, 8)]\n"
        "def get_init_inputs(): return []\n"
    )
    return oracle_reference(
        source, seed=b"secret", batch_independent=True, manner=Manner(eval_mode=eval_mode)
    )


@pytest.mark.parametrize("name", FORWARDS)
def test_a_reference_that_draws_is_exact_in_float64(name: str) -> None:
    reference = made(FORWARDS[name])
    _, expected = reference.expect(0)
    require_sound(reference, expected, must_have_elements=True)
    assert reference.draws
    assert (expected.exact, reference.exact.note) == ("float64", "")
    assert relative_reference_error(expected) < 1e-5


@pytest.mark.parametrize(
    "forward",
    ["x + forked(x)", "x + torch.randn(x.shape, generator=torch.Generator().manual_seed(3))"],
)
def test_what_a_reference_draws_under_a_seed_of_its_own_is_exact_as_well(forward: str) -> None:
    reference = made(forward)
    _, expected = reference.expect(0)
    require_sound(reference, expected, must_have_elements=True)
    assert not reference.draws
    assert relative_reference_error(expected) < 1e-5


def test_draws_that_float64_does_not_repeat_are_compared_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "NarrowDraws", contextlib.nullcontext)
    reference = made("x + torch.randn(x.shape)")
    _, expected = reference.expect(0)
    require_sound(reference, expected, must_have_elements=True)
    assert expected.exact == "float32"
    assert "float64 does not reproduce" in reference.exact.note


def test_each_call_has_a_state_of_its_own_and_one_call_always_the_same() -> None:
    reference = made("torch.randn(x.shape)")
    first, again, other = (reference.expect(call)[1].ref32[0] for call in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    seeds = [reference.seed_of(call) for call in (0, 0, 1)]
    assert None not in seeds
    assert seeds[0] == seeds[1] != seeds[2]
    set_generators(seeds[0] or 0)
    assert torch.equal(torch.randn(64, 8), first)


def test_the_state_does_not_tell_the_inputs() -> None:
    reference = made("x + torch.randn(x.shape)")
    (x,), _ = reference.expect(0)
    set_generators(reference.seed_of(0) or 0)
    assert not torch.equal(torch.randn(64, 8), x)


def test_a_reference_that_draws_nothing_has_no_seeds() -> None:
    reference = made("x + torch.randn(x.shape, generator=torch.Generator().manual_seed(3))")
    reference.expect(0)
    assert reference.seed_of(0) is None


@pytest.mark.parametrize(
    "forward", ["x * torch.seed()", "x * 10.0 ** random.SystemRandom().uniform(-30, 30)"]
)
def test_a_reference_that_is_random_beyond_its_state_is_refused(forward: str) -> None:
    reference = made(forward)
    _, expected = reference.expect(0)
    with pytest.raises(ProblemFault, match="different results on equal inputs, with the gener"):
        require_sound(reference, expected, must_have_elements=True)


def test_a_reference_may_add_in_any_order() -> None:
    # As cuDNN does in transposed convolutions.
    reference = made("(lambda far: x + far - far)(next(turns))")
    _, expected = reference.expect(0)
    again = reference.expect(0)[1].ref32
    assert compare(again, expected.in_float32(), 1e-4, full=False).status is Status.WRONG_VALUES
    require_sound(reference, expected, must_have_elements=True)


def test_drawing_changes_the_states_that_are_compared() -> None:
    set_generators(3)
    states = generator_states()
    assert generator_states() == states
    random.random()
    assert generator_states() != states
    set_generators(3)
    assert generator_states() == states
    torch.rand(1)
    assert generator_states() != states
    set_generators(3)
    assert generator_states() == states
    numpy = pytest.importorskip("numpy")
    set_generators(3)
    states = generator_states()
    assert generator_states() == states
    numpy.random.random()
    assert generator_states() != states


def test_a_model_is_in_training_mode_unless_it_is_asked_for_under_eval() -> None:
    forward = "F.dropout(x, 0.25, training=self.training)"
    for eval_mode in (False, True):
        reference = made(forward, eval_mode=eval_mode)
        (x,), expected = reference.expect(0)
        assert torch.equal(expected.ref32[0], x) == eval_mode
        assert reference.draws != eval_mode


def test_the_refusal_offers_eval_mode_where_it_is_not_in_force() -> None:
    for eval_mode in (False, True):
        reference = made("x * torch.seed()", eval_mode=eval_mode)
        _, expected = reference.expect(0)
        with pytest.raises(ProblemFault) as refused:
            require_sound(reference, expected, must_have_elements=True)
        assert ("--eval-mode" in str(refused.value)) != eval_mode


def test_kernelbenchs_rule_asks_nothing_of_the_references_precision() -> None:
    reference = made("(x + 1e7) - 1e7")
    _, expected = reference.expect(0)
    with pytest.raises(ProblemFault, match="--tolerance kernelbench"):
        require_sound(reference, expected, must_have_elements=True)
    theirs = msgspec.structs.replace(expected, absolute=1e-4)
    require_sound(reference, theirs, must_have_elements=True)


def test_an_inexact_reference_can_be_what_is_asked_for() -> None:
    """Its own error is allowed twice, and no more."""
    reference = made("(x + 1e5) - 1e5")
    inputs, expected = reference.expect(0)
    with pytest.raises(ProblemFault, match="--tolerance reference"):
        require_sound(reference, expected, must_have_elements=True)
    reference.rule = "reference"
    require_sound(reference, expected, must_have_elements=True)
    (x,) = inputs
    for out, status in ((x, Status.PASSED), (x + 0.1, Status.WRONG_VALUES)):
        assert compare([out], expected, 1e-5, full=False).status is status
