"""The Python blocks of a YAML problem: parsed and checked, never run."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kernelgen.errors import ProblemError
from kernelgen.problem.python_signature import (
    find_class,
    find_function,
    returned_count,
    signature_of,
)
from kernelgen.problem.python_text import NotPythonError, bound_names, parse_python, undefined_names
from kernelgen.problem.yaml_tree import YamlValue

GIVEN_IMPORTS = ("torch", "nn", "F")
"""Names that every block may use: torch, torch.nn and torch.nn.functional."""


class PythonBlock:
    """One block of Python in a YAML file.

    Raises:
        ProblemError: the text is not Python.
    """

    def __init__(self, value: YamlValue) -> None:
        self.value = value
        self.text = value.text()
        try:
            self.tree = parse_python(self.text)
            self.names = bound_names(self.text)
        except NotPythonError as error:
            raise self.error(f"not Python: {error}", error.line) from error
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                message = "a block cannot import from __future__: it does not begin the module"
                raise self.error(f"{message}; remove the line", node.lineno)

    def error(self, message: str, line: int = 1) -> ProblemError:
        """Return the error that blames a line of the block, 1-based within it."""
        # Only of a `|` block is it known where each line of the text stands.
        is_block = getattr(self.value.node, "style", None) == "|"
        return self.value.error(message, line=self.value.line + line if is_block else None)

    def require(self, name: str) -> None:
        """Refuse a block without a part of the interface."""
        for message, line in interface_faults(name, self.names, self.tree):
            raise self.error(message, line or 1)

    def require_count(self, name: str, model: "PythonBlock") -> None:
        """Refuse a block whose function returns another number of arguments than a Model takes."""
        for message, line in count_faults(name, self.tree, model.tree):
            raise self.error(message, line)

    def refuse_rebinding(self, names: tuple[str, ...]) -> None:
        """Refuse a block that binds a name which is given to it, such as a constant."""
        for name in names:
            if name in self.names:
                message = f"the block binds `{name}` again, which would hide the problem's own"
                raise self.error(f"{message}; rename it in the block")

    def refuse_undefined(self, known: frozenset[str]) -> None:
        """Refuse a block that uses a name which nothing defines."""
        for use in undefined_names(self.text, self.tree):
            if use.name not in known:
                mend = "define it under `constants`, import it in the block, or mend its spelling"
                raise self.error(f"the name `{use.name}` is defined nowhere; {mend}", use.line)


def require_interface(path: Path, text: str, tree: ast.Module) -> None:
    """Refuse a module without Model, get_inputs or get_init_inputs.

    Raises:
        ProblemError: one of them is missing or cannot be called without arguments, or Model
            cannot be called with what they return.
    """
    for name in INTERFACE:
        for message, line in interface_faults(name, bound_names(text), tree):
            raise ProblemError(path, line, name, message)
    for name in _CALLED:
        for message, line in count_faults(name, tree, tree):
            raise ProblemError(path, line, name, message)


INTERFACE = {
    "Model": "class Model(nn.Module)",
    "get_inputs": "def get_inputs()",
    "get_init_inputs": "def get_init_inputs()",
}
"""A problem's definitions, as they are written."""
_CALLED = {"get_init_inputs": "__init__", "get_inputs": "forward"}


def interface_faults(
    name: str, bound: frozenset[str], tree: ast.Module
) -> Iterator[tuple[str, int | None]]:
    """Yield what is wrong with a part of the interface of a module that binds names, with the line.

    What it is bound to other than by `def` or `class` is not looked at.
    """
    expected = f"expected `{INTERFACE[name]}`"
    if name not in bound:
        yield f"{expected}, found none; add it", None
    function, model = find_function(tree.body, name), find_class(tree.body, name)
    if function is not None:
        text = signature_of(function, method=False).text
        if isinstance(function, ast.AsyncFunctionDef):
            yield f"{expected}, found `async def {name}{text}`", function.lineno
        elif not signature_of(function, method=False).accepts(0):
            mend = "name its sizes as constants"
            yield f"{expected}, found `def {name}{text}`; {mend}", function.lineno
    if model is not None and not model.bases:
        yield f"{expected}, found no base class", model.lineno
    elif model is not None and not (find_function(model.body, "forward") or _may_inherit(model)):
        yield "expected Model to define `forward`, found none; add it", model.lineno


def count_faults(name: str, tree: ast.Module, models: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield how many arguments a function returns where a Model takes no such number, and its line.

    Args:
        name: get_inputs or get_init_inputs.
        tree: of the module that defines the function.
        models: of the module that defines Model.
    """
    model, gives = find_class(models.body, "Model"), find_function(tree.body, name)
    takes = find_function(model.body if model else [], _CALLED[name])
    count = returned_count(gives)
    if takes is None or takes.decorator_list or gives is None or count is None:
        return
    signature = signature_of(takes, method=True)
    if not (gives.decorator_list or signature.accepts(count)):
        message = f"returns {count} arguments, but Model.{takes.name} takes {signature.text}"
        yield f"{message}; let them agree", gives.lineno


def _may_inherit(model: ast.ClassDef) -> bool:
    """Whether a class that is no plain nn.Module may have forward from a base."""
    return all(ast.unparse(base).split(".")[-1] != "Module" for base in model.bases)
