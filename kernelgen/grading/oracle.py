"""The oracle: the trusted process that holds the reference, the inputs and the expected outputs.

It never imports candidate code and shares no address space with it. Started by the fork server
(forkserver.py), it answers the supervisor's messages one at a time.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kernelgen.grading import messages as m
from kernelgen.grading.baselines import Baselines
from kernelgen.grading.channel import Channel, ChannelClosed
from kernelgen.grading.clock import Clock
from kernelgen.grading.correctness import Expected, compare
from kernelgen.grading.device_loss import refusal_of
from kernelgen.grading.effective_precision import with_precision
from kernelgen.grading.environment import describe_device, device_uuid
from kernelgen.grading.fault import ProblemFault
from kernelgen.grading.flops import Products
from kernelgen.grading.form import form_problem
from kernelgen.grading.oracle_arena import OracleArena
from kernelgen.grading.oracle_batches import MARGIN_BYTES, Batches
from kernelgen.grading.oracle_rates import identify, measure_quickly
from kernelgen.grading.precision import pin
from kernelgen.grading.reference import Reference, construction_of
from kernelgen.grading.repetition import FirstResult, compare_again, keep
from kernelgen.grading.soundness import require_sound
from kernelgen.grading.tracing import Tracer
from kernelgen.grading.transport import (
    aligned,
    arena_bytes,
    deposit,
    fetch,
    packed_bytes,
    same_bytes,
    span,
)
from kernelgen.grading.tree import TensorSpec
from kernelgen.grading.triviality import idle_parts, trivial_answers
from kernelgen.grading.values import copied, tensors_of
from kernelgen.grading.verdict import Status

WorkT = TypeVar("WorkT")

# Below this share of the device's memory, what torch has cached here goes back.
_SHARE_LEFT_FREE = 0.4


class Oracle:
    """Answers one supervisor.

    Args:
        channel: to the supervisor.
    """

    def __init__(self, channel: Channel[Any]) -> None:
        self._channel = channel
        self._setup: m.SetUpOracle
        self._clock: Clock
        self._batches: Batches
        self._references: dict[int, Reference] = {}
        self._open: Reference | None = None
        self._arena: OracleArena
        self._baselines: Baselines
        self._inputs: list[Any] = []
        self._expected: Expected | None = None
        self._first: FirstResult | None = None
        self._checked_calls = 0

    def serve(self) -> None:
        """Answer until the supervisor is gone."""
        handlers: dict[type, Any] = {
            m.SetUpOracle: self._set_up,
            m.MeasureCase: self._measure_case,
            m.WarmBaselines: self._warm_baselines,
            m.LintCase: self._lint_case,
            m.OpenCase: self._open_case,
            m.MakeInputs: self._make_inputs,
            m.Verify: self._verify,
            m.RepeatInputs: self._repeat_inputs,
            m.VerifyRepeat: self._verify_repeat,
            m.VerifyInputs: self._verify_inputs,
            m.TraceReference: self._trace_reference,
            m.TimeBaseline: self._time_baseline,
            m.MakeBatch: self._make_batch,
            m.RunControl: self._run_control,
            m.SampleBatch: self._sample_batch,
            m.VerifyBatch: self._verify_batch,
            m.OpenGate: lambda _: self._batches.open_gate(),
            m.StartCompiler: lambda _: self._baselines.start_compiler(),
            m.MeasureEvents: lambda _: self._baselines.measure_events(),
            m.SpanBaseline: self._span_baseline,
            m.Probe: lambda _: self._batches.probe(),
            m.CheckDevice: self._check_device,
            m.MeasureMemory: self._measure_memory,
            m.IdentifyDevice: lambda _: identify(self._setup.device),
            m.MeasureRates: self._measure_rates,
        }
        while True:
            try:
                message = self._channel.receive()
            except ChannelClosed:
                return
            fds: tuple[int, ...] = ()
            try:
                reply = handlers[type(message)](message)
                if isinstance(reply, m.CaseOpened | m.BatchMade):
                    fds = self._arena.fds
            except Exception as error:  # noqa: BLE001 (the outermost frame: the supervisor must hear of it)
                reply = refusal_of(error, traceback.format_exc())
            self._channel.send(reply, fds)

    def _set_up(self, message: m.SetUpOracle) -> m.OracleReady | m.Refused:
        if message.device == "cuda" and not torch.cuda.is_available():
            return m.Refused(status=Status.NO_DEVICE, reason="torch finds no CUDA device")
        self._setup = message
        pin(message.threads)
        self._clock = Clock(message.device)
        self._arena = OracleArena(message.device, self._trim)
        self._baselines = Baselines(self._clock, message.threads)
        self._batches = Batches(message.device, message.tolerance, self._arena.at_least)
        name, environment = describe_device(message.device)
        method = self._clock.method()
        return m.OracleReady(
            device_name=name,
            device_uuid=device_uuid(message.device),
            environment=environment,
            method=method,
        )

    def _reference(self, case: int) -> Reference:
        if case not in self._references:
            source = self._setup.cases[case]
            self._references[case] = Reference(
                name=source.name,
                source=source.source,
                device=self._setup.device,
                seed=bytes.fromhex(self._setup.seed),
                batch_independent=self._setup.batch_independent,
            )
        return self._references[case]

    def _warm_baselines(self, message: m.WarmBaselines) -> m.BaselinesReady:
        assert self._open is not None
        ready = self._baselines.warm(message.names, self._open, self._inputs)
        self._leave_room()
        return ready

    def _refuse_if_too_large(self, reference: Reference) -> m.Refused | None:
        footprint = reference.footprint()
        if footprint is None:
            return None
        reason = footprint.refusal(self._setup.device, self._setup.memory_limit_bytes)
        return m.Refused(status=Status.OUT_OF_MEMORY, reason=reason) if reason else None

    def _measure_case(self, message: m.MeasureCase) -> m.Fits | m.Refused:
        return self._refuse_if_too_large(self._reference(message.case)) or m.Fits()

    def _lint_case(self, message: m.LintCase) -> m.Linted | m.Refused:
        self._references.clear()
        self._trim()
        reference = self._reference(message.case)
        refused = self._refuse_if_too_large(reference)
        if refused is not None:
            return refused
        inputs, expected = reference.expect(0)
        require_sound(reference, expected, must_have_elements=message.case == 0)
        tolerance = self._setup.tolerance
        findings = [f"{name} passes" for name in trivial_answers(inputs, expected, tolerance)]
        del inputs
        findings += [f"{part} makes no difference" for part in idle_parts(reference, tolerance)]
        if reference.exact.note:
            findings.append(reference.exact.note)
        return m.Linted(findings=tuple(findings), exact=expected.exact)

    def _open_case(self, message: m.OpenCase) -> m.CaseOpened | m.Refused:
        self._references = {n: r for n, r in self._references.items() if n in (0, message.case)}
        reference = self._reference(message.case)
        self._open, self._expected, self._inputs = reference, None, []
        self._checked_calls = 0
        self._trim()
        refused = self._refuse_if_too_large(reference)
        if refused is not None:
            return refused
        inputs, expected = reference.expect(0)
        require_sound(reference, expected, must_have_elements=message.case == 0)
        construction = construction_of(reference)
        # Only the timed case has a limit.
        products = reference.products() if message.case == 0 else Products()
        notes = [note for note in (reference.exact.note, products.note) if note]
        notes += [
            f"{name} would pass too, so that agreement says little"
            for name in trivial_answers(inputs, expected, self._setup.tolerance)
        ]
        moved_bytes = deposit(inputs, None).total_bytes + packed_bytes(expected.ref32)
        room = max(
            arena_bytes(tensors_of(inputs)),
            arena_bytes(tensors_of(construction)),
            sum(aligned(packed_bytes([tensor])) for tensor in expected.ref32),
        )
        del inputs, expected
        # With room for a batch of one call beside it, so that a large case needs no other arena.
        self._arena.at_least(room + MARGIN_BYTES)
        given = deposit(construction, self._arena.present)
        self._finish_copies()
        parameters = deposit(construction[1], None).total_bytes
        return m.CaseOpened(
            arena=self._arena.handle(),
            given=given,
            parameter_names=tuple(name for name, _ in reference.state()),
            parameter_ranks=reference.definition_ranks(),
            minimal_bytes=moved_bytes + parameters,
            flops=products.flops,
            operand_bits=products.operand_bits,
            notes=tuple(notes),
        )

    def _make_inputs(self, message: m.MakeInputs) -> m.InputsMade:
        assert self._open is not None
        self._arena.close_retired()
        self._expected, self._inputs, self._first = None, [], None
        pin(self._setup.threads)
        self._inputs, self._expected = self._open.expect(message.call + 1)
        sent = deposit(self._inputs, self._arena.present)
        room = sum(aligned(packed_bytes([tensor])) for tensor in self._expected.ref32)
        unsent = any(spec.offset < 0 for spec in sent.specs if spec.nbytes)
        if unsent or room > self._arena.present.capacity_bytes:
            raise ProblemFault("the sizes of the inputs or outputs vary from call to call")
        self._finish_copies()
        self._leave_room()
        return m.InputsMade(inputs=sent)

    def _repeat_inputs(self, message: m.RepeatInputs) -> m.InputsMade:
        del message
        sent = deposit(self._inputs, self._arena.present)
        self._finish_copies()
        self._leave_room()
        return m.InputsMade(inputs=sent)

    def _verify_repeat(self, message: m.VerifyRepeat) -> m.Repeated:
        assert self._expected is not None
        assert self._first is not None
        outputs = self._fetched(message.outputs)
        if isinstance(outputs, m.Verified):
            return m.Repeated(identical=False, max_diff=None, found=outputs)
        first, self._first = self._first, None
        repeated = compare_again(outputs, first, self._expected, self._setup.tolerance)
        del outputs, first
        self._leave_room()
        return repeated

    def _fetched(self, sent: m.Tensors) -> list[torch.Tensor] | m.Verified:
        """Return private copies of a candidate's outputs, or what is wrong with their form."""
        assert self._expected is not None
        expected, arena = self._expected, self._arena.present
        wrong_form = _unless_forged(lambda: form_problem(sent, expected.described))
        if wrong_form is not None:
            return wrong_form
        outputs = _unless_forged(
            lambda: [fetch(spec, arena, self._setup.device) for spec in sent.specs]
        )
        if isinstance(outputs, m.Verified):
            return outputs
        self._finish_copies()
        return outputs

    def _verify(self, message: m.Verify) -> m.Verified:
        assert self._expected is not None
        outputs = self._fetched(message.outputs)
        if isinstance(outputs, m.Verified):
            return outputs
        self._checked_calls += 1
        full = self._checked_calls == 1
        self._first = keep(outputs, self._setup.device) if full else None
        found = compare(outputs, self._expected, self._setup.tolerance, full=full)
        if not full and found.status is Status.PASSED:
            return found
        assert self._open is not None
        return with_precision(found, self._open, self._inputs, self._expected, outputs)

    def _verify_inputs(self, message: m.VerifyInputs) -> m.InputsVerified:
        assert self._open is not None
        if self._open.mutates_inputs:
            return m.InputsVerified(changed=())
        mine = tensors_of(self._inputs)
        if len(message.inputs.specs) != len(mine):
            return m.InputsVerified(changed=("a container among its inputs",))
        pairs = zip(message.inputs.specs, mine, strict=True)
        changed = [
            f"inputs[{n}]" for n, (spec, own) in enumerate(pairs) if not self._same(spec, own)
        ]
        return m.InputsVerified(changed=tuple(changed))

    def _same(self, spec: TensorSpec, own: torch.Tensor) -> bool:
        form = (spec.shape, spec.stride, spec.dtype)
        if form != (tuple(own.shape), tuple(own.stride()), str(own.dtype).removeprefix("torch.")):
            return False
        try:
            back = fetch(spec, self._arena.present, self._setup.device)
        except ValueError:
            return False
        self._finish_copies()
        return same_bytes(span(back), span(own))

    def _make_batch(self, message: m.MakeBatch) -> m.BatchMade:
        assert self._open is not None
        assert self._expected is not None
        pin(self._setup.threads)
        self._inputs = []
        self._batches.make(message, self._open, self._expected)
        return self._batches.made(self._arena.handle(), withheld=message.withheld)

    def _run_control(self, message: m.RunControl) -> m.ControlRan:
        assert self._open is not None
        return self._batches.control(message, self._open)

    def _sample_batch(self, message: m.SampleBatch) -> m.Sampled:
        sampled = _unless_forged(lambda: self._batches.sample(message))
        # What cannot be looked at cannot be verified either, and that is where the reason is given.
        return sampled if isinstance(sampled, m.Sampled) else m.Sampled(at_once=False)

    def _verify_batch(self, message: m.VerifyBatch) -> m.Verified:
        del message
        reference = self._open
        assert reference is not None
        return _unless_forged(lambda: self._batches.verify(reference))

    def _trace_reference(self, message: m.TraceReference) -> m.ReferenceTraced:
        del message
        assert self._open is not None
        model, inputs = self._open.model, copied(self._inputs)
        tracer = Tracer(self._setup.device)
        with torch.no_grad():
            tracer.begin(lambda: model(*inputs))()
        self._finish_copies()
        return m.ReferenceTraced(trace=tracer.stop())

    def _time_baseline(self, message: m.TimeBaseline) -> m.BaselineTimed:
        assert self._open is not None
        return self._baselines.time(message.name, self._open, self._inputs)

    def _span_baseline(self, message: m.SpanBaseline) -> m.Spans:
        assert self._open is not None
        return self._baselines.spans(message, self._open, self._inputs)

    def _check_device(self, message: m.CheckDevice) -> m.DeviceWorks:
        del message
        if float(torch.ones(2, device=self._setup.device).sum()) != 2:  # noqa: PLR2004 (1 + 1)
            raise RuntimeError("CUDA error: device lost: 1 + 1 is not 2")
        return m.DeviceWorks()

    def _measure_memory(self, message: m.MeasureMemory) -> m.MemoryMeasured:
        del message
        if self._setup.device != "cuda":
            return m.MemoryMeasured(others_bytes=0)
        free, total = torch.cuda.mem_get_info()
        own = torch.cuda.memory_reserved() + self._arena.total_bytes
        return m.MemoryMeasured(others_bytes=total - free - own)

    def _measure_rates(self, message: m.MeasureRates) -> m.RatesMeasured:
        self._trim()
        try:
            return measure_quickly(self._setup.device, message.formats)
        finally:
            pin(self._setup.threads)
            self._trim()

    def _finish_copies(self) -> None:
        if self._setup.device == "cuda":
            torch.cuda.synchronize()

    def _leave_room(self) -> None:
        """Give cached memory back where the candidate, in its own process, may need it."""
        if self._setup.device == "cuda":
            free, total = torch.cuda.mem_get_info()
            if free < _SHARE_LEFT_FREE * total:
                self._trim()

    def _trim(self) -> None:
        if self._setup.device == "cuda":
            torch.cuda.empty_cache()


def _unless_forged(work: Callable[[], WorkT]) -> WorkT | m.Verified:
    """Do what rests on a description of the candidate's; a forged one ends as TAMPERED."""
    try:
        return work()
    except (ValueError, TypeError, RecursionError) as error:
        # What a forged description leads to, and no more: a lost GPU, or a lack of memory, is not
        # the candidate's.
        reason = f"the outputs are described impossibly: {type(error).__name__}: {error}"
        return m.Verified(status=Status.TAMPERED, reason=reason)


def serve(channel: Channel[Any]) -> None:
    """Run the oracle on a channel until the supervisor is gone."""
    Oracle(channel).serve()
