"""The Python blocks of a YAML problem: parsed and checked, never run."""

import ast
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
        first = self.value.first_text_line
        return self.value.error(message, line=None if first is None else first + line - 1)

    def require_model(self) -> None:
        """Refuse a block that does not define `class Model` with a `forward`."""
        model = find_class(self.tree.body, "Model")
        if model is None:
            raise self.error("expected `class Model(nn.Module)`, found no class of that name")
        if not model.bases:
            raise self.error("expected `class Model(nn.Module)`, found no base class", model.lineno)
        if find_function(model.body, "forward") is None:
            raise self.error("expected Model to define `forward`, found none", model.lineno)

    def require_function(self, name: str) -> None:
        """Refuse a block that does not define a function callable without arguments."""
        function = find_function(self.tree.body, name)
        if function is None:
            raise self.error(f"expected `def {name}()`, found no function of that name")
        if isinstance(function, ast.AsyncFunctionDef):
            raise self.error(f"expected `def {name}()`, found `async def`", function.lineno)
        signature = signature_of(function, method=False)
        if not signature.accepts(0):
            message = f"expected `def {name}()`, found `def {name}{signature.text}`"
            raise self.error(f"{message}; name its sizes under `constants`", function.lineno)

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
    bound = bound_names(text)
    for name, written in _INTERFACE:
        if name not in bound:
            message = f"expected `{written}`, as a KernelBench file has it, found none; add it"
            raise ProblemError(path, None, name, message)
        function = find_function(tree.body, name)
        if function is not None and not signature_of(function, method=False).accepts(0):
            found = signature_of(function, method=False).text
            message = f"expected `{written}`, found required parameters {found}; remove them"
            raise ProblemError(path, function.lineno, name, message)
    model = find_class(tree.body, "Model")
    if model is not None and model.bases and find_function(model.body, "forward") is None:
        is_plain = any(ast.unparse(base).split(".")[-1] == "Module" for base in model.bases)
        if is_plain:
            message = "expected Model to define `forward`, found none; add it"
            raise ProblemError(path, model.lineno, "Model", message)
    for method, maker in (("__init__", "get_init_inputs"), ("forward", "get_inputs")):
        takes = find_function(model.body if model else [], method)
        gives = find_function(tree.body, maker)
        count = returned_count(gives)
        if takes is None or takes.decorator_list or gives is None or count is None:
            continue
        signature = signature_of(takes, method=True)
        if not (gives.decorator_list or signature.accepts(count)):
            message = f"returns {count} arguments, but Model.{method} takes {signature.text}"
            raise ProblemError(path, gives.lineno, maker, f"{message}; let them agree")


_INTERFACE = (
    ("Model", "class Model(nn.Module)"),
    ("get_inputs", "def get_inputs()"),
    ("get_init_inputs", "def get_init_inputs()"),
)
