"""Folders that can be read, names that say something, and cheap commands that stay cheap.

Which package may import which is in pyproject.toml, and `lint-imports` checks it.
"""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kernelgen

FILES = sorted(Path(kernelgen.__file__).parent.rglob("*.py"))
MOST_MODULES = 20


def test_no_folder_is_too_full_to_be_read() -> None:
    counts = Counter(str(file.parent) for file in FILES if file.name != "__init__.py")

    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_no_file_has_a_name_that_says_nothing() -> None:
    stems = {"utils", "util", "helpers", "helper", "common", "misc"}

    assert [str(file) for file in FILES if file.stem in stems] == []


def test_no_docstring_begins_with_a_question() -> None:
    named = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{file.name}: {first}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, named)
        and (first := (ast.get_docstring(node) or "").partition(" ")[0])
        in {"What", "Who", "Whose", "So"}
    ]
    assert found == []


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["show", "groupnorm"]])
def test_cheap_commands_import_no_torch(arguments: list[str]) -> None:
    script = (
        "import sys\n"
        "from kernelgen.cli import program\n"
        f"try:\n    program({arguments!r})\n"
        "except SystemExit as leaving:\n    assert leaving.code == 0, leaving.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout
