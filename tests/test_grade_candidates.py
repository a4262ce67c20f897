"""The candidates in tests/candidates: honest, broken, wrong and hostile files, each to its exact verdict.

Together they are the grader's specification. A file's header says which problem of tests/problems it
is graded on and what the verdict must be; its docstring says why.
"""

import re
from pathlib import Path

import msgspec
import pytest

from kernelgen.grade.options import GradeOptions
from kernelgen.grade.supervisor import grade
from kernelgen.grade.verdict import Status, Verdict, owner_of
from kernelgen.problem.library import load_problem

FOLDER = Path(__file__).resolve().parent / "candidates"
PROBLEMS = FOLDER.parent / "problems"
LOG_LIMIT_CHARACTERS = 64 << 10
HEADER_LINE = re.compile(r"# ([a-z0-9-]+): (.+)")


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to be graded, and what its header says.

    Attributes:
        path: of the file.
        lines: its text.
        problem: stem of a file in tests/problems.
        expect: the status that it must get.
        reason, warning: texts that the reason, and one of the warnings, must contain.
        blames: text of the line that the reason must name.
        maps: `candidate's parameter <- reference's`, which the verdict must report.
        orphan: argument of a process that the candidate leaves behind.
        call_timeout_s, build_timeout_s: deadlines of the run.
        without_gpu: status of a CUDA candidate where there is no GPU.
        slow: why the file takes more than a few seconds.
    """

    path: Path
    lines: tuple[str, ...]
    problem: str
    expect: Status
    reason: tuple[str, ...] = ()
    warning: tuple[str, ...] = ()
    blames: str | None = None
    maps: tuple[str, ...] = ()
    orphan: str | None = None
    call_timeout_s: float = 60.0
    build_timeout_s: float = 300.0
    without_gpu: Status | None = None
    slow: str | None = None

    @property
    def blamed_line(self) -> int | None:
        """Return the 1-based number of the line that the reason must name."""
        if self.blames is None:
            return None
        found = [
            number
            for number, line in enumerate(self.lines, 1)
            if self.blames in line and not line.startswith("# ")
        ]
        return found[0]


def read_candidate(path: Path) -> Candidate:
    """Read a candidate's header: the `# key: value` lines that it begins with."""
    lines = tuple(path.read_text(encoding="utf-8").splitlines())
    fields: dict[str, object] = {"path": path, "lines": lines}
    many: dict[str, list[str]] = {"reason": [], "warning": [], "maps": []}
    for line in lines:
        match = HEADER_LINE.fullmatch(line)
        if match is None:
            break
        key, value = match[1].replace("-", "_"), match[2]
        if key in many:
            many[key].append(value)
        else:
            fields[key] = value
    return msgspec.convert({**fields, **many}, Candidate, strict=False)


def parameters(candidates: list[Candidate]) -> list[object]:
    return [
        pytest.param(
            candidate,
            id=candidate.path.stem,
            marks=[pytest.mark.slow] if candidate.slow else [],
        )
        for candidate in candidates
    ]


CPU = [read_candidate(path) for path in sorted(FOLDER.glob("*.py"))]
CUDA = [read_candidate(path) for path in sorted((FOLDER / "cuda").glob("*.py"))]
BUILT_WITHOUT_GPU = [candidate for candidate in CUDA if candidate.without_gpu]


def graded(candidate: Candidate) -> Verdict:
    options = GradeOptions(
        problem=load_problem(PROBLEMS / f"{candidate.problem}.yaml"),
        time=False,
        call_timeout_s=candidate.call_timeout_s,
        build_timeout_s=candidate.build_timeout_s,
    )
    (verdict,) = grade([candidate.path], options=options).verdicts
    return verdict


def require(candidate: Candidate, verdict: Verdict, status: Status) -> None:
    told = f"{verdict.status.value}: {verdict.reason}\n{verdict.warnings}\n{verdict.log}"
    assert verdict.status is status, told
    assert verdict.owner is owner_of(status), told
    assert [text for text in candidate.reason if text not in verdict.reason] == [], told
    warnings = "\n".join(verdict.warnings)
    assert [text for text in candidate.warning if text not in warnings] == [], told
    if candidate.blamed_line is not None:
        assert re.search(rf"(:|line ){candidate.blamed_line}\b", verdict.reason), told
    if candidate.maps:
        assert verdict.correctness is not None
        mapped = {f"{own} <- {name}" for own, name in verdict.correctness.parameters.items()}
        assert mapped == set(candidate.maps)
    assert len(verdict.log) <= LOG_LIMIT_CHARACTERS


def running_with(argument: str) -> list[str]:
    """Return the command lines of all processes that have this argument."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if argument.encode() in arguments:
            found.append(f"{process.name}: {b' '.join(arguments).decode()}")
    return found


@pytest.mark.parametrize("candidate", parameters(CPU))
def test_a_candidate_gets_the_verdict_that_its_header_names(
    candidate: Candidate, capfd: pytest.CaptureFixture[str]
) -> None:
    verdict = graded(candidate)
    require(candidate, verdict, candidate.expect)
    assert capfd.readouterr().out == "", "what a candidate prints belongs to its log alone"
    if candidate.orphan is not None:
        assert running_with(candidate.orphan) == []


@pytest.mark.gpu
@pytest.mark.parametrize("candidate", parameters(CUDA))
def test_a_cuda_candidate_gets_the_verdict_that_its_header_names(candidate: Candidate) -> None:
    require(candidate, graded(candidate), candidate.expect)


@pytest.mark.nvcc
@pytest.mark.parametrize("candidate", parameters(BUILT_WITHOUT_GPU))
def test_a_cuda_candidate_is_built_and_never_passed_where_there_is_no_gpu(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert candidate.without_gpu is not None
    require(candidate, graded(candidate), candidate.without_gpu)


def test_every_kind_of_candidate_is_there_and_says_why() -> None:
    kinds = {candidate.path.stem.split("_")[0] for candidate in CPU}
    assert kinds == {"honest", "broken", "wrong", "hostile"}
    for candidate in [*CPU, *CUDA]:
        honest = candidate.path.stem.startswith("honest_")
        assert not honest or candidate.expect is Status.PASSED
        assert (
            honest
            or candidate.expect is not Status.PASSED
            or candidate.path.stem.startswith("hostile_")
        )
        text = "\n".join(candidate.lines)
        docstring = text.split('"""')[1]
        assert candidate.expect.value in docstring, candidate.path
