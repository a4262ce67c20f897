"""Parts of a solution that grading ignores and that say something else than the reference."""

import ast

from kernelgen.problem.python_signature import find_function
from kernelgen.solution.finding import Finding, warning
from kernelgen.solution.reference_facts import (
    ReferenceFacts,
    comparable,
    module_constants,
    source_of_value,
)
from kernelgen.solution.source import IGNORED_FUNCTIONS, Source


def advice_findings(source: Source, facts: ReferenceFacts) -> list[Finding]:
    """Return warnings about input functions and constants that differ from the reference's."""
    findings: list[Finding] = []
    for name in IGNORED_FUNCTIONS:
        function, reference = find_function(source.tree.body, name), facts.functions.get(name)
        if function is not None and reference not in (None, comparable(function)):
            message = f"{name} differs from the reference's and is ignored: grading uses that"
            findings.append(warning(function.lineno, message))
    for name, node in dict.fromkeys(module_constants(source.tree)):
        theirs = facts.constants.get(name)
        if theirs is not None and source_of_value(node) not in theirs:
            message = (
                f"`{name} = {ast.unparse(node)[:60]}` has another value than the reference's "
                f"constant; it is ignored there: the reference keeps {' or '.join(theirs)}"
            )
            findings.append(warning(node.lineno, message))
    return findings
