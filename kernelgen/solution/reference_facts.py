"""Facts of a problem's reference for the contract, read from its source, never run."""

import ast
from collections.abc import Iterator

import msgspec

from kernelgen.problem.python_signature import (
    Function,
    Signature,
    find_class,
    find_function,
    returned_count,
    signature_of,
)
from kernelgen.problem.python_text import parse_python, undefined_names
from kernelgen.problem.record import Case, Device, Problem


class ReferenceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the reference is called, and what it names.

    Attributes:
        calls: `__init__` and `forward` -> signature, and the number of positional arguments that it
            is called with, None if not evident.
        constants: name -> values as Python source, one for each device if they differ.
        functions: `get_inputs` and `get_init_inputs` -> syntax tree as text, to compare with.
        undefined: names that the reference itself uses and lacks, where it never runs.
    """

    calls: dict[str, tuple[Signature, int | None]]
    constants: dict[str, tuple[str, ...]]
    functions: dict[str, str]
    undefined: frozenset[str]


def reference_facts(problem: Problem) -> ReferenceFacts:
    """Return the facts of a problem's main case."""
    main = problem.all_cases()[0]
    text = problem.reference_source(main, "cuda")
    tree = parse_python(text)
    model = find_class(tree.body, "Model")
    body = model.body if model is not None else []
    functions = {name: find_function(tree.body, name) for name in ("get_inputs", "get_init_inputs")}
    return ReferenceFacts(
        calls={
            "__init__": (_method(body, "__init__"), returned_count(functions["get_init_inputs"])),
            "forward": (_method(body, "forward"), returned_count(functions["get_inputs"])),
        },
        constants=_constants(problem, main),
        functions={name: comparable(f) for name, f in functions.items() if f is not None},
        undefined=frozenset(use.name for use in undefined_names(text, tree)),
    )


def module_constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and value of each plain assignment at module level."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def source_of_value(node: ast.expr) -> str:
    """Return an expression in one form, so that `1e-5` equals `0.00001`, and a list a tuple."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, OverflowError):
        return ast.unparse(node)
    return repr(tuple(value) if isinstance(value, list) else value)


def comparable(function: Function) -> str:
    """Return a function's body as text without its docstring, the same for the same code."""
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    return "\n".join(ast.unparse(statement) for statement in body)


def _method(body: list[ast.stmt], name: str) -> Signature:
    function = find_function(body, name)
    return signature_of(function, method=True) if function is not None else Signature()


def _constants(problem: Problem, main: Case) -> dict[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    devices: tuple[Device, ...] = ("cuda", "cpu")
    for device in devices:
        tree = parse_python(problem.reference_source(main, device))
        for name, node in module_constants(tree):
            values[name] = tuple(dict.fromkeys((*values.get(name, ()), source_of_value(node))))
    return values
