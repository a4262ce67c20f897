"""Requests to the candidate's host, each after its answer.

Nothing that comes from there is to be believed before it is verified.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, Generic

import msgspec

from kernelgen.build.source import CaptureReply, CaptureRequest
from kernelgen.build.torch_build import Ready
from kernelgen.grading.wire.messages import carried
from kernelgen.grading.wire.trace import MAX_TRACES, Trace
from kernelgen.problem.record import Device, Manner
from kernelgen.sandbox.record import Containment

# A thousand tensors of a deep network take a tenth of it.
_MOST_BYTES_OF_NAMES = 1 << 20


class ToHost(carried.Asking[carried.AnswerT], Generic[carried.AnswerT], frozen=True, kw_only=True):
    """Request to a candidate's host; it answers with an AnswerT, or with CandidateFailed."""


class FromHost(carried.Message, frozen=True, kw_only=True):
    """Answer from a candidate's process."""


class Contained(FromHost, frozen=True, kw_only=True):
    """Sent once, before the candidate's code is there: what is in force around it."""

    containment: Containment


class NotContained(FromHost, frozen=True, kw_only=True):
    """Sent in place of Contained: why what was asked for could not be entered."""

    reason: str


class RecipesTold(FromHost, frozen=True, kw_only=True):
    """Recipes of its builds, in the words of its own process."""

    reply: CaptureReply


class TellRecipes(ToHost[RecipesTold], frozen=True, kw_only=True):
    """Import a candidate and say what it would build; asked of a process that does nothing else."""

    request: CaptureRequest


class CandidateBuilt(FromHost, frozen=True, kw_only=True):
    """Imported; `seconds` of wall time."""

    seconds: carried.Seconds


class BuildCandidate(ToHost[CandidateBuilt], frozen=True, kw_only=True):
    """Import the candidate.

    Attributes:
        file_name: its name; the text is written under it into the scratch folder.
        ready: what it builds, as far as that was compiled ahead.
        lent: source of what the reference lends to the text.
    """

    file_name: str
    text: str
    device: Device
    threads: int
    ready: Ready = Ready()
    lent: str = ""


class ParametersGiven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Places of the reference's parameters and buffers in the candidate.

    Attributes:
        mapping: candidate's -> the reference's that was copied into it, with `, transposed` after
            it where it was.
        missing: the reference's that found no place, with shape, as `gn.weight (64,)`.
        own: the candidate's that got nothing, likewise.
        by_order: pairs of the mapping that no name settles, as `b <- linear.bias`.
        misfits: pairs of `missing` and `own` with as many elements, and a shape that does not say
            which element is which.
    """

    mapping: dict[str, str]
    missing: tuple[str, ...]
    own: tuple[str, ...]
    by_order: tuple[str, ...] = ()
    misfits: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        # A verdict has the mapping in full.
        if len(msgspec.json.encode(self)) > _MOST_BYTES_OF_NAMES:
            raise ValueError(f"names of parameters over the limit of {_MOST_BYTES_OF_NAMES} bytes")


class Constructed(FromHost, frozen=True, kw_only=True):
    """ModelNew stands; `seconds` of wall time of its constructor, which may compile.

    Attributes:
        renamed: equal names do not settle which parameter is which.
    """

    seconds: carried.Seconds
    parameters: ParametersGiven
    renamed: bool = False


class Construct(ToHost[Constructed], frozen=True, kw_only=True):
    """Make ModelNew and give it the parameters.

    The oracle writes it; the tensors' bytes are in the arena.

    Attributes:
        arena: a memfd arena's descriptor comes along with this message.
        given: a list of two: the constructor's arguments, and the parameters' values.
        state: whose values the parameters are.
        gradients: names of those whose gradients forward returns as well; None: forward alone.
        source: of get_init_inputs, which under the state's seed makes arguments that cannot be
            given; "" where they are.
    """

    arena: carried.ArenaHandle
    given: carried.Tensors
    state: carried.ReferenceState
    manner: Manner
    gradients: tuple[str, ...] | None
    source: str


class Matched(FromHost, frozen=True, kw_only=True):
    """The parameters hold the reference's values."""

    parameters: ParametersGiven


class MatchParameters(ToHost[Matched], frozen=True, kw_only=True):
    """Give the parameters again, with the reference's initial values known."""

    initial: tuple[str, ...]


class ParametersChanged(FromHost, frozen=True, kw_only=True):
    """The parameters hold the other values."""


class ChangeParameters(ToHost[ParametersChanged], frozen=True, kw_only=True):
    """Copy other values into the parameters, in place.

    Attributes:
        values: of the reference's parameters, in their order.
    """

    values: carried.Tensors


class Called(FromHost, frozen=True, kw_only=True):
    """Forward returned, and its outputs' bytes were copied to the arena on the current stream.

    Attributes:
        outputs: a tensor whose bytes would not fit has offset -1.
        elapsed_ms: of forward; on a GPU between two events on the current stream.
        host_ms: wall time of the same call, up to its return.
        settled: the outputs were the same once more after the device had finished all it had.
        pinned: the precision settings before the call.
        pins: the settings found after it.
    """

    outputs: carried.Tensors
    elapsed_ms: carried.Milliseconds
    host_ms: carried.Milliseconds
    settled: bool
    pinned: carried.ReportedPins
    pins: carried.ReportedPins


class Call(ToHost[Called], frozen=True, kw_only=True):
    """Run forward once on the inputs in the arena.

    Attributes:
        seed: for the default generators before it; None leaves them.
        timed: overwrite the caches before it, and have torch count a change of every parameter.
        over_the_last: write the inputs over those of the last call, where they have the same form,
            so that addresses and torch's count of writes say nothing of a change.
    """

    inputs: carried.Tensors
    timed: bool
    over_the_last: bool = False
    seed: int | None = None


class TraceBegun(FromHost, frozen=True, kw_only=True):
    """Answer: what comes next is recorded."""


class BeginTrace(ToHost[TraceBegun], frozen=True, kw_only=True):
    """Record what the next calls, or the next batch, run. Answered by TraceBegun, always.

    What is asked next is no other message than without it.

    Attributes:
        follows: what each operator of torch's reads and leaves, in calls on a CPU, and no times.
    """

    follows: bool = False


class Traced(FromHost, frozen=True, kw_only=True):
    """Records of each call since BeginTrace, or of all calls of one batch together."""

    traces: Annotated[tuple[Trace, ...], msgspec.Meta(max_length=MAX_TRACES)]


class EndTrace(ToHost[Traced], frozen=True, kw_only=True):
    """Stop recording and tell what ran."""


class InputsReturned(FromHost, frozen=True, kw_only=True):
    """The inputs' form and place."""

    inputs: carried.Tensors


class ReturnInputs(ToHost[InputsReturned], frozen=True, kw_only=True):
    """Put the last call's inputs, as they are now, into the arena."""


class BuffersReturned(FromHost, frozen=True, kw_only=True):
    """A list of the candidate's buffers, and the numbers of the reference's that they stand for."""

    numbers: tuple[int, ...]
    buffers: carried.Tensors


class ReturnBuffers(ToHost[BuffersReturned], frozen=True, kw_only=True):
    """Put buffers, as they are now, into the arena.

    Attributes:
        numbers: places of the reference's in its state.
    """

    numbers: tuple[int, ...]


class BatchRan(FromHost, frozen=True, kw_only=True):
    """All calls of a batch are done, and the device has nothing left to do.

    Behind a gate: all have returned, and the device waits there.

    Attributes:
        outputs: one a call; behind a gate, where they will be.
        why_not_in_place: why outputs were asked for in place and are not, or "".
    """

    outputs: tuple[carried.Placed, ...]
    why_not_in_place: str = ""


class RunBatch(ToHost[BatchRan], frozen=True, kw_only=True):
    """Run forward on several inputs, one after the other.

    The oracle writes it; the inputs' bytes are in the arena, or will be once the gate is open.

    Attributes:
        arena: a memfd arena's descriptor comes along with this message.
        inputs: of each call; forward gets them where they lie.
        outputs_at: byte of the arena from which on there is room for outputs not left in place.
        in_place: leave the outputs where forward made them, if another process can look there; on
            a CPU the answer has their addresses, and the supervisor reads what is there.
        seeds: for the default generators before each call, where the reference draws; or none.
        gated: enqueue everything behind the arena's gate, answer, and wait for AwaitBatch.
    """

    arena: carried.ArenaHandle
    inputs: tuple[carried.Tensors, ...]
    outputs_at: int
    in_place: bool
    seeds: tuple[int, ...] = ()
    gated: bool = False


class BatchDone(FromHost, frozen=True, kw_only=True):
    """The device has nothing left to do."""


class AwaitBatch(ToHost[BatchDone], frozen=True, kw_only=True):
    """Wait for the enqueued batch."""


class CandidateFailed(FromHost, frozen=True, kw_only=True):
    """The candidate raised.

    Attributes:
        phase: `import`, `construct`, `call` or `result`.
        type_name: of the exception.
        message: its text, cut to a sane length.
        line: in the candidate's file, or None if no frame of it was on the stack.
        in_build: the exception came out of torch.utils.cpp_extension, or from the call of it.
        out_of_memory: the exception says that memory ran out.
        trace: the candidate's own frames, innermost last, one `line N, in f: text` each.
        generated: name -> text of the source files that a failed build left behind.
    """

    phase: str
    type_name: str
    message: str
    line: int | None = None
    in_build: bool = False
    out_of_memory: bool = False
    trace: tuple[str, ...] = ()
    generated: dict[str, str] = {}  # noqa: RUF012 (msgspec makes a new one each time)


ToCandidate: Any = reduce(or_, ToHost.__subclasses__())
FromCandidate: Any = reduce(or_, FromHost.__subclasses__())
