"""Rates that were measured on a device, and their place in the user's cache.

One file a kind of device, whole or not there. What the file says is believed only if it can be
read and is about the device at hand.
"""

import hashlib
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kernelgen.destination import write_whole
from kernelgen.hardware.identity import DeviceIdentity

MatrixFormat = Literal["fp32", "tf32", "bf16", "fp16"]
"""The format of a matrix product's factors; sums are fp32."""

_FOLDER = "calibration"
# Above anything that is built; what is larger was not measured.
_Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e19)]
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that was measured `count` times: the median and the best."""

    median: _Rate
    best: _Rate
    count: Annotated[int, msgspec.Meta(ge=1)]


class MatrixRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of square matrix products.

    Attributes:
        format: of the factors.
        flops_per_s: operations a second, a multiply and an add counted as two.
    """

    format: MatrixFormat
    flops_per_s: Spread


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Measured rates of a device; the JSON of `kernelgen calibrate` is this record.

    Attributes:
        schema: version of this form.
        device: which it was.
        measured: when, in UTC.
        copy_gbps: bytes read and written by a copy within the device's memory, in 1e9 a second.
        copy_bytes: size of the buffer that was copied.
        write_gbps: bytes written by setting memory to one value, in 1e9 a second.
        matrix_size: rows and columns of the square matrices; 0 if no product was measured.
        matrix: one rate a format.
    """

    schema: Literal[1] = 1
    device: DeviceIdentity
    measured: Annotated[datetime, msgspec.Meta(tz=True)]
    copy_gbps: Spread
    copy_bytes: int
    write_gbps: Spread
    matrix_size: int = 0
    matrix: tuple[MatrixRate, ...] = ()

    def flops_per_s(self, form: MatrixFormat) -> Spread | None:
        """Return the rate of products in a format, or None if it was not measured."""
        return next((rate.flops_per_s for rate in self.matrix if rate.format == form), None)


class Cached(msgspec.Struct, frozen=True, kw_only=True):
    """The cache's entry for a device.

    Attributes:
        path: where it is, or would be.
        calibration: None if there is none that can be used.
        warning: why a file that is there cannot be used; "" if it can, or if there is none.
    """

    path: Path
    calibration: Calibration | None = None
    warning: str = ""


def look_up(cache: Path, device: DeviceIdentity) -> Cached:
    """Return what the cache has for a device; a file that cannot be used is no error."""
    path = _place(cache, device)
    try:
        # A pipe that lies there would never end.
        if not path.is_file():
            return Cached(path=path)
        calibration = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        return _unusable(path, f"cannot be read: {error.strerror}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unusable(path, f"is damaged: {error}")
    if calibration.device != device:
        # Copied from elsewhere, or two devices whose names collide.
        return _unusable(path, f"is of another device ({calibration.device.name[:80]!r})")
    return Cached(calibration=calibration, path=path)


def read_calibration(path: Path) -> Calibration | None:
    """Return a record that comes with kernelgen; None if it is not there."""
    return msgspec.json.decode(path.read_bytes(), type=Calibration) if path.is_file() else None


def keep(cache: Path, calibration: Calibration) -> Path:
    """Write a calibration into the cache; return its path.

    Raises:
        UserError: it cannot be written there.
        OSError: the disk is full.
    """
    path = _place(cache, calibration.device)
    write_whole(encode(calibration), path, make_folders=True)
    return path


def encode(calibration: Calibration) -> bytes:
    """Return a calibration as JSON for a file or a reader."""
    return msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n"


def _place(cache: Path, device: DeviceIdentity) -> Path:
    name = _NOT_IN_A_NAME.sub("-", device.name.lower()).strip("-")[:60]
    digest = hashlib.sha256(msgspec.json.encode(device)).hexdigest()[:12]
    return cache / _FOLDER / f"{name}-{digest}.json"


def _unusable(path: Path, why: str) -> Cached:
    warning = f"{path} {why}; `kernelgen calibrate --force` writes a new one"
    return Cached(path=path, warning=" ".join(warning.splitlines()))
