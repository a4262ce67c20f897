"""The arguments that a function in Python source takes, read from its syntax tree."""

import ast
import copy

import msgspec

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a function, without `self`.

    Attributes:
        positional: how many parameters may be given by position.
        required: how many of them have no default.
        variadic: there is a `*args`.
        needs_keywords: a keyword-only parameter has no default.
        text: the parameters as one would read them, such as `(x, eps=1e-05)`.
    """

    positional: int = 0
    required: int = 0
    variadic: bool = False
    needs_keywords: bool = False
    text: str = "()"

    def accepts(self, count: int) -> bool:
        """Whether a call with `count` positional arguments and nothing else binds."""
        fits = self.required <= count and (self.variadic or count <= self.positional)
        return fits and not self.needs_keywords


def signature_of(function: Function, *, method: bool) -> Signature:
    """Return a function's signature, a method's without `self`."""
    args = copy.deepcopy(function.args)
    for arg in ast.walk(args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    if method and (args.posonlyargs or args.args):
        (args.posonlyargs or args.args).pop(0)
    positional = len(args.posonlyargs) + len(args.args)
    del args.defaults[: max(0, len(args.defaults) - positional)]  # that of self
    return Signature(
        positional=positional,
        required=positional - len(args.defaults),
        variadic=args.vararg is not None,
        needs_keywords=None in args.kw_defaults,
        text=f"({ast.unparse(args)})",
    )


def find_function(body: list[ast.stmt], name: str) -> Function | None:
    """Return the last definition of a function directly in a body, which is the one that counts."""
    found = [n for n in body if isinstance(n, Function) and n.name == name]
    return found[-1] if found else None


def find_class(body: list[ast.stmt], name: str) -> ast.ClassDef | None:
    """Return the last definition of a class directly in a body, which is the one that counts."""
    found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    return found[-1] if found else None


def returned_count(function: Function | None) -> int | None:
    """Return the length of the list that a function returns, None if that is not evident."""
    if function is None:
        return None
    counts = {_count(node.value) for node in ast.walk(function) if isinstance(node, ast.Return)}
    return counts.pop() if len(counts) == 1 else None


def _count(value: ast.expr | None) -> int | None:
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    starred = any(isinstance(element, ast.Starred) for element in value.elts)
    return None if starred else len(value.elts)
