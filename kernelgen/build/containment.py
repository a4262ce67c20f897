"""What is put around a solution that is built without being graded, and around its compilers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelgen.installation import problems_folder
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.survey import survey


def plan_to_build(scratch: Path, shown: tuple[Path, ...], extra: tuple[str, ...] = ()) -> Plan:
    """Return as much containment as this machine has.

    Args:
        scratch: an existing folder to work in, with nothing in it that is needed.
        shown: files of the solution; its folder is shown with each, for the sources beside it.
        extra: further folders to be read, such as those of headers that the solution names.
    """
    found = survey()
    home = Path.home()
    return Plan(
        level=found.level,
        landlock_abi=found.landlock_abi,
        scratch=str(scratch.resolve()),
        limits=usual_limits(),
        readable=(*(str(_whole_or_alone(file)) for file in shown), *extra),
        hidden=(str(Path.cwd()), str(Path(tempfile.gettempdir()).resolve())),
        home=str(home),
        missing=found.missing,
    )


def _whole_or_alone(file: Path) -> Path:
    """Return a solution's folder, or the file itself where that folder holds much else."""
    folder = file.resolve().parent
    large = (Path.home().resolve(), problems_folder(), Path(tempfile.gettempdir()).resolve())
    return file.resolve() if any(one.is_relative_to(folder) for one in large) else folder
