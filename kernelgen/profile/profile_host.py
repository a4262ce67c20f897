"""The process that runs the solution: once without ncu, to learn the facts, then under it.

Its arguments are `rehearse` or `profile`, and a folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from kernelgen.grading.tools.one_call import OneCall
from kernelgen.profile.record import Facts

FACTS = "facts.json"
FAILED = "failed.json"
# Enough calls that the wait for the last one is a small part, in a time that nobody notices.
_CALLS_MS = 300.0
_LEAST_CALLS, _MOST_CALLS = 3, 50


def rehearse(call: OneCall, folder: Path) -> None:
    """Build, call, and leave the facts in the folder."""
    call.load()
    result = call.run()
    written = _bytes_of(result)
    del result
    forward_ms = _time(call)
    call.phase = "reference"
    read = _bytes_read(call)
    device, sm_count = _device(call.device)
    facts = Facts(
        device=device,
        sm_count=sm_count,
        minimal_read_bytes=read,
        minimal_written_bytes=written,
        forward_ms=forward_ms,
    )
    (folder / FACTS).write_bytes(msgspec.json.encode(facts))


def profile(call: OneCall) -> None:
    """Call once as before, and once more between the marks that ncu waits for."""
    import torch

    call.load()
    # What a first call does besides is not what later calls cost: builds, handles, allocations.
    call.run()
    if call.device != "cuda":
        call.run()
        return
    with torch.cuda.profiler.profile():
        call.run()


def _time(call: OneCall) -> float:
    """Return the wall time of a call among calls in a row, in ms."""
    start = perf_counter()
    call.run()
    one_ms = (perf_counter() - start) * 1e3
    count = max(_LEAST_CALLS, min(_MOST_CALLS, int(_CALLS_MS / max(one_ms, 1e-3))))
    start = perf_counter()
    for _ in range(count):
        call.start()
    call.wait()
    return (perf_counter() - start) * 1e3 / count


def _bytes_read(call: OneCall) -> int:
    """Return the bytes of the inputs and of the reference's parameters and buffers."""
    import torch

    with torch.device(call.device):
        model = call.reference.Model(*call.arguments).to(call.device)
    return _bytes_of([call.given, dict(model.state_dict())])


def _bytes_of(value: Any) -> int:
    """Return the bytes of all tensors in a value, each once though it be there twice."""
    from kernelgen.grading.wire.values import tensors_of

    tensors = {(t.data_ptr(), t.shape): t for t in tensors_of(value)}
    return sum(tensor.nbytes for tensor in tensors.values())


def _device(device: str) -> tuple[str, int]:
    import torch

    if device != "cuda":
        return device, 0
    found = torch.cuda.get_device_properties(0)
    return found.name, found.multi_processor_count


def main() -> None:
    """Do what argv[1] names in the folder argv[2]; leave FAILED there if the solution raises."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    call = OneCall(folder)
    try:
        if what == "rehearse":
            rehearse(call, folder)
        else:
            profile(call)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the outermost frame)
        from kernelgen.grading.candidate.failure import describe_failure

        failed = describe_failure(error, call.phase, call.path, folder)
        (folder / FAILED).write_bytes(msgspec.json.encode(failed))
        sys.exit(1)
    call.tell_done()
