"""The architectures of GPUs that files are written for."""

from typing import Literal, get_args

from kernelgen.errors import UserError

Architecture = Literal["sm_80", "sm_90a", "sm_100a"]
ARCHITECTURES: tuple[Architecture, ...] = get_args(Architecture)
DEFAULT_ARCHITECTURE: Architecture = "sm_90a"

# Multiprocessors of the device that a file is written for; others run it as well.
MULTIPROCESSORS: dict[Architecture, int] = {"sm_80": 108, "sm_90a": 132, "sm_100a": 148}


def architecture(name: str) -> Architecture:
    """Return a name that is one of the architectures.

    Raises:
        UserError: it is not.
    """
    if name not in ARCHITECTURES:
        raise UserError(f"expected one of {', '.join(ARCHITECTURES)}, not {name!r}")
    return name
