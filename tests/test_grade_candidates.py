"""The candidates in tests/candidates, honest, broken, wrong and hostile, each to its exact verdict.

Together they are the grader's specification. A file's header says which problem of tests/problems
it is graded on and what the verdict must be; its docstring says why.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import structs

from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.sandbox.survey import survey
from kernelgen.selftest.corpus import Candidate, Kind, read_corpus
from kernelgen.selftest.running import left_behind, misses

CORPUS = read_corpus(Path(__file__).resolve().parent)
CPU = tuple(candidate for candidate in CORPUS if candidate.device == "cpu")
CUDA = tuple(candidate for candidate in CORPUS if candidate.device == "cuda")


def each(candidates: Sequence[Candidate]) -> pytest.MarkDecorator:
    """Parametrise a test over candidates.

    CI has all honest ones, and of the others one of each kind, family of attacks and status; before
    a commit there is one of each kind. `kernelgen selftest` grades all.
    """
    parameters = []
    classes: set[tuple[object, ...]] = set()
    kinds: set[Kind] = set()
    for candidate in candidates:
        families = {exploit[0] for exploit in candidate.exploit}
        of = candidate.kind, candidate.expect, *sorted(families)
        known = candidate.kind is not Kind.HONEST and of in classes
        marks = [pytest.mark.ci] if candidate.kind in kinds else []
        if known or candidate.slow:
            marks = [pytest.mark.corpus]
        else:
            classes.add(of)
            kinds.add(candidate.kind)
        if candidate.gap:
            marks.append(pytest.mark.xfail(reason=candidate.gap, strict=True))
        parameters.append(pytest.param(candidate, id=candidate.path.stem, marks=marks))
    return pytest.mark.parametrize("candidate", parameters)


class Witness:
    """An observer that looks, as soon as a verdict is there, for what the candidate left behind."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = candidates
        self.left_behind: list[str] = []

    def begin(self, solutions: Sequence[str]) -> None:
        """Check that one verdict a candidate is to come."""
        assert len(solutions) == len(self.candidates)

    def phase(self, index: int, text: str) -> None:
        """Ignore the phases."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """Look for the process that the candidate started."""
        candidate = self.candidates[index]
        assert verdict.solution == str(candidate.path)
        self.left_behind += left_behind(candidate)


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
            options = candidate.options()
            together = [one for one in selected if one.options() == options]
            witness = Witness(together)
            paths = [one.path for one in together]
            run = grade(paths, options=options, observer=witness)
            verdicts.update(zip(paths, run.verdicts, strict=True))
            assert witness.left_behind == []
        return verdicts[candidate.path]

    return of


def require(candidate: Candidate, verdict: Verdict) -> None:
    told = f"{verdict.status.value}: {verdict.reason}\n{verdict.warnings}\n{verdict.log}"
    assert misses(candidate, verdict) == (), told


@each(CPU)
def test_a_candidate_gets_the_verdict_that_its_header_names(
    candidate: Candidate, verdict_of: VerdictOf, capfd: pytest.CaptureFixture[str]
) -> None:
    if candidate.sandbox == "require" and survey().level != "namespaces":
        pytest.skip(f"not contained here: {'; '.join(survey().missing)}")
    require(candidate, verdict_of(candidate))
    assert capfd.readouterr().out == "", "what a candidate prints belongs to its log alone"


@pytest.mark.gpu
@each(CUDA)
def test_a_cuda_candidate_gets_the_verdict_that_its_header_names(candidate: Candidate) -> None:
    (verdict,) = grade([candidate.path], options=candidate.options()).verdicts
    require(candidate, verdict)


@pytest.mark.nvcc
@each([candidate for candidate in CUDA if candidate.without_gpu])
def test_a_cuda_candidate_is_built_and_never_passed_where_there_is_no_gpu(
    candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (verdict,) = grade([candidate.path], options=candidate.options()).verdicts
    assert candidate.without_gpu is not None
    require(structs.replace(candidate, expect=candidate.without_gpu), verdict)


@pytest.mark.parametrize("candidate", CORPUS, ids=lambda candidate: candidate.name)
def test_a_candidate_s_name_header_and_docstring_agree(candidate: Candidate) -> None:
    kind = candidate.kind
    assert kind is not Kind.HONEST or candidate.expect is Status.PASSED
    assert kind not in (Kind.BROKEN, Kind.WRONG) or candidate.expect is not Status.PASSED
    assert candidate.expect.value in candidate.text.split('"""')[1]
