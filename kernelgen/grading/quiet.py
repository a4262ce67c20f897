"""Whether a candidate that says it is done leaves the GPU alone, and how fast its memory is.

Two processes share a GPU by turns. While the candidate is done, a long write of the oracle's own
takes as long as when the candidate is gone; if it takes much longer, work of the candidate's goes
on: a kernel that waits for inputs before it is called, or one that slows the baselines down.

Somebody else's work slows writes down as well, and ends when it likes. So nobody is accused before
a good while without the candidate has shown no write as slow as those beside it.
"""

from collections.abc import Callable

import msgspec

from kernelgen.grading.judged import Judged
from kernelgen.grading.messages import Probed
from kernelgen.grading.verdict import Status

# Sharing by turns at least doubles a write; the memory's own speed varies by a few per cent.
_SHARED = 1.5
# A write alone that comes this near to those beside the candidate has company too.
_AS_SLOW = 1.25
_PROBES = 3
# What a doubt costs, with the pause between two: about two seconds.
_PROBES_IN_DOUBT = 20
_PAUSE_S = 0.1

SOMEBODY_ELSE = (
    "something else uses the GPU: the times may be too long; time again when nothing else runs"
)


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the device's memory was written to, and what was seen of others.

    Attributes:
        gbps: in 1e9 bytes a second.
        cache_bytes: size of the cache before it.
        shared: whether another process than the candidate was at work.
    """

    gbps: float
    cache_bytes: int
    shared: bool = False


def require_quiet(
    during: list[Probed], probe: Callable[[], Probed], pause: Callable[[float], None]
) -> MemoryLimits:
    """Compare writes beside the candidate with writes once its process has ended.

    Args:
        during: writes while the candidate was done, and its process still there.
        probe: does another one, now that it is not.
        pause: for so many seconds.

    Returns:
        The device's limits, from the quickest write of all.

    Raises:
        Judged: TAMPERED, the GPU was busy with something of the candidate's.
    """
    alone = [probe() for _ in range(_PROBES)]
    quickest_alone_ms = min(one.elapsed_ms for one in alone)
    beside_ms = min((one.elapsed_ms for one in during), default=quickest_alone_ms)
    shared = False
    if beside_ms > _SHARED * quickest_alone_ms:
        while not (shared := _as_slow(alone, beside_ms)) and len(alone) < _PROBES_IN_DOUBT:
            pause(_PAUSE_S)
            alone.append(probe())
        if not shared:
            raise Judged(Status.TAMPERED, _accusation(beside_ms, alone))
    quickest_ms = min(beside_ms, *(one.elapsed_ms for one in alone))
    return MemoryLimits(
        gbps=alone[0].written_bytes / (quickest_ms * 1e6),
        cache_bytes=alone[0].cache_bytes,
        shared=shared,
    )


def _as_slow(alone: list[Probed], beside_ms: float) -> bool:
    return max(one.elapsed_ms for one in alone) * _AS_SLOW >= beside_ms


def _accusation(beside_ms: float, alone: list[Probed]) -> str:
    slowest_ms = max(one.elapsed_ms for one in alone)
    return (
        "the candidate keeps the GPU busy while it says that it is done: a write of the grader's "
        f"own took at least {beside_ms:.3g} ms beside it, and at most {slowest_ms:.3g} ms in "
        f"{len(alone)} tries once its process had ended"
    )
