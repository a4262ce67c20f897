"""Batches: calls on inputs that lie in the arena, and outputs that are looked at twice."""

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import msgspec
import pytest
import torch
from hypothesis import given, settings
from oracle_references import oracle_reference
from test_fuzz_arena import SPECS

from kernelgen.grading.oracle import batches
from kernelgen.grading.oracle.batches import Batches
from kernelgen.grading.oracle.calls import unless_forged
from kernelgen.grading.oracle.device import OracleArena, Probe
from kernelgen.grading.timing.batch import BatchRun
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import Arena, HostArena, Places
from kernelgen.grading.wire.host_memory import copy_outputs
from kernelgen.grading.wire.transport import arena_bytes
from kernelgen.grading.wire.tree import TensorSpec
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

PROBLEMS = Path(__file__).parent / "problems"
PROBLEM = load_problem(PROBLEMS / "tiny_polynomial.yaml")
CALLS = 3


class Desk:
    """An oracle's batches on the CPU, and the arena that they share with a candidate."""

    def __init__(self, problem: Problem = PROBLEM) -> None:
        (main, *_) = problem.all_cases()
        source = problem.reference_source(main, "cpu")
        self.reference = oracle_reference(source, batch_independent=True)
        clock = Clock("cpu")
        self.oracle_arena = OracleArena("cpu", lambda: None)
        self.batches = Batches(clock, 1e-5, self.oracle_arena)

    @property
    def arena(self) -> Arena:
        """The one of the present batch."""
        return self.oracle_arena.present

    def make(self, first_call: int = 1, *, in_place: bool = False) -> m.RunBatch:
        """Make a batch of new inputs."""
        _, expected = self.reference.expect(0)
        message = m.MakeBatch(first_call=first_call, count=CALLS, in_place=in_place)
        return self.batches.make(message, self.reference, arena_bytes(expected.ref32))

    def run(self, made: m.RunBatch, forward: object) -> m.BatchRan:
        """Run a candidate on it."""
        assert callable(forward)
        run = BatchRun(forward, self.arena, made.outputs_at, None, lambda: None)
        return run.finish(run.enqueue(made.inputs))

    def look(self, made: m.RunBatch, forward: object, **changes: int) -> m.BatchRan:
        """Run a candidate on it, and copy its outputs from where they lie in this process."""
        assert callable(forward)
        self.ran = BatchRun(forward, self.arena, made.outputs_at, Places("cpu"), lambda: None)
        ran = self.ran.finish(self.ran.enqueue(made.inputs))
        specs = [msgspec.structs.replace(p.tensors.specs[0], **changes) for p in ran.outputs]
        outputs = tuple(
            msgspec.structs.replace(
                placed, tensors=msgspec.structs.replace(placed.tensors, specs=(spec,))
            )
            for placed, spec in zip(ran.outputs, specs, strict=True)
        )
        assert isinstance(self.arena, HostArena)
        told = msgspec.structs.replace(ran, outputs=outputs)
        return copy_outputs(told, made, os.getpid(), self.arena.fd)

    def verify(self, ran: m.BatchRan) -> m.Verified:
        """Look at the outputs, then at all of them."""
        self.batches.sample(m.SampleBatch(outputs=ran.outputs))
        return self.compared()

    def compared(self) -> m.Verified:
        """Compare what was looked at."""
        found = self.batches.verify(self.reference)
        assert found is not None
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def right(x: torch.Tensor) -> torch.Tensor:
    return x * x + x


def test_a_batch_of_right_outputs_is_verified(desk: Desk) -> None:
    ran = desk.run(desk.make(), right)
    assert len(ran.outputs) == CALLS
    found = desk.verify(ran)
    assert found.status is Status.PASSED
    assert found.elements == 6 * 37


@pytest.mark.parametrize(
    "form",
    [
        lambda y: y,
        lambda y: torch.stack([y, y], 2)[..., 0],
        lambda y: torch.stack([y] * 9, 1)[:, 4],
        lambda y: torch._neg_view(-y),  # noqa: SLF001
        lambda y: y.t().contiguous().t(),
    ],
    ids=["as it is", "with gaps", "with wide gaps", "negated", "transposed"],
)
def test_outputs_are_read_where_they_lie_whatever_their_form(
    desk: Desk, form: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    ran = desk.look(desk.make(in_place=True), lambda x: form(right(x)))
    assert desk.verify(ran).status is Status.PASSED


def test_outputs_in_the_memory_of_inputs_are_seen_whatever_the_candidate_says(desk: Desk) -> None:
    made = desk.make(in_place=True)
    ran = desk.look(made, lambda x: x.copy_(right(x)), of_input=False)
    assert "output lies in an input's memory" in desk.verify(ran).reason


def test_outputs_that_the_next_call_overwrites_are_not_in_place(desk: Desk) -> None:
    kept = torch.empty(6, 37)
    inputs = desk.make(in_place=True).inputs
    run = BatchRun(lambda x: kept.copy_(right(x)), desk.arena, 0, Places("cpu"), lambda: None)
    assert "where those of another call lay" in run.enqueue(inputs).why_not_in_place


@pytest.mark.parametrize(
    "change",
    [{"offset": 4096}, {"offset": -1}, {"nbytes": 1 << 40}, {"nbytes": -4}],
    ids=["nothing mapped", "no address", "more than there is room for", "less than nothing"],
)
def test_memory_that_cannot_be_read_is_not_in_place(desk: Desk, change: dict[str, int]) -> None:
    ran = desk.look(desk.make(in_place=True), right, **change)
    assert not ran.outputs
    assert "cannot be read" in ran.why_not_in_place


def test_pages_of_inputs_in_another_order_are_not_in_place(desk: Desk) -> None:
    made = desk.make(in_place=True)
    assert isinstance(desk.arena, HostArena)
    with mmap.mmap(desk.arena.fd, mmap.PAGESIZE):
        ran = desk.look(made, right)
    assert "mapped the arena more than once" in ran.why_not_in_place
    assert desk.look(made, right).outputs


def test_remaking_inputs_that_the_reference_wrote_to_is_no_overhead() -> None:
    desk = Desk(load_problem(PROBLEMS / "overwritten_input.yaml"))
    made = desk.make(in_place=True)
    before = desk.arena.view(0, made.outputs_at).clone()
    start = perf_counter()
    ran = desk.batches.control(m.RunControl(count=CALLS), desk.reference)
    took_ms = (perf_counter() - start) * 1e3
    assert torch.equal(desk.arena.view(0, made.outputs_at), before)
    assert ran.apart_ms > 0
    assert took_ms - ran.apart_ms - ran.elapsed_ms < ran.apart_ms


def test_every_call_of_a_batch_has_inputs_of_its_own(desk: Desk) -> None:
    seen: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return right(x)

    desk.run(desk.make(1), forward)
    desk.run(desk.make(1 + CALLS), forward)
    assert len({tuple(x.flatten().tolist()) for x in seen}) == 2 * CALLS


@pytest.mark.parametrize("wrong_call", range(CALLS))
def test_one_wrong_call_of_a_batch_is_found(desk: Desk, wrong_call: int) -> None:
    calls = iter(range(CALLS))
    ran = desk.run(desk.make(), lambda x: right(x) * (next(calls) != wrong_call))
    assert desk.verify(ran).status is Status.WRONG_VALUES


def test_outputs_that_come_after_the_look_are_tampered_with(desk: Desk) -> None:
    late: list[torch.Tensor] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        late.append(right(x))
        return torch.zeros_like(x)

    ran = desk.run(desk.make(), forward)
    desk.batches.sample(m.SampleBatch(outputs=ran.outputs))
    for placed, output in zip(ran.outputs, late, strict=True):
        spec = placed.tensors.specs[0]
        desk.arena.write(spec.offset, output.flatten().view(torch.uint8))
    found = desk.compared()
    assert found.status is Status.TAMPERED
    assert "before its work ended" in found.reason


@pytest.mark.parametrize("wrong_call", [None, 0, CALLS - 1])
def test_outputs_may_be_compared_once_their_memory_has_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, wrong_call: int | None
) -> None:
    monkeypatch.setattr(desk.oracle_arena, "has_room_to_keep", lambda kept, new: new > kept == 0)
    calls = iter(range(CALLS))
    ran = desk.run(desk.make(), lambda x: right(x) * (next(calls) != wrong_call))
    desk.batches.sample(m.SampleBatch(outputs=ran.outputs))
    assert desk.batches.verify(desk.reference) is None
    ran = desk.run(desk.make(1 + CALLS), torch.zeros_like)
    desk.batches.sample(m.SampleBatch(outputs=ran.outputs))
    without_room = desk.batches.verify(desk.reference)
    assert without_room is not None
    assert without_room.status is Status.WRONG_VALUES
    found = desk.batches.verify_kept(desk.reference)
    assert found.status is (Status.PASSED if wrong_call is None else Status.WRONG_VALUES)


CHANGING = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x[x > 0], x * x, float(x.sum())
def get_inputs():
    return [torch.randn(6, 37)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_form_that_depends_on_values_is_judged_by_its_own_call(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, room: bool, wrong: bool
) -> None:
    monkeypatch.setattr(desk.oracle_arena, "has_room_to_keep", lambda *_: room)
    desk.reference = oracle_reference(CHANGING)
    ran = desk.run(desk.make(), lambda x: (x[x > 0], x * x, float(x.sum()) + wrong))
    desk.batches.sample(m.SampleBatch(outputs=ran.outputs))
    found = desk.batches.verify(desk.reference)
    assert found is not None
    assert found.status is (Status.WRONG_STRUCTURE if wrong else Status.PASSED)


def test_a_form_is_judged_before_anything_of_it_is_kept(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.oracle_arena, "has_room_to_keep", lambda *_: True)
    ran = desk.run(desk.make(), lambda x: right(x)[:, :-1].clone())
    desk.batches.sample(m.SampleBatch(outputs=ran.outputs))
    found = desk.batches.verify(desk.reference)
    assert found is not None
    assert found.status is Status.WRONG_SHAPE


def test_a_missing_result_is_no_pass(desk: Desk) -> None:
    ran = desk.run(desk.make(), right)
    few = msgspec.structs.replace(ran, outputs=ran.outputs[:-1])
    assert desk.verify(few).status is Status.TAMPERED


@pytest.mark.parametrize("change", [{"offset": 1 << 40}, {"offset": -1}, {"offset": 3}])
def test_a_place_outside_the_arena_is_refused(desk: Desk, change: dict[str, int]) -> None:
    ran = desk.run(desk.make(), right)
    first = ran.outputs[0]
    spec = msgspec.structs.replace(first.tensors.specs[0], **change)
    tensors = msgspec.structs.replace(first.tensors, specs=(spec,))
    forged = msgspec.structs.replace(first, tensors=tensors)
    with pytest.raises(ValueError, match="does not lie inside"):
        desk.batches.sample(m.SampleBatch(outputs=(forged,)))


def test_the_control_leaves_the_inputs_as_they_were(desk: Desk) -> None:
    made = desk.make()
    before = desk.arena.view(0, desk.arena.capacity_bytes)[: made.outputs_at].clone()
    ran = desk.batches.control(m.RunControl(count=2), desk.reference)
    assert ran.elapsed_ms > 0
    assert ran.apart_ms == 0, "on a CPU it copies nothing, so that nothing is taken off for it"
    assert torch.equal(desk.arena.view(0, made.outputs_at), before)


def test_the_probe_takes_time() -> None:
    assert Probe(Clock("cpu")).look().elapsed_ms > 0


def test_at_rest_a_probe_keeps_a_cpus_memory_and_lets_go_of_a_gpus() -> None:
    kept = {}
    for device in ("cpu", "cuda"):
        clock = Clock("cpu")
        probe = Probe(clock)
        probe.look()
        clock.device = device
        probe.rest()
        kept[device] = vars(probe)["_memory"] is not None
    assert kept == {"cpu": True, "cuda": False}


def test_what_the_comparison_raises_is_not_the_candidate_s(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> m.Verified:
        raise ValueError("ours")

    ran = desk.run(desk.make(), right)
    monkeypatch.setattr(batches, "compare", broken)
    with pytest.raises(ValueError, match="ours"):
        desk.verify(ran)


@pytest.mark.parametrize(
    "change",
    [{"nbytes": 5}, {"nbytes": 0}, {"dtype": "uint16"}, {"dtype": "quint8", "nbytes": 222}],
)
def test_a_part_of_an_element_is_the_candidates_doing(
    desk: Desk, change: dict[str, object]
) -> None:
    ran = desk.run(desk.make(), right)
    assert judged(desk, ran, **change).status in (Status.TAMPERED, Status.WRONG_DTYPE)


@given(spec=SPECS)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_description_of_an_output_gets_a_verdict(spec: TensorSpec) -> None:
    ran = RAN.run(MADE, right)
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    assert judged(RAN, ran, **fields).status is not Status.GRADER_ERROR
    fields["shape"] = ran.outputs[0].tensors.specs[0].shape
    assert judged(RAN, ran, **fields).status is not Status.GRADER_ERROR


RAN = Desk()
MADE = RAN.make()


def judged(desk: Desk, ran: m.BatchRan, **change: object) -> m.Verified:
    """Have the first call's output judged as the oracle does, described otherwise than it is."""
    first = ran.outputs[0]
    spec = msgspec.structs.replace(first.tensors.specs[0], **change)
    tensors = msgspec.structs.replace(first.tensors, specs=(spec,))
    outputs = (msgspec.structs.replace(first, tensors=tensors), *ran.outputs[1:])
    unless_forged(lambda: desk.batches.sample(m.SampleBatch(outputs=outputs)))
    return desk.compared()


def test_outputs_that_the_control_has_copied_are_gone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU, where outputs are copied if the candidate's memory has no handle.
    monkeypatch.setattr(desk.batches, "_device", "cuda")
    made = desk.make()
    desk.batches.control(m.RunControl(count=CALLS), desk.reference)
    room = desk.arena.view(0, desk.arena.capacity_bytes)[made.outputs_at :]
    assert room.numel() >= CALLS * 6 * 37 * 4
    assert set(room.tolist()) == {0xFF}
