"""Importing a solution's file, or a reference's, in the process that is there to run it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_file(name: str, path: Path, text: str | None = None) -> ModuleType:
    """Run a Python file, or a text in its place, as the module of a name; raises what that raises.

    The module is in `sys.modules` while it runs, as Python has it: classes look it up there.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if text is None:
        spec.loader.exec_module(module)
    else:
        code = compile(text.removeprefix("\ufeff"), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102
    return module
