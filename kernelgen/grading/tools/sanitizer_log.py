"""Findings of compute-sanitizer by kernel, read from its log.

Every line of the tool's begins with `=========`. A report begins with one space after that, what
belongs to it is indented further. The form of a place in the code has changed between versions:
`kernel(int *)+0x70 in file.cu:12` now, `0x70 in file.cu:12:kernel(int *)` once.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from kernelgen.grading.verdict import SanitizerFinding

Tool = Literal["memcheck", "racecheck"]
TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck")

MOST_FINDINGS = 20
_MOST_CHARACTERS = 300
_PREFIX = "========="
_PLACE = re.compile(r"(?P<kernel>.+)[+:]0x[0-9a-fA-F]+(?: in (?P<source>.+))?")
_OLD_PLACE = re.compile(r"0x[0-9a-fA-F]+(?: in (?:(?P<source>[^:]+:\d+):)?(?P<kernel>.+))?")
_RACE = re.compile(
    r"(?P<severity>\w+): Race reported between (?P<kind>\w+) access at (?P<place>.+)"
)
_OTHER_ACCESS = re.compile(
    r"and (?P<kind>\w+) access at (?P<place>.+?)(?: \[(?P<count>\d+) hazards?\])?"
)
_SUMMARIES = {
    "memcheck": re.compile(r"ERROR SUMMARY: \d+ errors?"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed"),
}
# These are told of a program or of the tool, not of what a kernel does.
_NO_FINDINGS = ("Program hit ", "Leaked ", "Error: ", "Warning: ", "Internal Sanitizer Error")


class SanitizerLog(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one tool.

    Attributes:
        findings: the first of them, one a kind and kernel, errors before warnings.
        complete: the tool came to its summary.
        trouble: the first of what it said about itself, such as that it could not track a launch.
    """

    findings: tuple[SanitizerFinding, ...]
    complete: bool
    trouble: str = ""


def read_log(tool: Tool, text: str) -> SanitizerLog:
    """Return what the tool found."""
    found: dict[tuple[str, str, str], SanitizerFinding] = {}
    complete, trouble = False, ""
    for head, details in _reports(text):
        complete = complete or _SUMMARIES[tool].match(head) is not None
        finding = _race(tool, head, details) or _access(tool, head, details)
        if finding is None:
            said = head.startswith(("Error: ", "Internal Sanitizer Error"))
            trouble = trouble or (_cut(head) if said else "")
            continue
        key = (finding.severity, finding.what, finding.kernel)
        if (before := found.get(key)) is not None:
            finding = msgspec.structs.replace(before, count=before.count + finding.count)
        found[key] = finding
    ordered = sorted(found.values(), key=lambda one: one.severity != "error")
    return SanitizerLog(findings=tuple(ordered[:MOST_FINDINGS]), complete=complete, trouble=trouble)


def _reports(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the first line of each report and the lines below it, without the prefix."""
    head, details = "", list[str]()
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        content = line[len(_PREFIX) :]
        if content.startswith("  "):
            details.append(content.strip())
            continue
        if head:
            yield head, details
        head, details = content.strip(), []
    if head:
        yield head, details


def _access(tool: Tool, head: str, details: Sequence[str]) -> SanitizerFinding | None:
    """Read a report of one thread's error: what, `at` where, `by` whom, and the address."""
    places = [line[3:] for line in details if line.startswith("at ")]
    if head.startswith(_NO_FINDINGS) or not places:
        return None
    frames = [line.partition(":")[2] for line in details if line.startswith("Device Frame:")]
    inner, source = _place(places[0])
    # The outermost frame is the kernel; the innermost is the function that it has called.
    kernel = _place(frames[-1].strip())[0] if frames else inner
    by = next((line[3:] for line in details if line.startswith("by thread")), "")
    address = next((line for line in details if line.startswith(("Access ", "Address "))), "")
    return SanitizerFinding(
        tool=tool,
        # A potential error, such as an access to a block that may have ended, has not happened.
        severity="warning" if head.startswith("Potential ") else "error",
        what=_cut(head[:1].lower() + head[1:]),
        kernel=_cut(kernel or inner),
        count=1,
        first=_cut(", ".join(part for part in (source, by, address) if part)),
    )


def _race(tool: Tool, head: str, details: Sequence[str]) -> SanitizerFinding | None:
    """Read a report of accesses that nothing orders."""
    match = _RACE.fullmatch(head)
    if match is None:
        return None
    others = [other for line in details if (other := _OTHER_ACCESS.fullmatch(line))]
    kinds = [one["kind"].lower() for one in (match, *others)]
    places = [_place(one["place"])[1] or one["place"] for one in (match, *others)]
    accesses = [f"{kind} at {place}" for kind, place in zip(kinds, places, strict=True)]
    return SanitizerFinding(
        tool=tool,
        severity="error" if match["severity"].lower() == "error" else "warning",
        what=f"race between a {' and a '.join(dict.fromkeys(kinds))}",
        kernel=_cut(_place(match["place"])[0]),
        count=sum(int(other["count"] or 1) for other in others) or 1,
        first=_cut(", ".join(accesses)),
    )


def _place(text: str) -> tuple[str, str]:
    """Return a place's kernel and its source file and line, each "" if unknown."""
    match = _OLD_PLACE.fullmatch(text) or _PLACE.fullmatch(text)
    if match is None:
        return text, ""
    return match["kernel"] or "", match["source"] or ""


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
