"""What the rules of advice look at: a kernel beside what is known of the problem and the device."""

from __future__ import annotations

from typing import Literal

import msgspec

from kernelgen.profile.record import Counters, Facts, KernelProfile

Unit = Literal["dram", "l2", "l1", "sm", "tensor"]

# A copy, which does nothing else, reaches 89 % of the peak on an H200 (4.26 of 4.8 TB/s): from a
# little below that on, DRAM is the limit.
NEAR_PEAK_PCT = 85.0
# Where a copy's own rate was measured, this much of it is its limit: kernels that also compute
# rarely come closer.
NEAR_COPY = 0.92
# NVIDIA's sections take a unit above this for a limit, and one below the other for idle.
BUSY_PCT = 80.0
IDLE_PCT = 60.0


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel, and what it is measured by.

    Attributes:
        kernel: its counters.
        facts: of the problem and the device.
        copy_gbps: rate of a device-to-device copy, None if nobody measured it.
    """

    kernel: KernelProfile
    facts: Facts
    copy_gbps: float | None = None

    @property
    def counters(self) -> Counters:
        """Return the kernel's."""
        return self.kernel.counters

    @property
    def per_launch_us(self) -> float:
        """Return the time of a launch."""
        return self.counters.time_us / self.kernel.launches

    @property
    def copy_fraction(self) -> float | None:
        """Return the rate of DRAM over that of a copy."""
        if self.copy_gbps is None or self.kernel.dram_gbps is None:
            return None
        return self.kernel.dram_gbps / self.copy_gbps

    @property
    def limit(self) -> Unit | None:
        """Return the unit that cannot do much more, DRAM first; None if there is none."""
        fraction, counters = self.copy_fraction, self.counters
        if fraction is not None:
            if fraction >= NEAR_COPY:
                return "dram"
        elif _at_least(counters.dram_pct, NEAR_PEAK_PCT):
            return "dram"
        shares: tuple[tuple[Unit, float | None], ...] = (
            ("sm", counters.sm_pct), ("l2", counters.l2_pct), ("l1", counters.l1_pct),
            ("tensor", self._tensor_pct),
        )  # fmt: skip
        busy = [(share, unit) for unit, share in shares if share is not None and share >= BUSY_PCT]
        return max(busy)[1] if busy else None

    @property
    def _tensor_pct(self) -> float | None:
        """Return the share of the tensor cores, unless most SMs had nothing to do.

        It is of the cycles in which an SM had work, and so is at least the same pipe's part in the
        share of the SMs, which is of all cycles: if that is larger, another pipe is.
        """
        sm_pct = self.counters.sm_pct
        return None if sm_pct is not None and sm_pct < BUSY_PCT else self.counters.tensor_pct

    @property
    def idle(self) -> bool:
        """Whether every unit that was counted has time left, so that the warps wait for answers."""
        counters = self.counters
        shares = (counters.dram_pct, counters.l2_pct, counters.l1_pct, counters.sm_pct)
        known = [share for share in shares if share is not None]
        return bool(known) and max(known) < IDLE_PCT

    @property
    def fills_device(self) -> bool:
        """Whether there is a block for every SM, as far as that is known."""
        blocks = self.counters.blocks
        return blocks is None or blocks >= self.facts.sm_count


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least
