"""The contract of a solution, checked on its text without running any of it.

Errors are certain departures: the file cannot be constructed or called as the reference is, needs
more than its problem allows, or has no kernel. Whatever an honest kernel may contain is
at most a warning, and a warning never decides a verdict.
"""

import msgspec

from kernelgen.problem.python_text import NotPythonError, bound_names, parse_python
from kernelgen.problem.record import Problem
from kernelgen.solution.file import SolutionFile
from kernelgen.solution.finding import Finding, error
from kernelgen.solution.imports import import_findings, name_findings
from kernelgen.solution.kernel_signs import kernel_findings, name_of_extension_findings
from kernelgen.solution.lending import lent_to
from kernelgen.solution.model_class import model_findings
from kernelgen.solution.reference_facts import ReferenceFacts, reference_facts
from kernelgen.solution.source import Source

# More than a person reads; a text may give any number of them.
_MOST_FINDINGS = 200


def check_contract(
    solution: SolutionFile, problem: Problem, *, allow_imports: tuple[str, ...] = ()
) -> tuple[Finding, ...]:
    """Check a solution against a problem's contract.

    Args:
        solution: the file.
        problem: what it is to solve; its reference gives the signatures.
        allow_imports: modules allowed besides torch, the standard library and the problem's own
            `allowed_imports`.

    Returns:
        What was found, errors first, BROKEN_CONTRACT before NO_CUSTOM_KERNEL, then by line; empty
        for a file that keeps the contract.
    """
    facts = reference_facts(problem)
    try:
        findings = _findings(solution.text, problem, facts, allow_imports)
    except NotPythonError as broken:
        findings = [error(broken.line, f"not Python: {broken}; mend the syntax")]
    except RecursionError:
        findings = [error(None, "nested too deeply to be read; write the expressions flatter")]
    except (ValueError, OverflowError) as unreadable:
        # An error of Python's own library on such a text is the text's doing.
        findings = [error(None, f"cannot be read: {unreadable}; write it in a plainer way")]
    ordered = sorted(findings, key=lambda f: (f.severity, f.status, f.line or 0))
    kept = ordered[:_MOST_FINDINGS]
    if len(kept) < len(ordered):
        rest = f"and {len(ordered) - len(kept)} more findings"
        kept.append(msgspec.structs.replace(kept[-1], line=None, message=rest))
    return tuple(kept)


def _findings(
    text: str, problem: Problem, facts: ReferenceFacts, allow: tuple[str, ...]
) -> list[Finding]:
    source = Source(text, parse_python(text))
    lent = lent_to(text, problem.module_source)
    return [
        *model_findings(source, bound_names(text), facts),
        *import_findings(source, problem, allow),
        *name_findings(source, facts.undefined, lent.uses),
        *(kernel_findings(source) if problem.require == "own_kernel" else ()),
        *name_of_extension_findings(source),
    ]
