"""Every record that crosses between the supervisor, the oracle and the candidate host."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kernelgen.grading.trace import Trace
from kernelgen.grading.tree import Node, TensorSpec
from kernelgen.grading.verdict import EffectivePrecision, Status, WorstElement
from kernelgen.problem.record import Device
from kernelgen.sandbox.record import Containment


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """One record; its class name travels with it."""


# What a candidate's process says of time and of settings, within what an honest one can say.
# Anything else is no record: sums stay finite, and what is shown to a person stays short.
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e10)]
_PinName = Annotated[str, msgspec.Meta(max_length=100)]
ReportedPins = Annotated[dict[_PinName, bool | _PinName | int], msgspec.Meta(max_length=100)]


class ArenaHandle(msgspec.Struct, frozen=True, kw_only=True):
    """How to open the memory through which tensors cross.

    Attributes:
        kind: `cuda` (a CUDA IPC handle, in hex) or `memfd` (a file descriptor sent along).
        handle: the IPC handle in hex, or "".
        capacity_bytes: size of the memory.
        generation: grows with each new arena, so that both sides know which one is meant.
    """

    kind: str
    handle: str
    capacity_bytes: int
    generation: int


class Tensors(msgspec.Struct, frozen=True, kw_only=True):
    """A tree and the tensors in it."""

    tree: Node
    specs: tuple[TensorSpec, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(spec.nbytes for spec in self.specs)


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A 32-bit number in the arena; a stream waits until it is at least `value`.

    Attributes:
        offset: in bytes from the arena's start.
        value: that opens the gate.
    """

    offset: int
    value: int


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A result, and where its bytes lie.

    Attributes:
        tensors: each one's offset counts from the start of its block.
        blocks: one a tensor: the IPC handle, in hex, of the candidate's allocation that holds it,
            or "" for the arena.
    """

    tensors: Tensors
    blocks: tuple[str, ...]


# --- supervisor to oracle -------------------------------------------------------------------------


class CaseSource(msgspec.Struct, frozen=True, kw_only=True):
    """A case, as the Python source of its reference."""

    name: str
    source: str


class SetUpOracle(Message, frozen=True, kw_only=True):
    """First message: the whole problem. Answered by OracleReady.

    Attributes:
        seed: hex; every random value of the run derives from it. No other process gets it.
        memory_limit_bytes: act as if the device had this much; None for what it has.
    """

    device: Device
    cases: tuple[CaseSource, ...]
    tolerance: float
    batch_independent: bool
    seed: str
    memory_limit_bytes: int | None
    threads: int


class MeasureCase(Message, frozen=True, kw_only=True):
    """Say whether a case fits the device, before anything is built. Answered by Fits or Refused."""

    case: int


class WarmBaselines(Message, frozen=True, kw_only=True):
    """Compile and run the named baselines on the present inputs. Answered by BaselinesReady."""

    names: tuple[str, ...]


class OpenCase(Message, frozen=True, kw_only=True):
    """Make the reference and its parameters for a case. Answered by CaseOpened or Refused."""

    case: int


class LintCase(Message, frozen=True, kw_only=True):
    """Look for what is wrong with a case. Answered by Linted or Refused."""

    case: int


class MakeInputs(Message, frozen=True, kw_only=True):
    """Make new inputs of the open case and put a copy into the arena. Answered by InputsMade."""

    call: int


class Verify(Message, frozen=True, kw_only=True):
    """Compare what the candidate left in the arena with the exact result. Answered by Verified."""

    outputs: Tensors


class RepeatInputs(Message, frozen=True, kw_only=True):
    """Put the present inputs into the arena once more. Answered by InputsMade."""


class VerifyRepeat(Message, frozen=True, kw_only=True):
    """Compare what the candidate left with what it gave before. Answered by Repeated."""

    outputs: Tensors


class VerifyInputs(Message, frozen=True, kw_only=True):
    """Compare the inputs that the candidate gives back. Answered by InputsVerified."""

    inputs: Tensors


class TraceReference(Message, frozen=True, kw_only=True):
    """Run the reference on the present inputs and trace it. Answered by ReferenceTraced."""


class TimeBaseline(Message, frozen=True, kw_only=True):
    """Run a baseline on the present inputs. Answered by BaselineTimed."""

    name: str


class MakeBatch(Message, frozen=True, kw_only=True):
    """Make new inputs for several calls of the open case, all of them in the arena at once.

    Answered by BatchMade.

    Attributes:
        first_call: number of the first call; the others follow it.
        count: of calls.
        withheld: keep the inputs back until the gate is opened.
    """

    first_call: int
    count: int
    withheld: bool = False


class OpenGate(Message, frozen=True, kw_only=True):
    """Put the withheld inputs into the arena, then let what waits for them go on.

    Answered by GateOpened.
    """


class RunControl(Message, frozen=True, kw_only=True):
    """Run the reference on the batch in the way a candidate host does. Answered by ControlRan."""

    in_place: bool


class SampleBatch(Message, frozen=True, kw_only=True):
    """Look at some elements of each output, wherever they lie. Answered by Sampled."""

    outputs: tuple[Placed, ...]


class VerifyBatch(Message, frozen=True, kw_only=True):
    """Compare all outputs of the batch, and the sampled elements again. Answered by Verified."""


class Probe(Message, frozen=True, kw_only=True):
    """Time a write of the oracle's own, to see whether anybody else is using the device.

    Answered by Probed.
    """


class CheckDevice(Message, frozen=True, kw_only=True):
    """Say whether the device still computes. Answered by DeviceWorks or Refused."""


class MeasureMemory(Message, frozen=True, kw_only=True):
    """Say how much of the device's memory is not the oracle's. Answered by MemoryMeasured."""


# --- oracle to supervisor -------------------------------------------------------------------------


class OracleReady(Message, frozen=True, kw_only=True):
    """The oracle is up.

    Attributes:
        device_name: as the driver or /proc/cpuinfo gives it.
        environment: facts for the report.
        method: how times are taken, one line.
    """

    device_name: str
    method: str
    environment: dict[str, str | int | bool | None]


class Fits(Message, frozen=True, kw_only=True):
    """It does, as far as can be told without running it."""


class BaselinesReady(Message, frozen=True, kw_only=True):
    """Which baselines can be timed, and why the others cannot."""

    ready: tuple[str, ...]
    failed: dict[str, str]


class CaseOpened(Message, frozen=True, kw_only=True):
    """What the candidate needs to be constructed; the tensors' bytes are in the arena.

    Attributes:
        arena: a memfd arena's descriptor comes along with this message.
        given: a list of two: the constructor's arguments, and the parameters' values.
        parameter_names: one a parameter, in order.
        parameter_ranks: each one's place in the order in which the reference defines them.
        minimal_bytes: inputs, parameters and outputs once each.
        notes: what the verdict should warn of.
    """

    arena: ArenaHandle
    given: Tensors
    parameter_names: tuple[str, ...]
    parameter_ranks: tuple[int, ...]
    minimal_bytes: int
    notes: tuple[str, ...] = ()


class Linted(Message, frozen=True, kw_only=True):
    """What a case lets pass, one sentence each; and how its exact result is computed."""

    findings: tuple[str, ...]
    exact: str


class InputsMade(Message, frozen=True, kw_only=True):
    """The arguments of one call; their bytes are in the arena."""

    inputs: Tensors


class Verified(Message, frozen=True, kw_only=True):
    """What comparing one call's outputs found.

    Attributes:
        status: PASSED if all agree, else what is wrong.
        reason: for a person; "" if all agree.
        elements: compared.
        wrong: outside the bound.
        max_abs_err, ref_max_abs_err: against the exact result; None if not finite.
        exact: how the exact result was made.
        effective_precision: what the errors look like, if it was measured on this call.
    """

    status: Status
    reason: str
    elements: int = 0
    wrong: int = 0
    max_abs_err: float | None = None
    ref_max_abs_err: float | None = None
    exact: str = ""
    worst: WorstElement | None = None
    effective_precision: EffectivePrecision | None = None


class Repeated(Message, frozen=True, kw_only=True):
    """How two results on the same inputs compare.

    Attributes:
        identical: bit by bit.
        max_diff: the largest difference; None if it is not finite or was not looked at.
        found: what is wrong with the second one, or None.
    """

    identical: bool
    max_diff: float | None
    found: Verified | None = None


class InputsVerified(Message, frozen=True, kw_only=True):
    """Paths of the inputs whose bytes changed during the call, such as `inputs[0]`."""

    changed: tuple[str, ...]


class BaselineTimed(Message, frozen=True, kw_only=True):
    """One call of a baseline, in ms on the same clock as the candidate's."""

    elapsed_ms: float


class BatchMade(Message, frozen=True, kw_only=True):
    """The arguments of each call; their bytes are in the arena.

    Attributes:
        arena: a memfd arena's descriptor comes along with this message.
        inputs: one a call.
        outputs_at: byte of the arena from which on there is room for the outputs.
        gate: where to wait for withheld inputs, or None.
    """

    arena: ArenaHandle
    inputs: tuple[Tensors, ...]
    outputs_at: int
    gate: Gate | None = None


class GateOpened(Message, frozen=True, kw_only=True):
    """The inputs are there; putting them there took this long."""

    elapsed_ms: float


class ControlRan(Message, frozen=True, kw_only=True):
    """What the reference took for the batch, in ms on the oracle's own wall clock."""

    elapsed_ms: float


class Sampled(Message, frozen=True, kw_only=True):
    """Whether the outputs could be looked at without mapping memory first, and so at once."""

    at_once: bool


class Probed(Message, frozen=True, kw_only=True):
    """What the write took, in ms; how much it wrote; and the size of the last cache before DRAM."""

    elapsed_ms: float
    written_bytes: int
    cache_bytes: int


class DeviceWorks(Message, frozen=True, kw_only=True):
    """One operation was run, and its result is right."""


class MemoryMeasured(Message, frozen=True, kw_only=True):
    """The device's memory that other processes than the oracle hold, in bytes; 0 on the CPU."""

    others_bytes: int


class ReferenceTraced(Message, frozen=True, kw_only=True):
    """What ran in one call of the reference."""

    trace: Trace


class Refused(Message, frozen=True, kw_only=True):
    """The oracle cannot go on: INVALID_PROBLEM, OUT_OF_MEMORY, NO_DEVICE or GRADER_ERROR."""

    status: Status
    reason: str


# --- supervisor to candidate host -----------------------------------------------------------------


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


class Call(Message, frozen=True, kw_only=True):
    """Run forward once on the inputs in the arena. Answered by Called or CandidateFailed.

    Attributes:
        timed: overwrite the caches before it.
        traced: record which kernels run.
    """

    inputs: Tensors
    timed: bool
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


# --- candidate host to supervisor -----------------------------------------------------------------


class Contained(Message, frozen=True, kw_only=True):
    """Sent once, before the candidate's code is there: what is in force around it."""

    containment: Containment


class NotContained(Message, frozen=True, kw_only=True):
    """Sent in place of Contained: why what was asked for could not be entered."""

    reason: str


class CandidateBuilt(Message, frozen=True, kw_only=True):
    """Imported; `seconds` of wall time."""

    seconds: Seconds


class Constructed(Message, frozen=True, kw_only=True):
    """ModelNew stands.

    Attributes:
        seconds: wall time of the constructor, which may compile.
        mapping: candidate's parameter -> the reference's that was copied into it.
        missing: the reference's parameters that found no place, as `name (shape)`.
        own: the candidate's parameters that got nothing, as `name (shape)`.
        by_order: pairs of the mapping that no name settles, as `own <- reference's`.
        misfits: pairs of `missing` and `own` that have as many elements and no shape in common.
    """

    seconds: Seconds
    mapping: dict[str, str]
    missing: tuple[str, ...]
    own: tuple[str, ...]
    by_order: tuple[str, ...] = ()
    misfits: tuple[tuple[str, str], ...] = ()


class Called(Message, frozen=True, kw_only=True):
    """Forward returned, and its outputs' bytes were copied to the arena on the current stream.

    Attributes:
        outputs: a tensor whose bytes would not fit has offset -1.
        elapsed_ms: of forward; on a GPU between two events on the current stream.
        host_ms: wall time of the same call, up to its return.
        settled: the outputs were the same once more after the device had finished all it had.
        pinned: the precision settings before the call.
        pins: the settings found after it.
        trace: what ran, of a call that was to be traced.
    """

    outputs: Tensors
    elapsed_ms: Milliseconds
    host_ms: Milliseconds
    settled: bool
    pinned: ReportedPins
    pins: ReportedPins
    trace: Trace | None = None


class BatchRan(Message, frozen=True, kw_only=True):
    """All calls of a batch are done, and the device has nothing left to do.

    Attributes:
        outputs: one a call.
        why_not_in_place: why outputs were asked for in place and are not, or "".
    """

    outputs: tuple[Placed, ...]
    why_not_in_place: str = ""


class BatchEnqueued(Message, frozen=True, kw_only=True):
    """Every call of the batch has returned; the device waits at the gate.

    Attributes:
        batch: where the outputs will be.
    """

    batch: BatchRan


class BatchDone(Message, frozen=True, kw_only=True):
    """The device has nothing left to do."""


class InputsReturned(Message, frozen=True, kw_only=True):
    """The inputs' form and place."""

    inputs: Tensors


class CandidateFailed(Message, frozen=True, kw_only=True):
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
    generated: dict[str, str] = {}


ToOracle = (
    SetUpOracle
    | MeasureCase
    | WarmBaselines
    | LintCase
    | OpenCase
    | MakeInputs
    | Verify
    | RepeatInputs
    | VerifyRepeat
    | VerifyInputs
    | TraceReference
    | TimeBaseline
    | MakeBatch
    | OpenGate
    | RunControl
    | SampleBatch
    | VerifyBatch
    | Probe
    | CheckDevice
    | MeasureMemory
)
FromOracle = (
    OracleReady
    | Fits
    | BaselinesReady
    | Linted
    | CaseOpened
    | InputsMade
    | Verified
    | Repeated
    | InputsVerified
    | ReferenceTraced
    | BaselineTimed
    | BatchMade
    | GateOpened
    | ControlRan
    | Sampled
    | Probed
    | DeviceWorks
    | MemoryMeasured
    | Refused
)
ToCandidate = BuildCandidate | Construct | Call | ReturnInputs | RunBatch | AwaitBatch
FromCandidate = (
    Contained
    | NotContained
    | CandidateBuilt
    | Constructed
    | Called
    | InputsReturned
    | BatchRan
    | BatchEnqueued
    | BatchDone
    | CandidateFailed
)
