"""A problem to the text of its solution: first the kernels, then the Python around them."""

from collections.abc import Mapping

from kernelgen.errors import ProblemError, UserError
from kernelgen.planning.capture import NoGraphError
from kernelgen.planning.products.choice import architecture
from kernelgen.planning.recognition.forms import SegmentNorm
from kernelgen.problem.record import MAIN_CASE, Backend, Case, Problem, device_of
from kernelgen.rendering.choose import choose, written_for
from kernelgen.rendering.context import STATISTICS, kernel_interface
from kernelgen.rendering.environment import (
    checked_python,
    checked_source,
    cpp_environment,
    in_docstring,
    python_environment,
)
from kernelgen.rendering.header import header
from kernelgen.rendering.model_source import forward_line, model_source
from kernelgen.rendering.overrides import override_constants, override_schedule, sort_overrides
from kernelgen.rendering.planned import render_in_torch, render_planned
from kernelgen.rendering.recognised import recognised
from kernelgen.rendering.schedule_table import (
    DEFAULT_ARCHITECTURES,
    check_schedules,
    in_words,
    numbers_of,
    schedule_for,
    schedule_of,
)

_MAIN = Case(name=MAIN_CASE)


def render(
    problem: Problem,
    backend: Backend = "cuda",
    overrides: Mapping[str, str] | None = None,
    arch: str | None = None,
) -> str:
    """Return the text of a solution; the same arguments give the same text.

    A problem whose Model is exactly what a template computes is rendered with it; any other one
    from the plan of its Model. A Model whose forward has no graph stays as it is, without kernels.

    Args:
        problem: a YAML problem, or a KernelBench file.
        backend: `cuda` for CUDA tensors, `cpp` for CPU tensors.
        overrides: schedule numbers or constants, to YAML text.
        arch: what a norm's fast kernel, and products, are for, one of ARCHITECTURES; None is
            `sm_90a`. A plan's other kernels are for any from sm_80 on.

    Raises:
        UserError: the problem's code fails, or its table or an override does not suit it.
        RenderError: the text would be no Python, or read names that nothing binds.
    """
    given = dict(overrides or {})
    device = device_of(backend)
    check_schedules(problem)
    # Which numbers a schedule has follows from the kernel, and that from the constants.
    known = problem.constants_for(_MAIN, device)
    sizes = sort_overrides(given, None, tuple(known)).constants
    case = Case(name=MAIN_CASE, constants=override_constants(known, sizes))
    try:
        form = recognised(problem, case, device)
    except ProblemError as error:
        if not sizes:
            raise
        raise UserError(f"--set {', '.join(sizes)}: {error.message}") from error
    if form is None or model_source(problem, case, device).module:
        try:
            text = render_planned(problem, backend, given, case, arch)
        except NoGraphError as error:
            text = render_in_torch(problem, backend, given, case, error.why)
    else:
        text = _render_norm(problem, backend, given, case=case, arch=arch, form=form)
    return checked_python(text, problem.reference_source(case, device))


def render_reference(problem: Problem, backend: Backend = "cuda") -> str:
    """Return the problem as a KernelBench-style file, at the size that suits a backend's device."""
    source = problem.reference_source(_MAIN, device_of(backend))
    if problem.module_source is not None:
        return source
    return f'"""{problem.summary}."""\n\n{source}'


def _render_norm(  # noqa: PLR0913 - what is asked for, and the form that was found
    problem: Problem,
    backend: Backend,
    given: Mapping[str, str],
    *,
    case: Case,
    arch: str | None,
    form: SegmentNorm,
) -> str:
    """Return the text of a problem's solution whose Model is a norm that templates compute."""
    named_arch = arch or DEFAULT_ARCHITECTURES[backend]
    choice = choose(form, architecture(named_arch)) if backend == "cuda" else None
    base = schedule_for(problem, backend, named_arch, schedule_of(choice))
    known = problem.constants_for(_MAIN, device_of(backend))
    numbers = sort_overrides(given, base.__struct_fields__, tuple(known)).schedule
    schedule = override_schedule(base, numbers)
    interface = kernel_interface(form)
    template = "cuda/norm/norm.cu.jinja"
    if backend == "cpp":
        template = f"cpp/statistics/{STATISTICS[form.statistics].template}.cpp.jinja"
    fast = choice and choice.norm
    kernels = cpp_environment().get_template(template)
    names = {"arch": named_arch, "fast": fast, "schedule": schedule, "interface": interface}
    python = "segment_norm.py.jinja"
    first = header(
        problem,
        backend=backend,
        arch=None if choice is None else named_arch,
        templates=[(python_environment(), python), (cpp_environment(), template)],
        numbers=in_words(numbers_of(schedule)),
        settings=given,
    )
    return (
        python_environment()
        .get_template(python)
        .render(
            header=first,
            summary=in_docstring(problem.summary.rstrip(".")),
            backend=backend,
            kernel=problem.identifier,
            written_for="" if choice is None else written_for(choice, named_arch),
            interface=interface,
            form=form,
            model=model_source(problem, case, device_of(backend)),
            forward=forward_line(dict.fromkeys(form.inputs, "torch.Tensor"), "torch.Tensor"),
            source=checked_source(kernels.render(names), template),
        )
    )
