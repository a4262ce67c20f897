"""Whether a candidate that says it is done leaves the GPU alone, and how fast its memory is.

Two processes share a GPU by turns. While the candidate is done, a long write of the oracle's own
takes as long as when the candidate is gone; if it takes much longer, work of the candidate's goes
on: a kernel that waits for inputs before it is called, or one that slows the baselines down.
"""

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.messages import Probed
from kernelgen.grading.verdict import Status

# Sharing by turns at least doubles a write; the memory's own speed varies by a few per cent.
_SHARED = 1.5


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the device's memory was written to, in GB/s, and the size of the cache before it."""

    gbps: float
    cache_bytes: int


def require_quiet(during: list[Probed], after: list[Probed]) -> MemoryLimits:
    """Compare the quickest write of each kind.

    Args:
        during: writes while the candidate was done, and its process still there.
        after: writes once its process had ended.

    Returns:
        The device's limits, from the quickest write of all.

    Raises:
        Judged: TAMPERED, the GPU was busy with something of the candidate's.
    """
    alone_ms = min(probe.elapsed_ms for probe in after)
    beside_ms = min((probe.elapsed_ms for probe in during), default=alone_ms)
    if beside_ms > _SHARED * alone_ms:
        reason = (
            "the candidate keeps the GPU busy while it says that it is done: a write of the "
            f"grader's own took {beside_ms:.3g} ms beside it, and {alone_ms:.3g} ms once its "
            "process had ended"
        )
        raise Judged(Status.TAMPERED, reason)
    quickest_ms = min(alone_ms, beside_ms)
    return MemoryLimits(
        gbps=after[0].written_bytes / (quickest_ms * 1e6), cache_bytes=after[0].cache_bytes
    )
