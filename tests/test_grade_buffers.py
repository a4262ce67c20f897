"""Buffers that the reference's forward changes: which, and how a candidate's are compared."""

import pytest
import torch
from oracle_references import model_source, oracle_reference
from torch import nn

from kernelgen.grading.candidate.parameters import give
from kernelgen.grading.oracle.calls import OracleCalls
from kernelgen.grading.oracle.device import OracleArena, OracleMemory
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.module_state import recorded_definitions
from kernelgen.grading.wire.transport import deposit
from kernelgen.problem.record import Manner

SOURCE = model_source(
    "return self.norm(x) + self.table",
    "torch.randn(8, 5) + 0.5",
    "self.norm = nn.BatchNorm1d(5); self.register_buffer('table', torch.arange(5.0))",
)
CHANGED = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
ARENA_BYTES = 1 << 16


class Case:
    """A case that is open in an oracle, after the inputs of its first call were made."""

    def __init__(self, *, eval_mode: bool = False) -> None:
        self.reference = oracle_reference(SOURCE, seed=b"seed", manner=Manner(eval_mode=eval_mode))
        setup = m.SetUpOracle(
            device="cpu",
            cases=(m.CaseSource(name="main", source=SOURCE),),
            tolerance=1e-5,
            rule="exact",
            manner=Manner(eval_mode=eval_mode),
            batch_independent=False,
            seed=b"seed".hex(),
            memory_limit_bytes=None,
            threads=1,
        )
        memory = OracleMemory(Clock("cpu"))
        self.arena = OracleArena("cpu", memory.trim)
        self.arena.at_least(ARENA_BYTES)
        self.calls = OracleCalls(setup, self.arena, memory)
        self.calls.open(self.reference)
        self.given = self.calls.make_inputs(m.MakeInputs(call=0))

    def buffers(self) -> list[torch.Tensor]:
        """Return copies of those that the call changed."""
        state = self.reference.state()
        return [state[number][1].clone() for number in self.given.changed]

    def verified(
        self, buffers: list[torch.Tensor], numbers: tuple[int, ...] | None = None
    ) -> m.BuffersVerified:
        """Return what the oracle says of a candidate's buffers."""
        sent = deposit(buffers, self.arena.present, pack=True)
        asked = self.given.changed if numbers is None else numbers
        return self.calls.verify_buffers(
            m.VerifyBuffers(returned=m.BuffersReturned(numbers=asked, buffers=sent))
        )


@pytest.fixture
def case() -> Case:
    return Case()


def test_the_first_call_of_a_case_says_which_buffers_it_changed(case: Case) -> None:
    names = [name for name, _ in case.reference.state()]
    assert tuple(names[number] for number in case.given.changed) == CHANGED
    assert case.calls.make_inputs(m.MakeInputs(call=1)).changed == ()


def test_equal_buffers_agree(case: Case) -> None:
    assert case.verified(case.buffers()) == m.BuffersVerified(differ=(), missing=())


def test_another_value_is_named_with_its_place(case: Case) -> None:
    mean, variance, tracked = case.buffers()
    variance[3] *= 1.001
    found = case.verified([mean, variance, tracked + 1])
    assert found.differ == CHANGED[1:]
    assert found.found is not None
    assert found.found.status is Status.WRONG_VALUES
    assert "1 of 5 elements of norm.running_var are wrong" in found.found.reason


def test_a_buffer_that_is_not_there_is_missing(case: Case) -> None:
    mean, _, tracked = case.buffers()
    first, _, last = case.given.changed
    found = case.verified([mean, tracked], (first, last))
    assert (found.differ, found.missing) == ((), CHANGED[1:2])


def test_another_dtype_is_another_value(case: Case) -> None:
    mean, variance, tracked = case.buffers()
    found = case.verified([mean, variance.double(), tracked])
    assert found.differ == CHANGED[1:2]
    assert found.found is not None
    assert found.found.reason == "norm.running_var is float64, not float32"


@pytest.mark.parametrize("forgery", ["shape", "number", "count"])
def test_a_forged_description_is_tampering(case: Case, forgery: str) -> None:
    buffers, numbers = case.buffers(), case.given.changed
    if forgery == "shape":
        buffers[0] = buffers[0].repeat(2)
    elif forgery == "number":
        numbers = (0, *numbers[1:])
    else:
        numbers = numbers[1:]
    found = case.verified(buffers, numbers)
    assert found.found is not None
    assert found.found.status is Status.TAMPERED


class Renamed(nn.Module):
    """Holds values of the reference in other shapes."""

    total: torch.Tensor
    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 2))
        self.register_buffer("mean", torch.zeros(1, 5, 1))


def test_what_a_candidate_holds_comes_back_in_the_references_shapes() -> None:
    with recorded_definitions() as definitions:
        module = Renamed()
    total, mean = torch.randn(2, 3), torch.randn(5)
    state = m.ReferenceState(names=("a.total", "a.mean", "a.other"), ranks=(0, 1, 2), seed=0)
    recipients, _ = give(module, [total, mean, torch.zeros(7)], state, definitions)
    held = recipients.held(module, (0, 1, 2))
    assert held.keys() == {0, 1}
    assert torch.equal(held[0], total)
    assert torch.equal(held[1], mean)
    # Forward may put a new tensor under the name, or one of another size.
    module.total = module.total + 1.0
    module.mean = torch.zeros(9)
    held = recipients.held(module, (0, 1, 2))
    assert held.keys() == {0}
    assert torch.equal(held[0], total + 1.0)


def test_wrong_values_beside_a_batchnorm_in_training_mode_name_the_option() -> None:
    for eval_mode in (False, True):
        case = Case(eval_mode=eval_mode)
        sent = deposit(torch.ones(8, 5), case.arena.present, pack=True)
        found = case.calls.verify(m.Verify(outputs=sent))
        assert found.status is Status.WRONG_VALUES
        assert ("--eval-mode" in found.reason) != eval_mode
