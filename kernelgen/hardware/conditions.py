"""State of a GPU while times are taken: clocks, temperature, power, and why clocks are lowered.

Read through NVML, which needs no CUDA context. Whatever does not answer is left out.
"""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

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


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the device: clocks, and why they are lowered; None where it does not tell."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()

    @property
    def passing(self) -> tuple[str, ...]:
        """Reasons that pass when the device has cooled or others are done.

        A cap of the power is reached by the work itself, and would be reached again.
        """
        return tuple(reason for reason in self.throttled if reason != _POWER_CAP)


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

    def read(self) -> Reading | None:
        """Return what the device is like now; None if it cannot be asked."""
        if self._device is None:
            return None
        nvml = self._nvml
        milliwatts = self._number(nvml.nvmlDeviceGetPowerUsage)
        bits = self._number(nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return Reading(
            sm_mhz=self._number(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_mhz=self._number(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            temperature_c=self._number(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_w=None if milliwatts is None else milliwatts / 1e3,
            throttled=tuple(name for bit, name in _REASONS.items() if bits & bit),
        )

    def free_bytes(self) -> int | None:
        """Return the device memory that is free now; None if it cannot be asked."""
        if self._device is None:
            return None
        return self._ask(lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(self._device).free))

    def driver(self) -> str | None:
        """Return the driver's version, such as `580.65.06`; None if it cannot be asked."""
        return self._nvml and self._ask(lambda: str(self._nvml.nvmlSystemGetDriverVersion()))

    def _number(self, question: Callable[..., int], *of: int) -> int | None:
        return self._ask(lambda: int(question(self._device, *of)))

    def _ask(self, question: Callable[[], ValueT]) -> ValueT | None:
        try:
            return question()
        except self._nvml.NVMLError:
            return None
