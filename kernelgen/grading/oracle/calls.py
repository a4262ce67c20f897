"""The oracle's part in single calls: inputs are made, and what comes back is compared."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import torch

from kernelgen.grading.correctness.compare import Expected, compare
from kernelgen.grading.correctness.form import form_problem, in_own_memory
from kernelgen.grading.oracle.device import OracleArena, OracleMemory
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.oracle.repetition import FirstResult, compare_again, keep
from kernelgen.grading.oracle.rounded_operands import explanation
from kernelgen.grading.precision import pin
from kernelgen.grading.verdict import ProblemFault, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.transport import arena_bytes, deposit, fetch, same_bytes, span
from kernelgen.grading.wire.tree import TensorSpec
from kernelgen.grading.wire.values import tensors_of

WorkT = TypeVar("WorkT")
_DRAWS = (
    "the reference draws random numbers in forward: before each call the default generators have "
    "one state for both, so draw what it draws, by the same calls in its order"
)
_TRAINS = (
    "the reference is in training mode, where BatchNorm takes the batch's own statistics, not the "
    "running ones; --eval-mode grades both sides under eval()"
)


class OracleCalls:
    """The calls of the open case, one at a time.

    Attributes:
        inputs: of the present call.
        output_bytes: that its outputs take in an arena.
    """

    def __init__(self, setup: m.SetUpOracle, arena: OracleArena, memory: OracleMemory) -> None:
        self._setup, self._arena, self._memory = setup, arena, memory
        self._reference: Reference | None = None
        self.inputs: list[Any] = []
        self.output_bytes = 0
        self._seed: int | None = None
        self._expected: Expected | None = None
        self._first: FirstResult | None = None
        self._checked_calls = 0
        self._changed: dict[int, str] | None = None

    def open(self, reference: Reference | None) -> None:
        """Begin a case, or none; what is left of the last one is let go."""
        self.let_go()
        self._reference, self._checked_calls, self._changed = reference, 0, None

    @property
    def reference(self) -> Reference:
        """The open case's."""
        assert self._reference is not None
        return self._reference

    @property
    def expected(self) -> Expected:
        """Expected result of the present call."""
        assert self._expected is not None
        return self._expected

    def leave_room(self) -> None:
        """Leave the candidate what it may need.

        Once it has answered it has its tensors: room for its inputs or outputs is enough then.
        """
        wanted = self._arena.total_bytes if self._checked_calls else None
        self._memory.leave_room(wanted)

    def let_go(self) -> None:
        """Drop the present call's tensors: others are to be verified."""
        self._expected, self.inputs, self._first = None, [], None

    def _deposited(
        self, value: list[Any], seed: int | None = None, changed: tuple[int, ...] = ()
    ) -> m.Deposited:
        """Put a value into the arena."""
        sent = deposit(value, self._arena.present)
        self._memory.wait()
        self.leave_room()
        return m.Deposited(tensors=sent, seed=seed, changed=changed)

    def redraw_parameters(self) -> m.Deposited:
        """Draw other parameters, and put their values into the arena."""
        # Its exact result may still be due by chunks, of the parameters as they were.
        self.let_go()
        self.reference.redraw_parameters()
        return self._deposited([tensor for _, tensor in self.reference.state()])

    def make_inputs(self, message: m.MakeInputs) -> m.Deposited:
        """Put new inputs into the arena."""
        self._arena.close_retired()
        before = self.inputs if message.one_row and self._setup.batch_independent else None
        self.let_go()
        pin(self._setup.threads)
        watched = () if self._changed is not None else self.reference.model.named_buffers()
        buffers = {name: tensor.clone() for name, tensor in watched}
        self.inputs, self._expected = self.reference.expect(message.call + 1, before)
        del before
        changed = self._changed_of(buffers)
        self._changed = self._changed or changed
        self._seed = self.reference.seed_of(message.call + 1)
        self.output_bytes = arena_bytes(self.expected.ref32, pack=True)
        deposited = self._deposited(self.inputs, self._seed, tuple(changed))
        unsent = any(spec.offset < 0 for spec in deposited.tensors.specs if spec.nbytes)
        if unsent or self.output_bytes > self._arena.present.capacity_bytes:
            raise ProblemFault(
                "the sizes of the inputs or outputs vary from call to call; let get_inputs return "
                "the same shapes always, and name others as cases"
            )
        return deposited

    def _changed_of(self, buffers: dict[str, torch.Tensor]) -> dict[int, str]:
        """Return number in the state and name of what is no longer as it was."""
        return {
            number: name
            for number, (name, tensor) in enumerate(self.reference.state())
            if name in buffers and not torch.equal(tensor, buffers[name])
        }

    def verify_buffers(self, message: m.VerifyBuffers) -> m.BuffersVerified:
        """Compare a candidate's buffers with the reference's, which has run as often."""
        fetched = unless_forged(lambda: self._fetched_buffers(message.returned))
        self._memory.wait()
        if isinstance(fetched, m.Verified):
            return m.BuffersVerified(differ=(), missing=(), found=fetched)
        state = self.reference.state()
        found = [self._compare_buffer(*state[number], own) for number, own in fetched.items()]
        wrong = {name: one for name, one in found if one.status is not Status.PASSED}
        return m.BuffersVerified(
            differ=tuple(wrong),
            missing=tuple(
                n for number, n in (self._changed or {}).items() if number not in fetched
            ),
            found=next(iter(wrong.values()), None),
        )

    def _fetched_buffers(self, returned: m.BuffersReturned) -> dict[int, torch.Tensor]:
        theirs = dict(zip(returned.numbers, returned.buffers.specs, strict=True))
        if not theirs.keys() <= (self._changed or {}).keys():
            raise ValueError("buffers that were not asked for")
        state = self.reference.state()
        if any(spec.shape != tuple(state[number][1].shape) for number, spec in theirs.items()):
            raise ValueError("a buffer of another shape")
        return {
            number: fetch(spec, self._arena.present, self._setup.device)
            for number, spec in theirs.items()
        }

    def _compare_buffer(
        self, name: str, mine: torch.Tensor, own: torch.Tensor
    ) -> tuple[str, m.Verified]:
        if own.dtype != mine.dtype:
            kinds = (str(one.dtype).removeprefix("torch.") for one in (own, mine))
            reason = f"{name} is {', not '.join(kinds)}"
            return name, m.Verified(status=Status.WRONG_DTYPE, reason=reason)
        expected = Expected(
            described=deposit({name: mine}, None),
            ref32=[mine],
            exact_chunks=lambda: iter([(0, [mine])]),
            exact="float32",
        )
        found = compare([own], expected, self._setup.tolerance, full=False)
        reason = found.reason.replace(f"output[{name!r}]", name)
        return name, msgspec.structs.replace(found, reason=reason)

    def repeat_inputs(self) -> m.Deposited:
        """Put the same inputs into the arena again."""
        return self._deposited(self.inputs, self._seed)

    def verify_repeat(self, message: m.VerifyRepeat) -> m.Repeated:
        """Compare the outputs of the same inputs with the first ones and the exact ones."""
        assert self._first is not None
        outputs = self._fetched(message.outputs)
        if isinstance(outputs, m.Verified):
            return m.Repeated(identical=False, max_diff=None, found=outputs)
        first, self._first = self._first, None
        repeated = compare_again(outputs, first, self.expected, self._setup.tolerance)
        del outputs, first
        self.leave_room()
        return repeated

    def _fetched(self, sent: m.Tensors) -> list[torch.Tensor] | m.Verified:
        """Return private copies of a candidate's outputs, or what is wrong with their form."""
        expected, arena = self.expected, self._arena.present

        def fetched() -> list[torch.Tensor] | m.Verified:
            wrong_form = form_problem(sent, expected.described)
            return wrong_form or [fetch(spec, arena, self._setup.device) for spec in sent.specs]

        outputs = unless_forged(fetched)
        self._memory.wait()
        return outputs

    def verify(self, message: m.Verify) -> m.Verified:
        """Compare a call's outputs."""
        outputs = self._fetched(message.outputs)
        if isinstance(outputs, m.Verified):
            return outputs
        self._checked_calls += 1
        full = self._checked_calls == 1
        self._first = keep(outputs, self._setup.device) if full else None
        found = compare(outputs, self.expected, self._setup.tolerance, full=full)
        if found.status is Status.WRONG_VALUES:
            rounded = explanation(self.reference, self.inputs, self.expected, outputs)
            draws, trains = self.reference.draws, self.reference.normalizes_by_batch
            lines = [found.reason, rounded, _DRAWS * draws, _TRAINS * trains]
            found = msgspec.structs.replace(found, reason="\n".join(filter(None, lines)))
        return in_own_memory(found, message.outputs, self.expected.described)

    def verify_inputs(self, message: m.VerifyInputs) -> tuple[str, ...]:
        """Compare a call's inputs with what they were; name those that changed."""
        if self.reference.mutates_inputs:
            return ()
        mine = tensors_of(self.inputs)
        if len(message.inputs.specs) != len(mine):
            return ("a container among its inputs",)
        pairs = zip(message.inputs.specs, mine, strict=True)
        return tuple(
            f"inputs[{n}]" for n, (spec, own) in enumerate(pairs) if not self._same(spec, own)
        )

    def _same(self, spec: TensorSpec, own: torch.Tensor) -> bool:
        form = (spec.shape, spec.stride, spec.dtype)
        if form != (tuple(own.shape), tuple(own.stride()), str(own.dtype).removeprefix("torch.")):
            return False
        try:
            back = fetch(spec, self._arena.present, self._setup.device)
        except ValueError:
            return False
        self._memory.wait()
        return same_bytes(span(back), span(own))


def unless_forged(work: Callable[[], WorkT]) -> WorkT | m.Verified:
    """Act on a description from the candidate; a forged one ends as TAMPERED."""
    try:
        return work()
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # Only what a forged description leads to: a lost GPU or a lack of memory is not the
        # candidate's doing.
        reason = f"the outputs are described impossibly: {type(error).__name__}: {error}"
        return m.Verified(status=Status.TAMPERED, reason=reason)
