"""The architectures of GPUs that files are written for."""

from typing import Literal, get_args

from kernelgen.errors import UserError

SIMPLE: Literal["simple"] = "simple"
"""In an architecture's place: the general kernels alone, which are written to be read."""

Architecture = Literal["sm_80", "sm_90a", "sm_100a", "simple"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)[:-1]
DEFAULT_ARCHITECTURE: Architecture = "sm_90a"

# Multiprocessors of the device that a file is written for; others run it as well.
MULTIPROCESSORS: dict[Architecture, int] = {"sm_80": 108, "sm_90a": 132, "sm_100a": 148}


def architecture(name: str) -> Architecture:
    """Return a name that is one of the architectures.

    Raises:
        UserError: it is not.
    """
    known: Architecture | None = next((a for a in get_args(Architecture) if a == name), None)
    if known is None:
        raise UserError(f"expected one of {', '.join(ARCHITECTURES)}, not {name!r}")
    return known
