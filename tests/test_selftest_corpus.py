"""The selftest's corpus: headers, what they make of verdicts, and the classes of attack."""

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from report_runs import CORRECTNESS, TIMING, failed, passed
from selftest_corpus import BROKEN, TESTS, Folder

from kernelgen.cli import program
from kernelgen.grading.verdict import Owner, Status
from kernelgen.selftest.corpus import Candidate, Header, Kind, attack_classes, read_corpus
from kernelgen.selftest.report import Outcome
from kernelgen.selftest.running import misses


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep long lines whole: where they are folded is for the tests of reports."""
    monkeypatch.setenv("COLUMNS", "300")


SHIPPED = read_corpus(TESTS)
KNOWN = attack_classes()
PAGE = (TESTS.parent / "docs" / "selftest.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "corpus")


def test_the_shipped_corpus_has_every_kind_for_both_devices() -> None:
    assert {(one.kind, one.device) for one in SHIPPED} == {
        (kind, device) for kind in Kind for device in ("cpu", "cuda")
    }


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "wrong_x.py",
            "# problem: tiny_mean\n",
            "wrong_x.py: Object missing required field `expect`",
        ),
        ("wrong_x.py", '"""No header."""\n', "wrong_x.py: Object missing required field `problem`"),
        (
            "wrong_x.py",
            "# problem: tiny_mean\n# expects: PASSED\n",
            "wrong_x.py:2: expects: Object contains unknown field `expects`",
        ),
        (
            "wrong_x.py",
            "# problem: x\n# expect: FINE\n",
            "wrong_x.py:2: expect: Invalid enum value 'FINE'",
        ),
        (
            "wrong_x.py",
            f"{BROKEN}# call-timeout-s: soon\n",
            "wrong_x.py:3: call-timeout-s: Expected `float`",
        ),
        ("wrong_x.py", f"{BROKEN}# expect: PASSED\n", "wrong_x.py:3: expect: stands here for the"),
        ("wrong_x.py", f"{BROKEN}# exploit: Q99\n", "wrong_x.py:3: exploit: Q99 is no class"),
        (
            "wrong_x.py",
            f"{BROKEN}# path: other.py\n",
            "wrong_x.py:3: path: Object contains unknown",
        ),
        ("wrong_x.py", f"{BROKEN}# blames: nowhere\n", "blames: no line of the file contains"),
        (
            "wrong_x.py",
            "# problem: no_such\n# expect: PASSED\n",
            "wrong_x.py: problem: there is no ",
        ),
        ("other_x.py", BROKEN, "other_x.py: a candidate's name begins with one of honest_"),
    ],
)
def test_a_wrong_header_is_a_usage_error_with_its_place(
    folder: Folder, name: str, text: str, complaint: str
) -> None:
    folder.add("broken_right.py")
    folder.copy(name, text)
    result = folder.run()
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_no_two_files_leave_the_same_process_behind() -> None:
    """One's process would be taken for the other's."""
    orphans = [one.orphan for one in SHIPPED if one.orphan is not None]
    assert len(orphans) == len({*orphans}) > 1


def test_a_missing_corpus_is_said_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(program, ["selftest", "--corpus", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "nowhere/candidates: holds no candidate" in result.stderr
    assert result.stderr.count("\n") == 1


# A verdict beside its header


def candidate_with(folder: Folder, header: str) -> Candidate:
    folder.copy("wrong_x.py", f"{header}first = 1\nsecond = 2\n")
    (candidate,) = read_corpus(folder.path)
    return candidate


def test_a_verdict_as_expected_misses_nothing(folder: Folder) -> None:
    candidate = candidate_with(
        folder,
        "# problem: tiny_mean\n# expect: PASSED\n# warning: clock\n# maps: weight <- gn.weight\n"
        "# time: true\n# max-speedup: 2\n",
    )
    assert misses(candidate, passed(warnings=("the clock was slow",))) == ()


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("# expect: TIMEOUT", "the status is CRASHED, not TIMEOUT"),
        ("# expect: CRASHED\n# reason: in forward", "the reason does not contain 'in forward'"),
        ("# expect: CRASHED\n# warning: heat", "no warning contains 'heat'"),
        ("# expect: CRASHED\n# blames: second", "the reason does not name line 5"),
        ("# expect: CRASHED\n# maps: a <- b", "the parameter mapping lacks a <- b"),
        (
            "# expect: CRASHED\n# max-speedup: 5",
            "there is no speedup over eager to be judged",
        ),
    ],
)
def test_a_departure_is_told_in_words(folder: Folder, header: str, told: str) -> None:
    candidate = candidate_with(folder, f"# problem: tiny_mean\n{header}\n")
    verdict = failed(Status.CRASHED, reason="somewhere in line 4")
    assert misses(candidate, verdict) == (told,)


def test_an_owner_a_mapping_a_speedup_and_a_log_are_compared(folder: Folder) -> None:
    header = "# problem: tiny_mean\n# expect: {}\n"
    memory = candidate_with(folder, header.format("OUT_OF_MEMORY"))
    verdict = failed(Status.OUT_OF_MEMORY, owner=Owner.GRADER)
    assert misses(memory, verdict) == ("the owner is the grader, not the candidate",)
    right = candidate_with(folder, f"{header.format('PASSED')}# maps: bias <- gn.weight\n")
    assert misses(right, passed(correctness=CORRECTNESS)) == (
        "the parameter mapping lacks bias <- gn.weight",
        "the parameter mapping has weight <- gn.weight",
    )
    fast = candidate_with(folder, f"{header.format('PASSED')}# max-speedup: 1.5\n")
    assert misses(fast, passed(timing=TIMING)) == (
        "the speedup over eager is 1.71, which cannot be true over 1.5",
    )
    plain = candidate_with(folder, header.format("PASSED"))
    assert misses(plain, passed(log="x" * 70_000)) == (
        "the log has 70000 characters, more than 65536",
    )


def test_the_page_names_every_key_of_a_header_and_no_other() -> None:
    rows = re.findall(
        r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", PAGE.split("### The header")[1], re.MULTILINE
    )
    named = [key for row in rows for key in re.findall(r"`([a-z-]+)`", row)]
    fields = msgspec.structs.fields(Header)
    assert sorted(named) == sorted(field.name.replace("_", "-") for field in fields)


def test_the_page_explains_every_outcome() -> None:
    table = PAGE.split("| outcome | meaning |")[1].split("\n\n")[0]
    assert re.findall(r"^\| ([a-z ]+) \|", table, re.MULTILINE) == [one.words for one in Outcome]


# The classes of attack


def test_every_class_has_a_candidate_that_is_not_honest_or_a_reason_why_not() -> None:
    covered = {one for c in SHIPPED if c.kind is not Kind.HONEST for one in c.exploit}
    assert {one for candidate in SHIPPED for one in candidate.exploit} == covered
    assert not covered & KNOWN.outside.keys()
    assert covered | KNOWN.outside.keys() == KNOWN.classes.keys()


def test_every_class_has_a_name_of_its_own() -> None:
    assert len(set(KNOWN.classes.values())) == len(KNOWN.classes)


def test_the_classes_are_listed_with_their_candidates(folder: Folder) -> None:
    folder.add("hostile_b.py", f"{BROKEN}# exploit: T05\n")
    result = folder.run("--classes")
    assert result.exit_code == 0
    lines = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert lines.keys() == KNOWN.classes.keys()
    assert lines["T05"].endswith(": hostile_b.py")
    assert ": not applicable. " in lines["T28"]
    assert lines["T06"].endswith(": no candidate")
