"""What the oracle answers."""

from __future__ import annotations

from kernelgen.grading.verdict import EffectivePrecision, Status, WorstElement
from kernelgen.grading.wire.messages.carried import ArenaHandle, Gate, Message, Tensors
from kernelgen.grading.wire.trace import Trace
from kernelgen.hardware.calibration import Calibration
from kernelgen.hardware.identity import DeviceIdentity


class OracleReady(Message, frozen=True, kw_only=True):
    """The oracle is up.

    Attributes:
        device_name: as the driver or /proc/cpuinfo gives it.
        device_uuid: of a GPU, as `GPU-...`; "" for a CPU, or where torch does not tell.
        environment: facts for the report.
        method: how times are taken, one line.
    """

    device_name: str
    device_uuid: str
    method: str
    environment: dict[str, str | int | bool | None]


class Fits(Message, frozen=True, kw_only=True):
    """It does, as far as can be told without running it."""


class BaselinesReady(Message, frozen=True, kw_only=True):
    """Which baselines can be timed, and why the others cannot.

    Attributes:
        ready: name -> what it is, with the flags that change its time.
        failed: name -> why.
    """

    ready: dict[str, str]
    failed: dict[str, str]


class CompilerStarted(Message, frozen=True, kw_only=True):
    """The next compilation is not held up by the first one's imports."""


class EventsMeasured(Message, frozen=True, kw_only=True):
    """What two events add to a time, in us; None where there is no second clock."""

    events_us: float | None


class Spans(Message, frozen=True, kw_only=True):
    """What calls took by the second clock, one a call; none where there is none.

    Attributes:
        spans_us: by the second clock.
        elapsed_ms: of the same calls by events.
    """

    spans_us: tuple[float, ...]
    elapsed_ms: tuple[float, ...]


class CaseOpened(Message, frozen=True, kw_only=True):
    """What the candidate needs to be constructed; the tensors' bytes are in the arena.

    Attributes:
        arena: a memfd arena's descriptor comes along with this message.
        given: a list of two: the constructor's arguments, and the parameters' values.
        parameter_names: one a parameter, in order.
        parameter_ranks: each one's place in the order in which the reference defines them.
        minimal_bytes: inputs, parameters and outputs once each.
        flops: operations of the reference's matrix products; 0 unless the case is `main`.
        operand_bits: significant bits of the narrowest float among inputs and parameters.
        notes: what the verdict should warn of.
    """

    arena: ArenaHandle
    given: Tensors
    parameter_names: tuple[str, ...]
    parameter_ranks: tuple[int, ...]
    minimal_bytes: int
    flops: int = 0
    operand_bits: int = 24
    notes: tuple[str, ...] = ()


class Linted(Message, frozen=True, kw_only=True):
    """What a case lets pass, one sentence each; and how its exact result is computed."""

    findings: tuple[str, ...]
    exact: str


class InputsMade(Message, frozen=True, kw_only=True):
    """The arguments of one call; their bytes are in the arena."""

    inputs: Tensors


class ParametersDrawn(Message, frozen=True, kw_only=True):
    """The values of the parameters, in order; their bytes are in the arena."""

    values: Tensors


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
    """One call of a baseline, in ms on the same clocks as the candidate's."""

    elapsed_ms: float
    host_ms: float


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
    """What the reference took for the batch, in ms on the oracle's own wall clock.

    Attributes:
        elapsed_ms: of the calls alone, without the copying of outputs.
        apart_ms: spent on finding that out, which is no part of a batch.
    """

    elapsed_ms: float
    apart_ms: float


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


class DeviceIdentified(Message, frozen=True, kw_only=True):
    """Which device it is, for the cache of calibrations."""

    identity: DeviceIdentity


class RatesMeasured(Message, frozen=True, kw_only=True):
    """The device's rates, or None and why they could not be measured."""

    calibration: Calibration | None
    reason: str = ""


class ReferenceTraced(Message, frozen=True, kw_only=True):
    """What ran in one call of the reference."""

    trace: Trace


class Refused(Message, frozen=True, kw_only=True):
    """The oracle cannot go on: INVALID_PROBLEM, OUT_OF_MEMORY, NO_DEVICE or GRADER_ERROR."""

    status: Status
    reason: str


FromOracle = (
    OracleReady
    | Fits
    | BaselinesReady
    | Linted
    | CaseOpened
    | InputsMade
    | ParametersDrawn
    | Verified
    | Repeated
    | InputsVerified
    | ReferenceTraced
    | BaselineTimed
    | CompilerStarted
    | EventsMeasured
    | Spans
    | BatchMade
    | GateOpened
    | ControlRan
    | Sampled
    | Probed
    | DeviceWorks
    | MemoryMeasured
    | DeviceIdentified
    | RatesMeasured
    | Refused
)
