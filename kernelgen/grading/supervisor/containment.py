"""What is put around a candidate, from what was asked for and what this machine offers."""

import tempfile
from pathlib import Path

from kernelgen.grading.options import GradeOptions
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Problem
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Containment, Plan
from kernelgen.sandbox.survey import survey
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.imports import allowed_modules
from kernelgen.solution.source import Source


def plan_for(options: GradeOptions, solution: SolutionFile, problem: Problem, folder: Path) -> Plan:
    """Return what to put around a candidate."""
    if options.sandbox == "off":
        return Plan(
            level="none",
            landlock_abi=0,
            scratch=str(folder),
            limits=None,
            missing=("it was turned off: --sandbox off",),
        )
    found = survey()
    # It parses: the contract was checked on it.
    source = Source(solution.text, parse_python(solution.text))
    # What may hold other candidates or problems, wherever they are kept.
    suspects = (Path.cwd(), solution.path.parent, problem.path.parent, Path(tempfile.gettempdir()))
    return Plan(
        level=found.level,
        landlock_abi=found.landlock_abi,
        scratch=str(folder.resolve()),
        limits=options.limits or usual_limits(),
        hidden=tuple(str(suspect.resolve()) for suspect in suspects),
        home=str(Path.home()),
        imports=allowed_modules(source, problem, options.allow_imports),
        missing=found.missing,
    )


def warnings_about(found: Containment) -> tuple[str, ...]:
    """Return what a verdict has to say about a candidate that was not contained."""
    if found.level != "none":
        return ()
    return (f"the candidate was not contained: {'; '.join(found.missing)}",)
