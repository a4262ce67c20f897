"""What the supervisor asks the candidate host."""

from __future__ import annotations

from kernelgen.grading.wire.messages.carried import ArenaHandle, Gate, Message, Tensors
from kernelgen.problem.record import Device


class BuildCandidate(Message, frozen=True, kw_only=True):
    """Import the candidate. Answered by CandidateBuilt or CandidateFailed.

    Attributes:
        file_name: its name; the text is written under it into the scratch folder.
    """

    file_name: str
    text: str
    device: Device
    threads: int


class Construct(Message, frozen=True, kw_only=True):
    """Make ModelNew and give it the parameters. Answered by Constructed or CandidateFailed."""

    arena: ArenaHandle
    given: Tensors
    parameter_names: tuple[str, ...]
    parameter_ranks: tuple[int, ...]


class ChangeParameters(Message, frozen=True, kw_only=True):
    """Copy other values into the parameters, in place. Answered by ParametersChanged.

    Attributes:
        values: of the reference's parameters, in their order.
    """

    values: Tensors


class Call(Message, frozen=True, kw_only=True):
    """Run forward once on the inputs in the arena. Answered by Called or CandidateFailed.

    Attributes:
        timed: overwrite the caches before it.
        after_a_change: have torch count a change of every parameter before it.
        traced: record which kernels run.
    """

    inputs: Tensors
    timed: bool
    after_a_change: bool = False
    traced: bool = False


class ReturnInputs(Message, frozen=True, kw_only=True):
    """Put the last call's inputs, as they are now, into the arena. Answered by InputsReturned."""


class RunBatch(Message, frozen=True, kw_only=True):
    """Run forward on several inputs, one after the other. Answered by BatchRan.

    Attributes:
        arena: as the oracle gave it.
        inputs: of each call; forward gets them where they lie.
        outputs_at: where in the arena outputs go that are not left in place.
        in_place: leave the outputs where forward made them, if another process can look there.
        gate: enqueue everything behind this gate, answer BatchEnqueued, and wait for AwaitBatch.
    """

    arena: ArenaHandle
    inputs: tuple[Tensors, ...]
    outputs_at: int
    in_place: bool
    gate: Gate | None = None


class AwaitBatch(Message, frozen=True, kw_only=True):
    """Wait for the enqueued batch. Answered by BatchDone."""


ToCandidate = (
    BuildCandidate | Construct | ChangeParameters | Call | ReturnInputs | RunBatch | AwaitBatch
)
