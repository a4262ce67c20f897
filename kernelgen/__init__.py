"""Render CUDA solutions from YAML problems, and grade any solution: a verdict that can be trusted.

The public API is this module: `load_problem`, `render`, `grade`, `Grader`, `read_run` and the types
of what they take and give. The names are resolved on first use, so that importing the package stays
cheap and never imports torch. The packages behind them are called `rendering` and `grading`: a
submodule called `render` would, once imported, take the function's place.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelgen.errors import UserError as UserError
    from kernelgen.grading.options import GradeOptions as GradeOptions
    from kernelgen.grading.reward import RewardPolicy as RewardPolicy
    from kernelgen.grading.supervisor.grade import grade as grade
    from kernelgen.grading.verdict import Run as Run
    from kernelgen.grading.verdict import Status as Status
    from kernelgen.grading.verdict import Verdict as Verdict
    from kernelgen.problem.library import load_problem as load_problem
    from kernelgen.problem.record import Problem as Problem
    from kernelgen.rendering.solution import render as render
    from kernelgen.report.json_report import read_run as read_run
    from kernelgen.service.grader import Candidate as Candidate
    from kernelgen.service.grader import Grader as Grader

__version__ = "0.2.0"
_HOMES = {
    "Candidate": "kernelgen.service.grader",
    "GradeOptions": "kernelgen.grading.options",
    "Grader": "kernelgen.service.grader",
    "Problem": "kernelgen.problem.record",
    "Run": "kernelgen.grading.verdict",
    "RewardPolicy": "kernelgen.grading.reward",
    "Status": "kernelgen.grading.verdict",
    "UserError": "kernelgen.errors",
    "Verdict": "kernelgen.grading.verdict",
    "grade": "kernelgen.grading.supervisor.grade",
    "load_problem": "kernelgen.problem.library",
    "read_run": "kernelgen.report.json_report",
    "render": "kernelgen.rendering.solution",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 (they are names)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernelgen' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
