"""Requests to the oracle, each after its answer where that is a record."""

from functools import reduce
from operator import or_
from typing import Any, ClassVar, Generic

import msgspec

from kernelgen.grading.verdict import Status, WorstElement
from kernelgen.grading.wire.messages.candidate import BuffersReturned, Construct, RunBatch
from kernelgen.grading.wire.messages.carried import AnswerT, Asking, Message, Placed, Tensors
from kernelgen.grading.wire.trace import Trace
from kernelgen.hardware.calibration import Calibration, MatrixFormat
from kernelgen.hardware.identity import DeviceIdentity
from kernelgen.problem.record import Device, Manner, Rule


class Request(Asking[AnswerT], Generic[AnswerT], frozen=True, kw_only=True):
    """A request to the oracle, which answers with an Answer that holds an AnswerT, or with Refused.

    Attributes:
        stage: completes "the oracle ended unexpectedly ...".
    """

    stage: ClassVar[str]

    @classmethod
    def read(cls, answer: "Answer") -> AnswerT:
        """Return what an answer holds; raises msgspec.MsgspecError if that is none to this."""
        value: AnswerT = msgspec.json.decode(answer.value, type=cls.answered_by())
        return value


class Answer(Message, frozen=True, kw_only=True):
    """Answer to a request, as JSON of the type that the request names."""

    value: msgspec.Raw


class Refused(Message, frozen=True, kw_only=True):
    """The oracle cannot go on: INVALID_PROBLEM, OUT_OF_MEMORY, NO_DEVICE or GRADER_ERROR."""

    status: Status
    reason: str


class Deposited(Message, frozen=True, kw_only=True):
    """Tensors whose bytes are in the arena: the arguments of a call, or parameters in order.

    Attributes:
        seed: for the generators before the call, where the reference draws random numbers.
        changed: places in the reference's state of the buffers that a case's first call changed.
    """

    tensors: Tensors
    seed: int | None = None
    changed: tuple[int, ...] = ()


# --- the device and the problem -------------------------------------------------------------------


class CaseSource(msgspec.Struct, frozen=True, kw_only=True):
    """A case, as the Python source of its reference."""

    name: str
    source: str


class OracleReady(Message, frozen=True, kw_only=True):
    """The oracle is up.

    Attributes:
        device_name: as the driver or /proc/cpuinfo gives it.
        device_uuid: of a GPU, as `GPU-...`; "" for a CPU, or where torch does not tell.
        method: how times are taken, one line.
        environment: facts for the report.
    """

    device_name: str
    device_uuid: str
    method: str
    environment: dict[str, str | int | bool | None]


class SetUpOracle(Request[OracleReady], frozen=True, kw_only=True):
    """First message for a candidate: the whole problem, which stays the same for the next one.

    Attributes:
        seed: hex; every random value of the run derives from it. No other process gets it.
        memory_limit_bytes: act as if the device had this much; None for what it has.
    """

    stage: ClassVar = "while it started"
    device: Device
    cases: tuple[CaseSource, ...]
    tolerance: float
    rule: Rule
    manner: Manner
    batch_independent: bool
    seed: str
    memory_limit_bytes: int | None
    threads: int


class IdentifyDevice(Request[DeviceIdentity], frozen=True, kw_only=True):
    """Say which device it is, for the cache of calibrations."""

    stage: ClassVar = "while it looked which device it is"


class MeasureRates(Request[Calibration | str], frozen=True, kw_only=True):
    """Measure the device's copy bandwidth, and its matrix products in some formats, quickly.

    Answered by the rates, or why they could not be measured.
    """

    stage: ClassVar = "while it measured the device's rates"
    formats: tuple[MatrixFormat, ...]


class Rest(Request[None], frozen=True, kw_only=True):
    """Let go of what was the last candidate's; the next message is a SetUpOracle."""

    stage: ClassVar = "while it let go of a candidate's memory"


class CheckDevice(Request[None], frozen=True, kw_only=True):
    """Run one operation and check its result: does the device still compute?"""

    stage: ClassVar = "while it tried the device, after the candidate had failed"


class MeasureMemory(Request[int], frozen=True, kw_only=True):
    """Say how many bytes of the device's memory other processes hold; 0 on the CPU."""

    stage: ClassVar = "while it measured memory, after it had run out"


class Probed(Message, frozen=True, kw_only=True):
    """A long write to the device's memory, made of many short ones.

    Attributes:
        elapsed_ms: what it took.
        alone_ms: what it would take if every short write took as long as the quickest; on a CPU,
            if each of its threads had a processor.
        written_bytes: how much it wrote.
        cache_bytes: size of the last cache before DRAM.
    """

    elapsed_ms: float
    alone_ms: float
    written_bytes: int
    cache_bytes: int

    @property
    def load(self) -> float:
        """How many times longer it took than alone: others take their turns between the writes."""
        return max(1.0, self.elapsed_ms / self.alone_ms)


class Probe(Request[Probed], frozen=True, kw_only=True):
    """Time a write of the oracle's own, to see whether another process is using the device."""

    stage: ClassVar = "while it timed the device's memory"


# --- a case ---------------------------------------------------------------------------------------


class CaseBytes(Message, frozen=True, kw_only=True):
    """Sizes of a case on its device.

    Attributes:
        tensors: all that grading it takes.
        parameters: those of the reference, which an oracle keeps.
    """

    tensors: int
    parameters: int


class MeasureCase(Request[CaseBytes | None], frozen=True, kw_only=True):
    """Refuse a case that does not fit the device, as far as can be told without running it.

    Answered by its sizes; None where they cannot be told.
    """

    stage: ClassVar = "while it estimated the memory of"
    case: int


class CaseOpened(Message, frozen=True, kw_only=True):
    """An open case: its reference and parameters are made.

    Attributes:
        construct: for the candidate's host.
        minimal_bytes: inputs, parameters and outputs once each.
        flops: operations of the reference's matrix products; 0 unless the case is `main`.
        operand_bits: significant bits of the narrowest float among inputs and parameters.
        notes: what the verdict should warn of.
    """

    construct: Construct
    minimal_bytes: int
    flops: int
    operand_bits: int
    notes: tuple[str, ...]


class OpenCase(Request[CaseOpened], frozen=True, kw_only=True):
    """Make the reference and its parameters for a case."""

    stage: ClassVar = "while it opened"
    case: int


class DrawInitialValues(Request[tuple[str, ...]], frozen=True, kw_only=True):
    """Construct the open case's reference under the seed of its ReferenceState.

    Answered by digests of the values with which its tensors begin, in order.
    """

    stage: ClassVar = "while it constructed the reference on the CPU"


class Linted(Message, frozen=True, kw_only=True):
    """Wrong answers that a case lets pass.

    Attributes:
        trivial: answers without any work that pass, such as `all zeros`.
        idle: inputs and parameters that make no difference.
        untried: inputs and parameters that there was no time to try.
        note: why there is no float64 result, or "".
    """

    trivial: tuple[str, ...]
    idle: tuple[str, ...]
    untried: int
    note: str


class LintCase(Request[Linted], frozen=True, kw_only=True):
    """Look for what is wrong with a case.

    Attributes:
        limit_s: try inputs and parameters for no longer; None tries all.
    """

    stage: ClassVar = "while it looked for mistakes in"
    case: int
    limit_s: float | None = None


class RedrawParameters(Request[Deposited], frozen=True, kw_only=True):
    """Draw the open case's parameters anew."""

    stage: ClassVar = "while it drew other parameters"


# --- single calls ---------------------------------------------------------------------------------


class MakeInputs(Request[Deposited], frozen=True, kw_only=True):
    """Make new inputs of the open case and put a copy into the arena.

    Attributes:
        one_row: of the last ones keep all rows but one, where rows are independent.
    """

    stage: ClassVar = "while it made inputs"
    call: int
    one_row: bool = False


class RepeatInputs(Request[Deposited], frozen=True, kw_only=True):
    """Put the present inputs into the arena once more."""

    stage: ClassVar = "while it sent the same inputs again"


class Verified(Message, frozen=True, kw_only=True):
    """Findings on one call's outputs.

    Attributes:
        status: PASSED if all agree, else what is wrong.
        reason: for a person; "" if all agree.
        elements: compared.
        wrong: outside the bound.
        max_abs_err, ref_max_abs_err: against the exact result; None if not finite.
        of_allowed: the largest share that an error is of its bound; None if not finite.
        exact: how the exact result was made.
        borrows: all agree, but for whose memory an output is.
    """

    status: Status
    reason: str
    borrows: bool = False
    elements: int = 0
    wrong: int = 0
    max_abs_err: float | None = None
    ref_max_abs_err: float | None = None
    of_allowed: float | None = None
    exact: str = ""
    worst: WorstElement | None = None


class Verify(Request[Verified], frozen=True, kw_only=True):
    """Compare what the candidate left in the arena with the exact result."""

    stage: ClassVar = "while it compared outputs"
    outputs: Tensors


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


class VerifyRepeat(Request[Repeated], frozen=True, kw_only=True):
    """Compare what the candidate left with what it gave before."""

    stage: ClassVar = "while it compared the outputs of a repeated call"
    outputs: Tensors


class VerifyInputs(Request[tuple[str, ...]], frozen=True, kw_only=True):
    """Name the inputs that the candidate gives back changed, such as `inputs[0]`."""

    stage: ClassVar = "while it compared the inputs that were returned"
    inputs: Tensors


class BuffersVerified(Message, frozen=True, kw_only=True):
    """Buffers that a call changed otherwise than the reference does.

    Attributes:
        differ: their names in the reference.
        missing: of those that the candidate has no buffer for.
        found: what is wrong with the first of `differ`, or None.
    """

    differ: tuple[str, ...]
    missing: tuple[str, ...]
    found: Verified | None = None


class VerifyBuffers(Request[BuffersVerified], frozen=True, kw_only=True):
    """Compare the candidate's buffers after the case's first call with the reference's."""

    stage: ClassVar = "while it compared buffers"
    returned: BuffersReturned


class TraceReference(Request[Trace], frozen=True, kw_only=True):
    """Run the reference on the present inputs and trace it."""

    stage: ClassVar = "while it traced the reference"


# --- baselines ------------------------------------------------------------------------------------


class BaselinesReady(Message, frozen=True, kw_only=True):
    """Which baselines can be timed, and why the others cannot.

    Attributes:
        ready: name -> what it is, with the flags that change its time.
        failed: name -> why.
    """

    ready: dict[str, str]
    failed: dict[str, str]


class CompileBaselines(Request[None], frozen=True, kw_only=True):
    """Have the compiler's caches filled for the named baselines, as far as that takes no data.

    Attributes:
        cores: to compile on; none are all.
    """

    stage: ClassVar = "while it compiled the baselines"
    names: tuple[str, ...]
    cores: tuple[int, ...] = ()


class WarmBaselines(Request[BaselinesReady], frozen=True, kw_only=True):
    """Compile the named baselines, and run them on the present inputs."""

    stage: ClassVar = "while it prepared the baselines"
    names: tuple[str, ...]


class BaselineTimed(Message, frozen=True, kw_only=True):
    """One call of a baseline, in ms on the same clocks as the candidate's."""

    elapsed_ms: float
    host_ms: float


class TimeBaseline(Request[BaselineTimed], frozen=True, kw_only=True):
    """Run a baseline on the present inputs."""

    stage: ClassVar = "while it timed the baseline"
    name: str


class MeasureEvents(Request[float | None], frozen=True, kw_only=True):
    """Say what two events add to a call's time by CUPTI's stamps, in us; None where it has none."""

    stage: ClassVar = "while it compared its two clocks"


# --- batches --------------------------------------------------------------------------------------


class MakeBatch(Request[RunBatch], frozen=True, kw_only=True):
    """Make new inputs for several calls of the open case, all of them in the arena at once.

    Answered by what to ask the candidate's host.

    Attributes:
        first_call: number of the first call; the others follow it.
        count: of calls.
        in_place: outputs stay where forward makes them; on a GPU they need no room.
        withheld: keep the inputs back until the gate is opened.
    """

    stage: ClassVar = "while it made a batch of inputs"
    first_call: int
    count: int
    in_place: bool
    withheld: bool = False


class OpenGate(Request[float], frozen=True, kw_only=True):
    """Put the withheld inputs into the arena, then let what waits for them go on.

    Answered by the ms that putting them there took.
    """

    stage: ClassVar = "while it put a batch's inputs in place"


class ControlRan(Message, frozen=True, kw_only=True):
    """Time of the reference for the batch, in ms on the oracle's own wall clock.

    Attributes:
        elapsed_ms: of the calls alone, without the copying of outputs.
        apart_ms: spent on finding that out, or on remaking inputs that the reference has written
            to: no part of a batch.
    """

    elapsed_ms: float
    apart_ms: float


class RunControl(Request[ControlRan], frozen=True, kw_only=True):
    """Run the reference on the first calls of the batch in the way a candidate host does."""

    stage: ClassVar = "while it ran the reference on a batch"
    count: int


class SampleBatch(Request[bool], frozen=True, kw_only=True):
    """Look at some elements of each output; say whether that took no mapping of memory first."""

    stage: ClassVar = "while it looked at a batch's outputs"
    outputs: tuple[Placed, ...]


class VerifyBatch(Request[Verified | None], frozen=True, kw_only=True):
    """Compare the sampled elements of the batch again, and all outputs.

    Where a GPU has room for copies of these, VerifyKept compares them, and the answer is None.
    """

    stage: ClassVar = "while it compared a batch's outputs"


class VerifyKept(Request[Verified], frozen=True, kw_only=True):
    """Compare the outputs of the batches that were left for later."""

    stage: ClassVar = "while it compared the batches' outputs"


REQUESTS: tuple[type[Request[Any]], ...] = tuple(Request.__subclasses__())
ToOracle: Any = reduce(or_, REQUESTS)
FromOracle = Answer | Refused
