"""Throttling of a GPU, as an invented NVML tells it."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from kernelgen.grading.timing.device_conditions import DeviceConditions
from kernelgen.grading.timing.times import Conditions
from kernelgen.hardware.conditions import Monitor


class NVMLError(Exception):
    """As pynvml's."""


def refuse(*_: object) -> int:
    raise NVMLError("not supported")


def nvml(**changed: Any) -> SimpleNamespace:
    answers: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0,
    }
    return SimpleNamespace(**(answers | changed))


def use(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**changed))


def test_free_memory_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    use(
        monkeypatch,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(free=81038 << 20),
        nvmlSystemGetDriverVersion=lambda: "580.65.06",
    )
    with Monitor("GPU-a") as monitor:
        assert (monitor.free_bytes(), monitor.driver()) == (81038 << 20, "580.65.06")
    use(monkeypatch, nvmlDeviceGetMemoryInfo=refuse, nvmlSystemGetDriverVersion=refuse)
    with Monitor("GPU-a") as monitor:
        assert (monitor.free_bytes(), monitor.driver()) == (None, None)
    with Monitor("") as monitor:
        assert (monitor.free_bytes(), monitor.driver()) == (None, None)


def test_a_device_that_does_not_tell_is_taken_to_be_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, nvmlDeviceGetCurrentClocksThrottleReasons=refuse)
    with DeviceConditions("GPU-a") as conditions:
        assert conditions.look() == ()
    assert (conditions.seen(0), conditions.warnings()) == (Conditions(), ())


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_a_device_that_cannot_be_asked_has_no_conditions(
    monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    use(monkeypatch, **{broken: refuse})
    with DeviceConditions("GPU-a") as conditions:
        assert conditions.look() == ()
    assert conditions.seen(0) is None


def test_a_cpu_is_not_asked() -> None:
    with DeviceConditions("") as conditions:
        assert conditions.look() == ()
    assert (conditions.seen(0), conditions.warnings()) == (None, ())


def test_the_reasons_of_all_looks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = iter([0x1, 0x4, 0x4 | 0x40])
    use(
        monkeypatch,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: next(reasons),
    )
    with DeviceConditions("GPU-a") as conditions:
        looks = [conditions.look() for _ in range(3)]
    # Idleness is none, and a cap on the power comes with the work.
    assert looks == [(), (), ("thermal slowdown by the hardware",)]
    assert conditions.seen(1) == Conditions(
        throttled=("power cap", "thermal slowdown by the hardware"),
        repeated_blocks=1,
    )
    (warning,) = conditions.warnings()
    assert "throttled while times were taken (thermal slowdown by the hardware)" in warning
