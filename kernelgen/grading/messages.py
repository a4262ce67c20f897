"""Every record that crosses between the supervisor, the oracle and the candidate host."""

from __future__ import annotations

import msgspec

from kernelgen.grading.tree import Node, TensorSpec
from kernelgen.grading.verdict import Status, WorstElement
from kernelgen.problem.record import Device
from kernelgen.sandbox.record import Containment


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """One record; its class name travels with it."""


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


class VerifyInputs(Message, frozen=True, kw_only=True):
    """Compare the inputs that the candidate gives back. Answered by InputsVerified."""

    inputs: Tensors


class TimeBaseline(Message, frozen=True, kw_only=True):
    """Run a baseline on the present inputs. Answered by BaselineTimed."""

    name: str


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
        minimal_bytes: inputs, parameters and outputs once each.
        notes: what the verdict should warn of.
    """

    arena: ArenaHandle
    given: Tensors
    parameter_names: tuple[str, ...]
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
    """

    status: Status
    reason: str
    elements: int = 0
    wrong: int = 0
    max_abs_err: float | None = None
    ref_max_abs_err: float | None = None
    exact: str = ""
    worst: WorstElement | None = None


class InputsVerified(Message, frozen=True, kw_only=True):
    """Paths of the inputs whose bytes changed during the call, such as `inputs[0]`."""

    changed: tuple[str, ...]


class BaselineTimed(Message, frozen=True, kw_only=True):
    """One call of a baseline, in ms on the same clock as the candidate's."""

    elapsed_ms: float


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


class Call(Message, frozen=True, kw_only=True):
    """Run forward once on the inputs in the arena. Answered by Called or CandidateFailed."""

    inputs: Tensors
    timed: bool


class ReturnInputs(Message, frozen=True, kw_only=True):
    """Put the last call's inputs, as they are now, into the arena. Answered by InputsReturned."""


# --- candidate host to supervisor -----------------------------------------------------------------


class Contained(Message, frozen=True, kw_only=True):
    """Sent once, before the candidate's code is there: what is in force around it."""

    containment: Containment


class NotContained(Message, frozen=True, kw_only=True):
    """Sent in place of Contained: why what was asked for could not be entered."""

    reason: str


class CandidateBuilt(Message, frozen=True, kw_only=True):
    """Imported; `seconds` of wall time."""

    seconds: float


class Constructed(Message, frozen=True, kw_only=True):
    """ModelNew stands.

    Attributes:
        seconds: wall time of the constructor, which may compile.
        mapping: candidate's parameter -> the reference's that was copied into it.
        missing: the reference's parameters that found no place, as `name (shape)`.
        own: the candidate's parameters that got nothing, as `name (shape)`.
    """

    seconds: float
    mapping: dict[str, str]
    missing: tuple[str, ...]
    own: tuple[str, ...]


class Called(Message, frozen=True, kw_only=True):
    """Forward returned, and its outputs' bytes were copied to the arena on the current stream.

    Attributes:
        outputs: a tensor whose bytes would not fit has offset -1.
        elapsed_ms: of forward; on a GPU between two events on the current stream.
        host_ms: wall time of the same call, up to its return.
        pinned: the precision settings before the call.
        pins: the settings found after it.
    """

    outputs: Tensors
    elapsed_ms: float
    host_ms: float
    pinned: dict[str, bool | str | int]
    pins: dict[str, bool | str | int]


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
    | VerifyInputs
    | TimeBaseline
)
FromOracle = (
    OracleReady
    | Fits
    | BaselinesReady
    | Linted
    | CaseOpened
    | InputsMade
    | Verified
    | InputsVerified
    | BaselineTimed
    | Refused
)
ToCandidate = BuildCandidate | Construct | Call | ReturnInputs
FromCandidate = (
    Contained
    | NotContained
    | CandidateBuilt
    | Constructed
    | Called
    | InputsReturned
    | CandidateFailed
)
