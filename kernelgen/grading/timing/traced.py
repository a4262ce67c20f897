"""Whether calls that a profiler records are as quick as those that were timed.

A profiler works in the candidate's process, which can always notice it, and do something else while
it is there. What that can gain is bounded here: traced is a batch as of batch.py, with nothing
beside it but the profiler, and by the supervisor's clock it must be about as quick as the batches
that bear the quoted time out. Nothing that is slower than what is quoted is then evidence for it.
"""

import math
from collections.abc import Callable

from kernelgen.grading.timing.waits import BatchTime, Waits
from kernelgen.grading.wire.trace import Trace

# On a busy CPU, threads that wait for each other lose their turns in most of the short batches: of
# one call of OpenMP's on two cores that eight others wanted, in 17 of 18.
_TRIES, _MOST_TRIES, _TRYING_MS = 6, {"cuda": 6, "cpu": 60}, 400.0
_TRIES_IN_PLACE = 3
_LONGEST_MS = 60.0
# Calls in a row are warm, and those that are quoted were not.
_AS_QUICK = 1.25
# From here on, beside what load explains, an excess of every batch is no chance.
_SLOWER = {"cuda": 1.6, "cpu": 2.5}
# Cost of an operator, a launch or a kernel that a profiler records: about 1 us, and
# several times that on a busy machine. For a batch: the mark around it, and the first records.
_RECORD_MS = 5e-3
_BATCH_MS = 0.5
# Of kernels' durations a call, beside times by events.
_DEVICE_NOISE_MS = 0.02


RunTraced = Callable[..., tuple[BatchTime, Trace]]
"""Runs a batch, as of confirm.py, while a profiler records; returns what all of its calls ran."""


def trace_as_timed(
    expected: Waits, call_ms: float, run: RunTraced, *, in_place: bool, control_calls: int
) -> Trace | str:
    """Return what a call ran in a batch that was quick enough; or why there is no such batch.

    Where other work on the machine, or chance, may have slowed all of them down, the last counts.

    Args:
        expected: what is claimed, and so many calls; no batches.
        call_ms: of a call in a batch that no profiler records.
        run: see RunTraced.
        in_place: outputs were left where forward makes them.
        control_calls: of the reference in each.
    """
    device, claim = expected.device, expected.claim
    # As in confirm.py, one call first: its wait says how many calls do not take for ever.
    first, trace = run(1, in_place=in_place, control_calls=1)
    first_ms = first.wait_ms - (first.control_wait_ms - first.control_ms)
    calls = min(expected.calls, max(1, int(_LONGEST_MS / max(first_ms, 1e-6))))
    waits, slower = Waits(device, claim, calls), [math.inf]
    tries = max(_TRIES, int(_TRYING_MS / max(call_ms * calls, 1e-6)))
    for number in range(min(tries, _MOST_TRIES[device])):
        batch, trace = run(calls, in_place=in_place, control_calls=min(control_calls, calls))
        if in_place and not (batch.in_place and batch.at_once):
            # Such a batch is not verified, or not at once.
            in_place = number + 1 < _TRIES_IN_PLACE
            continue
        waits.batches.append(batch)
        if trace.missing:
            continue
        allowed_ms = call_ms + (_BATCH_MS + _RECORD_MS * trace.recorded) / calls
        trace = trace.per_call(calls)
        waited_ms = batch.wait_ms - waits.overhead_ms() - waits.noise_ms(allowed_ms * calls)
        # A wait that is bound by its Python leaves room for slower kernels.
        busy_ms = trace.busy_us / 1e3 if device == "cuda" else 0.0
        of_kernels = busy_ms / (claim.device_ms + _DEVICE_NOISE_MS)
        slower.append(max(waited_ms / calls / allowed_ms, of_kernels))
        if slower[-1] <= _AS_QUICK:
            return trace
    if trace.missing:
        return f"a batch of its calls could not be traced: {trace.missing}"
    if min(slower) <= _SLOWER[device] * waits.most_load():
        return trace
    return (
        f"while a profiler records, calls take {min(slower):.3g} times as long as those that were "
        "timed: what was traced is not what was timed; do the same in every call"
    )
