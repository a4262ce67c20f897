"""How much memory grading a case takes, and whether the device has it."""

import msgspec
import torch

from kernelgen.sandbox.limits import available_bytes

# Exact results are computed by chunks of rows of about this size where the problem allows it.
CHUNK_BYTES = 1 << 31
# Memory of CUDA contexts, modules, flush buffers and fragmentation, beside the tensors.
_OVERHEAD_BYTES = 4 << 30


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that one call of the reference takes on the device, in its own dtypes."""

    inputs: int
    parameters: int
    outputs: int

    @property
    def candidate(self) -> int:
        """The candidate's own inputs, parameters and outputs."""
        return self.inputs + self.parameters + self.outputs

    @property
    def arena(self) -> int:
        """The larger of the inputs or parameters sent and the outputs returned."""
        return max(self.inputs, self.parameters, self.outputs)

    @property
    def oracle(self) -> int:
        """Inputs, parameters in both precisions, outputs twice, chunks of the exact result."""
        chunk = min(CHUNK_BYTES, 2 * (self.inputs + self.outputs))
        return self.inputs + 3 * self.parameters + 2 * self.outputs + 2 * chunk

    @property
    def tensors(self) -> int:
        """All of these."""
        return self.candidate + self.arena + self.oracle

    def refusal(self, device: str, limit_bytes: int | None, *, ever: bool = False) -> str | None:
        """Say why this does not fit a device, or `limit_bytes` of one; None if it does.

        With `ever`, what others have on a GPU counts as free.
        """
        free = torch.cuda.mem_get_info()[1] if ever and device == "cuda" else free_bytes(device)
        if limit_bytes is not None:
            free = min(free, limit_bytes)
        overhead = _OVERHEAD_BYTES if device == "cuda" else 0
        needed = self.tensors + overhead
        if needed <= free:
            return None
        parts = {
            "the candidate's inputs and outputs": self.candidate,
            "the copy between the processes": self.arena,
            "the reference and the comparison": self.oracle,
            "the CUDA contexts": overhead,
        }
        sizes = [f"{size / 1e9:.3g} GB for {what}" for what, size in parts.items() if size]
        return (
            f"the problem does not fit this device: grading it takes about {needed / 1e9:.3g} GB "
            f"({', '.join(sizes)}), {free / 1e9:.3g} GB are "
            f"{'there' if ever else 'free'}.\nNothing was run, so this says nothing about the "
            "candidate. Use a device with more memory, or a problem file with smaller constants."
        )


def free_bytes(device: str) -> int:
    """Return the memory that is free on a device, in bytes, torch's own cache included."""
    if device == "cuda":
        free, _ = torch.cuda.mem_get_info()
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(free + cached)
    return available_bytes()
