"""Numbers as a reader wants them: as many digits as they are worth, and a unit."""

import math

from kernelgen.grading.timing.times import Speedup

_DIGITS = 4
_PLAIN = (1e-3, 1e7)
_KIB = 1024.0
_LEAST_SHARE = 0.005


def plain(value: float | None, digits: int = _DIGITS) -> str:
    """Return a number with so many significant digits, or "" for None.

    An exponent is used below 0.001 and from ten million on.
    """
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if not _PLAIN[0] <= abs(value) < _PLAIN[1]:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}".replace(",", "\N{NO-BREAK SPACE}")


def error_size(value: float | None) -> str:
    """Return an error in two digits and an exponent, or `not finite`."""
    return f"{value:.1e}" if value is not None and math.isfinite(value) else "not finite"


def count(value: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{value:,}".replace(",", "\N{NO-BREAK SPACE}")


def byte_size(value: float) -> str:
    """Return a size with three digits and a binary unit, such as `14.0 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < _KIB or unit == "TiB":
            break
        value /= _KIB
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"  # noqa: PLR2004


def percent(share: float) -> str:
    """Return a share as a percentage with one decimal."""
    return f"{share:.1%}".replace("%", "\N{NO-BREAK SPACE}%")


def of_allowed(share: float | None) -> str:
    """Return what share of the allowed error was made: a percentage, or a factor from 1 on."""
    if share is None:
        return ""
    if share > 1.0:
        return f"{share:.3g}x"
    return f"{share:.0%}" if share >= _LEAST_SHARE or not share else "<1%"


def times(value: float) -> str:
    """Return a factor with three decimals below ten, so that 1.001 is not 1."""
    places = next((n for n, least in ((0, 1000), (1, 100), (2, 10)) if value >= least), 3)
    return f"{value:.{places}f}\N{MULTIPLICATION SIGN}"


def interval(speedup: Speedup) -> str:
    """Return a speedup's 95 % interval, such as `[1.671, 1.677]`."""
    low, high = (times(end)[:-1] for end in speedup.ci95)
    return f"[{low}, {high}]"
