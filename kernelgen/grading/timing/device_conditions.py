"""The device's conditions while a candidate is timed, and what to say of them."""

import contextlib
from collections.abc import Callable

from kernelgen.grading.timing.times import Conditions
from kernelgen.hardware.conditions import Monitor, Reading


class DeviceConditions(contextlib.AbstractContextManager["DeviceConditions"]):
    """Looks at the device after each timed call, and keeps what it saw.

    Args:
        uuid: of the GPU; "" for a CPU, of which nothing is known.
    """

    def __init__(self, uuid: str) -> None:
        self._monitor = Monitor(uuid)
        self._readings: list[Reading] = []

    def __exit__(self, *_: object) -> None:
        self._monitor.__exit__(None, None, None)

    def look(self) -> tuple[str, ...]:
        """Return why the device is slower than usual, as far as that will pass."""
        reading = self._monitor.read()
        if reading is None:
            return ()
        self._readings.append(reading)
        return reading.passing

    def seen(self, repeated_blocks: int) -> Conditions | None:
        """Return what was seen; None if nothing was."""
        if not self._readings:
            return None
        powers = [one.power_w for one in self._readings if one.power_w is not None]
        reasons = [reason for one in self._readings for reason in one.throttled]
        return Conditions(
            sm_mhz=self._range(lambda one: one.sm_mhz),
            memory_mhz=self._range(lambda one: one.memory_mhz),
            temperature_c=self._range(lambda one: one.temperature_c),
            power_w=max(powers, default=None),
            throttled=tuple(dict.fromkeys(reasons)),
            repeated_blocks=repeated_blocks,
        )

    def warnings(self) -> tuple[str, ...]:
        """Return what a reader of the times should be warned of."""
        passing = [reason for one in self._readings for reason in one.passing]
        if not passing:
            return ()
        names = ", ".join(dict.fromkeys(passing))
        return (f"the device was throttled while times were taken ({names}); time again cooler",)

    def _range(self, value: Callable[[Reading], int | None]) -> tuple[int, int] | None:
        values = [found for one in self._readings if (found := value(one)) is not None]
        return (min(values), max(values)) if values else None
