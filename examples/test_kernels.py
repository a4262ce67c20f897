"""A test suite for a repository of kernels: each in kernels/ is right, and not slower than eager.

    pytest test_kernels.py                # beside kernels/, and problems/ if there are own ones
    pytest test_kernels.py -k layernorm

The file's name, or a line `# problem: NAME` near its top, says which problem it solves.
"""

from pathlib import Path

import pytest

import kernelgen
from kernelgen.grading.options import GradeOptions
from kernelgen.hardware.device import has_gpu_driver

KERNELS = sorted(Path(__file__).parent.glob("kernels/*.py"))
# Times of a shared CPU say little.
OPTIONS = GradeOptions(time=has_gpu_driver(), baselines=("eager",))


@pytest.fixture(scope="session")
def verdicts(request: pytest.FixtureRequest) -> dict[Path, kernelgen.Verdict]:
    """Return the verdicts on all kernels that were selected: builds overlap, timings do not."""
    chosen = [
        Path(str(item.callspec.params["kernel"]))
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_kernel"
    ]
    run = kernelgen.grade(chosen, options=OPTIONS, jobs=4)
    return dict(zip(chosen, run.verdicts, strict=True))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda file: file.stem)
def test_kernel(kernel: Path, verdicts: dict[Path, kernelgen.Verdict]) -> None:
    """It passes; where it was timed, its speedup's interval is not all below 1."""
    verdict = verdicts[kernel]
    assert verdict.passed, f"{verdict.status.value}: {verdict.reason}"
    if verdict.timing is not None:
        speedup = verdict.timing.speedup["eager"]
        assert speedup.ci95[1] >= 1, f"slower than eager: {speedup.median:.2f}x"
