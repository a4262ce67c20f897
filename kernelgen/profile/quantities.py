"""Quantities in words: bytes, rates, times and ratios with as many digits as mean something."""

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_THOUSAND_US, _MILLION_US = 1e3, 1e6
_TENS, _HUNDREDS = 10, 100


def amount(nbytes: float) -> str:
    """Return bytes such as `15.1 GB`, in powers of 1000."""
    for scale, prefix in _PREFIXES:
        if nbytes >= scale:
            return f"{_three(nbytes / scale)} {prefix}B"
    return f"{nbytes:.0f} B"


def rate(gbps: float) -> str:
    """Return `4.12 TB/s` for 4120."""
    return f"{amount(gbps * 1e9)}/s"


def duration(time_us: float) -> str:
    """Return `3.52 ms` for 3520."""
    if time_us >= _MILLION_US:
        return f"{_three(time_us / _MILLION_US)} s"
    if time_us >= _THOUSAND_US:
        return f"{_three(time_us / _THOUSAND_US)} ms"
    return f"{_three(time_us)} us"


def times(ratio: float) -> str:
    """Return `1.01x`."""
    return f"{ratio:.2f}x" if ratio < _TENS else f"{ratio:.0f}x"


def percent(pct: float) -> str:
    """Return `87 %`, or `0.4 %` where a whole number would be 0."""
    return f"{pct:.0f} %" if pct >= 1 or pct == 0 else f"{pct:.1f} %"


def launches(count: int) -> str:
    """Return `1 launch` or `14 launches`."""
    return "1 launch" if count == 1 else f"{count} launches"


def _three(value: float) -> str:
    return f"{value:.{2 if value < _TENS else 1 if value < _HUNDREDS else 0}f}"
