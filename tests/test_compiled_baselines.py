"""Baselines compiled on no data: what is compiled on data is then found in the caches."""

import os
from pathlib import Path

import pytest
import torch
from oracle_references import oracle_reference
from torch._dynamo.utils import counters
from torch._inductor.fx_passes import pad_mm
from torch._inductor.runtime.benchmarking import benchmarker

from kernelgen.grading.oracle.baselines import Baselines
from kernelgen.grading.oracle.problem_code import ProblemCode
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.wire import messages as m
from kernelgen.problem.record import Manner

SOURCE = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, width), nn.GroupNorm(2, width)
    def forward(self, x):
        return self.norm(self.linear(x)) * torch.ones(1)
def get_inputs():
    return [torch.randn(64, 8)]
def get_init_inputs():
    return [4]
"""


def reference(source: str = SOURCE) -> Reference:
    return oracle_reference(source, manner=Manner(eval_mode=True))


def test_on_no_data_a_model_passes_for_one_of_the_device() -> None:
    def look(model: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[str, torch.Size, bool]:
        return str(inputs[0].device), model(*inputs).shape, model.training

    shape = torch.Size((64, 4))
    assert reference().code.on_no_data(look, on_device=True) == ("cpu", shape, False)
    assert reference().code.on_no_data(look) == ("meta", shape, False)


@pytest.mark.long
def test_what_is_compiled_ahead_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    subject, baselines = reference(), Baselines(Clock("cpu"), threads=1)
    counters.clear()
    baselines.compile(m.CompileBaselines(names=("eager", "compile")), subject)
    assert counters["inductor"]["fxgraph_cache_miss"] == 1
    counters.clear()
    ready = baselines.warm(("eager", "compile"), subject, subject.code.make_inputs(0))
    assert (list(ready.ready), ready.failed) == (["eager", "compile"], {})
    assert counters["inductor"]["fxgraph_cache_hit"] == 1
    assert counters["inductor"]["fxgraph_cache_miss"] == 0


@pytest.mark.parametrize("aside", [False, True])
def test_beside_others_no_compiler_measures(
    monkeypatch: pytest.MonkeyPatch, *, aside: bool
) -> None:
    timed: list[None] = []
    compiled: list[None] = []

    def measure(*_: object, **__: object) -> None:
        # As torch does it for a product whose rows are not aligned.
        pad_mm.get_do_bench()(lambda: timed.append(None))
        compiled.append(None)

    monkeypatch.setattr(benchmarker, "benchmark_gpu", lambda run, **_: run())
    monkeypatch.setattr(ProblemCode, "on_no_data", measure)
    cores = (min(os.sched_getaffinity(0)),) if aside else ()
    message = m.CompileBaselines(names=("compile",), cores=cores)
    Baselines(Clock("cpu"), threads=1).compile(message, reference())
    assert (len(timed), len(compiled)) == ((0, 0) if aside else (1, 1))


def test_what_does_not_compile_on_no_data_is_left_for_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, cores = [], sorted(os.sched_getaffinity(0))

    def fail(self: ProblemCode, *_: object, **__: object) -> None:
        tried.append(self)
        assert os.sched_getaffinity(0) == {cores[-1]}
        raise RuntimeError

    monkeypatch.setattr(ProblemCode, "on_no_data", fail)
    subject = reference()
    names = ("eager", "compile", "max-autotune", "compile-defaults")
    message = m.CompileBaselines(names=names, cores=(cores[-1],))
    Baselines(Clock("cpu"), threads=1).compile(message, subject)
    assert tried == [subject.code, subject.code], "a mode that measures is left out"
    assert sorted(os.sched_getaffinity(0)) == cores
