"""Requests of the supervisor to the fork server, and its answers."""

from typing import Literal

import msgspec

from kernelgen.sandbox.record import Plan

# Modules that a fork server imports for oracles. A first call on tensors without data imports
# those of torch, which takes as long as torch itself.
USUAL_MODULES = (
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "kernelgen.grading.oracle.service",
)
# Modules that torch.compile imports besides.
COMPILER_MODULES = (*USUAL_MODULES, "torch._inductor.compile_fx")
# For candidates: the host, before its walls hide the package, and most of what torch's builder
# imports. Not torch.utils.cpp_extension itself: it asks CUDA for a GPU.
CANDIDATE_MODULES = ("kernelgen.grading.candidate.host", "setuptools")

# A server is one more fork server.
Role = Literal["oracle", "candidate", "server"]


class Fork(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start a worker; its channel and its log come along as descriptors. Answered by Forked.

    Attributes:
        plan: what to put around it; None for a worker that is trusted.
        cores: that it runs on; those of its server unless told.
        number: of the request; the answer has it too.
    """

    role: Role
    scratch: str
    environment: dict[str, str]
    plan: Plan | None = None
    cores: tuple[int, ...] = ()
    number: int = 0


class Look(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask whether a worker still runs.

    Attributes:
        kill: end it and all that it started.
        tell: have it write to its log where it is; a hang is explained by nothing better.
        kept: the process id is a keeper's, see kernelgen/sandbox/keeper.py; the one to tell is
            behind it.
        number: of the request; the answer has it too.
    """

    pid: int
    kill: bool = False
    tell: bool = False
    kept: bool = False
    number: int = 0


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's process id, and the number of the request."""

    pid: int
    number: int


class Looked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's end: the code it exited with, minus the signal's number, or None while it runs.

    And the number of the request.
    """

    exit_code: int | None
    number: int
