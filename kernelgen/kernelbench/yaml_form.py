"""A KernelBench file as the text of a YAML problem, in which nothing of its module is lost.

Literals that the module assigns once become `constants`. Everything else stays as it is written, in
its order: up to the last statement that Model needs in `model`, what follows in `get_inputs`.
"""

import ast
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kernelgen.errors import ProblemError, UserError
from kernelgen.kernelbench.module_parts import Part, parts_of
from kernelgen.problem.kernelbench_file import read_kernelbench_problem
from kernelgen.problem.python_text import bound_names, parse_python, undefined_names
from kernelgen.problem.record import ConstantValue, Problem
from kernelgen.problem.yaml_file import problem_of, read_constants
from kernelgen.problem.yaml_tree import read_tree
from kernelgen.solution.imports import modules_beyond
from kernelgen.solution.source import Source, is_main_block

_GIVEN = {
    "import torch",
    "import torch.nn as nn",
    "from torch import nn",
    "import torch.nn.functional as F",
    "from torch.nn import functional as F",
}
_FUNCTIONS = ("get_inputs", "get_init_inputs")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv)


class _Constant(msgspec.Struct, frozen=True, kw_only=True):
    """A constant as YAML writes it; `comment` is what stood beside it."""

    name: str
    written: str
    comment: str = ""


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
    parts = parts_of(problem.module_source)
    functions = {name: [p for p in parts if p.function == name] for name in _FUNCTIONS}
    for name, found in functions.items():
        if len(found) != 1:
            message = f"expected one `def {name}()` at the top level, found {len(found)}"
            raise ProblemError(source, None, name, message)
    others = [part for part in parts if part.function not in _FUNCTIONS]
    for part in others:
        _refuse_early_call(source, part)
    lifted = _lifted(others)
    beyond = modules_beyond(Source(problem.module_source, parse_python(problem.module_source)))
    rest = [part for part in others if part not in lifted and not _is_left_out(part, problem)]
    cut = _last_needed(rest) + 1
    blocks = {
        "model": _declared(parts) + _joined(rest[:cut]),
        "get_inputs": _joined([*rest[cut:], *functions["get_inputs"]]),
        "get_init_inputs": _joined(functions["get_init_inputs"]),
    }
    text = "\n".join(
        [
            f"# From {source.parent.name}/{source.name}.",
            f"summary: {_written(problem.summary)}",
            # What Model is made with, the solution's constructor needs too.
            *([f"allowed_imports: [{', '.join(sorted(beyond))}]"] if beyond else ()),
            *_constant_lines(lifted),
            *(line for key, block in blocks.items() for line in _block_lines(key, block)),
        ]
    )
    _require_same(source, destination, f"{text}\n", blocks)
    return f"{text}\n"


def _refuse_early_call(source: Path, part: Part) -> None:
    """Refuse a statement that needs get_inputs when the module is imported: it comes later now."""
    for node in part.run_on_import():
        if isinstance(node, ast.Name) and node.id in _FUNCTIONS:
            message = f"`{node.id}` is used while the file is imported; call it in a function"
            raise ProblemError(source, node.lineno, node.id, message)


def _is_left_out(part: Part, problem: Problem) -> bool:
    """Whether a statement is given to every YAML problem, stands in it elsewhere, or never runs."""
    if isinstance(part.node, ast.Import | ast.ImportFrom):
        return ast.unparse(part.node) in _GIVEN
    said = part.docstring is not None and part.docstring.strip() == problem.summary
    return said or is_main_block(part.node)


def _lifted(parts: list[Part]) -> dict[Part, list[_Constant]]:
    """Return the assignments that become constants, with these."""
    found = {part: made for part in parts if (made := _constants_of(part)) is not None}
    # A name that is bound twice has no one value.
    while True:
        others = [part for part in parts if part not in found]
        names = [constant.name for made in found.values() for constant in made]
        taken = {name for part in others for name in bound_names(part.text)}
        taken |= {name for name in names if names.count(name) > 1}
        kept = {p: made for p, made in found.items() if taken.isdisjoint(c.name for c in made)}
        if len(kept) == len(found):
            return kept
        found = kept


def _constants_of(part: Part) -> list[_Constant] | None:
    node = part.node
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    (target,) = node.targets
    pairs: list[tuple[ast.expr, ast.expr]] = [(target, node.value)]
    if isinstance(target, ast.Tuple):
        if not isinstance(node.value, ast.Tuple) or len(node.value.elts) != len(target.elts):
            return None
        pairs = list(zip(target.elts, node.value.elts, strict=True))
    made = [_constant(name, value) for name, value in pairs]
    if any(constant is None for constant in made):
        return None
    first, *others = [constant for constant in made if constant is not None]
    comment = "; ".join(text for text in (first.comment, part.comment) if text)
    return [msgspec.structs.replace(first, comment=comment), *others]


def _constant(target: ast.expr, node: ast.expr) -> _Constant | None:
    """Return a name's constant, or None where YAML cannot have it: a list, None, such a name."""
    if not isinstance(target, ast.Name):
        return None
    value = _value_of(node)
    if value is None:
        return None
    try:
        written = _written(value)
        pair = f"{target.id}: {written}".encode()
        read = read_constants(read_tree(Path("constant"), pair))
    except (ProblemError, UnicodeEncodeError):
        return None
    if repr(read) != repr({target.id: value}):
        return None
    comment = ast.unparse(node) if isinstance(node, ast.BinOp) else ""
    return _Constant(name=target.id, written=written, comment=comment)


def _value_of(node: ast.expr) -> ConstantValue | None:
    if isinstance(node, ast.BinOp):
        left, right = _value_of(node.left), _value_of(node.right)
        numbers = type(left) in (int, float) and type(right) in (int, float)
        if not numbers or not isinstance(node.op, _ARITHMETIC):
            return None
        try:
            computed: Any = eval(compile(ast.Expression(node), "", "eval"))  # noqa: S307
        except ArithmeticError:
            return None
        return computed if isinstance(computed, int | float) else None
    try:
        value: Any = ast.literal_eval(node)
    except ValueError:
        return None
    return value if _is_constant(value) else None


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(item) for item in value)
    return isinstance(value, bool | int | float | str)


def _written(value: ConstantValue) -> str:
    """Return a value as YAML has it; a text is in quotes only where it must be."""
    if isinstance(value, tuple):
        return f"[{', '.join(_written(item) for item in value)}]"
    if not isinstance(value, str):
        return yaml.safe_dump(value).removesuffix("...\n").strip()
    quoted = json.dumps(value, ensure_ascii=False)
    try:
        plain = read_tree(Path("text"), f"- [{value}]\n- {value}".encode()).elements()
        alone = [plain[0].constant(), plain[1].constant()]
    except (ProblemError, UnicodeEncodeError):
        return quoted
    return value if alone == [(value,), value] else quoted


def _last_needed(parts: list[Part]) -> int:
    """Return the position of the last statement that Model needs, itself included."""
    bound = [bound_names(part.text) for part in parts]
    needed, used = set[int](), {"Model"}
    while True:
        more = {
            n for n, names in enumerate(bound) if n not in needed and not used.isdisjoint(names)
        }
        if not more:
            return max(needed, default=-1)
        needed |= more
        used |= {name for n in more for name in parts[n].names}


def _joined(parts: Iterable[Part]) -> str:
    """Return statements one after the other, as far apart as they were."""
    lines: list[str] = []
    for part in parts:
        lines += [""] * (part.blank_lines if lines else 0)
        lines += [*part.leading, *part.text.split("\n")]
    return "\n".join(lines)


def _declared(parts: list[Part]) -> str:
    """Declare, without defining them, names that the module does not define either.

    They are in branches that never run; a YAML problem is refused where a name is misspelt.
    """
    text = "\n".join(part.text for part in parts)
    names = {use.name for use in undefined_names(text, parse_python(text))}
    lines = (f"{name}: object  # the file does not define it either\n" for name in sorted(names))
    return "".join(lines)


def _constant_lines(lifted: dict[Part, list[_Constant]]) -> Iterator[str]:
    if lifted:
        yield "\nconstants:"
    for part, made in lifted.items():
        yield from (f"  {line}" for line in part.leading)
        for constant in made:
            comment = f"  # {constant.comment}" if constant.comment else ""
            yield f"  {constant.name}: {constant.written}{comment}"


def _block_lines(key: str, text: str) -> Iterator[str]:
    yield f"\n{key}: |"
    yield from (f"  {line}" if line else "" for line in text.split("\n"))


def _require_same(source: Path, destination: Path, text: str, blocks: dict[str, str]) -> None:
    """Read the text back: what YAML changes or forbids is refused, never lost."""
    try:
        read = problem_of(destination, text.encode(), None)
    except (ProblemError, UnicodeEncodeError) as error:
        raise UserError(f"{source}: cannot be a YAML problem: {error}") from error
    for key, block in blocks.items():
        if getattr(read, key).rstrip("\n") != block.rstrip("\n"):
            raise UserError(f"{source}: YAML would change a character of `{key}`; mend the file")
