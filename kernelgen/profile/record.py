"""What a profile is asked for and what it found: frozen records. `--json` writes a `Profile`."""

import msgspec

from kernelgen.problem.record import Problem
from kernelgen.sandbox.record import Mode

SCHEMA_VERSION = 2


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


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One launch of a kernel. What ncu could not count is absent.

    Attributes:
        kernel: its name, demangled.
        launched: grid and block as ncu writes them, such as `(132, 1, 1)x(256, 1, 1)`.
        page: ncu's details of it, as it prints them.
        time_us: from its start to its end.
        dram_read_bytes, dram_written_bytes: between the L2 cache and DRAM.
    """

    kernel: str
    launched: str
    page: str
    time_us: float | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None

    @property
    def dram_bytes(self) -> float | None:
        """Return what was read and written, None if either is not known."""
        if self.dram_read_bytes is None or self.dram_written_bytes is None:
            return None
        return self.dram_read_bytes + self.dram_written_bytes


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the problem and the device without ncu.

    Attributes:
        device: its name.
        minimal_bytes: inputs, parameters and outputs, once each: what every solution has to move.
    """

    device: str
    minimal_bytes: int


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of a solution under ncu.

    Attributes:
        schema: version of this form.
        kernelgen: its version.
        solution: path of the file, as it was given.
        solution_sha256: of its bytes.
        problem: name.
        case: on whose inputs.
        ncu: its version.
        facts: of the problem and the device.
        launches: in the order in which they ran.
        warnings: what else should be known.
    """

    schema: int
    kernelgen: str
    solution: str
    solution_sha256: str
    problem: str
    case: str
    ncu: str
    facts: Facts
    launches: tuple[Launch, ...]
    warnings: tuple[str, ...] = ()
