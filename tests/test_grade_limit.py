"""The limit in a whole verdict: rates from the cache, or measured by the oracle."""

from pathlib import Path

import pytest
from calibrations import calibration
from msgspec.structs import replace
from warm_lane import until_timed

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.timing.times import Limit
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.hardware.calibration import keep
from kernelgen.hardware.identity import cpu_identity
from kernelgen.problem.library import load_problem

HERE = Path(__file__).parent
# A linear layer of 4 x 1024 x 32.
HONEST = HERE / "candidates" / "honest_fp32_dot.py"
BYTES = 4 * (4 * 1024 + 1024 * 32 + 32 + 4 * 32)
FLOPS = 2 * 4 * 1024 * 32


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is kernelgen's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kernelgen"


def graded(problem: Path) -> Verdict:
    options = GradeOptions(problem=load_problem(problem), max_samples=3, min_samples=3)
    verdict = until_timed(lambda: grade([HONEST], options=options).verdicts[0])
    assert verdict.status is Status.PASSED, verdict.reason
    return verdict


def limit_in(verdict: Verdict) -> Limit:
    assert verdict.timing is not None
    assert verdict.timing.limit is not None
    return verdict.timing.limit


def test_without_a_calibration_the_oracle_measures(cache: Path) -> None:
    verdict = graded(HERE / "problems" / "tiny_linear.yaml")
    limit = limit_in(verdict)
    assert verdict.timing is not None
    assert (limit.minimal_bytes, limit.minimal_flops) == (BYTES, FLOPS)
    assert (limit.source, limit.rate) == ("counted", "fp32")
    assert limit.copy_gbps is not None
    assert limit.flops_per_s is not None
    expected_ms = max(BYTES / limit.copy_gbps / 1e6, FLOPS / limit.flops_per_s * 1e3)
    assert limit.limit_ms == pytest.approx(expected_ms)
    assert limit.fraction == pytest.approx(limit.limit_ms / verdict.timing.candidate_ms)
    assert not cache.exists(), "what is measured on the way is not kept"


def test_the_calibration_and_what_is_declared_are_used(cache: Path, tmp_path: Path) -> None:
    kept = replace(calibration("cpu", copy_gbps=10.0, rates={"fp32": 1e9}), device=cpu_identity())
    keep(cache, kept)
    text = (HERE / "problems" / "tiny_linear.yaml").read_text()
    file = tmp_path / "tiny_linear.yaml"
    file.write_text(text + "minimal: {bytes: 5000}\n")
    verdict = graded(file)
    limit = limit_in(verdict)
    assert (limit.source, limit.minimal_bytes, limit.minimal_flops) == ("declared", 5000, FLOPS)
    assert (limit.copy_gbps, limit.bound) == (10.0, "arithmetic")
    assert limit.limit_ms == pytest.approx(FLOPS / 1e9 * 1e3)
    assert verdict.timing is not None
    assert verdict.timing.minimal_bytes == 5000


def test_a_damaged_calibration_is_a_warning(cache: Path) -> None:
    kept = replace(calibration("cpu"), device=cpu_identity())
    keep(cache, kept).write_text("{}")
    verdict = graded(HERE / "problems" / "tiny_linear.yaml")
    assert limit_in(verdict).copy_gbps != 4000.0
    assert any("the calibration " in warning and "is damaged" in warning
               for warning in verdict.warnings)  # fmt: skip


@pytest.mark.gpu
def test_a_cuda_solution_reaches_a_fraction_of_the_limit(repository: Path) -> None:
    solution = repository / "solutions" / "groupnorm.py"
    options = GradeOptions(max_samples=10, baselines=())
    (verdict,) = grade([solution], options=options).verdicts
    assert verdict.status is Status.PASSED, verdict.reason
    limit = limit_in(verdict)
    assert limit.bound == "memory"
    assert 0.3 < limit.fraction < 1.05
