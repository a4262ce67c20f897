"""State of a GPU while times are taken: why its clocks are lowered.

Read through NVML, which needs no CUDA context. Whatever does not answer is left out.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

ValueT = TypeVar("ValueT")

# Bits of nvmlClocksEventReasons. Idleness, and clocks that an administrator set, are no throttle.
_POWER_CAP = "power cap"
_REASONS = {
    0x4: _POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
}


def passing(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return those reasons that pass when the device has cooled or others are done.

    A cap of the power is reached by the work itself, and would be reached again.
    """
    return tuple(reason for reason in reasons if reason != _POWER_CAP)


class Monitor(contextlib.AbstractContextManager["Monitor"]):
    """Reads the conditions of one GPU, by its uuid as `GPU-...`; "" reads nothing."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._device: Any = None
        if not uuid:
            return
        # Here, because a machine without a GPU has no use for it.
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        self._device = self._ask(lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid))

    def __exit__(self, *_: object) -> None:
        if self._nvml is not None:
            self._ask(self._nvml.nvmlShutdown)
        self._nvml = self._device = None

    def throttled(self) -> tuple[str, ...] | None:
        """Return why clocks are lowered now; None if the device cannot be asked."""
        if self._device is None:
            return None
        ask = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        bits = self._ask(lambda: int(ask(self._device))) or 0
        return tuple(name for bit, name in _REASONS.items() if bits & bit)

    def free_bytes(self) -> int | None:
        """Return the device memory that is free now; None if it cannot be asked."""
        if self._device is None:
            return None
        return self._ask(lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(self._device).free))

    def driver(self) -> str | None:
        """Return the driver's version, such as `580.65.06`; None if it cannot be asked."""
        return self._nvml and self._ask(lambda: str(self._nvml.nvmlSystemGetDriverVersion()))

    def _ask(self, question: Callable[[], ValueT]) -> ValueT | None:
        try:
            return question()
        except self._nvml.NVMLError:
            return None
