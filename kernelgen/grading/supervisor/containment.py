"""Containment of a candidate, from what was asked for and what this machine offers."""

from pathlib import Path

import msgspec

from kernelgen.grading.options import GradeOptions
from kernelgen.problem.python_text import parse_python
from kernelgen.problem.record import Problem
from kernelgen.sandbox.record import Plan
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
    # It parses: the contract was checked on it.
    source = Source(solution.text, parse_python(solution.text))
    plan = survey().plan(folder, (solution.path.parent, problem.path.parent), options.limits)
    imports = allowed_modules(source, problem, options.allow_imports)
    return msgspec.structs.replace(plan, imports=imports)
