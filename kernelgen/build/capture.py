"""Ask a contained process what a solution would build, under a deadline."""

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from kernelgen.build.source import MOST_EXTENSIONS, TOO_MANY, CaptureReply, CaptureRequest
from kernelgen.installation import problems_folder
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.survey import survey
from kernelgen.solution.file import read_solution
from kernelgen.solution.lending import construction_source, lent_to

Tell = Callable[[CaptureRequest, float], CaptureReply]
"""Asks a contained process, which gets so many seconds.

Raises:
    CaptureError: it gave no reply.
    KernelgenFault: this machine could not contain it.
"""


class CaptureError(Exception):
    """The capturing process gave no reply; the message says how it ended."""


def capture_sources(  # noqa: PLR0913 (what is asked, and for how long)
    solution: Path,
    reference_source: str | None,
    scratch: Path,
    tell: Tell,
    *,
    lends: bool = False,
    capability: tuple[int, int] | None = None,
    timeout_s: float = 120.0,
) -> CaptureReply:
    """Return what a solution would build, found by importing it in a process of its own.

    `reference_source` defines get_init_inputs and get_inputs; None uses the solution's own. It
    `lends` the names that the solution lacks, or not. With a `capability`, such as (9, 0), torch
    tells the solution that there is such a GPU. After `timeout_s` the process and all that it
    started are killed.

    Raises:
        CaptureError: it ran out of time, crashed, left without a reply, or has no end of them.
        KernelgenFault: this machine could not contain it.
    """
    inside = scratch / "inside"
    inside.mkdir(exist_ok=True)
    request = CaptureRequest(
        solution=str(solution.resolve()),
        reference_source=reference_source and construction_source(reference_source),
        scratch=str(inside.resolve()),
        plan=plan_to_build(inside, solution),
        anywhere=True,
        lent=lent_to(read_solution(solution).text, reference_source).source if lends else "",
        capability=capability,
    )
    reply = tell(request, timeout_s)
    if len(reply.recipes) > MOST_EXTENSIONS:
        raise CaptureError(TOO_MANY)
    return reply


def no_reply(code: int, printed: str) -> str:
    """Return what to say of a process that left with this code, negative for a signal."""
    how = (
        f"was killed by {signal.Signals(-code).name}" if code < 0 else f"left with exit code {code}"
    )
    what = f"the process that imported the file {how} before it could say what it builds"
    return f"{what}; it printed:\n{printed}" if printed else what


def plan_to_build(scratch: Path, solution: Path, extra: tuple[str, ...] = ()) -> Plan:
    """Return as much containment for a solution or its compilers as this machine has.

    `scratch` exists and holds nothing that is needed. The solution's folder is shown with it, for
    the sources beside it.
    """
    readable = (str(_whole_or_alone(solution)), *extra)
    return msgspec.structs.replace(survey().plan(scratch), readable=readable)


def _whole_or_alone(file: Path) -> Path:
    """Return a solution's folder, or the file itself where that folder holds much else."""
    folder = file.resolve().parent
    large = (Path.home().resolve(), problems_folder(), Path(tempfile.gettempdir()).resolve())
    return file.resolve() if any(one.is_relative_to(folder) for one in large) else folder
