"""How a profile is asked for."""

import msgspec

from kernelgen.problem.record import Problem
from kernelgen.sandbox.record import Mode


class ProfileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a solution is profiled.

    Attributes:
        problem: that it solves; None finds it from the file's header or name.
        case: name of the case on whose inputs it is called; None is the main one.
        sandbox: `auto` contains it as well as this machine can, `require` refuses less than all of
            it, `off` runs it with all the user's rights.
        allow_imports: modules beyond torch and the standard library that it may import.
        timeout_s: for building and calling it, and again for the run under ncu.
        most_launches: of kernels that are profiled, the first ones of the call.
        copy_gbps: rate of a device-to-device copy in 1e9 bytes a second, the measure for rates of
            DRAM; None leaves ncu's own peak as the measure.
    """

    problem: Problem | None = None
    case: str | None = None
    sandbox: Mode = "auto"
    allow_imports: tuple[str, ...] = ()
    timeout_s: float = 600.0
    most_launches: int = 100
    copy_gbps: float | None = None
