"""Trace of one call: the record that a candidate host or the oracle sends.

The host's process is the candidate's, so every number here is a claim: bounded when it is read, and
judged in kernels/own.py beside what the supervisor knows by itself.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

MAX_TRACES = 8
MAX_WORKS = 512
MAX_RUNS = 4096
MAX_NAME = 4096
_LARGEST = 1e15
_TIMES = ("busy_us", "call_us", "cpu_us")

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, copy or operator, all its runs in one call together.

    Attributes:
        name: as the profiler gives it, demangled where it could be.
        kind: `kernel`; `copy`, a memcpy or memset; `operator`, of torch on the CPU; `compiled`, a
            region that torch.compile made.
        count: runs.
        time_us: on the GPU, their durations; on the CPU, time spent in it and in no operator that
            it called.
        blocks, threads: of the largest launch, 0 if unknown.
        all_threads: of all launches together, 0 if unknown.
        elements: of an operator's largest input, summed over the runs in which it was no mere
            wrapper of others.
        operands: tensors among an operator's inputs, 0 if unknown.
    """

    name: Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
    kind: Literal["kernel", "copy", "operator", "compiled"]
    count: Count
    time_us: Microseconds
    blocks: Count = 0
    threads: Count = 0
    all_threads: Count = 0
    elements: Count = 0
    operands: Count = 0


class Run(msgspec.Struct, frozen=True, array_like=True):
    """One run of a kernel: its place in `works`, its beginning after that of forward, its time."""

    work: Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORKS)]
    begin_us: Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
    time_us: Microseconds


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """One traced call.

    Attributes:
        works: what ran, longest first.
        runs: on a GPU, of each kernel, in the order of their beginnings; none if they are too many.
        operators: on a GPU, torch's operators that the host called in forward.
        busy_us: during which at least one of them ran.
        call_us: wall time of forward.
        cpu_us: processor time that the process, all its threads, spent in forward.
        by_torch: of a call that was followed, on a CPU: whether torch's operators alone made its
            outputs; None if that is not known.
        unseen_graphs: launches of CUDA graphs whose kernels were not recorded.
        missing: why nothing could be recorded, or "".
    """

    works: Annotated[tuple[Work, ...], msgspec.Meta(max_length=MAX_WORKS)] = ()
    runs: Annotated[tuple[Run, ...], msgspec.Meta(max_length=MAX_RUNS)] = ()
    operators: Annotated[tuple[Work, ...], msgspec.Meta(max_length=MAX_WORKS)] = ()
    busy_us: Microseconds = 0.0
    call_us: Microseconds = 0.0
    cpu_us: Microseconds = 0.0
    by_torch: bool | None = None
    unseen_graphs: Count = 0
    missing: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""

    @property
    def recorded(self) -> int:
        """How many pieces of work the profiler took down."""
        return sum(work.count for work in (*self.works, *self.operators))

    def per_call(self, calls: int) -> "Trace":
        """Return what one of so many calls ran on average, which were recorded as one.

        The runs stay those of all calls.
        """
        times = {name: getattr(self, name) / calls for name in _TIMES}
        works, operators = (
            tuple(_of_one(work, calls) for work in ran) for ran in (self.works, self.operators)
        )
        return msgspec.structs.replace(self, works=works, operators=operators, **times)


def _of_one(work: Work, calls: int) -> Work:
    counts = {name: getattr(work, name) // calls for name in ("count", "all_threads", "elements")}
    return msgspec.structs.replace(work, time_us=work.time_us / calls, **counts)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
