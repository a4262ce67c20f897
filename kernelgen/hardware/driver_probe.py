"""Ask the CUDA driver for the facts of its devices; run as a process of its own, prints JSON.

`cuInit` alone creates no context, but a process that has called it cannot fork children that use
CUDA: so it happens here, and not in the process that wants to know. Only the standard library is
used, so that the process starts in a few hundredths of a second.
"""

import ctypes
import json
import sys
import uuid

# Values of the driver's enum CUdevice_attribute.
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
_UUID_BYTES, _NAME_BYTES = 16, 256


def cuda_version() -> int:
    """Return the newest CUDA version that the driver knows, such as 13000 for 13.0.

    It needs no cuInit and makes no context.

    Raises:
        OSError: there is no driver, or it does not tell.
    """
    value = ctypes.c_int()
    if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(value)) != 0:
        raise OSError("cuDriverGetVersion: the driver does not tell its version")
    return value.value


class Driver:
    """The few calls of libcuda that need no context; one that fails is an OSError."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", ctypes.c_uint(0))

    def count(self) -> int:
        """Return how many devices this process sees."""
        value = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(value))
        return value.value

    def device(self, index: int) -> dict[str, object]:
        """Return the facts of one device."""
        handle, memory = ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(_NAME_BYTES)
        identity = ctypes.create_string_buffer(_UUID_BYTES)
        self._call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(index))
        self._call("cuDeviceGetName", name, ctypes.c_int(_NAME_BYTES), handle)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
        self._call("cuDeviceGetUuid", identity, handle)
        return {
            "name": name.value.decode(errors="replace"),
            "uuid": f"GPU-{uuid.UUID(bytes=identity.raw)}",
            "memory_bytes": memory.value,
            "sm_count": self._attribute(_MULTIPROCESSORS, handle),
            "compute_capability": [self._attribute(which, handle) for which in (_MAJOR, _MINOR)],
        }

    def _attribute(self, which: int, handle: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), handle)
        return value.value

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        meaning = text.value.decode() if text.value else f"error {code}"
        raise OSError(f"{name}: {meaning}")


def main() -> None:
    """Write `{"version": ..., "devices": [...]}` or `{"reason": "..."}` to stdout."""
    try:
        driver = Driver()
        devices = [driver.device(i) for i in range(driver.count())]
        reply: dict[str, object] = {"version": cuda_version(), "devices": devices}
    except OSError as error:
        reply = {"reason": str(error)}
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    main()
