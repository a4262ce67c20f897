"""Work on parameters that a solution keeps from call to call, as the grader takes it."""

from pathlib import Path

import torch
from oracle_references import oracle_reference
from torch import nn
from warm_lane import graded, until_timed

from kernelgen.grading.candidate.parameters import give
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.grading.wire.messages import ReferenceState
from kernelgen.grading.wire.module_state import Definitions, state_of
from kernelgen.problem.library import load_problem

PROBLEM = """
summary: a product with a weight
require: anything
constants: {{rows: 4, features: 16}}
model: |
  class Model(nn.Module):
      def __init__(self, features: int) -> None:
          super().__init__()
          self.weight = nn.Parameter(torch.ones(features, features))

      def forward(self, x: torch.Tensor) -> torch.Tensor:
          return x @ self.weight
get_inputs: |
  def get_inputs():
      return [torch.rand(rows, features)]
get_init_inputs: |
  def get_init_inputs():
      return [features]
"""
# Preparing takes as long as its sleep, and nothing else does.
SOLUTION = """
import time

import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, features))
        self.packed, self.version = None, -1

    def forward(self, x):
        if {stale}:
            time.sleep(0.03)
            self.packed, self.version = self.weight.t().contiguous(), self.weight._version
        return x @ self.packed.t()
"""
BY_VERSION, ONCE = "self.version != self.weight._version", "self.packed is None"
PREPARING_MS = 30.0


def verdict_on(folder: Path, *, stale: str, time: bool) -> Verdict:
    problem, solution = folder / "product.yaml", folder / "solution.py"
    problem.write_text(PROBLEM.format())
    solution.write_text(SOLUTION.format(stale=stale))
    options = GradeOptions(
        problem=load_problem(problem),
        device="cpu",
        time=time,
        baselines=(),
        min_samples=3,
        max_samples=3,
    )
    return graded(solution, options)


def test_preparing_is_part_of_a_timed_call(tmp_path: Path) -> None:
    verdict = until_timed(lambda: verdict_on(tmp_path, stale=BY_VERSION, time=True))
    assert verdict.status is Status.PASSED, verdict.reason
    assert verdict.timing is not None
    assert min(verdict.timing.samples["candidate"]) >= PREPARING_MS


def test_what_is_kept_for_good_is_wrong(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, stale=ONCE, time=False)
    assert verdict.status is Status.WRONG_VALUES
    assert "after other parameters had been copied over the first ones" in verdict.reason


def test_other_parameters_are_written_over_the_first_and_counted() -> None:
    reference, candidate = nn.Linear(3, 2), nn.Linear(3, 2)
    names, values = zip(*state_of(reference), strict=True)
    state = ReferenceState(names=names, ranks=(0, 1), seed=0)
    recipients, _ = give(candidate, list(values), state, Definitions())
    versions = [candidate.weight._version]  # noqa: SLF001 (what it is about)
    recipients.count_a_change()
    versions.append(candidate.weight._version)  # noqa: SLF001
    recipients.fill([value + 1.0 for value in values])
    versions.append(candidate.weight._version)  # noqa: SLF001
    assert versions == sorted(set(versions))
    assert torch.equal(candidate.weight, reference.weight + 1.0)


def test_other_parameters_are_drawn_as_the_first_were() -> None:
    source = (
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(40)\n"
        "        self.register_buffer('table', torch.arange(3.0))\n"
        "    def forward(self, x):\n"
        "        return self.norm.weight * x\n"
        "def get_inputs(): return [torch.rand(40)]\n"
        "def get_init_inputs(): return []\n"
    )
    reference = oracle_reference(source)
    before = {name: tensor.clone() for name, tensor in reference.state()}
    inputs, _ = reference.expect(0)
    reference.redraw_parameters()
    after = dict(reference.state())
    for name in "norm.weight", "norm.bias", "norm.running_var":
        assert not torch.equal(after[name], before[name])
        distance = (after[name] - before[name]).abs().max()
        assert float(distance) < 1.0001
    assert torch.equal(after["table"], before["table"])
    assert torch.equal(reference.run(inputs, 0), after["norm.weight"] * inputs[0])
    _, chunks = reference.exact.of(inputs, [reference.run(inputs, 0)])
    ((_, (exact,)),) = chunks()
    assert torch.equal(exact.float(), after["norm.weight"] * inputs[0])
