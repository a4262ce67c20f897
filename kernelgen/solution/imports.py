"""Whether a solution imports all it uses, and nothing beyond what its problem allows."""

import ast
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from kernelgen.problem.python_text import NameUse, undefined_names
from kernelgen.problem.record import Problem
from kernelgen.solution.finding import Finding, error, warning
from kernelgen.solution.source import Source, ids_within

# The packages that the torch wheel itself installs.
_TORCH = frozenset({"torch", "functorch", "torchgen"})
# Packages that torch's wheels for a GPU install, and those without one do not.
_WITH_A_GPU = frozenset({"triton"})
# Packages that hold no solution to a problem.
_NO_SOLUTIONS = frozenset(
    {"triton", "numpy", "scipy", "einops", "packaging", "ninja", "cutlass", "cuda"}
)
_IMPORTERS = ("__import__", "importlib.import_module", "import_module")
_CATCHES_IMPORT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


def allowed_modules(
    source: Source, problem: Problem, allow: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the modules beyond torch and the standard library that a solution may import.

    Where any installed package will do, those that it imports.
    """
    if problem.allowed_imports is not None:
        return (*allow, *problem.allowed_imports)
    beyond = modules_beyond(source)
    return (*allow, *sorted(filter(_is_installed, beyond)), *beyond & _WITH_A_GPU)


def import_findings(source: Source, problem: Problem, allow: tuple[str, ...]) -> list[Finding]:
    """Check every import, also those inside functions and by `importlib`.

    An import that the file itself can do without — under `except ImportError`, under
    `TYPE_CHECKING`, or in a part that grading never runs — is no error.
    """
    tries = [n for n in source.nodes if isinstance(n, ast.Try) and any(map(_survives, n.handlers))]
    optional = ids_within(statement for node in tries for statement in node.body)
    ifs = [node for node in source.nodes if isinstance(node, ast.If)]
    for_types = [node for node in ifs if source.path_of(node.test) == "typing.TYPE_CHECKING"]
    never_run = source.unused | ids_within(one for node in for_types for one in node.body)
    known = _TORCH | sys.stdlib_module_names | _NO_SOLUTIONS
    allowed = allowed_modules(source, problem, allow)
    any_installed = problem.allowed_imports is None
    live = [node for node in source.nodes if id(node) not in never_run]
    imported = [(node, module) for node in live for module in _imported_modules(node, source)]
    tops = {module.partition(".")[0] for _, module in imported}
    free = {*_TORCH, *sys.stdlib_module_names, *allowed, "", "kernelgen"}
    forbidden = [] if any_installed else sorted(tops - free)
    told: dict[tuple[str, bool], Finding] = {}
    for node, module in imported:
        line: int = getattr(node, "lineno", 1)
        top, can_fail = module.partition(".")[0], id(node) in optional
        refusal = _refusal(module, allowed, forbidden)
        if refusal is not None:  # that of several modules is said once
            told.setdefault((refusal, can_fail), (warning if can_fail else error)(line, refusal))
        elif any_installed and top not in known:
            message = f"imports `{top}`; what that package computes is not the file's own"
            told.setdefault((message, False), warning(line, message))
    return [*told.values()]


def modules_beyond(source: Source) -> frozenset[str]:
    """Return the top-level modules imported that are neither torch nor the standard library."""
    names = (m.partition(".")[0] for node in source.nodes for m in _imported_modules(node, source))
    known = _TORCH | sys.stdlib_module_names | {"", "kernelgen"}
    return frozenset(names) - known


def _is_installed(module: str) -> bool:
    """Whether a top-level module lies in a folder of installed packages; it is not imported.

    A module in the working folder, or in a clone on the path, is not: what a candidate may import
    it can also read.
    """
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders = {*paths, *site.getsitepackages(), site.getusersitepackages()}
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""]
    return any(str(Path(place).parent) in folders for place in places)


def name_findings(
    source: Source, lacked: frozenset[str], lent: tuple[NameUse, ...]
) -> list[Finding]:
    """Check that every name used is defined, imported, built in, or lacked by the reference too.

    Those that the reference lends, as in KernelBench, are named in a warning.
    """
    ignored_lines = {getattr(n, "lineno", 0) for n in source.nodes if id(n) in source.unused}
    names = " and ".join(dict.fromkeys(f"`{use.name}`" for use in lent))
    are, them = ("are", "them") if " and " in names else ("is", "it")
    told = f"{names} {are} the reference's; define {them}, so that the file is complete"
    findings = [warning(min(use.line for use in lent), told)] if lent else []
    for use in {*undefined_names(source.text, source.tree)}.difference(lent):
        ignored = use.name in lacked or use.line in ignored_lines
        mend = "import or define it"
        if use.name == "Model":
            mend = "no candidate gets the reference's: derive from nn.Module and write out the rest"
        message = f"the name `{use.name}` is used but not imported or defined; {mend}"
        findings.append((warning if source.binds_unseen or ignored else error)(use.line, message))
    return findings


def _refusal(module: str, allowed: tuple[str, ...], forbidden: list[str]) -> str | None:
    top = module.partition(".")[0]
    if module.startswith("."):
        return f"relative import of `{module}`; a solution is one file: put the code into it"
    if top == "kernelgen":
        return "imports `kernelgen`, which candidates cannot see; do without it"
    if top in _TORCH or top in allowed or top in sys.stdlib_module_names:
        return None
    if forbidden:
        named = " and ".join(f"`{name}`" for name in forbidden)
        options = " ".join(f"--allow-import {name}" for name in forbidden)
        known = " and ".join(("the standard library", *allowed))
        return (
            f"imports {named}, which the problem's `allowed_imports` leaves out: torch, {known} "
            f"are allowed; do without, or allow it ({options})"
        )
    return (
        f"imports `{top}`, which is not installed here; install it into this Python's "
        "environment (pip install), or do without it; no file beside a candidate is seen"
    )


def _imported_modules(node: ast.AST, source: Source) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
    elif isinstance(node, ast.Call) and source.path_of(node.func) in _IMPORTERS and node.args:
        first = node.args[0]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def _survives(handler: ast.ExceptHandler) -> bool:
    """Whether a `try` with this handler survives a failing import."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    catches = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in _CATCHES_IMPORT)
        for kind in kinds
    )
    return catches and not any(isinstance(statement, ast.Raise) for statement in handler.body)
