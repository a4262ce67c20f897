"""Frozen records of a profile: what is asked for, and what was found."""

import msgspec

from kernelgen.grading.options import GradeOptions


class ProfileOptions(GradeOptions, frozen=True, kw_only=True):
    """How a solution is profiled; of grading's options, problem, imports and sandbox count.

    Attributes:
        case: name of the case whose inputs are used; None is the main one.
        timeout_s: for building and calling it, and again for the run under ncu.
        most_launches: how many kernel launches are profiled, from the first of the call.
    """

    case: str | None = None
    timeout_s: float = 600.0
    most_launches: int = 100


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the problem and the device without ncu.

    Attributes:
        device: its name.
        minimal_bytes: inputs, parameters and outputs, once each: what every solution has to move.
    """

    device: str
    minimal_bytes: int


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a solution under ncu.

    Attributes:
        facts: of the problem and the device.
        log: what ncu wrote, its details of each launch among it.
        dram_bytes: read and written by all launches together; None if ncu could not count some.
        warnings: what else should be known.
    """

    facts: Facts
    log: str
    dram_bytes: float | None
    warnings: tuple[str, ...] = ()
