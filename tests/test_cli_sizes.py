"""Amounts of memory on the command line."""

import click
import pytest

from kernelgen.cli.options import bytes_of


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [
        ("24GB", 24 * 10**9),
        ("24GiB", 24 * 2**30),
        ("1.5 gib", 3 * 2**29),
        ("512MB", 512 * 10**6),
        ("100B", 100),
    ],
)
def test_bytes_of(size: str, size_bytes: int) -> None:
    assert bytes_of(size) == size_bytes


@pytest.mark.parametrize("size", ["24", "GB", "-1GB", "24 G", "1e3GB", "", "nanGB"])
def test_a_size_without_a_clear_unit_is_refused(size: str) -> None:
    with pytest.raises(click.BadParameter, match="write a number and a unit, such as 24GB"):
        bytes_of(size)


def test_no_memory_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is no memory at all"):
        bytes_of("0GB")
