"""Names of operands and steps: none is one that a stage's template uses beside it."""

import re
from pathlib import Path

from kernelgen.installation import templates_folder
from kernelgen.planning.naming import Names

_TYPES = (
    "auto|bool|const|double|float|int|int64_t|unsigned|void|Arguments|Distances|Four|Outcome|State"
    "|Sums|T"
)
_DECLARED = re.compile(rf"\b(?:{_TYPES})[&*]* ([a-z]\w*)(?= =|[;,)\[{{])")
_DECLARED_TOO = re.compile(r"(?<=[,{]) ?([a-z]\w*)(?= = )")
_ASSIGNED = re.compile(r"^ +([a-z]\w*) = ", re.MULTILINE)  # Python
_CALLED = re.compile(r"(?<![\w.:>])([a-z]\w*)(?:<[\w, ]+>)?(?=\(|<<<)")
# Where these are named no operand is near, but for the sums `s` of a segment.
_APART = {"b", "max", "mean", "min", "s", "squares", "sum", "total", "variance", "x", "y"}


def _names_of(path: Path) -> set[str]:
    text = path.read_text()
    text = re.sub(r"^ *(//|#)%.*", "", text, flags=re.MULTILINE)  # Jinja's
    text = re.sub(r"/\*%.*?%\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\w*\$\{.*?\}\w*", " ", text, flags=re.DOTALL)
    text = re.sub(r'//.*|"[^"\n]*"', "", text)
    return {
        name
        for form in (_DECLARED, _DECLARED_TOO, _ASSIGNED, _CALLED)
        for name in form.findall(text)
    }


def test_an_operand_is_called_like_nothing_that_the_templates_name() -> None:
    folders = [templates_folder() / folder for folder in ("cuda/stages", "cpp/stages", "stages")]
    names = {name for folder in folders for path in folder.iterdir() for name in _names_of(path)}
    assert {"add", "across_lanes", "mapped", "left", "len", "max", "warp", "windows"} <= names
    assert {name for name in names - _APART if Names().local(name) == name} == set()
