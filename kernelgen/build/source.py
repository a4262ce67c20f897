"""Builds that a solution asks for: the records that capture and compilation share."""

from typing import Literal

import msgspec

from kernelgen.build.recipe import Recipe
from kernelgen.sandbox.record import Plan

MOST_EXTENSIONS = 64
TOO_MANY = f"more than {MOST_EXTENSIONS} extensions are built; put more functions into each"

Phase = Literal["import", "constructor", "forward"]
"""How far a solution came."""


class CaptureFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a solution does not reach the point where it builds.

    Attributes:
        phase: in which it failed.
        type: of the exception.
        in_build: it came out of torch.utils.cpp_extension, or from the call of it.
        line: the last line of the solution's own file that was running, or None.
    """

    phase: Phase
    type: str
    message: str
    line: int | None = None
    in_build: bool = False


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the capturing process; paths are absolute.

    Attributes:
        reference_source: what of it makes arguments and inputs; None uses the solution's own.
        anywhere: tell of builds that this machine could not make, too, and without targets; else as
            a candidate's own process here would make them.
        lent: source of what the reference lends to the solution.
        capability: of the GPU that the solution finds, such as (9, 0), or None for the CPU.
    """

    solution: str
    reference_source: str | None
    scratch: str
    plan: Plan
    anywhere: bool = False
    lent: str = ""
    capability: tuple[int, int] | None = None


class CaptureReply(msgspec.Struct, frozen=True, kw_only=True):
    """The capturing process's answer: what is built, in order.

    Attributes:
        failure: None if the solution came as far as it had to.
    """

    recipes: tuple[Recipe, ...] = ()
    failure: CaptureFailure | None = None
