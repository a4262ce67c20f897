"""What renders the shipped problems, as the headers of the committed solutions say."""

import re
from pathlib import Path

from kernelgen.problem.library import all_problems

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"
# Name of a problem -> `segment_norm`, its template; `product` if it has one; else "".
TEMPLATES: dict[str, str] = {}
PROBLEMS = all_problems()  # read once a process
for _problem in PROBLEMS:
    _text = (SOLUTIONS / f"{_problem.name}.py").read_text(encoding="utf-8")
    _found = re.search(r"^# templates: (\S+)\.py\.jinja ", _text, re.MULTILINE)
    assert _found is not None
    _planned = "product" if "_multiply(" in _text else ""
    TEMPLATES[_problem.name] = _planned if "/" in _found[1] else _found[1]
