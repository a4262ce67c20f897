"""`kernelgen calibrate`: measure what this device can do, and keep it for later verdicts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click

from kernelgen.build.toolchain import cache_folder
from kernelgen.cli import options
from kernelgen.destination import STDOUT, write_whole
from kernelgen.errors import KernelgenFault, UserError
from kernelgen.hardware.calibration import Calibration, Spread, encode, keep, look_up
from kernelgen.hardware.identity import identity_here
from kernelgen.hardware.measuring import measure_apart
from kernelgen.report.numbers import byte_size
from kernelgen.report.printable import printable

# A rate that varies more than this was not measured on a device that is left alone.
_STEADY = 1.15


@click.command("calibrate")
@options.device("auto is the first GPU, or the CPU where there is none.")
@options.flag("--force", "Measure again, whatever is known.")
@options.json("the rates")
@options.QUIET
def command(
    device: Literal["auto", "cuda", "cpu"], json: Path | None, *, force: bool, quiet: bool
) -> None:
    """Measure this device's copy bandwidth and matrix rates, and keep them.

    Verdicts say how near a solution comes to the limit that follows from them. What is known of
    the same kind of device, driver and torch is shown and not measured again.

    Exit code: 0 the rates are known and kept, 2 they cannot be written, 3 they cannot be measured.
    """
    cache = cache_folder()
    identity = identity_here(device)
    if isinstance(identity, str):
        raise KernelgenFault(f"the GPU cannot be measured: {identity}")
    cached = look_up(cache, identity)
    if cached.warning and not force:
        click.echo(f"warning: {printable(cached.warning)}; measuring again", err=True)
    found = None if force else cached.calibration
    known = found is not None
    if found is None:
        found = measure_apart(identity.device, quiet=quiet)
        _warn_if_unsteady(found)
    try:
        _show(found, err=json == STDOUT)
        if json is not None:
            write_whole(encode(found), json)
    finally:
        # Rates are kept even if they cannot be shown, and shown if they cannot be kept.
        if not known:
            click.echo(f"kept in {printable(str(_kept(cache, found)))}", err=True)
    if known:
        click.echo(f"known from {printable(str(cached.path))}; --force measures again", err=True)


def _kept(cache: Path, found: Calibration) -> Path:
    try:
        return keep(cache, found)
    except UserError as error:
        mend = "set XDG_CACHE_HOME to a folder that can be written"
        raise UserError(f"the rates are not kept: {error}; {mend}") from error


def _show(found: Calibration, *, err: bool) -> None:
    device = found.device
    kind = "SMs" if device.device == "cuda" else "cores"
    driver = f", driver of CUDA {device.driver}" if device.driver else ""
    click.echo(
        f"{printable(device.name)}, {device.units} {kind}, {device.memory_gib} GiB{driver}, "
        f"torch {device.torch}; measured {found.measured:%Y-%m-%d}",
        err=err,
    )
    width = max(len(name) for name, *_ in _rates(found))
    click.echo(f"  {'':<{width}} {'median':>8} {'best':>8}", err=err)
    for name, rate, unit, words in _rates(found):
        median, best = rate.median / unit, rate.best / unit
        click.echo(f"  {name:<{width}} {median:>8.4g} {best:>8.4g}  {words}", err=err)


def _rates(found: Calibration) -> Iterator[tuple[str, Spread, float, str]]:
    """Yield each rate with its name before it, and its unit as a number and in words behind it."""
    size = byte_size(found.copy_bytes)
    yield "copy", found.copy_gbps, 1.0, f"GB/s read and written, {size} at a time"
    yield "write", found.write_gbps, 1.0, "GB/s written"
    words = f"TFLOP/s, {found.matrix_size} x {found.matrix_size}"
    for rate in found.matrix:
        name = "TF32" if rate.format == "tf32" else rate.format
        yield f"matrix products, {name}", rate.flops_per_s, 1e12, words


def _warn_if_unsteady(found: Calibration) -> None:
    unsteady = [name for name, rate, *_ in _rates(found) if rate.best > _STEADY * rate.median]
    if unsteady:
        names = "; ".join(unsteady)
        click.echo(
            f"warning: the rates vary ({names}): is something else running? --force measures again",
            err=True,
        )
