"""Runs as JUnit XML, the form in which CI services take results.

Valid against the schema of Jenkins' xunit plugin (junit-10.xsd), which allows properties on a suite
and not on a case: a solution's figures are its suite's properties, named after it.
"""

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from kernelgen.grading.timing.times import CANDIDATE
from kernelgen.grading.verdict import Owner, Run, Status, Verdict
from kernelgen.report.json_report import Recorded
from kernelgen.report.outcome import place
from kernelgen.report.printable import printable, printable_block

_NAME = "kernelgen"
_MS = 1e-3


def junit(recorded: Sequence[Recorded]) -> bytes:
    """Return runs as a JUnit document in UTF-8: a suite for each problem of each run.

    A test case's time is the solution's median in seconds, so that what a CI service draws over its
    runs is the speed; it is absent where none was taken. A suite has none: a sum of medians says
    nothing, and the schema knows no less than a millisecond there.
    """
    root = ET.Element("testsuites", name=_NAME)
    for record in recorded:
        within = f" in {printable(record.name)}" if len(recorded) > 1 else ""
        problems = dict.fromkeys(verdict.problem for verdict in record.run.verdicts)
        root.extend(_suite(record.run, problem, within) for problem in problems)
    _count(root, [verdict for record in recorded for verdict in record.run.verdicts])
    # An attribute that the schema knows for suites alone.
    del root.attrib["skipped"]
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def _suite(run: Run, problem: str, within: str) -> ET.Element:
    verdicts = [verdict for verdict in run.verdicts if verdict.problem == problem]
    name = printable(problem) or "no problem"
    suite = ET.Element("testsuite", name=f"{name}{place(verdicts)}{within}")
    _count(suite, verdicts)
    properties = ET.SubElement(suite, "properties")
    for key, value in run.environment.items():
        _property(properties, str(key), "" if value is None else str(value))
    for verdict in verdicts:
        for key, value in _figures(verdict):
            _property(properties, f"{verdict.solution}: {key}", value)
    suite.extend(_case(verdict, name) for verdict in verdicts)
    return suite


def _case(verdict: Verdict, classname: str) -> ET.Element:
    case = ET.Element("testcase", classname=classname, name=printable(verdict.solution))
    if verdict.timing is not None:
        case.set("time", _seconds(verdict.timing.candidate_ms * _MS))
    if not verdict.passed:
        message = f"{verdict.status.value}: {printable(verdict.reason.partition(chr(10))[0])}"
        ending = ET.SubElement(case, _element(verdict), type=verdict.status.value, message=message)
        ending.text = printable_block(verdict.reason)
    told = [f"warning: {printable_block(warning)}" for warning in verdict.warnings]
    told.append(printable_block(verdict.log))
    text = "\n".join(part for part in told if part)
    if text:
        ET.SubElement(case, "system-out").text = text
    return case


def _element(verdict: Verdict) -> str:
    if verdict.status is Status.NO_DEVICE:
        return "skipped"
    return "failure" if verdict.owner is Owner.CANDIDATE else "error"


def _count(element: ET.Element, verdicts: Sequence[Verdict]) -> None:
    endings = [_element(verdict) for verdict in verdicts if not verdict.passed]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    element.set("tests", str(len(verdicts)))
    for name, ending in counted.items():
        element.set(name, str(endings.count(ending)))


def _figures(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "status", verdict.status.value
    if verdict.build is not None:
        yield "build_s", _seconds(verdict.build.seconds)
    timing = verdict.timing
    if timing is None:
        return
    times = {"time": timing.candidate_ms, "eager": timing.eager_ms, "compile": timing.compile_ms}
    times |= {name: of.median_ms for name, of in timing.subjects.items() if name != CANDIDATE}
    for name, value_ms in times.items():
        if value_ms is not None:
            yield f"{name}_s", _seconds(value_ms * _MS)
    for name, speedup in timing.speedup.items():
        low, high = speedup.ci95
        yield f"speedup_{name}", f"{speedup.median:.6g}"
        yield f"speedup_{name}_ci95_low", f"{low:.6g}"
        yield f"speedup_{name}_ci95_high", f"{high:.6g}"
        yield f"speedup_{name}_says", speedup.says
    if timing.limit is not None:
        yield "limit_s", _seconds(timing.limit.limit_ms * _MS)
        yield "limit_fraction", f"{timing.limit.fraction:.6g}"


def _property(properties: ET.Element, name: str, value: str) -> None:
    ET.SubElement(properties, "property", name=printable(name), value=printable(value))


def _seconds(value_s: float) -> str:
    # Fixed point: the schema knows no exponent. A nanosecond is finer than any clock here.
    return f"{value_s:.9f}"
