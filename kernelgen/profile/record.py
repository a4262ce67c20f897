"""Frozen records of a profile: what is asked for, and what was found."""

import msgspec

from kernelgen.problem.record import Problem
from kernelgen.sandbox.record import Mode


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a solution is profiled.

    Attributes:
        problem: the problem that it solves; None finds it from the file's header or name.
        case: name of the case whose inputs are used; None is the main one.
        sandbox: `auto` contains it as well as this machine can, `require` refuses less than all of
            it, `off` runs it with all the user's rights.
        allow_imports: modules beyond torch and the standard library that it may import.
        timeout_s: for building and calling it, and again for the run under ncu.
        most_launches: how many kernel launches are profiled, from the first of the call.
    """

    problem: Problem | None = None
    case: str | None = None
    sandbox: Mode = "auto"
    allow_imports: tuple[str, ...] = ()
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
