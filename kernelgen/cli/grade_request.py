"""The command line of `kernelgen grade` as a record, and the `GradeOptions` that it asks for."""

from pathlib import Path

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.options import DeviceChoice, GradeOptions
from kernelgen.problem.record import Problem
from kernelgen.report.order import Order
from kernelgen.sandbox.record import Mode


class GradeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of `kernelgen grade`, parsed."""

    paths: tuple[Path, ...]
    problem: str | None
    reference: Path | None
    device: DeviceChoice
    baseline: tuple[str, ...]
    no_baseline: bool
    no_timing: bool
    timing_budget: float
    precision: float
    samples: int
    jobs: int
    build_timeout: float
    call_timeout: float
    memory_limit: int | None
    sandbox: Mode
    build_cache: Path | None
    sanitize: bool
    allow_import: tuple[str, ...]
    json: Path | None
    sort: Order
    html: Path | None
    junit: Path | None
    quiet: bool
    verbose: bool


def options_of(request: GradeRequest) -> GradeOptions:
    """Return what a command line asks for.

    Raises:
        UserError: options that exclude each other, or a value that cannot be used.
    """
    _refuse_contradictions(request)
    baselines: tuple[str, ...] | None = tuple(dict.fromkeys(request.baseline)) or None
    return GradeOptions(
        problem=_problem(request),
        device=request.device,
        baselines=() if request.no_baseline else baselines,
        time=not request.no_timing,
        timing_budget_s=request.timing_budget,
        min_samples=min(GradeOptions().min_samples, request.samples),
        max_samples=request.samples,
        precision=request.precision / 100,
        build_timeout_s=request.build_timeout,
        call_timeout_s=request.call_timeout,
        memory_limit_bytes=request.memory_limit,
        build_cache=_made_folder(request.build_cache),
        sanitize=request.sanitize,
        allow_imports=request.allow_import,
        sandbox=request.sandbox,
    )


def _refuse_contradictions(request: GradeRequest) -> None:
    pairs = (
        ("--problem", request.problem is not None, "--reference", request.reference is not None),
        ("--baseline", bool(request.baseline), "--no-baseline", request.no_baseline),
        ("--baseline", bool(request.baseline), "--no-timing", request.no_timing),
        ("--quiet", request.quiet, "--verbose", request.verbose),
    )
    for one, one_given, other, other_given in pairs:
        if one_given and other_given:
            raise UserError(f"{one} and {other} exclude each other; leave one of them out")
    for name in request.allow_import:
        if not name.isidentifier():
            raise UserError(f"--allow-import {name}: not a top-level module name, such as triton")


def _problem(request: GradeRequest) -> Problem | None:
    from kernelgen.problem.library import load_problem

    if request.reference is None:
        return None if request.problem is None else load_problem(request.problem)
    if request.reference.suffix != ".py":
        message = "not a Python file; a YAML problem or a problem's name goes with --problem"
        raise UserError(f"--reference {request.reference}: {message}")
    return load_problem(request.reference)


def _made_folder(folder: Path | None) -> Path | None:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"--build-cache {folder}: cannot be made: {error.strerror}"
            raise UserError(message) from error
    return folder
