"""Times that say the same again: on a GPU, for minutes, so these run only where they are asked for.

`pytest -m gpu tests/test_grade_repeatable.py --junitxml FILE -o junit_family=xunit1` keeps the
numbers.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec
import pytest

from kernelgen.grading.timing.times import Timing
from kernelgen.grading.verdict import Run

ROOT = Path(__file__).parents[1]
ITSELF = """
summary: GroupNorm, graded against itself
require: anything
constants: {batch_size: 16, num_features: 64, num_groups: 8, spatial: [512, 512]}
model: |
  class Model(nn.Module):
      def __init__(self, num_features: int, num_groups: int) -> None:
          super().__init__()
          self.gn = nn.GroupNorm(num_groups, num_features, eps=1e-5)

      def forward(self, x: torch.Tensor) -> torch.Tensor:
          return self.gn(x)
get_inputs: |
  def get_inputs():
      return [torch.rand(batch_size, num_features, *spatial)]
get_init_inputs: |
  def get_init_inputs():
      return [num_features, num_groups]
batch_independent: true
tolerance: 1.0e-5
"""
SAME = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, num_features, num_groups):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups, num_features, eps=1e-5)

    def forward(self, x):
        return self.gn(x)
"""
Record = Callable[[str, object], None]
pytestmark = pytest.mark.gpu


def timings(folder: Path, *arguments: str) -> list[Timing]:
    """Grade in a process of its own; return the times, one a file."""
    report = folder / "run.json"
    command = [sys.executable, "-m", "kernelgen", "grade", "--quiet", "--device", "cuda"]
    subprocess.run([*command, *arguments, "--json", str(report)], check=True, cwd=ROOT)
    verdicts = msgspec.json.decode(report.read_bytes(), type=Run).verdicts
    return [verdict.timing for verdict in verdicts if verdict.timing is not None]


def test_a_solution_against_itself_is_the_same(tmp_path: Path, record_property: Record) -> None:
    problem = tmp_path / "itself.yaml"
    problem.write_text(ITSELF)
    files = [tmp_path / f"same_{number:02}.py" for number in range(20)]
    for file in files:
        file.write_text(SAME)
    options = ("--problem", str(problem), "--baseline", "eager")
    found = [one.speedup["eager"] for one in timings(tmp_path, *map(str, files), *options)]
    record_property("intervals", [one.ci95 for one in found])
    record_property("median of medians", median([one.median for one in found]))
    assert len(found) == 20
    assert sum(one.says == "same" for one in found) >= 18


def test_ten_grades_of_groupnorm_agree_within_a_hundredth(
    tmp_path: Path, record_property: Record
) -> None:
    found = [timings(tmp_path, "solutions/groupnorm.py")[0] for _ in range(10)]
    for name in ("eager", "compile"):
        medians = [one.speedup[name].median for one in found]
        record_property(name, medians)
        assert max(medians) <= 1.01 * min(medians)
