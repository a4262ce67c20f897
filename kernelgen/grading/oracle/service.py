"""The oracle: the trusted process that holds the reference, the inputs and the expected outputs.

It never imports candidate code and shares no address space with it. Started by the fork server
(forkserver.py), it answers the supervisor's messages one at a time.
"""

import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from kernelgen.errors import in_one_line
from kernelgen.grading.kernels.tracing import Tracer
from kernelgen.grading.oracle.baselines import Baselines
from kernelgen.grading.oracle.batches import MARGIN_BYTES, Batches
from kernelgen.grading.oracle.calls import OracleCalls, unless_forged
from kernelgen.grading.oracle.device import OracleArena, OracleMemory, Probe, measure_quickly, ready
from kernelgen.grading.oracle.flops import Products
from kernelgen.grading.oracle.reference import Reference, construction_of
from kernelgen.grading.oracle.soundness import expect_sound, idle_parts, trivial_answers
from kernelgen.grading.precision import pin
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import Judged, ProblemFault, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import Channel, ChannelClosed
from kernelgen.grading.wire.device_errors import is_device_loss, is_out_of_memory
from kernelgen.grading.wire.trace import Trace
from kernelgen.grading.wire.transport import arena_bytes, deposit
from kernelgen.grading.wire.values import copied, tensors_of
from kernelgen.hardware import rates
from kernelgen.hardware.calibration import Calibration


class Oracle:
    """Answers one supervisor."""

    def __init__(self, channel: Channel[Any]) -> None:
        self._channel = channel
        self._handlers: dict[type, Callable[[Any], Any]] = {m.SetUpOracle: self._set_up}
        self._setup: m.SetUpOracle
        self._clock: Clock
        self._batches: Batches
        self._references: dict[int, Reference] = {}
        self._arena: OracleArena
        self._memory: OracleMemory
        self._calls: OracleCalls
        self._baselines: Baselines
        self._probe: Probe

    def serve(self) -> None:
        """Answer until the supervisor is gone."""
        while True:
            try:
                message = self._channel.receive()
            except ChannelClosed:
                return
            fds: tuple[int, ...] = ()
            try:
                answer = self._handlers[type(message)](message)
                encoded = msgspec.Raw(msgspec.json.encode(answer))
                reply: m.Answer | m.Refused = m.Answer(value=encoded)
                if isinstance(answer, m.CaseOpened | m.RunBatch):
                    fds = self._arena.fds
            except Exception as error:  # noqa: BLE001 (the outermost frame: the supervisor must hear of it)
                reply = refusal_of(error, traceback.format_exc())
            self._channel.send(reply, fds)

    def _answered(self) -> dict[type, Callable[[Any], Any]]:
        """Return who answers which message, once there is a device."""
        calls, batches, baselines = self._calls, self._batches, self._baselines
        return {
            m.MeasureCase: lambda one: self._require_room(self._reference(one.case), ever=True),
            m.LintCase: self._lint_case,
            m.OpenCase: self._open_case,
            m.DrawInitialValues: lambda _: calls.reference.initial_digests(),
            m.RedrawParameters: lambda _: calls.redraw_parameters(),
            m.MakeInputs: calls.make_inputs,
            m.Verify: calls.verify,
            m.RepeatInputs: lambda _: calls.repeat_inputs(),
            m.VerifyRepeat: calls.verify_repeat,
            m.VerifyInputs: calls.verify_inputs,
            m.VerifyBuffers: calls.verify_buffers,
            m.TraceReference: lambda _: self._trace_reference(),
            m.CompileBaselines: lambda one: baselines.compile(one, self._reference(0)),
            m.WarmBaselines: self._warm_baselines,
            m.TimeBaseline: lambda one: baselines.time(one.name, calls.reference, calls.inputs),
            m.Rest: lambda _: self._rest(),
            m.MeasureEvents: lambda _: baselines.measure_events(),
            m.MakeBatch: self._make_batch,
            m.RunControl: lambda one: batches.control(one, calls.reference),
            m.OpenGate: lambda _: batches.open_gate(),
            # Outputs that cannot be looked at cannot be verified either, which gives the reason.
            m.SampleBatch: lambda one: unless_forged(lambda: batches.sample(one)) is True,
            m.VerifyBatch: lambda _: batches.verify(calls.reference),
            m.VerifyKept: lambda _: self._verify_kept(),
            m.Probe: lambda _: self._probe.look(),
            m.CheckDevice: lambda _: self._check_device(),
            m.MeasureMemory: lambda _: self._memory.others_bytes(self._arena.total_bytes),
            m.IdentifyDevice: lambda _: rates.identity_of(self._setup.device),
            m.MeasureRates: self._measure_rates,
        }

    def _set_up(self, message: m.SetUpOracle) -> m.OracleReady:
        if message.device == "cuda" and not torch.cuda.is_available():
            raise Judged(Status.NO_DEVICE, "torch finds no CUDA device")
        pin(message.threads)
        seed = bytes.fromhex(message.seed)
        if self._handlers.keys() == {m.SetUpOracle}:
            self._clock = Clock(message.device)
            self._memory = OracleMemory(self._clock)
            self._baselines = Baselines(self._clock, message.threads)
            self._probe = Probe(self._clock)
        self._setup = message
        self._clock.begins_idle = message.manner.launch_overhead
        self._references = {n: r for n, r in self._references.items() if r.begin_again(seed)}
        self._arena = OracleArena(message.device, self._memory.trim)
        self._calls = OracleCalls(message, self._arena, self._memory)
        self._batches = Batches(self._clock, message.tolerance, self._arena)
        self._handlers = {m.SetUpOracle: self._set_up, **self._answered()}
        return ready(self._clock)

    def _reference(self, case: int) -> Reference:
        if case not in self._references:
            self._references[case] = Reference(self._setup.cases[case], self._setup)
        return self._references[case]

    def _warm_baselines(self, message: m.WarmBaselines) -> m.BaselinesReady:
        ready = self._baselines.warm(message.names, self._calls.reference, self._calls.inputs)
        # Other candidates may be timed first: they need what is only cached here.
        self._memory.trim(before_timing=True)
        return ready

    def _rest(self) -> None:
        """Let go of the last candidate's memory; keep what any candidate needs."""
        self._references = {n: r for n, r in self._references.items() if n == 0}
        self._calls.open(None)
        self._batches.close()
        self._let_go_of_memory()

    def _let_go_of_memory(self) -> None:
        """Give back what a candidate that has ended wrote in."""
        self._batches.close_memory()
        self._probe.rest()
        self._arena.close()
        self._memory.trim()

    def _require_room(self, reference: Reference, *, ever: bool = False) -> m.CaseBytes | None:
        """Return the bytes that the case takes, if known; raises Judged if there are too few."""
        footprint = reference.footprint()
        if footprint is None:
            return None
        reason = footprint.refusal(self._setup.device, self._setup.memory_limit_bytes, ever=ever)
        if reason is not None:
            raise Judged(Status.OUT_OF_MEMORY, reason)
        return m.CaseBytes(tensors=footprint.tensors, parameters=footprint.parameters)

    def _lint_case(self, message: m.LintCase) -> m.Linted:
        self._references.clear()
        self._memory.trim()
        reference = self._reference(message.case)
        self._require_room(reference)
        inputs, expected = expect_sound(reference, must_have_elements=message.case == 0)
        trivial = trivial_answers(reference, inputs, expected)
        note = reference.exact.note
        del inputs, expected
        idle, untried = idle_parts(reference, message.limit_s)
        return m.Linted(trivial=trivial, idle=idle, untried=untried, note=note)

    def _open_case(self, message: m.OpenCase) -> m.CaseOpened:
        self._references = {n: r for n, r in self._references.items() if n in (0, message.case)}
        reference = self._reference(message.case)
        self._calls.open(reference)
        self._memory.trim()
        self._require_room(reference)
        inputs, expected = expect_sound(reference, must_have_elements=message.case == 0)
        construction = construction_of(reference)
        # Only the timed case has a limit.
        products = reference.products() if message.case == 0 else Products()
        trivial = trivial_answers(reference, inputs, expected)
        notes = [note for note in (reference.exact.note, products.note) if note]
        notes += [f"{name} would pass too, so that agreement says little" for name in trivial]
        moved_bytes = deposit(inputs, None).total_bytes + sum(one.nbytes for one in expected.ref32)
        room = max(
            arena_bytes(tensors_of(inputs)),
            arena_bytes(tensors_of(construction)),
            arena_bytes(expected.ref32, pack=True),
        )
        del inputs, expected
        # With room for a batch of one call beside it, so that a large case needs no other arena.
        self._arena.at_least(room + MARGIN_BYTES)
        given = deposit(construction, self._arena.present)
        self._memory.wait()
        parameters = deposit(construction[1], None).total_bytes
        return m.CaseOpened(
            construct=m.Construct(
                arena=self._arena.handle(),
                given=given,
                state=reference.described(),
                manner=self._setup.manner,
                gradients=reference.differentiated,
                source=reference.code.without_model() if construction[0] is None else "",
            ),
            minimal_bytes=moved_bytes + parameters,
            flops=products.flops,
            operand_bits=products.operand_bits,
            notes=tuple(notes),
        )

    def _make_batch(self, message: m.MakeBatch) -> m.RunBatch:
        pin(self._setup.threads)
        self._calls.let_go()
        return self._batches.make(message, self._calls.reference, self._calls.output_bytes)

    def _verify_kept(self) -> m.Verified:
        pin(self._setup.threads)
        self._calls.let_go()
        # The exact results need room, beside candidates that are being checked.
        self._let_go_of_memory()
        return self._batches.verify_kept(self._calls.reference)

    def _trace_reference(self) -> Trace:
        model, inputs = self._calls.reference.model, copied(self._calls.inputs)
        tracer = Tracer(self._setup.device)
        tracer.start()
        with torch.no_grad():
            tracer.marked(lambda: model(*inputs))()
        self._memory.wait()
        return tracer.stop()[0]

    def _check_device(self) -> None:
        if float(torch.ones(2, device=self._setup.device).sum()) != 2:  # noqa: PLR2004 (1 + 1)
            raise RuntimeError("CUDA error: device lost: 1 + 1 is not 2")

    def _measure_rates(self, message: m.MeasureRates) -> Calibration | str:
        self._memory.trim(before_timing=True)
        try:
            return measure_quickly(self._setup.device, message.formats)
        finally:
            pin(self._setup.threads)
            self._memory.trim()


def refusal_of(error: Exception, trace: str) -> m.Refused:
    """Return the answer to a message that raised; an unexpected error is told with its trace."""
    if is_device_loss(error):
        reason = (
            f"the GPU failed under the oracle: {in_one_line(error)}\nThis says nothing "
            "about the candidate. Look at `nvidia-smi` and the kernel's log (Xid), "
            "and grade again"
        )
        return m.Refused(status=Status.GRADER_ERROR, reason=reason)
    if isinstance(error, Judged):
        return m.Refused(status=error.status, reason=error.reason)
    if isinstance(error, ProblemFault):
        return m.Refused(status=Status.INVALID_PROBLEM, reason=str(error))
    if is_out_of_memory(error):
        reason = f"the grader itself ran out of memory: {error}"
        return m.Refused(status=Status.OUT_OF_MEMORY, reason=reason)
    return m.Refused(status=Status.GRADER_ERROR, reason=trace)
