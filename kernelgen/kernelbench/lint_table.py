"""What linting KernelBench's problems found, as a generated section of a document."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelgen.lint.record import CaseLint, Lint, read_lint
from kernelgen.report.markdown import escaped, row, rule

RECORDS = "*/kernelbench/lint*.json"
"""Where the records are, below the folder benchmarks/."""

_MOST_CHARACTERS = 160


def lint_table(benchmarks: Path) -> str:
    """Return what the records below a folder say, one device after the other.

    Raises:
        UserError: one cannot be read.
    """
    records = [read_lint(path) for path in sorted(benchmarks.glob(RECORDS))]
    if not records:
        return "No record is committed yet, so nothing is said here of any problem."
    return "\n\n".join("\n".join(_lines(record)) for record in records)


def _lines(record: Lint) -> Iterator[str]:
    refused = [case for case in record.cases if case.refused]
    weak = [case for case in record.cases if not case.refused and _weak(case)]
    good = len(record.cases) - len(refused) - len(weak)
    yield (
        f"On {escaped(record.device)}, of {len(record.cases)} problems {good} can be graded, "
        f"{len(weak)} let an answer without work or without an input pass, {len(refused)} are "
        f"refused ({record.seconds:.0f} s in all)."
    )
    if refused or weak:
        yield ""
        yield row(("problem", "", "why"))
        yield rule(numbers=(False, False, False))
    for case in record.cases:
        if case.refused:
            yield row((escaped(case.file), "refused", _short(case.reason)))
        elif _weak(case):
            why = "; ".join(map(escaped, _weak(case)))
            yield row((escaped(case.file), "a pass says little", why))
    yield from _remarks(record.cases)


def _weak(case: CaseLint) -> tuple[str, ...]:
    """Return why a pass says little: what passes without work, inputs that make no difference."""
    inputs = [f"{name} makes no difference" for name in case.idle if name.startswith("inputs[")]
    return (*(f"{name} passes" for name in case.trivial), *inputs)


def _remarks(cases: Sequence[CaseLint]) -> Iterator[str]:
    parameters = [c for c in cases if any(not name.startswith("inputs[") for name in c.idle)]
    remarks = {
        "A parameter makes no difference, so that a candidate may leave it out": parameters,
        "Compared with float32 results, for want of float64 ones": [c for c in cases if c.note],
        "Not every input and parameter was tried": [c for c in cases if c.untried],
    }
    for text, found in remarks.items():
        if found:
            names = ", ".join(escaped(case.file) for case in found)
            yield ""
            yield f"{text} ({len(found)}): {names}."


def _short(reason: str) -> str:
    line = next(iter(reason.splitlines()), "")
    cut = line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"
    return escaped(cut)
