"""Why warps do not issue: ncu's names for the reasons, what each means, and what to try.

The meanings are those of NVIDIA's "Kernel Profiling Guide", section on warp stall reasons. What to
try is a guess that is right more often than not; nothing follows from a share alone, and where a
kernel is at a limit of the hardware, its warps have to wait for something.
"""

from __future__ import annotations

import msgspec

from kernelgen.profile.record import Stall

ISSUED = "selected"
# Below this, a reason does not decide anything.
LEAST_SHARE = 0.05
_SHOWN = 3


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason in words.

    Attributes:
        means: what the warp waits for.
        try_: what may help; "" if it rarely pays to look at it.
    """

    means: str
    try_: str = ""


REASONS: dict[str, Reason] = {
    "long_scoreboard": Reason(
        means="data on the way from L2 or DRAM",
        try_="have more loads in flight: load several independent values before using the first, "
        "16 bytes a thread, or bulk copies into shared memory some stages ahead; more warps also "
        "help, unless registers get short",
    ),
    "short_scoreboard": Reason(
        means="data from shared memory, or a slow function such as exp or sqrt",
        try_="avoid bank conflicts, keep in registers what is read again and again, exchange "
        "values within a warp by shuffles, use fewer such functions",
    ),
    "barrier": Reason(
        means="other warps of the block at __syncthreads",
        try_="give all warps the same work before a barrier, use fewer barriers, or smaller "
        "blocks, several of them an SM, so that others work meanwhile",
    ),
    "mio_throttle": Reason(
        means="room in the queue of shared memory and special functions",
        try_="use fewer and wider instructions of shared memory, such as 16 bytes at a time, or "
        "shuffles instead",
    ),
    "lg_throttle": Reason(
        means="room in the queue of loads and stores to global or local memory",
        try_="use fewer and wider loads and stores, such as 16 bytes a thread; if registers spill, "
        "that comes first",
    ),
    "tex_throttle": Reason(
        means="room in the queue of texture instructions",
        try_="use fewer texture fetches, or plain loads for some of them",
    ),
    "math_pipe_throttle": Reason(
        means="an arithmetic pipe that is busy",
        try_="good if it is the pipe that should be busy; else use another kind of instruction, "
        "such as FMA for separate multiplies and adds, or tensor cores for products of matrices",
    ),
    "wait": Reason(
        means="the fixed few cycles of its own last instruction",
        try_="have more independent instructions: unroll, keep several accumulators; a large share "
        "says that the code is short of them, or that little else is waited for",
    ),
    "not_selected": Reason(
        means="its turn: it could issue, and another warp did",
        try_="there are warps enough; fewer, with more registers each, may do better",
    ),
    "no_instruction": Reason(
        means="instructions on the way from the instruction cache",
        try_="make the code shorter: less unrolling, fewer inlined variants; very short kernels "
        "always have some of it",
    ),
    "imc_miss": Reason(
        means="constant memory that is not in its cache",
        try_="have all threads of a warp read the same constant at a time, and few of them",
    ),
    "drain": Reason(
        means="its last stores, at the end of the thread",
        try_="store whole lines, and have fewer blocks that do more each, so that the end comes "
        "less often",
    ),
    "membar": Reason(
        means="a memory fence",
        try_="use fewer fences, and the narrowest that suffices: block before device before system",
    ),
    "sleeping": Reason(
        means="the end of a nanosleep",
        try_="it polls: see what it waits for; blocks that wait for each other do not work "
        "meanwhile",
    ),
    "branch_resolving": Reason(
        means="the target of a branch",
        try_="use fewer branches in the innermost loop: unroll, or select by predicates",
    ),
    "dispatch_stall": Reason(
        means="a dispatcher that holds it back", try_="this is rare; look for register conflicts"
    ),
    "gmma": Reason(
        means="a warpgroup's matrix product",
        try_="good where tensor cores should be busy; else have more of them in flight, and wait "
        "for an older one",
    ),
    "misc": Reason(means="something else"),
}


def top(stalls: tuple[Stall, ...]) -> tuple[Stall, ...]:
    """Return the most frequent reasons not to issue, at most three, each with a share that counts.

    Args:
        stalls: every reason, the largest first.
    """
    waiting = (s for s in stalls if s.reason != ISSUED and s.share >= LEAST_SHARE)
    return tuple(waiting)[:_SHOWN]


def in_words(stall: Stall) -> str:
    """Return `62 % long scoreboard (data on the way from L2 or DRAM)`."""
    name = stall.reason.replace("_", " ")
    reason = REASONS.get(stall.reason)
    means = f" ({reason.means})" if reason is not None else ""
    return f"{100 * stall.share:.0f} % {name}{means}"
