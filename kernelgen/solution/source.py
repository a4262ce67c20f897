"""A solution's syntax tree with what several checks ask of it."""

import ast
from collections.abc import Iterable, Iterator

# Of a dotted path; each attribute of a longer chain would have a path of its own.
_MOST_PARTS = 8
# Of an integer that Python writes as text: more digits than that it refuses.
_MOST_BITS = 4096
# With one of these a name may be bound in ways that no reading of the text shows.
_BINDERS = frozenset({"globals", "vars", "locals", "exec", "eval", "__builtins__", "setattr"})

IGNORED_FUNCTIONS = ("get_inputs", "get_init_inputs")
"""Functions that a solution may define and that grading never calls: it uses the reference's."""


class Source:
    """A parsed solution.

    Attributes:
        aliases: name -> dotted path that an import binds it to, such as
            `ext` -> `torch.utils.cpp_extension`.
        paths: every dotted path that the code reads, aliases resolved, with its line.
        unused: ids of the nodes inside functions that grading never calls and inside a
            `__name__ == "__main__"` block.
        binds_unseen: names and attributes may be bound in ways that the text does not show.
    """

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.text, self.tree = text, tree
        self.nodes = tuple(ast.walk(tree))
        for node in self.nodes:
            if isinstance(node, ast.Constant) and _is_unwritable(node.value):
                node.value = hash(node.value)  # another one still differs from it
        self.aliases = _aliases(self.nodes)
        self.paths = tuple(self._paths())
        self.unused = ids_within(_never_run(tree.body))
        read = {path for path, _ in self.paths}
        self.binds_unseen = not read.isdisjoint({*_BINDERS, "sys.modules"})

    def path_of(self, node: ast.AST) -> str | None:
        """Return the dotted path of a name or attribute, such as `torch.cuda.Event`, or None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MOST_PARTS:
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        parts.append(self.aliases.get(node.id, node.id))
        return ".".join(reversed(parts))

    def _paths(self) -> Iterator[tuple[str, int]]:
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                path = self.path_of(node)
                if path is not None:
                    yield path, node.lineno


def _is_unwritable(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def ids_within(statements: Iterable[ast.stmt]) -> frozenset[int]:
    """Return the ids of statements and of all nodes in them."""
    return frozenset(id(node) for statement in statements for node in ast.walk(statement))


def _never_run(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return main blocks, and functions that nothing else names, such as a test against Model."""
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    # A decorator may call what it is given, or keep it for somebody who does.
    plain = [f for f in functions if not f.decorator_list or f.name in IGNORED_FUNCTIONS]
    left = {node.name: node for node in plain if node.name != "ModelNew"}
    runs = [n for n in body if left.get(getattr(n, "name", "")) is not n and not is_main_block(n)]
    for statement in runs:
        # A name may be looked up in a namespace as well: an attribute, or a text.
        nodes = ast.walk(statement)
        words = {getattr(node, key, "") for node in nodes for key in ("id", "attr", "value")}
        named = {word for word in words if isinstance(word, str)} - {*IGNORED_FUNCTIONS}
        runs += [left.pop(name) for name in named & left.keys()]
    return [*left.values(), *filter(is_main_block, body)]


def is_main_block(node: ast.AST) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    sides = (node.test.left, *node.test.comparators)
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and any(isinstance(s, ast.Constant) and s.value == "__main__" for s in sides)


def _aliases(nodes: tuple[ast.AST, ...]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return aliases
