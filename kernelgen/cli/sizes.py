"""An amount of memory as a command line option."""

import re

import click

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", re.ASCII)


def bytes_of(size: str) -> int:
    """Return the bytes of `24GB` (24e9) or `24GiB` (24 * 2**30); for use as a click option's type.

    Raises:
        click.BadParameter: no unit, an unknown one, or no bytes at all.
    """
    match = _SIZE.fullmatch(size)
    if match is None or match.group(2).upper() not in _UNITS:
        raise click.BadParameter(f"{size!r}: write a number and a unit, such as 24GB or 24GiB")
    size_bytes = round(float(match.group(1)) * _UNITS[match.group(2).upper()])
    if size_bytes == 0:
        raise click.BadParameter(f"{size!r} is no memory at all")
    return size_bytes
