"""What renders the shipped problems, as the headers of the committed solutions say."""

import re
from pathlib import Path

from kernelgen.problem.library import all_problems

SOLUTIONS = Path(__file__).resolve().parent.parent / "solutions"
# Name of a problem -> its template, such as `segment_norm`; "" where its kernels are planned.
TEMPLATES: dict[str, str] = {}
PROBLEMS = all_problems()  # read once a process
for _problem in PROBLEMS:
    _text = (SOLUTIONS / f"{_problem.name}.py").read_text(encoding="utf-8")
    _found = re.search(r"^# templates: (\S+)\.py\.jinja ", _text, re.MULTILINE)
    assert _found is not None
    TEMPLATES[_problem.name] = "" if "/" in _found[1] else _found[1]
