"""A module's statements as text, with the comments around them."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import msgspec

from kernelgen.problem.python_text import NotPythonError, parse_python
from kernelgen.solution.source import is_main_block

_MOST_BLANK_LINES = 2


class Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A statement at the top level of a module.

    Attributes:
        text: its lines, decorators and what stands behind it included.
        leading: the lines of comments above it.
        comment: the one behind it, without `#`, where it is on one line.
        blank_lines: above it and its comments.
    """

    node: ast.stmt
    text: str
    leading: tuple[str, ...] = ()
    comment: str = ""
    blank_lines: int = 0

    @property
    def function(self) -> str | None:
        """Return the name of the function that it defines."""
        return self.node.name if isinstance(self.node, ast.FunctionDef) else None

    @property
    def docstring(self) -> str | None:
        """Return the text that it consists of."""
        return ast.get_docstring(ast.Module([self.node], []), clean=False)

    @property
    def names(self) -> frozenset[str]:
        """Return the names that its code reads, now or later."""
        return frozenset(node.id for node in ast.walk(self.node) if isinstance(node, ast.Name))

    def run_on_import(self) -> Iterator[ast.AST]:
        """Yield the nodes that run when the module is imported: of a function, not its body."""
        if is_main_block(self.node):
            return
        waiting: list[ast.AST] = [self.node]
        while waiting:
            node = waiting.pop()
            yield node
            later: list[ast.AST] = []
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                later = [*node.body]
            elif isinstance(node, ast.Lambda):
                later = [node.body]
            waiting += [child for child in ast.iter_child_nodes(node) if child not in later]


def parts_of(text: str) -> list[Part]:
    """Return the statements of a module that parses, in order.

    Comments after the last one are of its text. A statement that shares a line with another is
    written anew.
    """
    text = _tidied(text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    lines = text.split("\n")
    nodes = parse_python(text).body
    comments = _comments(text)
    parts: list[Part] = []
    end = 0
    for node, following in zip(nodes, [*nodes[1:], None], strict=True):
        first, last = _first_line(node), node.end_lineno or node.lineno
        above = [line.strip() for line in lines[end : first - 1]]
        shares = first <= end or (following is not None and _first_line(following) <= last)
        if following is None:
            while lines and not lines[-1].strip():
                lines.pop()
            last = max(last, len(lines))
        parts.append(
            Part(
                node=node,
                text=ast.unparse(node) if shares else "\n".join(lines[first - 1 : last]).rstrip(),
                leading=tuple(line for line in above if line),
                comment=comments.get(node.end_lineno or 0, "") if first == last else "",
                blank_lines=min(_MOST_BLANK_LINES, above.count("")),
            )
        )
        end = last
    return parts


def _tidied(text: str) -> str:
    """Return a text without spaces at the ends of its lines, unless a string has some there."""
    tidy = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    try:
        same = ast.dump(parse_python(tidy)) == ast.dump(parse_python(text))
    except NotPythonError:  # a space behind a backslash, in a comment that was none
        return text
    return tidy if same else text


def _first_line(node: ast.stmt) -> int:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return node.lineno


def _comments(text: str) -> dict[int, str]:
    """Return the comments by their lines."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }
