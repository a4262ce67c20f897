"""A KernelBench file as a problem: one Python module with Model, get_inputs and get_init_inputs."""

import ast
import re
from pathlib import Path

from kernelgen.errors import ProblemError
from kernelgen.problem.python_block import require_interface
from kernelgen.problem.python_text import NotPythonError, parse_python
from kernelgen.problem.record import Problem, digest
from kernelgen.problem.text import decode, read_raw


def read_kernelbench_problem(path: Path, raw: bytes | None = None) -> Problem:
    """Read a problem from a KernelBench-style Python file, without running it.

    `raw` takes the place of the file's content.

    Its name is the file's, with anything but letters, digits, `_` and `-` replaced; its summary is
    the first line of the module's docstring, else of Model's, else the name.

    Raises:
        ProblemError: the file cannot be read, is not Python, or lacks a part of the interface.
    """
    raw = read_raw(path) if raw is None else raw
    text = decode(path, raw)
    try:
        tree = parse_python(text)
    except NotPythonError as error:
        raise ProblemError(path, error.line, None, f"not Python: {error}") from error
    try:
        require_interface(path, text, tree)
    except RecursionError as error:
        raise ProblemError(path, None, None, "nested too deeply to be understood") from error
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem).strip("_-")
    if not name:
        raise ProblemError(path, None, None, "the file's name holds no letter or digit; rename it")
    return Problem(
        name=name,
        summary=_summary(tree) or name.replace("_", " "),
        path=path,
        sha256=digest(raw),
        module_source=text,
    )


def _summary(tree: ast.Module) -> str:
    models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    documented: list[ast.Module | ast.ClassDef] = [tree, *models]
    for node in documented:
        text = (ast.get_docstring(node) or "").strip()
        if text:
            return text.splitlines()[0].strip()
    return ""
