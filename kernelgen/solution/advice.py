"""What a solution had better not contain: told, and never a reason to refuse it."""

import ast

from kernelgen.problem.python_signature import find_function, signature_of
from kernelgen.problem.python_text import bound_names
from kernelgen.solution.finding import Finding, warning
from kernelgen.solution.reference_facts import (
    ReferenceFacts,
    comparable,
    module_constants,
    source_of_value,
)
from kernelgen.solution.source import IGNORED_FUNCTIONS, Source, is_main_block

_CLOCKS = ("time", "perf_counter", "monotonic", "process_time")
_TIMING = (
    *(f"time.{clock}{unit}" for clock in _CLOCKS for unit in ("", "_ns")),
    "timeit.timeit",
    "timeit.repeat",
    "timeit.default_timer",
    "timeit.Timer",
)
_TESTING = ("torch.allclose", "torch.testing.", "unittest.", "pytest.")


def advice_findings(source: Source, facts: ReferenceFacts) -> list[Finding]:
    """Return warnings about input functions, constants, and test, print or timing code."""
    return [
        *_missing_functions(source),
        *(
            finding
            for name in IGNORED_FUNCTIONS
            for finding in _input_function(name, source, facts)
        ),
        *_shadowed_constants(source, facts),
        *_debris(source),
    ]


def _missing_functions(source: Source) -> list[Finding]:
    bound = bound_names(source.text)
    missing = [name for name in IGNORED_FUNCTIONS if name not in bound]
    if not missing:
        return []
    message = f"no {' and no '.join(missing)}; add the reference's, so that the file is complete"
    return [warning(None, message)]


def _input_function(name: str, source: Source, facts: ReferenceFacts) -> list[Finding]:
    function = find_function(source.tree.body, name)
    own = f"a solution's own {name} is ignored: grading uses the reference's"
    if function is None:
        return []
    signature = signature_of(function, method=False)
    if not signature.accepts(0):
        return [warning(function.lineno, f"{name}{signature.text} needs arguments; {own}")]
    reference = facts.functions.get(name)
    if reference is None or comparable(function) == reference:
        return []
    if _moves_to_device(function):
        message = f"{name} places tensors on a device itself; {own}, on the device under test"
        return [warning(function.lineno, message)]
    return [warning(function.lineno, f"{name} differs from the reference's; {own}")]


def _moves_to_device(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            return True
        if isinstance(node, ast.keyword) and node.arg == "device":
            return True
        if isinstance(node, ast.Constant) and str(node.value).startswith("cuda"):
            return True
    return False


def _shadowed_constants(source: Source, facts: ReferenceFacts) -> list[Finding]:
    findings: list[Finding] = []
    for name, node in dict.fromkeys(module_constants(source.tree)):
        theirs = facts.constants.get(name)
        if theirs is None or source_of_value(node) in theirs:
            continue
        kept = " or ".join(dict.fromkeys(theirs))
        message = (
            f"`{name} = {ast.unparse(node)[:60]}` has another value than the reference's "
            f"constant; it is ignored there: the reference keeps {kept}"
        )
        findings.append(warning(node.lineno, message))
    return findings


def _debris(source: Source) -> list[Finding]:
    prints = [line for path, line in source.paths if path == "print"]
    timing = [line for path, line in source.paths if _is_timing(path)]
    timing += _lines_with_timed_events(source)
    tests = [line for path, line in source.paths if path.startswith(_TESTING)]
    for node in source.tree.body:
        named = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if isinstance(node, ast.Assert) or (
            named and getattr(node, "name", "").lower().startswith("test")
        ):
            tests.append(node.lineno)
    mains = [node.lineno for node in source.tree.body if is_main_block(node)]
    found = (
        (prints, "prints; a solution only computes: remove the print"),
        (timing, "measures time; grading does that: remove it"),
        (tests, "tests itself; grading does that: remove it"),
        (mains, 'has an `if __name__ == "__main__"` block, which never runs here: remove it'),
    )
    return [_counted(lines, what) for lines, what in found if lines]


def _is_timing(path: str) -> bool:
    return path in _TIMING or path.startswith(("torch.utils.benchmark.", "torch.profiler."))


def _lines_with_timed_events(source: Source) -> list[int]:
    """Return where events are used, but for those that only order streams, and for annotations."""
    harmless: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            harmless.add(id(node.func))  # without an argument it takes no time
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            harmless.add(id(node.annotation))
    names = [node for node in source.nodes if isinstance(node, ast.Name | ast.Attribute)]
    return [
        name.lineno
        for name in names
        if source.path_of(name) == "torch.cuda.Event" and id(name) not in harmless
    ]


def _counted(lines: list[int], what: str) -> Finding:
    more = f" ({len(set(lines))} lines)" if len(set(lines)) > 1 else ""
    return warning(min(lines), f"{what}{more}")
