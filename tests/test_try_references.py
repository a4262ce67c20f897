"""`scripts/try_references.py`: any reference file gets a row, and the exit code tells of all."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from report_runs import passed
from test_verbatim_copies import reference
from try_references import References, files_of, judged, rendered_texts

from kernelgen.errors import UserError
from kernelgen.grading.verdict import Owner, Status

ROOT = Path(__file__).parents[1]
PASSED = passed()
WRONG = msgspec.structs.replace(PASSED, status=Status.WRONG_VALUES, reason="1 of 2", timing=None)
BROKEN = msgspec.structs.replace(WRONG, status=Status.BROKEN_CONTRACT)
REFUSED = msgspec.structs.replace(
    WRONG, status=Status.INVALID_PROBLEM, owner=Owner.PROBLEM, reason="not finite"
)
FILES = {
    "1_plain.py": reference("return torch.relu(x) * 2.0"),
    "2_torch.py": reference("return torch.linalg.svdvals(x)"),
    "3_ends.py": reference("return x", above="import os\nos.abort()"),
    "4_text.py": "def (:",
    "5_missing.py": reference("return x", above="import no_such_module"),
}


@pytest.mark.ci
def test_every_file_gets_a_row(tmp_path: Path) -> None:
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name, text in FILES.items():
        (level / name).write_text(text)
    record = tmp_path / "tried.json"
    command = [sys.executable, str(ROOT / "scripts" / "try_references.py"), str(tmp_path), "-q"]
    command += ["--backend", "cpp", "--json", str(record)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found
    tried = msgspec.json.decode(record.read_bytes(), type=References)
    assert {Path(one.reference).name: one.outcome for one in tried.references} == {
        "1_plain": "written, passed",
        "2_torch": "all in torch, passed",
        "3_ends": "copy GRADER_ERROR",
        "4_text": "refused, copy refused",
        "5_missing": "refused, copy refused",
    }
    assert "| level1/1_plain | written | PASSED | PASSED | yes |" in found.stdout
    assert "   2 refused, copy refused" in found.stdout
    assert "level1/5_missing: refused, copy refused: " in found.stdout


@pytest.mark.parametrize(
    ("line", "own", "copy", "outcome", "expected"),
    [
        ("", PASSED, PASSED, "written, passed", True),
        ("", PASSED, REFUSED, "written, passed, copy refused", True),
        ("", REFUSED, REFUSED, "written, INVALID_PROBLEM, copy refused", True),
        ("", REFUSED, PASSED, "written, INVALID_PROBLEM", False),
        ("", WRONG, PASSED, "written, WRONG_VALUES", False),
        ("", PASSED, WRONG, "copy WRONG_VALUES", False),
        ("", PASSED, BROKEN, "copy BROKEN_CONTRACT", False),
        ("refused: it has no graph", None, PASSED, "refused", True),
        ("refused: it has no graph", None, BROKEN, "refused, copy refused", True),
        ("refused: two\nlines", None, PASSED, "refused", False),
        ("refused: its code raises KeyError: 0", None, REFUSED, "refused, copy refused", True),
        ("refused: its code raises KeyError: 0", None, PASSED, "refused, its copy passes", False),
        ("failed: KeyError: 0", None, PASSED, "failed", False),
    ],
)
def test_only_a_pass_and_a_true_refusal_are_as_expected(
    line: str, own: object, copy: object, outcome: str, *, expected: bool
) -> None:
    found = judged("x", "", line, own, copy)  # type: ignore[arg-type]
    assert (found.outcome, found.expected) == (outcome, expected)


def test_a_folder_without_references_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected reference files"):
        files_of(tmp_path)


def test_a_renderer_that_does_not_answer_stops_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("try_references._RENDER_S", 0.01)
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    answers = dict(rendered_texts(files, "cpp"))
    assert answers == dict.fromkeys(files, ("", "failed: not rendered within 0.01 s"))
