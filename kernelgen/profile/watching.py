"""The device's conditions while ncu runs: clocks, power, and why clocks are lowered."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kernelgen.grading.timing.device_conditions import DeviceConditions

_EVERY_S = 0.1


@contextlib.contextmanager
def watched(uuid: str) -> Iterator[DeviceConditions]:
    """Look at a GPU now and then, in a thread of its own; what was seen is complete at the end.

    Args:
        uuid: of the GPU, as `GPU-...`; "" looks at nothing.
    """
    ended = threading.Event()
    with DeviceConditions(uuid) as conditions:

        def look() -> None:
            conditions.look()
            while not ended.wait(_EVERY_S):
                conditions.look()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield conditions
        finally:
            ended.set()
            thread.join()
