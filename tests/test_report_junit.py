"""JUnit XML: what each verdict becomes, and that services can read it."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_runs import (
    FULL_TIMING,
    every_status,
    failed,
    full,
    harmful,
    passed,
    run_of,
    wrong,
)

from kernelgen.cli.report import Documents
from kernelgen.errors import UserError
from kernelgen.grading.verdict import Owner, Status, Verdict
from kernelgen.report.json_report import Recorded
from kernelgen.report.junit import junit

# Content that junit-10.xsd of Jenkins' xunit plugin allows, which GitLab and GitHub read too:
# the children of an element, and its attributes, with those that it has to have.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testsuite", "properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
}
COUNTS = {"name", "tests", "failures", "errors"}
ATTRIBUTES: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": (set(), {*COUNTS, "time"}),
    "testsuite": (COUNTS, {*COUNTS, "skipped", "time", "timestamp", "hostname", "id", "package"}),
    "testcase": ({"name"}, {"name", "time", "classname", "group"}),
    "property": ({"name", "value"}, {"name", "value"}),
    "failure": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "skipped": (set(), {"type", "message"}),
}
# Of suites; a case's may be any text there, and is a decimal number here.
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]{0,3})?")
CASE_TIME = re.compile(r"([0-9]+\.[0-9]{9})?")


def read(*verdicts: Verdict) -> ET.Element:
    return ET.fromstring(junit([Recorded(name="run.json", run=run_of(*verdicts))]))


def departures(root: ET.Element) -> list[str]:
    """Return where a document departs from the schema."""
    found = [] if root.tag == "testsuites" else [f"the root is {root.tag}"]
    for element in root.iter():
        required, allowed = ATTRIBUTES.get(element.tag, (set(), set()))
        given = set(element.attrib)
        found += [f"{element.tag} lacks {name}" for name in required - given]
        found += [f"{element.tag} has {name}" for name in given - allowed]
        allowed_below = CHILDREN.get(element.tag, set())
        found += [f"{e.tag} in {element.tag}" for e in element if e.tag not in allowed_below]
        if allowed_below and (element.text or "").strip():
            found.append(f"text in {element.tag}")
        pattern = CASE_TIME if element.tag == "testcase" else TIME
        if not pattern.fullmatch(element.get("time", "")):
            found.append(f"time {element.get('time')}")
    return found


def case_of(verdict: Verdict) -> ET.Element:
    (case,) = read(verdict).iter("testcase")
    return case


@pytest.mark.parametrize(
    "verdicts",
    [(), (full(), wrong()), every_status().verdicts, harmful()],
    ids=["none", "two", "all", "harm"],
)
def test_it_keeps_to_the_schema(verdicts: tuple[Verdict, ...]) -> None:
    assert departures(read(*verdicts)) == []


def test_the_schema_check_finds_departures() -> None:
    wrong_one = "<testsuites><testsuite name='a' colour='b' time='1e3'>x<failure/></testsuite>"
    found = departures(ET.fromstring(f"{wrong_one}</testsuites>"))
    assert len(found) == 7, found


@pytest.mark.parametrize("status", Status, ids=[status.value for status in Status])
def test_a_status_becomes_a_pass_a_failure_an_error_or_skipped(status: Status) -> None:
    verdict = passed() if status is Status.PASSED else failed(status)
    expected = {
        Status.PASSED: None,
        Status.NO_DEVICE: "skipped",
        Status.GRADER_ERROR: "error",
        Status.INVALID_PROBLEM: "error",
    }.get(status, "failure")
    endings = [e for e in case_of(verdict) if e.tag in ("skipped", "error", "failure")]
    assert [ending.tag for ending in endings] == ([] if expected is None else [expected])
    for ending in endings:
        assert ending.get("type") == status.value
        assert ending.get("message") == f"{status.value}: what {status.value} found"
        assert ending.text == verdict.reason


def test_the_grader_s_own_lack_of_memory_is_an_error() -> None:
    assert case_of(failed(Status.OUT_OF_MEMORY, owner=Owner.GRADER)).find("error") is not None
    assert case_of(failed(Status.OUT_OF_MEMORY)).find("failure") is not None


def test_a_suite_is_a_problem_and_counts() -> None:
    root = read(
        passed(), failed(Status.TIMEOUT), failed(Status.NO_DEVICE),
        failed(Status.GRADER_ERROR, problem="softmax"), failed(Status.BROKEN_CONTRACT, problem=""),
    )  # fmt: skip
    keys = ("name", "tests", "failures", "errors", "skipped")
    assert [tuple(suite.get(key) for key in keys) for suite in root] == [
        ("groupnorm on NVIDIA H200", "3", "1", "0", "1"),
        ("softmax on NVIDIA H200", "1", "0", "1", "0"),
        ("no problem on NVIDIA H200", "1", "1", "0", "0"),
    ]
    assert [root.get(key) for key in keys[1:4]] == ["5", "2", "1"]


def test_runs_keep_suites_of_their_own() -> None:
    recorded = [Recorded(name=f"{n}.json", run=run_of(passed())) for n in (1, 2)]
    root = ET.fromstring(junit(recorded))
    assert [suite.get("name") for suite in root] == [
        "groupnorm on NVIDIA H200 in 1.json",
        "groupnorm on NVIDIA H200 in 2.json",
    ]


def test_a_case_is_a_solution_with_its_time_in_seconds() -> None:
    case = case_of(full())
    assert (case.get("classname"), case.get("name")) == ("groupnorm", "solutions/full.py")
    assert case.get("time") == "0.004000000"
    assert "time" not in case_of(failed(Status.TIMEOUT)).attrib, "none was taken"
    assert case.findtext("system-out") == "warning: the times vary\ncompiling\n"


def test_times_and_speedups_are_properties() -> None:
    suite = read(full())[0]
    told = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert told["torch"] == "2.11.0"
    own = {
        str(name).removeprefix("solutions/full.py: "): value
        for name, value in told.items()
        if str(name).startswith("solutions/full.py: ")
    }
    assert own.items() >= {
        "status": "PASSED", "build_s": "0.940000000", "time_s": "0.004000000",
        "eager_s": "0.009000000", "compile_s": "0.004004000", "max-autotune_s": "0.003804000",
        "speedup_eager": "2.25", "speedup_eager_ci95_low": "2.21",
        "speedup_eager_ci95_high": "2.28", "speedup_eager_says": "faster",
        "speedup_compile_says": "same", "limit_s": "0.003520000", "limit_fraction": "0.88",
    }.items()  # fmt: skip


def test_what_xml_cannot_hold_is_shown_instead() -> None:
    content = junit([Recorded(name="", run=run_of(*harmful()))])
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", content)
    text = content.decode("utf-8")
    assert "\u202e" not in text
    _, case = ET.fromstring(content).iter("testcase")
    assert "<img src=x onerror=alert(1)>" in (case.findtext("failure") or "")
    assert "\\x00\\x07red" in (case.findtext("failure") or "")
    assert "]]>" in (case.findtext("system-out") or "")


@settings(deadline=None)
@given(st.text())
def test_any_text_can_be_read_back(text: str) -> None:
    root = read(wrong(f"{text}.py", reason=text or "x", log=text, problem=text, warnings=(text,)))
    assert departures(root) == []


def test_a_megabyte_of_log_is_all_there() -> None:
    log = "a line of a log\n" * 65_536
    assert case_of(wrong(log=log)).findtext("system-out") == log


@given(st.floats(min_value=0, max_value=1e12))
def test_any_time_is_one_for_the_schema(time_ms: float) -> None:
    timing = msgspec.structs.replace(FULL_TIMING, candidate_ms=time_ms)
    root = read(passed(timing=timing))
    assert departures(root) == []
    assert float(root[0][1].get("time", "")) == pytest.approx(time_ms * 1e-3, abs=1e-9)


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    recorded = [Recorded(name="", run=run_of(full()))]
    Documents(junit=tmp_path / "junit.xml").write(recorded)
    assert (tmp_path / "junit.xml").read_bytes() == junit(recorded)
    with pytest.raises(UserError, match="cannot be written"):
        Documents(junit=tmp_path / "missing" / "junit.xml").write(recorded)
    assert [path.name for path in tmp_path.iterdir()] == ["junit.xml"]
