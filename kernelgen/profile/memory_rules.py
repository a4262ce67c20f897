"""Rules of advice on bytes: what is moved, how, and whether the memory can do more.

A threshold stands with its reason. What a counter proves is said plainly; what it only suggests is
said with `may`.
"""

from __future__ import annotations

from kernelgen.profile.quantities import amount, percent, times
from kernelgen.profile.record import Facts
from kernelgen.profile.scene import Scene

_SECTOR_BYTES = 32
# What is read or written besides, such as partial sums, is rarely a tenth; more is a second pass.
EXCESS = 1.1
# Writes that are still in the L2 cache at the end, and what ncu itself disturbs.
SMALL_BYTES = 32 << 20
# A warp's widest load is 16 bytes a thread: 512 bytes, 16 sectors. More are never contiguous.
_WIDEST_SECTORS = 16.0
# A few spills outside of the loops cost nothing.
_SPILLED_SHARE = 0.02
# NVIDIA's own rule warns from here on.
_CONFLICT_SHARE = 0.1


def dram_limit(scene: Scene) -> str:
    """Say so where DRAM can do no more."""
    if scene.limit != "dram":
        return ""
    return (
        "at the limit of DRAM: there is nothing to gain here but by moving fewer bytes"
        if _needs_its_bytes(scene)
        else "at the limit of DRAM: its time follows the bytes that it moves, see below"
    )


def _needs_its_bytes(scene: Scene) -> bool:
    moved = scene.counters.dram_bytes
    return moved is None or moved <= EXCESS * scene.facts.minimal_bytes + SMALL_BYTES


def reads(scene: Scene) -> str:
    """Say so where more is read than the problem has."""
    moved, least = scene.counters.dram_read_bytes, scene.facts.minimal_read_bytes
    if moved is None or least <= 0 or moved <= EXCESS * least + SMALL_BYTES:
        return ""
    return (
        f"reads {amount(moved)} where inputs and parameters are {amount(least)} "
        f"({times(moved / least)}): keep what is read the first time in registers or shared "
        f"memory, or read it again while it is still in the L2 cache{_l2_size(scene.facts)}"
    )


def writes(scene: Scene) -> str:
    """Say so where more is written than the problem has."""
    moved, least = scene.counters.dram_written_bytes, scene.facts.minimal_written_bytes
    if moved is None or least <= 0 or moved <= EXCESS * least + SMALL_BYTES:
        return ""
    return (
        f"writes {amount(moved)} where the outputs are {amount(least)} ({times(moved / least)}): "
        "write each element once, whole sectors of 32 bytes at a time, and keep intermediate "
        "results on the chip"
    )


def local_memory(scene: Scene) -> str:
    """Say so where registers spill."""
    counters = scene.counters
    sectors = (counters.local_load_sectors or 0) + (counters.local_store_sectors or 0)
    moved = sectors * _SECTOR_BYTES
    if moved <= 0 or moved < _SPILLED_SHARE * (counters.l2_bytes or 0):
        return ""
    held = "" if counters.registers is None else f" ({counters.registers:.0f} registers a thread)"
    return (
        f"moves {amount(moved)} of local memory: registers spill{held}, or an array is indexed by "
        "what is known only at run time; `kernelgen build` shows which kernel spills"
    )


def scattered_loads(scene: Scene) -> str:
    """Say so where the threads of a warp load from far apart."""
    return _scattered(scene.counters.load_sectors, "loads")


def scattered_stores(scene: Scene) -> str:
    """Say so where the threads of a warp store far apart."""
    return _scattered(scene.counters.store_sectors, "stores")


def _scattered(sectors: float | None, what: str) -> str:
    if sectors is None or sectors <= _WIDEST_SECTORS:
        return ""
    return (
        f"{what} touch {sectors:.1f} sectors a request, and a warp that reaches contiguous memory "
        "touches at most 16 (4 with 4 bytes a thread): have neighbouring threads use neighbouring "
        "addresses, through shared memory if the layout forbids it"
    )


def bank_conflicts(scene: Scene) -> str:
    """Say so where threads of a warp meet in a bank of shared memory."""
    conflicts, passes = scene.counters.shared_conflicts, scene.counters.shared_wavefronts
    if not conflicts or not passes or conflicts < _CONFLICT_SHARE * passes:
        return ""
    return (
        f"{percent(100 * conflicts / passes)} of the passes over shared memory may be bank "
        "conflicts: pad the rows of tiles, or permute their columns"
    )


def l2_limit(scene: Scene) -> str:
    """Say so where the L2 cache can do no more."""
    if scene.limit != "l2":
        return ""
    return (
        f"the L2 cache is at {percent(scene.counters.l2_pct or 0)} of its peak: keep more in "
        "registers and shared memory, share tiles between the blocks of a cluster, avoid atomics "
        "on few addresses"
    )


def l1_limit(scene: Scene) -> str:
    """Say so where L1 and shared memory can do no more."""
    if scene.limit != "l1":
        return ""
    return (
        f"L1 and shared memory are at {percent(scene.counters.l1_pct or 0)} of their peak: use "
        "wider accesses, avoid bank conflicts and scattered accesses, keep more in registers"
    )


def _l2_size(facts: Facts) -> str:
    return f" ({amount(facts.l2_cache_bytes)})" if facts.l2_cache_bytes > 0 else ""
