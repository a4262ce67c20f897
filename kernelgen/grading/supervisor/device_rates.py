"""The device's rates for a verdict: what the cache has, else what the oracle measures at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernelgen.build.toolchain import cache_folder
from kernelgen.errors import UserError
from kernelgen.grading.supervisor.dialogue import Dialogue
from kernelgen.grading.timing.limit import Work, formats_for
from kernelgen.grading.wire import messages as m
from kernelgen.hardware.calibration import Cached, Calibration, look_up
from kernelgen.hardware.identity import DeviceIdentity


def rates_of(dialogue: Dialogue, work: Work, warn: Callable[[str], None]) -> Calibration | None:
    """Return rates of the oracle's device, or None if they cannot be known.

    `kernelgen calibrate` fills the cache. Where it has nothing, a few tenths of a second give the
    rates that this limit needs, for this verdict alone: what is measured between other work is not
    kept.

    Args:
        dialogue: with the oracle; the candidate has ended or stands still.
        work: whose limit is wanted.
        warn: told what a reader should know.

    Raises:
        Judged: the oracle failed.
    """
    identity = dialogue.ask_oracle(m.IdentifyDevice(), m.DeviceIdentified).identity
    cached = _cached(identity)
    if cached is not None and cached.warning:
        warn(f"the calibration {cached.warning}; for now the rates were measured quickly")
    if cached is not None and cached.calibration is not None:
        return cached.calibration
    measured = dialogue.ask_oracle(m.MeasureRates(formats=formats_for(work)), m.RatesMeasured)
    if measured.calibration is None:
        warn(f"the device's limit is not known: {measured.reason}")
    return measured.calibration


def _cached(identity: DeviceIdentity) -> Cached | None:
    """Return what the cache has, or None where the user has no folder for one."""
    try:
        folder: Path = cache_folder()
    except UserError:
        # A verdict needs no cache.
        return None
    return look_up(folder, identity)
