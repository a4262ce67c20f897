"""What the supervisor asks the oracle."""

from __future__ import annotations

import msgspec

from kernelgen.grading.wire.messages.carried import Message, Placed, Tensors
from kernelgen.hardware.calibration import MatrixFormat
from kernelgen.problem.record import Device


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


class RedrawParameters(Message, frozen=True, kw_only=True):
    """Draw the open case's parameters anew. Answered by ParametersDrawn."""


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


class StartCompiler(Message, frozen=True, kw_only=True):
    """Load torch.compile and have it compile something small. Answered by CompilerStarted."""


class MeasureEvents(Message, frozen=True, kw_only=True):
    """Say what two events add to a call's time by the second clock. Answered by EventsMeasured."""


class SpanBaseline(Message, frozen=True, kw_only=True):
    """Run a baseline on the present inputs and read the second clock. Answered by Spans."""

    name: str
    calls: int


class TimeBaseline(Message, frozen=True, kw_only=True):
    """Run a baseline on the present inputs. Answered by BaselineTimed."""

    name: str


class MakeBatch(Message, frozen=True, kw_only=True):
    """Make new inputs for several calls of the open case, all of them in the arena at once.

    Answered by BatchMade.

    Attributes:
        first_call: number of the first call; the others follow it.
        count: of calls.
        in_place: no room is needed for outputs, which stay where forward makes them.
        withheld: keep the inputs back until the gate is opened.
    """

    first_call: int
    count: int
    in_place: bool
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


class IdentifyDevice(Message, frozen=True, kw_only=True):
    """Say which device it is. Answered by DeviceIdentified."""


class MeasureRates(Message, frozen=True, kw_only=True):
    """Measure the device's copy bandwidth, and its matrix products in some formats, quickly.

    Answered by RatesMeasured.
    """

    formats: tuple[MatrixFormat, ...]


ToOracle = (
    SetUpOracle
    | MeasureCase
    | WarmBaselines
    | LintCase
    | OpenCase
    | RedrawParameters
    | MakeInputs
    | Verify
    | RepeatInputs
    | VerifyRepeat
    | VerifyInputs
    | TraceReference
    | StartCompiler
    | MeasureEvents
    | SpanBaseline
    | TimeBaseline
    | MakeBatch
    | OpenGate
    | RunControl
    | SampleBatch
    | VerifyBatch
    | Probe
    | CheckDevice
    | MeasureMemory
    | IdentifyDevice
    | MeasureRates
)
