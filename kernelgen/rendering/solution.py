"""A problem to the text of its solution: first the kernels, then the Python around them."""

from collections.abc import Mapping

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.planning.capture import NoGraphError
from kernelgen.planning.recognition.forms import Form, MatrixProduct
from kernelgen.problem.record import MAIN_CASE, Backend, Case, Problem, device_of
from kernelgen.rendering.choose import Choice, architecture, choose, written_for
from kernelgen.rendering.context import (
    STATISTICS,
    KernelInterface,
    ProductInterface,
    kernel_interface,
    product_interface,
)
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
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.schedule_table import (
    DEFAULT_ARCHITECTURES,
    check_schedules,
    in_words,
    numbers_of,
    schedule_for,
    schedule_of,
)

_SUFFIX: dict[Backend, str] = {"cuda": "cu", "cpp": "cpp"}
_MAIN = Case(name=MAIN_CASE)


class _Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """What is rendered besides the problem; `given` are the overrides as they were asked for."""

    form: Form
    backend: Backend
    arch: str
    choice: Choice | None
    schedule: Schedule
    case: Case
    given: dict[str, str]


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
        arch: what a template's fast kernel, and a plan's products, are for, one of ARCHITECTURES;
            None is `sm_90a`. A plan's other kernels are for any from sm_80 on.

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
        sort_overrides(given, (), tuple(known))
        try:
            text = render_planned(problem, backend, given, case, arch)
        except NoGraphError as error:
            text = render_in_torch(problem, backend, given, case, error.why)
        return checked_python(text, problem.reference_source(case, device))
    named_arch = arch or DEFAULT_ARCHITECTURES[backend]
    choice = choose(form, architecture(named_arch)) if backend == "cuda" else None
    base = schedule_for(problem, backend, named_arch, schedule_of(form, choice))
    numbers = sort_overrides(given, base.__struct_fields__, tuple(known)).schedule
    chosen = _Rendering(
        form=form,
        backend=backend,
        arch=named_arch,
        choice=choice,
        schedule=override_schedule(base, numbers),
        case=case,
        given=given,
    )
    return checked_python(_solution(problem, chosen), problem.reference_source(case, device))


def render_reference(problem: Problem, backend: Backend = "cuda") -> str:
    """Return the problem as a KernelBench-style file, at the size that suits a backend's device."""
    source = problem.reference_source(_MAIN, device_of(backend))
    if problem.module_source is not None:
        return source
    return f'"""{problem.summary}."""\n\n{source}'


def _kernel(template: str, **names: object) -> str:
    return checked_source(cpp_environment().get_template(template).render(names), template)


def _kernels(
    chosen: _Rendering, product: ProductInterface | None, norm: KernelInterface | None
) -> dict[str, str]:
    """Return texts of kernels, of which a source is one or more, by their templates."""
    arch, choice = chosen.arch, chosen.choice
    found: dict[str, str] = {}
    if product is not None:
        template = f"{chosen.backend}/product/product.{_SUFFIX[chosen.backend]}.jinja"
        fast: object = choice and choice.product
        found[template] = _kernel(
            template, arch=arch, fast=fast, schedule=chosen.schedule, interface=product
        )
    if norm is not None:
        template = "cuda/norm/norm.cu.jinja"
        if chosen.backend == "cpp":
            template = f"cpp/statistics/{STATISTICS[norm.statistics].template}.cpp.jinja"
        schedule = chosen.schedule
        if product is not None and choice is not None:
            schedule = choice.norm_schedule  # the numbers that can be set are the product's
        fast = choice and choice.norm
        found[template] = _kernel(template, arch=arch, fast=fast, schedule=schedule, interface=norm)
    return found


def _solution(problem: Problem, chosen: _Rendering) -> str:
    form, choice = chosen.form, chosen.choice
    fast = None if choice is None else choice.product
    # The general kernel has nothing to keep of a weight.
    keeps = fast is not None and fast.kernel == "hopper"
    product = product_interface(form, chosen.backend, problem.prepacking if keeps else "timed")
    norm = None if isinstance(form, MatrixProduct) else kernel_interface(form)
    kernels = _kernels(chosen, product, norm)
    source = model_source(problem, chosen.case, device_of(chosen.backend))
    template = f"{form.template}.py.jinja"
    return (
        python_environment()
        .get_template(template)
        .render(
            header=header(
                problem,
                backend=chosen.backend,
                arch=None if choice is None else chosen.arch,
                templates=[
                    (python_environment(), template),
                    *((cpp_environment(), name) for name in kernels),
                ],
                numbers=in_words(numbers_of(chosen.schedule)),
                settings=chosen.given,
            ),
            summary=in_docstring(problem.summary.rstrip(".")),
            backend=chosen.backend,
            kernel=problem.identifier,
            written_for="" if choice is None else written_for(choice, chosen.arch),
            interface=norm,
            product=product,
            product_kernel="none" if fast is None else fast.kernel,
            runs=1 if fast is None or fast.kernel == "none" else fast.runs,
            run_depth=0 if fast is None else fast.depth,
            form=form,
            model=source,
            forward=forward_line(dict.fromkeys(form.inputs, "torch.Tensor"), "torch.Tensor"),
            source="\n".join(kernels.values()),
        )
    )
