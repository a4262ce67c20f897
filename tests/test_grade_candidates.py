"""The candidates in tests/candidates, honest, broken, wrong and hostile, each to its exact verdict.

Together they are the grader's specification. A file's header says which problem of tests/problems
it is graded on and what the verdict must be; its docstring says why.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor import grade
from kernelgen.grading.verdict import Status, Verdict, owner_of
from kernelgen.problem.library import load_problem
from kernelgen.sandbox.record import Mode
from kernelgen.sandbox.survey import survey

FOLDER = Path(__file__).resolve().parent / "candidates"
PROBLEMS = FOLDER.parent / "problems"
LOG_LIMIT_CHARACTERS = 64 << 10
HEADER_LINE = re.compile(r"# ([a-z-]+): (.+)")
MANY = ("reason", "warning", "maps")


class Candidate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file to be graded, and what its header says.

    Attributes:
        path: of the file.
        text: its content.
        problem: stem of a file in tests/problems.
        expect: the status that it must get.
        reason, warning: texts that the reason, and one of the warnings, must contain.
        blames: text of the line that the reason must name.
        maps: `candidate's parameter <- reference's`, which the verdict must report.
        orphan: argument of a process that the candidate leaves behind.
        time: whether it is also to be timed, which correct candidates need not be.
        call_timeout_s, build_timeout_s: deadlines of the run.
        without_gpu: status of a CUDA candidate where there is no GPU.
        slow: why the file takes more than a few seconds.
        max_speedup: the largest speedup over eager that can be true.
        gap: why the grader does not yet give this verdict; the test fails once it does.
        sandbox: as in GradeOptions; `require` skips the file where candidates cannot be contained.
        exploit: the class of attack that the file stands for, such as `T05`, or a few of them.
    """

    path: Path
    text: str
    problem: str
    expect: Status
    reason: tuple[str, ...] = ()
    warning: tuple[str, ...] = ()
    blames: str | None = None
    maps: tuple[str, ...] = ()
    orphan: str | None = None
    time: bool = False
    call_timeout_s: float = 60.0
    build_timeout_s: float = 300.0
    without_gpu: Status | None = None
    slow: str | None = None
    max_speedup: float | None = None
    gap: str | None = None
    sandbox: Mode = "auto"
    exploit: str | None = None

    @property
    def blamed_line(self) -> int | None:
        """Return the 1-based number of the line that the reason must name."""
        if self.blames is None:
            return None
        numbered = enumerate(self.text.splitlines(), 1)
        return next(n for n, line in numbered if self.blames in line and line[:2] != "# ")

    @property
    def options(self) -> GradeOptions:
        """Return how to grade it."""
        return GradeOptions(
            problem=load_problem(PROBLEMS / f"{self.problem}.yaml"),
            time=self.time,
            min_samples=3,
            max_samples=5,
            call_timeout_s=self.call_timeout_s,
            build_timeout_s=self.build_timeout_s,
            sandbox=self.sandbox,
        )


def read_candidate(path: Path) -> Candidate:
    """Read a candidate's header: the `# key: value` lines that it begins with."""
    text = path.read_text(encoding="utf-8")
    fields: dict[str, object] = {"path": path, "text": text}
    many: dict[str, list[str]] = {key: [] for key in MANY}
    for line in text.splitlines():
        match = HEADER_LINE.fullmatch(line)
        if match is None:
            break
        key = match[1].replace("-", "_")
        if key in many:
            many[key].append(match[2])
        else:
            fields[key] = match[2]
    return msgspec.convert({**fields, **many}, Candidate, strict=False)


def each(candidates: Sequence[Candidate]) -> pytest.MarkDecorator:
    """Parametrise a test over candidates."""
    parameters = []
    for candidate in candidates:
        marks = [pytest.mark.slow] if candidate.slow else []
        if candidate.gap:
            marks.append(pytest.mark.xfail(reason=candidate.gap, strict=True))
        parameters.append(pytest.param(candidate, id=candidate.path.stem, marks=marks))
    return pytest.mark.parametrize("candidate", parameters)


CPU = tuple(read_candidate(path) for path in sorted(FOLDER.glob("*.py")))
CUDA = tuple(read_candidate(path) for path in sorted((FOLDER / "cuda").glob("*.py")))


class Witness:
    """An observer that looks, as soon as a verdict is there, for what the candidate left behind."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = candidates
        self.left_behind: dict[Path, list[str]] = {}

    def begin(self, solutions: Sequence[str]) -> None:
        """Check that one verdict a candidate is to come."""
        assert len(solutions) == len(self.candidates)

    def phase(self, index: int, text: str) -> None:
        """Ignore the phases."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """Look for the process that the candidate started."""
        candidate = self.candidates[index]
        assert verdict.solution == str(candidate.path)
        if candidate.orphan is not None:
            self.left_behind[candidate.path] = running_with(candidate.orphan)


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


VerdictOf = Callable[[Candidate], Verdict]


@pytest.fixture(scope="module")
def verdict_of(request: pytest.FixtureRequest) -> VerdictOf:
    """Grade the candidates that have the same options in one run, when the first is asked for."""
    name = test_a_candidate_gets_the_verdict_that_its_header_names.__name__
    ids = {item.name for item in request.session.items}
    selected = [one for one in CPU if f"{name}[{one.path.stem}]" in ids]
    verdicts: dict[Path, Verdict] = {}

    def of(candidate: Candidate) -> Verdict:
        if candidate.path not in verdicts:
            together = [one for one in selected if one.options == candidate.options]
            witness = Witness(together)
            paths = [one.path for one in together]
            run = grade(paths, options=candidate.options, observer=witness)
            verdicts.update(zip(paths, run.verdicts, strict=True))
            assert [found for found in witness.left_behind.values() if found] == []
        return verdicts[candidate.path]

    return of


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
    if candidate.max_speedup is not None:
        assert verdict.timing is not None
        assert verdict.timing.speedup["eager"].median < candidate.max_speedup
    assert len(verdict.log) <= LOG_LIMIT_CHARACTERS


@each(CPU)
def test_a_candidate_gets_the_verdict_that_its_header_names(
    candidate: Candidate, verdict_of: VerdictOf, capfd: pytest.CaptureFixture[str]
) -> None:
    if candidate.sandbox == "require" and survey().level != "namespaces":
        pytest.skip(f"not contained here: {'; '.join(survey().missing)}")
    require(candidate, verdict_of(candidate), candidate.expect)
    assert capfd.readouterr().out == "", "what a candidate prints belongs to its log alone"


@pytest.mark.gpu
@each(CUDA)
def test_a_cuda_candidate_gets_the_verdict_that_its_header_names(candidate: Candidate) -> None:
    (verdict,) = grade([candidate.path], options=candidate.options).verdicts
    require(candidate, verdict, candidate.expect)


@pytest.mark.nvcc
@each([candidate for candidate in CUDA if candidate.without_gpu])
def test_a_cuda_candidate_is_built_and_never_passed_where_there_is_no_gpu(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (verdict,) = grade([candidate.path], options=candidate.options).verdicts
    assert candidate.without_gpu is not None
    require(candidate, verdict, candidate.without_gpu)


@pytest.mark.parametrize("candidate", [*CPU, *CUDA], ids=lambda candidate: candidate.path.stem)
def test_a_candidate_s_name_header_and_docstring_agree(candidate: Candidate) -> None:
    kind = candidate.path.stem.split("_")[0]
    assert kind in ("honest", "broken", "wrong", "hostile")
    assert kind != "honest" or candidate.expect is Status.PASSED
    assert kind not in ("broken", "wrong") or candidate.expect is not Status.PASSED
    assert candidate.expect.value in candidate.text.split('"""')[1]
