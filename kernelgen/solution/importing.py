"""Importing a solution's file, or a reference's, in the process that is there to run it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_file(name: str, path: Path) -> ModuleType:
    """Run a Python file as the module of a name; raises whatever the file raises.

    The module is in `sys.modules` while it runs, as Python has it: classes look it up there.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
