"""Running forward under torch's profiler, in the process that it runs in."""

import json
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import msgspec
import torch

# Before any candidate is imported, so that it is this profiler and no other.
from torch.autograd import profiler

from kernelgen.grading.kernels.following import Follower
from kernelgen.grading.kernels.trace_file import FOLLOWED, FORWARD, read_traces
from kernelgen.grading.wire.device_errors import is_device_loss
from kernelgen.grading.wire.trace import MAX_NAME, Trace

# Above every level that kineto writes at: what it prints would end up in the candidate's log.
_SILENT = "7"
ReturnedT = TypeVar("ReturnedT")


class Tracer:
    """Records what runs; an error in here drops the trace and does not affect what is traced.

    Made before a candidate is imported: what a candidate then does to Python's temporary folder
    does not move the trace.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._folder = tempfile.gettempdir()
        self._profile: Any = None
        self._after: torch.Tensor | None = None
        self._missing = ""
        self._cpu_us: list[float] = []
        self._follower: Follower | None = None

    def start(self, *, follows: bool = False) -> None:
        """Begin to record, or to follow calls."""
        self._follower = Follower() if follows else None
        os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
        self._missing, self._cpu_us = "", []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._profile = _profile(self._device)
                self._profile.__enter__()
                if self._device == "cuda":
                    self._after = torch.empty(1, device="cuda")
                    # Something that a working profiler has seen, whatever comes next.
                    self.fence()
                # The first mark in a process takes a while to make: no part of the call.
                profiler.record_function("kernelgen: begin")(lambda: None)()
        except Exception as error:  # noqa: BLE001 (a profiler fails in many ways; none is a verdict)
            self._give_up(error)

    def marked(
        self, function: Callable[[], ReturnedT], inputs: Any = None
    ) -> Callable[[], ReturnedT]:
        """Return the function, marked in the trace while there is one."""
        if self._profile is None:
            return function
        call = partial(self._follower.call, function, inputs) if self._follower else function

        def called() -> ReturnedT:
            begin = process_time()
            try:
                with profiler.record_function(FORWARD):
                    return call()
            finally:
                self._cpu_us.append((process_time() - begin) * 1e6)

        return called

    def fence(self) -> None:
        """Enqueue work of the grader's own, which tells forward's from what comes after it."""
        if self._after is not None:
            self._after.fill_(0)

    def stop(self) -> tuple[Trace, ...]:
        """End recording, once the device has finished; return what ran in each marked call.

        Of calls that were followed, return what was in the last one.
        """
        follower, self._follower = self._follower, None
        profile, self._profile, self._after = self._profile, None, None
        if profile is None:
            return (Trace(missing=self._missing),)
        try:
            within = FOLLOWED if follower else None
            traces = read_traces(_ended(profile, self._folder), self._device, within)
            if follower:
                told = {"by_torch": follower.by_torch, "missing": follower.missing}
                return (msgspec.structs.replace(traces[-1], **told),)
            pairs = zip(traces, self._cpu_us, strict=True)
            return tuple(msgspec.structs.replace(trace, cpu_us=us) for trace, us in pairs)
        except Exception as error:  # noqa: BLE001 (a profiler fails in many ways; none is a verdict)
            self._give_up(error)
            return (Trace(missing=self._missing),)

    def _give_up(self, error: Exception) -> None:
        self._profile = None
        self._missing = f"{type(error).__name__}: {error}"[:MAX_NAME]


def busy_us_of(
    function: Callable[[], Any], run: Callable[[Callable[[], Any]], object], calls: int
) -> tuple[float, ...]:
    """Return how long each call keeps the GPU busy, by CUPTI's time stamps; () where none tell.

    All are in one recording. `run` calls the function once, and waits for the device.
    """
    tracer = Tracer("cuda")
    tracer.start()
    marked = tracer.marked(function)
    try:
        for _ in range(calls):
            run(marked)
    except Exception as error:
        if is_device_loss(error):
            raise
        return ()
    finally:
        traces = tracer.stop()
    found = tuple(trace.busy_us for trace in traces)
    return found if all(found) else ()


def _ended(profile: Any, within: str) -> Any:
    """End recording and return the trace file's JSON, which is written in a new folder `within`."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=within) as folder:
        warnings.simplefilter("ignore")
        profile.__exit__(None, None, None)
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        return json.loads(file.read_text(encoding="utf-8", errors="replace"))


def _profile(device: str) -> Any:
    if device == "cuda":
        return profiler.profile(use_device="cuda", use_kineto=True, record_shapes=True)
    from torch._C._profiler import _ExperimentalConfig

    # Operators that the candidate calls in threads of its own are the library's work as well.
    everywhere = _ExperimentalConfig(profile_all_threads=True)
    return profiler.profile(use_kineto=True, record_shapes=True, experimental_config=everywhere)
