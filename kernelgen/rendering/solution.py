"""A problem to the text of its solution: first the kernels, then the Python around them."""

from collections.abc import Mapping

from kernelgen.engines.environment import checked_python
from kernelgen.errors import ProblemError, UserError
from kernelgen.problem.record import MAIN, MAIN_CASE, Backend, Case, Problem, device_of
from kernelgen.rendering.overrides import override_constants, sort_overrides
from kernelgen.rendering.planned import render_in_torch, render_planned
from kernelgen.rendering.schedule_table import check_schedules
from kernelgen.tracing.capture import NoGraphError


def render(
    problem: Problem,
    backend: Backend = "cuda",
    overrides: Mapping[str, str] | None = None,
    arch: str | None = None,
) -> str:
    """Return the text of a solution; the same arguments give the same text.

    It is made from the plan of the Model. One whose forward has no graph stays as it is, without
    kernels.

    Args:
        problem: a YAML problem, or a KernelBench file.
        backend: `cuda` for CUDA tensors, `cpp` for CPU tensors.
        overrides: schedule numbers or constants, to YAML text.
        arch: what the kernels of long norms and products are for, one of ARCHITECTURES; None is
            `sm_90a`. Other kernels are for any from sm_80 on.

    Raises:
        UserError: the problem's code fails, or its table or an override does not suit it.
        RenderError: the text would be no Python, or read names that nothing binds.
    """
    given = dict(overrides or {})
    device = device_of(backend)
    check_schedules(problem)
    # Which numbers a schedule has follows from the kernel, and that from the constants.
    known = problem.constants_for(MAIN, device)
    sizes = sort_overrides(given, None, tuple(known))["constants"]
    case = Case(name=MAIN_CASE, constants=override_constants(known, sizes))
    text = why = ""
    try:
        text = render_planned(problem, backend, given, case, arch)
    except NoGraphError as error:
        why = error.why
    except ProblemError as error:
        if not sizes:
            raise
        raise UserError(f"--set {', '.join(sizes)}: {error.message}") from error
    if why:
        text = render_in_torch(problem, backend, given, case, why)
    return checked_python(text, problem.reference_source(case, device))


def render_reference(problem: Problem, backend: Backend = "cuda") -> str:
    """Return the problem as a KernelBench-style file, at the size that suits a backend's device."""
    source = problem.reference_source(MAIN, device_of(backend))
    if problem.module_source is not None:
        return source
    return f'"""{problem.summary}."""\n\n{source}'
