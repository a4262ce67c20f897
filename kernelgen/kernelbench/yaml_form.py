"""A KernelBench file as the text of a YAML problem, in which nothing of its module is lost.

Literals that the module assigns once become `constants`. Everything else stays as it is written, in
its order: up to the last statement that Model needs in `model`, the rest in `get_inputs`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.python_text import (
    USUAL_IMPORTS,
    bound_names,
    name_uses,
    needed_by,
    parse_python,
    undefined_names,
)
from kernelgen.problem.record import ConstantValue, Problem
from kernelgen.problem.yaml_file import Constants, problem_of, read_constants
from kernelgen.problem.yaml_tree import as_yaml, read_tree
from kernelgen.solution.source import is_main_block

_FUNCTIONS = ("get_inputs", "get_init_inputs")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.USub, ast.UAdd)
_LITERAL = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.expr_context, *_ARITHMETIC)


class _Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A statement at the top level of a module, and its text with the comments above it."""

    node: ast.stmt
    text: str

    @property
    def function(self) -> str | None:
        """Return the name of the function that it defines."""
        return self.node.name if isinstance(self.node, ast.FunctionDef) else None


def yaml_form(source: Path, destination: Path) -> str:
    """Return the YAML problem that a KernelBench file is.

    Args:
        source: the file.
        destination: where the text is to go; its name is the problem's.

    Raises:
        UserError: the file is wrong, or holds what a YAML problem cannot.
    """
    problem = read_kernelbench_problem(source)
    assert problem.module_source is not None
    parts = _parts_of(problem.module_source)
    functions = {name: [p for p in parts if p.function == name] for name in _FUNCTIONS}
    for name, found in functions.items():
        if len(found) != 1:
            message = f"expected one `def {name}()` at the top level, found {len(found)}"
            raise ProblemError(source, None, name, message)
    others = [part for part in parts if part.function not in _FUNCTIONS]
    for part in others:
        _refuse_early_call(source, part)
    lifted = _lifted(others)
    rest = [part for part in others if part not in lifted and not _is_left_out(part, problem)]
    cut = max(needed_by(["Model"], [part.node for part in rest]), default=-1) + 1
    blocks = {
        "model": _declared(parts) + _joined(rest[:cut]),
        "get_inputs": _joined([*rest[cut:], *functions["get_inputs"]]),
        "get_init_inputs": _joined(functions["get_init_inputs"]),
    }
    lines = [
        f"# From {source.parent.name}/{source.name}.",
        f"summary: {as_yaml(problem.summary)}",
        *_constant_lines(lifted),
    ]
    for key, text in blocks.items():
        lines += [f"\n{key}: |", *(f"  {line}" if line else "" for line in text.split("\n"))]
    text = "\n".join([*lines, ""])
    _require_same(source, destination, text, blocks)
    return text


def _parts_of(text: str) -> list[_Part]:
    """Return the statements of a module that parses, in order.

    A statement that shares a line with another is written anew.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines, nodes = text.split("\n"), parse_python(text).body
    parts: list[_Part] = []
    end = 0
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        first, last = _first_line(node), node.end_lineno or node.lineno
        shares = first <= end or (following is not None and _first_line(following) <= last)
        if following is None:
            last = len(lines)
        above = [line.strip() for line in lines[end : first - 1]]
        own = ast.unparse(node) if shares else "\n".join(lines[first - 1 : last]).rstrip()
        parts.append(_Part(node=node, text="\n".join([*above, own])))
        end = last
    return parts


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _refuse_early_call(source: Path, part: _Part) -> None:
    """Refuse a statement that needs get_inputs when the module is imported: it comes later now."""
    at_once, _ = name_uses(ast.Module([part.node], []))
    for use in () if is_main_block(part.node) else sorted(at_once):
        if use.name in _FUNCTIONS:
            message = f"`{use.name}` is used while the file is imported; call it in a function"
            raise ProblemError(source, use.line, use.name, message)


def _is_left_out(part: _Part, problem: Problem) -> bool:
    """Whether a statement is given to every YAML problem, stands in it elsewhere, or never runs."""
    if isinstance(part.node, ast.Import | ast.ImportFrom):
        return ast.unparse(part.node) in USUAL_IMPORTS
    docstring = ast.get_docstring(ast.Module([part.node], [])) or ""
    return docstring.strip() == problem.summary or is_main_block(part.node)


def _lifted(parts: list[_Part]) -> dict[_Part, Constants]:
    """Return the assignments that become constants, with these."""
    found = {part: made for part in parts if (made := _constants_of(part.node)) is not None}
    # A name that is bound twice has no one value.
    while True:
        names = [name for made in found.values() for name in made]
        taken = {name for p in parts if p not in found for name in bound_names(p.text)}
        taken |= {name for name in names if names.count(name) > 1}
        kept = {part: made for part, made in found.items() if taken.isdisjoint(made)}
        if len(kept) == len(found):
            return kept
        found = kept


def _constants_of(node: ast.stmt) -> Constants | None:
    """Return the constants that a statement assigns, None where YAML cannot have all it does."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    (target,), values = node.targets, (_value_of(node.value),)
    if isinstance(target, ast.Tuple) and isinstance(values[0], tuple):
        values = values[0]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    made = dict(zip(names, values, strict=False))
    whole = len(made) == len(targets) == len(values)
    return made if whole and all(map(_is_read_back, names, values)) else None


def _is_read_back(name: str, value: ConstantValue) -> bool:
    """Whether YAML can have a constant of this name and value."""
    try:
        pair = f"{name}: {as_yaml(value)}".encode()
        return repr(read_constants(read_tree(Path("constant"), pair))) == repr({name: value})
    except (ProblemError, UnicodeEncodeError, yaml.YAMLError):
        return False


def _value_of(node: ast.expr) -> Any:
    """Return the value of literals, tuples and arithmetic of numbers; None of anything else."""
    operations = [one for one in ast.walk(node) if isinstance(one, ast.BinOp | ast.UnaryOp)]
    # A text or tuple times a number could take all memory.
    factors = [part for one in operations for part in ast.iter_child_nodes(one)]
    if not all(isinstance(one, _LITERAL) for one in ast.walk(node)) or any(
        isinstance(part, ast.Tuple)
        or (isinstance(part, ast.Constant) and type(part.value) not in {int, float})
        for part in factors
    ):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"))  # noqa: S307
    except ArithmeticError:
        return None


def _joined(parts: list[_Part]) -> str:
    return "\n".join(part.text for part in parts).strip("\n")


def _declared(parts: list[_Part]) -> str:
    """Declare, without defining them, names that the module does not define either.

    They are in branches that never run; a YAML problem is refused where a name is misspelt.
    """
    text = "\n".join(part.text for part in parts)
    names = {use.name for use in undefined_names(text, parse_python(text))}
    lines = (f"{name}: object  # the file does not define it either\n" for name in sorted(names))
    return "".join(lines)


def _constant_lines(lifted: dict[_Part, Constants]) -> Iterator[str]:
    """Yield constants, below what the file has in their place where that is not the same."""
    if lifted:
        yield "\nconstants:"
    for part, made in lifted.items():
        pairs = [f"{name}: {as_yaml(value)}" for name, value in made.items()]
        lines = list(filter(None, part.text.split("\n")))
        if lines != [pair.replace(":", " =", 1) for pair in pairs]:
            yield from (f"  {line if line[0] == '#' else f'# {line}'}" for line in lines)
        yield from (f"  {pair}" for pair in pairs)


def _require_same(source: Path, destination: Path, text: str, blocks: dict[str, str]) -> None:
    """Read the text back: what YAML changes or forbids is refused, never lost."""
    try:
        read = problem_of(destination, text.encode())
    except (ProblemError, UnicodeEncodeError) as error:
        raise UserError(f"{source}: cannot be a YAML problem: {error}") from error
    for key, block in blocks.items():
        if getattr(read, key).rstrip("\n") != block.rstrip("\n"):
            raise UserError(f"{source}: YAML would change a character of `{key}`; mend the file")
