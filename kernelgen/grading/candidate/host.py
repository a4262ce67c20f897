"""The candidate host: the untrusted process in which ModelNew is imported, constructed and called.

It holds the candidate's own copies of inputs and parameters, and nothing that decides: no expected
output, no seed, no verdict. What it reports about values is worth nothing until the oracle has
verified the bytes. Started by the fork server, one a candidate.
"""

import functools
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any

import torch

from kernelgen.build.capture_host import capture
from kernelgen.build.torch_build import Ready, settle_builds, shorten_builds
from kernelgen.grading.candidate.failure import describe_failure
from kernelgen.grading.candidate.parameters import Recipients, give, named_alike
from kernelgen.grading.kernels.tracing import Tracer
from kernelgen.grading.precision import narrow, pin, read_pins
from kernelgen.grading.timing.batch import BatchRun
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import Arena, Places, open_arena
from kernelgen.grading.wire.channel import Channel, ChannelClosed
from kernelgen.grading.wire.generators import SEED_OF_IMPORTS, set_generators
from kernelgen.grading.wire.gradients import Gradient, with_gradients
from kernelgen.grading.wire.module_state import initial_values, move, recorded_definitions
from kernelgen.grading.wire.transport import (
    ALIGNMENT_BYTES,
    Incoming,
    deposit,
    receive,
    same_bytes,
    span,
    span_bytes,
    withdraw,
)
from kernelgen.grading.wire.tree import Opaque, leaves
from kernelgen.grading.wire.values import tensors_of
from kernelgen.solution.importing import import_file, run_text

_MODULE_NAME = "candidate"
_MAX_PADDING = 64


class Host:
    """Runs one candidate for one supervisor; `scratch` takes its file and whatever it builds."""

    def __init__(self, channel: Channel[Any], scratch: Path) -> None:
        self._channel, self._scratch = channel, scratch
        self._path = scratch / "candidate.py"
        self._phase = "import"
        self._device = "cpu"
        self._threads = 1
        self._default_dtype = "float32"
        self._module: ModuleType
        self._model: Any = None
        self._recipients: Recipients | None = None
        # Holds the reference's values, until they are where they belong.
        self._rematch: Callable[[tuple[str, ...]], tuple[Recipients, m.ParametersGiven]] | None
        self._arena: Arena
        self._generation = 0
        self._inputs: list[Any] = []
        self._incoming: Incoming | None = None
        self._clock: Clock
        self._batch: BatchRun | None = None
        self._tracer: Tracer
        # Not a secret: only there so that equal sizes do not mean equal addresses.
        self._paddings = random.Random(os.getpid())  # noqa: S311

    def serve(self) -> None:
        """Answer until the supervisor is gone."""
        handlers: dict[type, Any] = {
            m.TellRecipes: lambda one: m.RecipesTold(reply=capture(one.request)),
            m.BuildCandidate: self._build,
            m.Construct: self._construct,
            m.MatchParameters: self._match_parameters,
            m.ChangeParameters: self._change_parameters,
            m.BeginTrace: self._begin_trace,
            m.EndTrace: lambda _: m.Traced(traces=self._tracer.stop()),
            m.Call: self._call,
            m.ReturnInputs: lambda _: self._return_inputs(),
            m.ReturnBuffers: self._return_buffers,
            m.RunBatch: self._run_batch,
            m.AwaitBatch: lambda _: self._await_batch(),
        }
        while True:
            try:
                message = self._channel.receive()
            except ChannelClosed:
                return
            try:
                reply = handlers[type(message)](message)
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the outermost frame)
                reply = self._failure(error)
            self._answer(reply)

    def _failure(self, error: BaseException) -> m.CandidateFailed:
        return describe_failure(error, self._phase, self._path, self._scratch)

    def _answer(self, reply: m.Message) -> None:
        """Send an answer, or what is wrong with it if it is none that can be sent."""
        try:
            self._channel.send(reply)
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001 (what a candidate returns may break any encoder)
            self._channel.send(self._failure(error))

    def _build(self, message: m.BuildCandidate) -> m.CandidateBuilt:
        self._phase = "import"
        self._device, self._threads = message.device, message.threads
        # Python imports a file by its ending.
        name = message.file_name if message.file_name.endswith(".py") else f"{message.file_name}.py"
        self._path = self._scratch / name
        self._path.write_text(message.text, encoding="utf-8")
        self._clock, self._tracer = Clock(message.device), Tracer(message.device)
        pin(message.threads)
        if message.device == "cuda":
            # Now, so that the candidate cannot choose another device by an environment variable.
            torch.empty(1, device="cuda")
        if "cpp_extension" in message.text:
            self._shorten_builds(message.ready)
        set_generators(SEED_OF_IMPORTS)
        start = perf_counter()
        self._module = import_file(_MODULE_NAME, self._path, lent=message.lent)
        return m.CandidateBuilt(seconds=perf_counter() - start)

    def _shorten_builds(self, ready: Ready) -> None:
        on_gpu = self._device == "cuda"
        settle_builds(torch.cuda.get_device_capability() if on_gpu else None)
        # Not before: it asks CUDA for a GPU, which no process may do that forks others.
        from torch.utils import cpp_extension

        shorten_builds(cpp_extension, ready)

    def _construct(self, message: m.Construct) -> m.Constructed:
        self._phase = "construct"
        self._let_go()
        self._model, self._recipients, self._rematch = None, None, None
        self._open_arena(message.arena)
        construction: Any = withdraw(message.given, self._arena, self._device)
        arguments, values = construction
        self._default_dtype = message.state.default_dtype
        pin(self._threads, self._default_dtype)
        set_generators(message.state.seed)
        if arguments is None:
            with torch.device(self._device):
                lender = run_text("kernelgen_lender", message.source, "<reference>")
                arguments = list(lender.get_init_inputs())
            set_generators(message.state.seed)
        start = perf_counter()
        with recorded_definitions() as definitions:
            model = self._module.ModelNew(*arguments)
        if not isinstance(model, torch.nn.Module):
            raise TypeError("ModelNew(...) is not a torch.nn.Module")
        state = message.state
        renamed = not named_alike(model, values, state.names)
        drawn = initial_values(model) if renamed else {}
        move(model, self._device, only=state.names)
        narrow(model, message.manner.precision)
        self._model = model
        if message.manner.eval_mode:
            self._model.eval()
        seconds = perf_counter() - start
        self._recipients, given = give(self._model, values, state, definitions)
        if message.gradients is not None:
            with_gradients(self._model, functools.partial(self._gradients, message.gradients))
        self._clock.begins_idle = message.manner.launch_overhead
        self._clock.wait()
        if renamed:
            self._rematch = lambda initial: give(
                self._model, values, state, definitions, (drawn, initial)
            )
        return m.Constructed(seconds=seconds, parameters=given, renamed=renamed)

    def _gradients(
        self, names: tuple[str, ...], model: torch.nn.Module, gradient: Gradient
    ) -> dict[str, torch.Tensor]:
        assert self._recipients is not None
        return self._recipients.gradients(model, gradient, names)

    def _match_parameters(self, message: m.MatchParameters) -> m.Matched:
        assert self._rematch is not None
        self._recipients, given = self._rematch(message.initial)
        self._rematch = None
        self._clock.wait()
        return m.Matched(parameters=given)

    def _change_parameters(self, message: m.ChangeParameters) -> m.ParametersChanged:
        assert self._recipients is not None
        self._phase = "call"
        self._let_go()
        values: Any = withdraw(message.values, self._arena, self._device)
        self._recipients.fill(values)
        del values
        self._clock.wait()
        return m.ParametersChanged()

    def _open_arena(self, handle: m.ArenaHandle) -> None:
        fds = self._channel.take_fds()
        if handle.generation != self._generation:
            if self._generation:
                self._arena.close()
            self._arena = open_arena(handle, fds)
            self._generation = handle.generation
        for fd in fds:
            os.close(fd)

    def _call(self, message: m.Call) -> m.Called:
        self._phase = "call"
        incoming = self._receive(message)
        self._incoming, self._inputs, self._batch = incoming, incoming.value, None
        if message.timed and self._recipients is not None:
            self._recipients.count_a_change()
        pin(self._threads, self._default_dtype)
        pinned = read_pins()
        if message.seed is not None:
            set_generators(message.seed)
        forward = self._tracer.marked(self._forward, self._inputs)
        timed = self._clock.call(forward, incoming.feed, measured=message.timed)
        self._tracer.fence()
        # Before any synchronisation, on the stream that is current at return: what is not finished
        # there is not in the copy.
        self._phase = "result"
        sent = deposit(timed.result, self._arena, pack=True, inputs=incoming.memory)
        elapsed_ms = timed.finish()
        settled = self._is_settled(timed.result, sent)
        return m.Called(
            outputs=sent,
            elapsed_ms=elapsed_ms,
            host_ms=timed.host_ms,
            settled=settled,
            pinned=pinned,
            pins=read_pins(),
        )

    def _receive(self, message: m.Call) -> Incoming:
        last = self._incoming
        self._let_go()
        if message.over_the_last and last is not None:
            again = last.again(message.inputs, self._arena)
            if again is not None:
                return again
        del last  # before there is new memory
        steps = [
            self._paddings.randrange(_MAX_PADDING) * ALIGNMENT_BYTES for _ in message.inputs.specs
        ]
        on_gpu = self._device == "cuda"
        return receive(message.inputs, self._arena, self._device, steps, poison=on_gpu)

    def _let_go(self) -> None:
        self._incoming, self._inputs, self._batch = None, [], None

    def _is_settled(self, result: Any, sent: m.Tensors) -> bool:
        """Whether the outputs, with the device at rest, are still what was copied at return."""
        # Something that is no plain value is wrong anyway, and may have no end.
        if any(isinstance(leaf, Opaque) for _, leaf in leaves(sent.tree)):
            return True
        tensors = tensors_of(result)
        if len(tensors) != len(sent.specs):
            return True
        for tensor, spec in zip(tensors, sent.specs, strict=True):
            as_sent = span_bytes(tensor) == spec.nbytes and not tensor.is_neg()
            if spec.offset < 0 or not spec.nbytes or not as_sent:
                continue
            if not same_bytes(span(tensor), self._arena.view(spec.offset, spec.nbytes)):
                return False
        return True

    def _run_batch(self, message: m.RunBatch) -> m.BatchRan:
        self._phase = "call"
        self._let_go()
        self._open_arena(message.arena)
        places = self._places if message.in_place else None
        self._batch = BatchRun(
            self._model, self._arena, message.outputs_at, places, self._clock.wait
        )
        return self._tracer.marked(functools.partial(self._run, self._batch, message))()

    def _run(self, batch: BatchRun, message: m.RunBatch) -> m.BatchRan:
        enqueued = batch.enqueue(message.inputs, message.seeds, gated=message.gated)
        return enqueued if message.gated else batch.finish(enqueued)

    def _begin_trace(self, message: m.BeginTrace) -> m.TraceBegun:
        self._tracer.start(follows=message.follows)
        return m.TraceBegun()

    @functools.cached_property
    def _places(self) -> Places:
        return Places(self._device)

    def _await_batch(self) -> m.BatchDone:
        assert self._batch is not None
        self._batch.wait()
        return m.BatchDone()

    def _forward(self) -> Any:
        with torch.no_grad():
            return self._model(*self._inputs)

    def _return_inputs(self) -> m.InputsReturned:
        self._phase = "result"
        sent = deposit(self._inputs, self._arena)
        self._clock.wait()
        return m.InputsReturned(inputs=sent)

    def _return_buffers(self, message: m.ReturnBuffers) -> m.BuffersReturned:
        assert self._recipients is not None
        self._phase = "result"
        held = self._recipients.held(self._model, message.numbers)
        sent = deposit(list(held.values()), self._arena, pack=True)
        self._clock.wait()
        return m.BuffersReturned(numbers=tuple(held), buffers=sent)


def serve(channel: Channel[Any], scratch: Path) -> None:
    """Run the host on a channel until the supervisor is gone."""
    # A contained process lacks what NVML needs. Torch does without it, and would say so in every
    # candidate's log.
    warnings.filterwarnings("ignore", message="Can't initialize NVML")
    Host(channel, scratch).serve()
