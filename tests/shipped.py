"""The shipped problems, rendered as the headers of the committed solutions say."""

from pathlib import Path

from kernelgen.problem.library import all_problems

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"
# Name of a problem -> `product` if it has one, `one_pass` if it has a long segment; else "".
TEMPLATES: dict[str, str] = {}
PROBLEMS = all_problems()  # read once a process
for _problem in PROBLEMS:
    _text = (SOLUTIONS / f"{_problem.name}.py").read_text(encoding="utf-8")
    _one_pass = "one_pass" if "map_slices" in _text else ""
    TEMPLATES[_problem.name] = "product" if "_multiply(" in _text else _one_pass
