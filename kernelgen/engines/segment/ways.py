"""The choice of a way to hold segments: arithmetic on shapes, no GPU is asked.

Whatever their length, memory is read once where all that is gathered is of one value of each
element, and that can be gathered in any order: the ways other than `held`.
"""

from math import prod
from typing import Literal

from kernelgen.engines.architectures import MULTIPROCESSORS, SIMPLE, Architecture
from kernelgen.engines.rows import FLOATS
from kernelgen.engines.segment.record import Segment, Way
from kernelgen.engines.stage import Operand, read_by

Statistics = Literal["moments", "total", "softmax"]
"""Sums that are gathered of a value: its own and that of its squares; its own; its maximum and the
sum of exponentials of the distances from that."""

ROW = 8192  # values that the threads of a block hold
_VECTOR = 4
_LEAST = 1024  # of shorter ones, several share a block
_LEAST_ON_A_CPU = 256  # of shorter ones, several share vectors
_REGISTERS_LENGTH = 10240  # a block of 640 threads holds 16 values in each
_CACHE_LENGTH = 32768  # a block reads it, and most of it again, from its L1 cache
_RING_WEIGHTS = 2 << 20  # more would have left the L2 cache when the next segment needs them
_COLUMNS_OF_BLOCK = 18 * 448 * 4  # whose weights its threads hold in registers, 72 each
_RING_BLOCKS = 100  # of whose slots a segment may take all
RING_SLOTS, RING_SLOT = 14, 4096  # of a block; elements of one


def statistics_of(segment: Segment) -> Statistics | None:
    """Return what is gathered of a segment; None if a row of threads has to hold it."""
    kinds = {a.kind for a in segment.accumulators}
    others = [o for o in segment.operands if o.name not in segment.kept]
    read = {*read_by(segment.steps), *(a.of for a in segment.accumulators)}
    kinds_of_values = {o.type.dtype for o in others if not o.is_number}
    if (
        segment.inner != 1
        or segment.results[1:]
        or len(segment.kept) != 1
        or len({a.of for a in segment.accumulators}) != 1
        or read.intersection(o.name for o in others)
        or not FLOATS.issuperset((segment.result.type.dtype, *kinds_of_values))
    ):
        return None
    if "variance" in kinds and kinds <= {"variance", "mean", "sum"}:
        return "moments"
    if "sumexp" in kinds and kinds <= {"sumexp", "max"}:
        return "softmax"
    return "total" if kinds <= {"sum", "mean"} else None


def elementwise(segment: Segment) -> list[Operand]:
    """Return what the map reads that has a value for each element of a segment, as weights have."""
    others = (o for o in segment.operands if o.pattern == "along" and o.span[1] == 0)
    return [o for o in others if prod(o.type.shape) == segment.length]


def vector_of(segment: Segment) -> int:
    """Return how many elements 16 bytes are of all that a segment reads and writes; or 0."""
    types = {o.type.dtype for o in segment.operands if not o.is_number}
    types.add(segment.result.type.dtype)
    return 0 if len(types) > 1 else _VECTOR if types == {"float32"} else 2 * _VECTOR


def way_of(segment: Segment, arch: Architecture | None) -> Way:
    """Return how a GPU of an architecture holds segments of the main shape; None is a CPU.

    A segment goes into the registers of a block, or its L1 cache, or the shared memory of all
    blocks together: rings of slots, or fixed columns where the weights are too many for the cache.
    """
    length, vector = segment.length, vector_of(segment)
    if statistics_of(segment) is None or length < (_LEAST_ON_A_CPU if arch is None else _LEAST):
        return "held"
    whole = vector > 0 and length % vector == 0
    tuned = arch not in {None, SIMPLE}
    if tuned and whole and length <= _CACHE_LENGTH:
        return "registers" if length <= _REGISTERS_LENGTH else "cache"
    if tuned and length <= ROW:
        return "held"
    segments, weights = prod(segment.shape) // length, elementwise(segment)
    if arch is None or arch in {"sm_80", SIMPLE} or not vector or segments * length % vector:
        return "slices"
    most_columns = MULTIPROCESSORS[arch] * _COLUMNS_OF_BLOCK
    others = [o for o in segment.operands if not o.is_number and o not in weights]
    vectors = weights and whole and all(o.pattern == "each" for o in others)
    if vectors and _RING_WEIGHTS < length <= most_columns:
        return "columns"
    fits = _REGISTERS_LENGTH < length <= RING_SLOTS * _RING_BLOCKS * RING_SLOT
    return "rings" if fits and (not weights or (whole and length <= _RING_WEIGHTS)) else "slices"
