"""Segments: a reduction and a map in one kernel, in C++ and in the CUDA emulation."""

from pathlib import Path

import pytest
from planned_models import Planned, problem_of

from kernelgen.rendering.context import Backend

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
RMS = "x / torch.sqrt((x ** 2).mean(dim=1, keepdim=True) + 1e-5)"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "layers", "inputs"),
    [
        (RMS, "pass", {"x": "torch.randn(3, 8, 5, 4)"}),
        (RMS, "pass", {"x": "torch.randn(6, 8)"}),
    ],
)
def test_one_kernel(
    backend: Backend,
    forward: str,
    layers: str,
    inputs: dict[str, str],
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    planned = Planned(
        problem_of(tmp_path, forward, layers=layers, **inputs), backend, compiled_folder
    )
    planned.check()
    assert len(planned.launched) == 1
