"""Whether a candidate that says it is done leaves the GPU alone, and how fast its memory is.

Two processes share a GPU by turns. While the candidate is done, a long write of the oracle's own
takes as long as when the candidate is gone; if it takes much longer, work of the candidate's goes
on: a kernel that waits for inputs before it is called, or one that slows the baselines down.

Other programs' work slows writes down as well, and may end at any time. So an accusation takes two
long looks: one beside the candidate without a quick write, one after its end without a slow one.
"""

from collections.abc import Callable

import msgspec

from kernelgen.grading.timing.waits import CROWDED
from kernelgen.grading.verdict import UNKNOWN_TIME, Judged, Status
from kernelgen.grading.wire.messages import Probed

# Sharing by turns at least doubles a write; the memory's own speed varies by a few per cent.
_SHARED = 1.5
# A write alone that comes this near to those beside the candidate has company too.
_AS_SLOW = 1.25
_PROBES = 3
# With the pause between two: one second beside the candidate, ten after it.
_PROBES_IN_DOUBT = 20
_CALLS_IN_DOUBT = 10
_PAUSE_S = 0.1
_PAUSE_AFTER_S = 0.5

OTHER_WORK = "other work on the GPU"
SHARED_GPU = (
    f"{UNKNOWN_TIME}, and no speedup is: something else used the GPU while the candidate was "
    "timed; grade again when nothing else runs"
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


class Quiet:
    """Writes of the oracle's own beside and after the candidate."""

    def __init__(self, probe: Callable[[], Probed], pause: Callable[[float], None]) -> None:
        self._probe, self._pause = probe, pause
        self._alone: list[Probed] = []
        self._beside: list[Probed] = []

    def beside(self, probes: list[Probed], another: Callable[[], Probed]) -> None:
        """Take in writes that came right after the candidate had reported completion.

        Its process is still there.

        `another` does one more, after a call of the candidate's, where those are slow.
        """
        self._beside += probes or [another()]
        for _ in range(_CALLS_IN_DOUBT):
            if not self._doubtful:
                return
            self._pause(_PAUSE_S)
            self._beside.append(another())

    def after(self) -> MemoryLimits:
        """Write once its process has ended; return the device's limits.

        Raises:
            Judged: TAMPERED, the GPU was busy with something of the candidate's.
        """
        alone = self._alone
        alone += [self._probe() for _ in range(_PROBES)]
        shared = False
        if self._doubtful:
            while not (shared := self._has_company) and len(alone) < _PROBES_IN_DOUBT:
                self._pause(_PAUSE_AFTER_S)
                alone.append(self._probe())
            if not shared:
                raise Judged(Status.TAMPERED, _accusation(self._beside_ms, alone))
        return MemoryLimits(
            gbps=alone[0].written_bytes / (self._quickest_ms * 1e6),
            cache_bytes=alone[0].cache_bytes,
            shared=shared,
        )

    @property
    def _has_company(self) -> bool:
        """Whether others were at work without the candidate."""
        crowded = any(one.load > CROWDED for one in self._alone)
        return crowded or max(one.elapsed_ms for one in self._alone) * _AS_SLOW >= self._beside_ms

    @property
    def _beside_ms(self) -> float:
        return min(one.elapsed_ms for one in self._beside)

    @property
    def _quickest_ms(self) -> float:
        """Time of a write by its quickest parts, between which others may work."""
        return min(one.alone_ms for one in (*self._beside, *self._alone))

    @property
    def _doubtful(self) -> bool:
        return self._beside_ms > _SHARED * self._quickest_ms


def _accusation(beside_ms: float, alone: list[Probed]) -> str:
    slowest_ms = max(one.elapsed_ms for one in alone)
    return (
        "the candidate keeps the GPU busy while it says that it is done: a write of the grader's "
        f"own took at least {beside_ms:.3g} ms beside it, and at most {slowest_ms:.3g} ms in "
        f"{len(alone)} tries once its process had ended"
    )
