"""The baselines: the reference as written, and under torch.compile, timed like a candidate."""

import contextlib
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest import mock

import torch

from kernelgen.errors import in_one_line
from kernelgen.grading.kernels.tracing import busy_us_of
from kernelgen.grading.launch import on_cores
from kernelgen.grading.options import BASELINES
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.precision import as_torch_starts, in_words, pin, read_pins
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import ProblemFault
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.device_errors import is_device_loss
from kernelgen.grading.wire.transport import span
from kernelgen.grading.wire.values import copied, tensors_of
from kernelgen.problem.record import Precision

_AS_TORCH_STARTS = "torch's own settings: TF32 in cuDNN, not in matrix products"
_EAGER = "the reference as written"
_COMPILED = "the reference under torch.compile"
_EVENT_CALLS = 20
_PIECE_BYTES = 256 << 20


class Baselines:
    """Times a reference in its own process, under the same pins as a candidate."""

    def __init__(self, clock: Clock, threads: int) -> None:
        self._clock, self._threads = clock, threads
        self._reference: Reference | None = None
        self._compiled: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def warm(
        self, names: tuple[str, ...], reference: Reference, inputs: list[Any]
    ) -> m.BaselinesReady:
        """Run each named one once; say which can be timed, and why others cannot.

        What was compiled, or has failed, for the same reference is not compiled again.
        """
        if reference is not self._reference:
            self._reference, self._compiled, self._failed = reference, {}, {}
        for name in names:
            why = self._failed.get(name) or self._warm(name, reference, inputs)
            if why is not None:
                self._failed[name] = why
        failed = {name: self._failed[name] for name in names if name in self._failed}
        ready = {
            name: what(name, reference.code.manner.precision)
            for name in names
            if name not in failed
        }
        return m.BaselinesReady(ready=ready, failed=failed)

    def compile(self, message: m.CompileBaselines, reference: Reference) -> None:
        """Fill the compiler's caches, without data; `warm` finds there what it compiles.

        What measures while it compiles has to have the device for itself, and is left out: a mode,
        and on cores aside, where nobody stops it, also a product that may be quicker if padded.
        """
        for name in message.names:
            if BASELINES[name].mode != "default":
                continue
            # A failure without data may not come with data, and else comes where it is judged.
            aside = _measuring_nothing(message.cores)
            with self._settings(name), contextlib.suppress(Exception), aside:
                reference.code.on_no_data(_compile, on_device=True)

    def _warm(self, name: str, reference: Reference, inputs: list[Any]) -> str | None:
        try:
            mode = BASELINES[name].mode
            if mode is not None and name not in self._compiled:
                self._compiled[name] = torch.compile(reference.model, mode=mode)
            self.time(name, reference, inputs)
        except (torch.OutOfMemoryError, ProblemFault):
            raise
        except Exception as error:
            if is_device_loss(error):
                raise
            return in_one_line(error)
        return None

    def time(self, name: str, reference: Reference, inputs: list[Any]) -> m.BaselineTimed:
        """Run one once.

        Raises:
            ProblemFault: the reference has changed the precision settings.
        """
        given = copied(inputs) if reference.mutates_inputs else inputs
        function, clock = self._compiled.get(name, reference.model), self._clock
        with self._settings(name), torch.no_grad():
            # A candidate's inputs are written right before its call. So are these, for what a
            # device remembers of their pages to be the same.
            call = clock.call(lambda: function(*given), lambda: _write_again(given), subject=name)
            elapsed_ms = call.finish()
        return m.BaselineTimed(elapsed_ms=elapsed_ms, host_ms=call.host_ms)

    def measure_events(self) -> float | None:
        """Time one short kernel by events and by CUPTI; return what the events add, in us."""
        one, other = (torch.ones(1 << 10, device="cuda") for _ in range(2))

        def function() -> Any:
            return torch.add(one, other, out=one)

        def run(called: Callable[[], Any]) -> float:
            return self._clock.call(called, subject="one short kernel").finish()

        by_events_ms = [run(function) for _ in range(_EVENT_CALLS)]
        busy_us = busy_us_of(function, run, _EVENT_CALLS)
        return max(0.0, median(by_events_ms) * 1e3 - median(busy_us)) if busy_us else None

    @contextlib.contextmanager
    def _settings(self, name: str) -> Iterator[None]:
        pinned = BASELINES[name].pinned
        if not pinned:
            as_torch_starts()
        before = read_pins()
        try:
            yield
            if (after := read_pins()) != before:
                raise ProblemFault(
                    f"the reference changed the precision settings: {after}; leave them alone"
                )
        finally:
            if not pinned:
                pin(self._threads, str(before["default_dtype"]))


@contextlib.contextmanager
def _measuring_nothing(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep to these cores, if it is any, and fail where a compiler wants to time a kernel."""
    if not cores:
        yield
        return
    from torch._inductor.runtime.benchmarking import benchmarker

    refuse = mock.Mock(side_effect=RuntimeError("others are timed on the device"))
    with on_cores(cores), mock.patch.object(benchmarker, "benchmark_gpu", refuse):
        yield


def _compile(model: torch.nn.Module, inputs: list[Any]) -> None:
    def backend(graph: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
        torch._inductor.compile(graph, given)  # noqa: SLF001 (torch's documented name of it)
        return graph.forward  # which tells the shapes of what comes after it

    torch.compile(model, backend=backend)(*inputs)


def _write_again(given: list[Any]) -> None:
    """Write every input's bytes over themselves."""
    for tensor in tensors_of(given):
        memory = span(tensor)
        for start in range(0, memory.numel(), _PIECE_BYTES):
            piece = memory[start : start + _PIECE_BYTES]
            piece.copy_(piece.clone())


def what(name: str, precision: Precision) -> str:
    """Say what a baseline is, with the flags that change its time."""
    baseline = BASELINES[name]
    how = _EAGER if baseline.mode is None else f"{_COMPILED}, mode {baseline.mode}"
    return f"{how}; {in_words(precision) if baseline.pinned else _AS_TORCH_STARTS}"
