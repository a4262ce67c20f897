"""Facts of a problem's reference for the contract, read from its source, never run."""

import ast

import msgspec

from kernelgen.problem.python_signature import (
    Signature,
    find_class,
    find_function,
    returned_count,
    signature_of,
)
from kernelgen.problem.python_text import parse_python, undefined_names
from kernelgen.problem.record import Problem


class ReferenceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the reference is called, and what it names.

    Attributes:
        calls: `__init__` and `forward` -> signature, and the number of positional arguments that it
            is called with, None if not evident.
        undefined: names that the reference itself uses and lacks, where it never runs.
    """

    calls: dict[str, tuple[Signature, int | None]]
    undefined: frozenset[str]


def reference_facts(problem: Problem) -> ReferenceFacts:
    """Return the facts of a problem's main case."""
    text = problem.reference_source(problem.all_cases()[0], "cuda")
    tree = parse_python(text)
    model = find_class(tree.body, "Model")
    body = model.body if model is not None else []
    functions = {name: find_function(tree.body, name) for name in ("get_inputs", "get_init_inputs")}
    return ReferenceFacts(
        calls={
            "__init__": (_method(body, "__init__"), returned_count(functions["get_init_inputs"])),
            "forward": (_method(body, "forward"), returned_count(functions["get_inputs"])),
        },
        undefined=frozenset(use.name for use in undefined_names(text, tree)),
    )


def _method(body: list[ast.stmt], name: str) -> Signature:
    function = find_function(body, name)
    return signature_of(function, method=True) if function is not None else Signature()
