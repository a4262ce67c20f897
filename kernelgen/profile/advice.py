"""What counters say about a kernel, and about a whole call: the table of rules, in their order."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kernelgen.profile import execution_rules as execution
from kernelgen.profile import memory_rules as memory
from kernelgen.profile.quantities import amount, duration, launches, times
from kernelgen.profile.record import Advice, Facts, KernelProfile
from kernelgen.profile.scene import Scene
from kernelgen.profile.stalls import REASONS, top

# Wall time of a call over the time of its kernels: caches are cold under ncu, so that a call of
# nothing but kernels comes out below 1.
_GAPS = 1.3
_GAPS_US = 5.0


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule.

    Attributes:
        name: for reports and tests.
        say: the sentences, or "" where it does not apply.
    """

    name: str
    say: Callable[[Scene], str]


def advise(scene: Scene) -> tuple[Advice, ...]:
    """Return what the rules say about a kernel, in the order of the table, then of its waits."""
    said = ((rule.name, rule.say(scene)) for rule in RULES)
    return (*(Advice(rule=name, text=text) for name, text in said if text), *_waits(scene))


def advise_call(
    kernels: tuple[KernelProfile, ...], time_us: float, dram_bytes: float | None, facts: Facts
) -> tuple[Advice, ...]:
    """Return what is to be said of a call as a whole.

    Args:
        kernels: all that it runs.
        time_us: of all of them.
        dram_bytes: of all of them; None if not known.
        facts: of the problem and the device.
    """
    found = (
        ("unfused", _unfused(kernels, dram_bytes, facts)),
        ("gaps", _gaps(kernels, time_us, facts)),
    )
    return tuple(Advice(rule=name, text=text) for name, text in found if text)


def _waits(scene: Scene) -> tuple[Advice, ...]:
    """Say what to try about the most frequent reasons, where waiting is not the limit's doing."""
    if scene.limit is not None:
        return ()
    tries = ((stall.reason, REASONS[stall.reason].try_) for stall in top(scene.kernel.stalls))
    return tuple(
        Advice(rule=f"waits_{reason}", text=f"{reason.replace('_', ' ')}: {text}")
        for reason, text in tries
        if text
    )


def _unfused(kernels: tuple[KernelProfile, ...], dram_bytes: float | None, facts: Facts) -> str:
    least = facts.minimal_bytes
    if len(kernels) == 1 or dram_bytes is None or least <= 0:
        return ""
    if dram_bytes <= memory.EXCESS * least + memory.SMALL_BYTES:
        return ""
    count = sum(kernel.launches for kernel in kernels)
    return (
        f"its {launches(count)} move {amount(dram_bytes)} of DRAM together, and the problem's "
        f"minimum is {amount(least)} ({times(dram_bytes / least)}): join kernels, so that what one "
        "writes is not read by the next"
    )


def _gaps(kernels: tuple[KernelProfile, ...], time_us: float, facts: Facts) -> str:
    wall_us = facts.forward_ms * 1e3
    if wall_us <= _GAPS * time_us or wall_us - time_us < _GAPS_US:
        return ""
    count = sum(kernel.launches for kernel in kernels)
    return (
        f"a call takes {duration(wall_us)} and its {launches(count)} {duration(time_us)}: the "
        "rest is Python, launching and waiting; do less between launches, avoid synchronizing, "
        "or record the call in a CUDA graph"
    )


RULES: tuple[Rule, ...] = (
    Rule(name="dram_limit", say=memory.dram_limit),
    Rule(name="reads", say=memory.reads),
    Rule(name="writes", say=memory.writes),
    Rule(name="local_memory", say=memory.local_memory),
    Rule(name="scattered_loads", say=memory.scattered_loads),
    Rule(name="scattered_stores", say=memory.scattered_stores),
    Rule(name="too_small", say=execution.too_small),
    Rule(name="short", say=execution.short),
    Rule(name="sm_limit", say=execution.sm_limit),
    Rule(name="tensor_limit", say=execution.tensor_limit),
    Rule(name="no_tensor_cores", say=execution.no_tensor_cores),
    Rule(name="l2_limit", say=memory.l2_limit),
    Rule(name="l1_limit", say=memory.l1_limit),
    Rule(name="bank_conflicts", say=memory.bank_conflicts),
    Rule(name="tail", say=execution.tail),
    Rule(name="uneven", say=execution.uneven),
    Rule(name="low_occupancy", say=execution.low_occupancy),
    Rule(name="latency", say=execution.latency),
)
