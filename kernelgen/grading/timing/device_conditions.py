"""The device's conditions while a candidate is timed, and what to say of them."""

import contextlib

from kernelgen.grading.timing.times import Conditions
from kernelgen.hardware.conditions import Monitor, passing


class DeviceConditions(contextlib.AbstractContextManager["DeviceConditions"]):
    """Looks at the device after each timed call, and keeps what it saw.

    Args:
        uuid: of the GPU; "" for a CPU, of which nothing is known.
    """

    def __init__(self, uuid: str) -> None:
        self._monitor = Monitor(uuid)
        self._reasons: dict[str, None] | None = None

    def __exit__(self, *_: object) -> None:
        self._monitor.__exit__(None, None, None)

    def look(self) -> tuple[str, ...]:
        """Return why the device is slower than usual, as far as that will pass."""
        reasons = self._monitor.throttled()
        if reasons is None:
            return ()
        self._reasons = (self._reasons or {}) | dict.fromkeys(reasons)
        return passing(reasons)

    def seen(self, repeated_blocks: int) -> Conditions | None:
        """Return what was seen; None if the device does not tell."""
        if self._reasons is None:
            return None
        return Conditions(throttled=tuple(self._reasons), repeated_blocks=repeated_blocks)

    def warnings(self) -> tuple[str, ...]:
        """Return what a reader of the times should be warned of."""
        names = ", ".join(passing(self._reasons or ()))
        told = f"the device was throttled while times were taken ({names}); time again cooler"
        return (told,) if names else ()
