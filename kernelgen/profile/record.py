"""What a profile is asked for and what it found: frozen records. `--json` writes a `Profile`."""

from pathlib import Path

import msgspec

from kernelgen.grading.timing.times import Conditions
from kernelgen.problem.record import Problem
from kernelgen.report import json_report
from kernelgen.sandbox.record import Mode

SCHEMA_VERSION = 1


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a solution is profiled.

    Attributes:
        problem: the problem that it solves; None finds it from the file's header or name.
        case: name of the case whose inputs are used; None is the main one.
        sandbox: `auto` contains it as well as this machine can, `require` refuses less than all of
            it, `off` runs it with all the user's rights.
        allow_imports: modules beyond torch and the standard library that it may import.
        timeout_s: for building and calling it, and again for the run under ncu.
        most_launches: how many kernel launches are profiled, from the first of the call.
        copy_gbps: rate of a device-to-device copy in 1e9 bytes a second, against which DRAM rates
            are measured; None uses ncu's own peak.
    """

    problem: Problem | None = None
    case: str | None = None
    sandbox: Mode = "auto"
    allow_imports: tuple[str, ...] = ()
    timeout_s: float = 600.0
    most_launches: int = 100
    copy_gbps: float | None = None


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ncu counted: of one launch, or of all launches of a kernel.

    Of several launches, counts (`_bytes`, `_sectors`, conflicts and wavefronts) are sums, and
    everything else is a mean weighted by time. A counter that this device or this ncu does not
    have is absent. `_pct` are shares of what the hardware could do at most.

    Attributes:
        time_us: from the start to the end of a launch; a sum.
        dram_read_bytes, dram_written_bytes: between the L2 cache and DRAM.
        dram_pct: of the peak that ncu knows for DRAM.
        l2_bytes: that the L2 cache was asked for. On devices whose L2 has two parts, what one part
            asks of the other is counted too.
        l2_hit_pct: of the sectors asked for, those that were there.
        l2_pct, l1_pct, sm_pct: of the peak of the L2 cache, of L1 with shared memory, of the SMs'
            pipes and schedulers; each that of its busiest part.
        issue_pct: of the cycles of a scheduler with work, those in which it issued an instruction.
        fma_pct, tensor_pct, alu_pct: of active cycles, those in which the pipe was at work: of
            floating-point sums and products, of the tensor cores, of integers and logic.
        xu_pct: instructions of the pipe of conversions and functions such as exp, of those that it
            could have taken in the active cycles.
        sm_cycles: of the SMs' clock, from the start to the end of a launch; a sum.
        occupancy_pct: warps that were there, of those that an SM can hold.
        possible_occupancy_pct: the same, as the launch would allow it.
        registers: a thread.
        blocks: of the grid.
        load_sectors, store_sectors: of 32 bytes, for each request of a warp to global memory.
        local_load_sectors, local_store_sectors: of 32 bytes, of local memory: spilled registers,
            and arrays that are indexed by what is known only at run time.
        shared_conflicts: additional passes over shared memory because of bank conflicts.
        shared_wavefronts: all passes over shared memory.
        shared_pct: these, of those that there could have been in the active cycles.
    """

    time_us: float
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    dram_pct: float | None = None
    l2_bytes: float | None = None
    l2_hit_pct: float | None = None
    l2_pct: float | None = None
    l1_pct: float | None = None
    sm_pct: float | None = None
    issue_pct: float | None = None
    fma_pct: float | None = None
    tensor_pct: float | None = None
    alu_pct: float | None = None
    xu_pct: float | None = None
    sm_cycles: float | None = None
    occupancy_pct: float | None = None
    possible_occupancy_pct: float | None = None
    registers: float | None = None
    blocks: float | None = None
    load_sectors: float | None = None
    store_sectors: float | None = None
    local_load_sectors: float | None = None
    local_store_sectors: float | None = None
    shared_conflicts: float | None = None
    shared_wavefronts: float | None = None
    shared_pct: float | None = None

    @property
    def dram_bytes(self) -> float | None:
        """Return what was read and written, None if either is not known."""
        if self.dram_read_bytes is None or self.dram_written_bytes is None:
            return None
        return self.dram_read_bytes + self.dram_written_bytes

    @property
    def dram_gbps(self) -> float | None:
        """Return the rate of DRAM, in 1e9 bytes a second."""
        moved = self.dram_bytes
        return None if moved is None or self.time_us <= 0 else moved / (self.time_us * 1e3)

    @property
    def sm_mhz(self) -> float | None:
        """Return the mean clock of the SMs while the launches ran."""
        cycles = self.sm_cycles
        return None if cycles is None or self.time_us <= 0 else cycles / self.time_us


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """Why warps did not issue.

    Attributes:
        reason: ncu's name for it, such as `long_scoreboard`; `selected` is none: it issued.
        share: of the warps' time, 0 to 1; all reasons together are 1.
    """

    reason: str
    share: float


class Advice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one of ncu's own rules advises on a launch.

    Attributes:
        rule: ncu's name for the rule, such as `TheoreticalOccupancy`.
        text: its words.
        speedup_pct: the part of the kernel's time that ncu estimates could be saved; absent if it
            gives no estimate, or one for a part of the kernel alone.
    """

    rule: str
    text: str
    speedup_pct: float | None = None


class KernelProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All launches of one kernel with one grid and block.

    Attributes:
        kernel: its name, demangled.
        grid, block: as ncu writes them, such as `(132, 1, 1)`.
        launches: how many.
        share: of the time of all kernels, 0 to 1.
        counters: of all its launches.
        dram_gbps: bytes of DRAM over time, in 1e9 a second.
        stalls: every reason, the largest first; empty if this ncu has none of them.
        advice: ncu's, on the longest launch, the largest estimated speedup first.
    """

    kernel: str
    grid: str
    block: str
    launches: int
    share: float
    counters: Counters
    dram_gbps: float | None = None
    stalls: tuple[Stall, ...] = ()
    advice: tuple[Advice, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the problem and the device without ncu.

    Attributes:
        device: its name.
        sm_count: streaming multiprocessors.
        minimal_read_bytes: inputs and parameters, once each.
        minimal_written_bytes: outputs, once each.
        forward_ms: wall time of a call among calls in a row, caches warm, without ncu.
    """

    device: str
    sm_count: int
    minimal_read_bytes: int
    minimal_written_bytes: int
    forward_ms: float

    @property
    def minimal_bytes(self) -> int:
        """Return what every solution has to move between DRAM and the device."""
        return self.minimal_read_bytes + self.minimal_written_bytes


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a solution under ncu.

    Attributes:
        schema: version of this form.
        kernelgen: its version.
        solution: path of the file, as it was given.
        solution_sha256: of its bytes.
        problem: name.
        case: on whose inputs.
        ncu: its version.
        method: how it was measured, one line.
        facts: of the problem and the device.
        kernels: the one that takes most of the time first.
        time_us: of all launches together.
        dram_bytes: of all launches together; absent if not known.
        copy_gbps: rate of a device-to-device copy, if it was given; else ncu's peak is the measure.
        conditions: of the device while ncu ran kernels and prepared to, by NVML ten times a second;
            absent if it does not tell.
        unavailable: metrics that this ncu or device does not have.
        warnings: what else should be known.
    """

    schema: int
    kernelgen: str
    solution: str
    solution_sha256: str
    problem: str
    case: str
    ncu: str
    method: str
    facts: Facts
    kernels: tuple[KernelProfile, ...]
    time_us: float
    dram_bytes: float | None = None
    copy_gbps: float | None = None
    conditions: Conditions | None = None
    unavailable: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_profile(path: Path) -> Profile:
    """Read a profile back; counters that an earlier kernelgen did not ask for are absent.

    Raises:
        UserError: it cannot be read, or is not the JSON of a profile that this version reads.
    """
    return json_report.read_form(
        path, Profile, version=SCHEMA_VERSION, name="profile", command="profile"
    )
