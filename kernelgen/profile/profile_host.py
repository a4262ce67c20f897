"""The process that runs the solution: once without ncu, to learn the facts, then under it."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from kernelgen.grading.tools.one_call import OneCall
from kernelgen.profile.record import Facts

FACTS = "facts.json"
FAILED = "failed.json"


def profile(call: OneCall, folder: Path) -> None:
    """Build and call, leave the facts in the folder, and call again between ncu's marks."""
    import torch

    call.load()
    # A first call does more than later ones: builds, handles, allocations.
    written = _bytes_of(call.run())
    call.phase = "reference"
    with torch.device(call.device):
        model = call.reference.Model(*call.arguments).to(call.device)
    on_gpu = call.device == "cuda"
    facts = Facts(
        device=torch.cuda.get_device_name() if on_gpu else call.device,
        minimal_bytes=_bytes_of([call.given, dict(model.state_dict())]) + written,
    )
    (folder / FACTS).write_bytes(msgspec.json.encode(facts))
    with torch.cuda.profiler.profile() if on_gpu else nullcontext():
        call.run()


def _bytes_of(value: Any) -> int:
    """Return the bytes of all tensors in a value, each once though it be there twice."""
    from kernelgen.grading.wire.values import tensors_of

    tensors = {(t.data_ptr(), t.shape): t for t in tensors_of(value)}
    return sum(tensor.nbytes for tensor in tensors.values())


def main() -> None:
    """Do it in the folder argv[1]; leave FAILED there if the solution raises."""
    folder = Path(sys.argv[1])
    call = OneCall(folder)
    try:
        profile(call, folder)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (the outermost frame)
        from kernelgen.grading.candidate.failure import describe_failure

        failed = describe_failure(error, call.phase, call.path, folder)
        (folder / FAILED).write_bytes(msgspec.json.encode(failed))
        sys.exit(1)
    call.tell_done()
