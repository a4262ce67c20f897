"""How a run of grading is asked for, and how it tells what it is doing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.verdict import Verdict
from kernelgen.hardware.device import has_gpu_driver
from kernelgen.problem.record import (
    KERNELBENCH_TOLERANCE,
    Device,
    OtherRule,
    Precision,
    Problem,
    Require,
)
from kernelgen.sandbox.record import Limits, Mode

DeviceChoice = Literal["auto", "cuda", "cpu"]


QUICK_SAMPLES = 3
# A candidate is called some hundred times; no honest one takes its limit so often.
_CALLS = 10
_RULES = {
    "kernelbench": "kernelbench, |out - ref| <= 1e-4 + 1e-4 * |ref|, 1e-2 for bf16 and fp16",
    "reference": "reference, or twice what float32 is off from float64: weaker where that is far",
}


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Something to compare times with: the reference in one way of running it.

    Attributes:
        mode: of torch.compile; None where the reference runs as written.
        pinned: in fp32 with TF32 off, as candidates; else with the settings that torch starts with.
    """

    mode: str | None = None
    pinned: bool = True


BASELINES = {
    "eager": Baseline(),
    "compile": Baseline(mode="default"),
    "max-autotune": Baseline(mode="max-autotune"),
    "eager-defaults": Baseline(pinned=False),
    "compile-defaults": Baseline(mode="default", pinned=False),
}
USUAL_BASELINES: dict[Device, tuple[str, ...]] = {
    "cuda": ("eager", "compile"),
    "cpu": ("eager",),
}


class GradeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run of grading.

    Raises:
        UserError: there is no such baseline.

    Attributes:
        problem: grade every file on this problem; None finds it from each file's header or name.
        tolerance, require: in place of the problem's; `kernelbench` is KernelBench's rule,
            `reference` takes problems that float32 is too inexact for.
        precision: the type of floating inputs and parameters, in place of the problem's.
        eval_mode: grade reference and candidate under `eval()`, not in training mode.
        gradients: a call is forward and backward, and gradients are outputs.
        launch_overhead: time calls on an idle GPU, as KernelBench does, launches included.
        device: `auto` takes the device that the file's source is written for.
        baselines: which of BASELINES to time; None is what is usual on the device.
        time: whether to time at all; without it a verdict rests on correctness alone.
        timing_budget_s: wall time that the timed calls of one candidate may take.
        min_samples, max_samples: timed calls a subject.
        quick: the fewest samples, eager as the only baseline; see `in_a_hurry`.
        interval: enough samples are there once every speedup's 95 % interval reaches no further
            than this share of it to either side.
        build_timeout_s: for importing and constructing the candidate, compilation included.
        call_timeout_s: for one call of the candidate.
        candidate_timeout_s: for all that a candidate does; None is what `whole_timeout_s` says.
        gpu: which one, as CUDA_VISIBLE_DEVICES names it; None is the first of those visible.
        memory_limit_bytes: act as if the GPU had this much memory; None is what it has.
        build_cache: folder in which compiled extensions are kept for later runs; None keeps none.
        sanitize: also run compute-sanitizer's memcheck and racecheck on a small case.
        allow_imports: modules beyond torch and the standard library that candidates may import.
        sandbox: `auto` contains candidates as well as this machine can, `require` refuses to grade
            where that is not all of it, `off` does not contain them.
        limits: what a contained candidate may use up; None is what suits this machine.
    """

    problem: Problem | None = None
    tolerance: float | OtherRule | None = None
    require: Require | None = None
    precision: Precision | None = None
    eval_mode: bool = False
    gradients: bool = False
    launch_overhead: bool = False
    device: DeviceChoice = "auto"
    baselines: tuple[str, ...] | None = None
    time: bool = True
    timing_budget_s: float = 5.0
    min_samples: int = 10
    max_samples: int = 50
    quick: bool = False
    interval: float = 0.005
    build_timeout_s: float = 300.0
    call_timeout_s: float = 60.0
    candidate_timeout_s: float | None = None
    gpu: str | None = None
    memory_limit_bytes: int | None = None
    build_cache: Path | None = None
    sanitize: bool = False
    allow_imports: tuple[str, ...] = ()
    sandbox: Mode = "auto"
    limits: Limits | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.baselines or () if name not in BASELINES]
        if unknown:
            raise UserError(f"{unknown[0]}: no baseline; there are {', '.join(BASELINES)}")

    @property
    def whole_timeout_s(self) -> float:
        """Return the seconds for all that a candidate is asked; others' turns do not count."""
        if self.candidate_timeout_s is not None:
            return self.candidate_timeout_s
        return self.build_timeout_s + _CALLS * self.call_timeout_s + 2 * self.timing_budget_s

    def in_a_hurry(self) -> "GradeOptions":
        """Return these with what `--quick` sets: for the loop in which a kernel is written."""
        return msgspec.structs.replace(
            self,
            quick=True,
            baselines=("eager",),
            min_samples=QUICK_SAMPLES,
            max_samples=QUICK_SAMPLES,
        )

    def applied_to(self, problem: Problem) -> Problem:
        """Return a problem with what was asked for in place of its own."""
        tolerance, rule = self.tolerance, None
        if isinstance(tolerance, str):
            own = KERNELBENCH_TOLERANCE[self.precision or problem.precision]
            tolerance, rule = own if tolerance == "kernelbench" else None, tolerance
        given: dict[str, Any] = {
            "precision": self.precision,
            "tolerance": tolerance,
            "rule": rule,
            "require": self.require,
            "eval_mode": self.eval_mode or None,
            "gradients": self.gradients or None,
            "launch_overhead": self.launch_overhead or None,
        }
        asked = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(problem, **asked) if asked else problem

    def overrides(self) -> dict[str, str]:
        """Name, by option, what was asked for in place of the problem's or the usual."""
        told = {
            "tolerance": _RULES.get(str(self.tolerance), self.tolerance),
            "precision": self.precision,
            "require": self.require,
            "eval-mode": "reference and candidate under eval()" if self.eval_mode else None,
            "gradients": "forward and backward in one call" if self.gradients else None,
            "launch-overhead": "calls begin on an idle GPU" if self.launch_overhead else None,
            "quick": f"{QUICK_SAMPLES} samples, no torch.compile" if self.quick else None,
        }
        return {name: str(value) for name, value in told.items() if value is not None}


class Observer(Protocol):
    """Told what is going on, in the supervisor's process and thread; see report/progress.py."""

    def begin(self, solutions: Sequence[str]) -> None:
        """Grading of these files starts."""

    def phase(self, index: int, text: str) -> None:
        """The file at this position entered a phase, such as `case 3 of 11: volume`."""

    def finished(self, index: int, verdict: Verdict) -> None:
        """The file at this position has its verdict."""


Phase = Callable[[str], None]
"""Told of the phases of one file."""


def wanted_baselines(options: GradeOptions, device: Device) -> tuple[str, ...]:
    """Return which baselines are to be timed on a device."""
    return USUAL_BASELINES[device] if options.baselines is None else options.baselines


def compiles_baselines(options: GradeOptions) -> bool:
    """Return whether torch.compile is likely to be timed, as far as is known before any file."""
    device: Device = "cpu" if options.device == "cpu" or not has_gpu_driver() else "cuda"
    names = wanted_baselines(options, device)
    return options.time and any(BASELINES[name].mode is not None for name in names)
