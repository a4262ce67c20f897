"""Importing a solution's file, or a reference's, in the process that is there to run it."""

import ast
import importlib.util
import linecache
import sys
from pathlib import Path
from types import ModuleType

_LENT = "<reference>"


def import_file(name: str, path: Path, text: str | None = None, *, lent: str = "") -> ModuleType:
    """Run a Python file, or a text in its place, as the module of a name; raises what that raises.

    The module is in `sys.modules` while it runs, as Python has it: classes look it up there. What
    is `lent`, Python source, runs in its namespace before: KernelBench runs both in one. What runs
    is the file as UTF-8, as everybody else reads it, whatever encoding its first lines declare.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if lent:
        # Compilers of Python, such as torch.jit's, read a function's source.
        linecache.cache[_LENT] = (len(lent), None, lent.splitlines(keepends=True), _LENT)
        exec(compile(lent, _LENT, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    text = path.read_text(encoding="utf-8") if text is None else text
    exec(compile(text.removeprefix("\ufeff"), path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module


def run_text(
    name: str, source: str, filename: str, change: ast.NodeTransformer | None = None
) -> ModuleType:
    """Run Python source that has no file as the module of a name; raises what that raises.

    As of one that has a file, dataclasses find the module, and torch.jit.script the lines. What
    runs may be changed.
    """
    module = ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    source = source.removeprefix("\ufeff")
    lines = [f"{line}\n" for line in source.split("\n")]
    linecache.cache[filename] = (len(source), None, lines, filename)
    run = source if change is None else change.visit(ast.parse(source))
    exec(compile(run, filename, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    return module
