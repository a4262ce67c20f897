"""Importing a solution's file, or a reference's, in the process that is there to run it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from kernelgen.problem.python_text import names_lent


def import_file(
    name: str, path: Path, text: str | None = None, *, reference: str = ""
) -> ModuleType:
    """Run a Python file, or a text in its place, as the module of a name; raises what that raises.

    The module is in `sys.modules` while it runs, as Python has it: classes look it up there. What
    it lacks and a `reference`, Python source, has is lent to it: KernelBench runs both in one
    namespace.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if reference:
        own = path.read_text(encoding="utf-8") if text is None else text
        module.__dict__.update(_lent(own, reference))
    if text is None:
        spec.loader.exec_module(module)
    else:
        code = compile(text.removeprefix("\ufeff"), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102
    return module


def _lent(text: str, reference: str) -> dict[str, object]:
    names = names_lent(text, reference)
    if not names:
        return {}
    lender = ModuleType("kernelgen_lender")
    sys.modules[lender.__name__] = lender
    exec(compile(reference, "<reference>", "exec", dont_inherit=True), lender.__dict__)  # noqa: S102
    return {name: value for name, value in vars(lender).items() if name in names}
