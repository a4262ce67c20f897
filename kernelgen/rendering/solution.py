"""A problem to the text of its solution: first the kernels, then the Python around them."""

import ast
from collections.abc import Mapping

import msgspec

from kernelgen.errors import ProblemError, UserError
from kernelgen.planning.capture import graph_of
from kernelgen.problem.record import (
    MAIN_CASE,
    Backend,
    Case,
    ConstantValue,
    Device,
    Prepacking,
    Problem,
    TemplateChoice,
    TemplateValue,
)
from kernelgen.rendering.choose import (
    Choice,
    NormChoice,
    ProductChoice,
    architecture,
    choose,
    written_for,
)
from kernelgen.rendering.context import (
    KernelInterface,
    ProductInterface,
    kernel_interface,
    product_interface,
)
from kernelgen.rendering.environment import (
    checked_source,
    cpp_environment,
    python_environment,
)
from kernelgen.rendering.header import header
from kernelgen.rendering.layers import SolutionLayers, solution_layers
from kernelgen.rendering.overrides import override_constants, override_schedule, sort_overrides
from kernelgen.rendering.parameters import (
    STATISTICS,
    MatrixProduct,
    Parameters,
    override_parameters,
    template_parameters,
)
from kernelgen.rendering.planned import render_planned
from kernelgen.rendering.recognised import with_template
from kernelgen.rendering.reference_model import ReferenceModel, read_model
from kernelgen.rendering.schedule import Schedule
from kernelgen.rendering.schedule_table import (
    DEFAULT_ARCHITECTURES,
    check_schedules,
    default_schedule,
    in_words,
    numbers_of,
    schedule_for,
)

_SUFFIX: dict[Backend, str] = {"cuda": "cu", "cpp": "cpp"}
_MAIN = Case(name=MAIN_CASE)


class _Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """What is rendered besides the problem; `given` are the overrides as they were asked for."""

    backend: Backend
    arch: str
    choice: Choice | None
    schedule: Schedule
    parameters: Parameters
    layers: SolutionLayers
    prepacking: Prepacking
    constants: dict[str, ConstantValue]
    given: dict[str, str]


class _KernelPart(msgspec.Struct, frozen=True, kw_only=True):
    """A text of kernels; a source is one or more of them, one after the other."""

    template: str
    arch: str
    schedule: Schedule
    interface: KernelInterface | ProductInterface
    fast: NormChoice | ProductChoice | None

    def render(self) -> str:
        text = (
            cpp_environment()
            .get_template(self.template)
            .render(
                arch=self.arch, fast=self.fast, schedule=self.schedule, interface=self.interface
            )
        )
        return checked_source(text, self.template)


def render(
    problem: Problem,
    backend: Backend = "cuda",
    overrides: Mapping[str, str] | None = None,
    arch: str | None = None,
) -> str:
    """Return the text of a solution; the same arguments give the same text.

    A problem that names a template, or whose Model is exactly what one computes, is rendered with
    it; any other one from the plan of its Model.

    Args:
        problem: a YAML problem, or a KernelBench file.
        backend: `cuda` for CUDA tensors, `cpp` for CPU tensors.
        overrides: schedule numbers, template parameters or constants, to YAML text.
        arch: what a template's fast kernel is for, one of ARCHITECTURES; None is `sm_90a`. The
            kernels of a plan are for any from sm_80 on.

    Raises:
        UserError: the template, its table or an override does not suit the problem, or its Model
            has no graph.
    """
    given = dict(overrides or {})
    device = device_of(backend)
    known = problem.constants_for(_MAIN, device)
    problem = with_template(problem, _MAIN, device)
    template = problem.template
    if template is None:
        settings = sort_overrides(given, (), (), tuple(known))
        return render_planned(
            problem, backend, given, override_constants(known, settings.constants)
        )
    check_schedules(problem)
    # Which numbers a schedule has follows from the kernel, and that from the constants.
    sizes = sort_overrides(given, None, tuple(template.parameters), tuple(known))
    constants = override_constants(known, sizes.constants)
    model = read_model(problem)
    parameters, layers = _template(problem, template, model, sizes.parameters)
    try:
        graph = graph_of(problem, Case(name=MAIN_CASE, constants=constants), device)
    except ProblemError as error:
        if not sizes.constants:
            raise
        raise UserError(f"--set {', '.join(sizes.constants)}: {error.message}") from error
    named_arch = arch or DEFAULT_ARCHITECTURES[backend]
    choice = None
    if backend == "cuda":
        choice = choose(parameters, layers, model.inputs, graph, architecture(named_arch))
        base = choice.schedule
    else:
        base = default_schedule(problem, backend, named_arch)
    base = schedule_for(problem, backend, named_arch, base)
    replaced = sort_overrides(
        given, base.__struct_fields__, tuple(template.parameters), tuple(known)
    )
    chosen = _Rendering(
        backend=backend,
        arch=named_arch,
        choice=choice,
        schedule=override_schedule(base, replaced.schedule),
        parameters=parameters,
        layers=layers,
        prepacking=problem.prepacking,
        constants=constants,
        given=given,
    )
    return _solution(problem, model, f"{template.name}.py.jinja", chosen)


def device_of(backend: Backend) -> Device:
    """Return the device whose tensors a backend's solution takes."""
    return "cuda" if backend == "cuda" else "cpu"


def render_reference(problem: Problem, backend: Backend = "cuda") -> str:
    """Return the problem as a KernelBench-style file, at the size that suits a backend's device."""
    source = problem.reference_source(_MAIN, device_of(backend))
    if problem.module_source is not None:
        return source
    return f'"""{problem.summary}."""\n\n{source}'


def _kernel_parts(
    chosen: _Rendering, product: ProductInterface | None, norm: KernelInterface | None
) -> list[_KernelPart]:
    parts: list[_KernelPart] = []
    suffix, choice = _SUFFIX[chosen.backend], chosen.choice
    if product is not None:
        parts.append(
            _KernelPart(
                template=f"{chosen.backend}/product/product.{suffix}.jinja",
                arch=chosen.arch,
                schedule=chosen.schedule,
                interface=product,
                fast=None if choice is None else choice.product,
            )
        )
    if norm is not None:
        if chosen.backend == "cuda":
            template = "cuda/norm/norm.cu.jinja"
        else:
            template = f"cpp/statistics/{STATISTICS[norm.statistics].template}.cpp.jinja"
        schedule = chosen.schedule
        if product is not None and choice is not None:
            schedule = choice.norm_schedule  # the numbers that can be set are the product's
        parts.append(
            _KernelPart(
                template=template,
                arch=chosen.arch,
                schedule=schedule,
                interface=norm,
                fast=None if choice is None else choice.norm,
            )
        )
    return parts


def _template(
    problem: Problem,
    choice: TemplateChoice,
    model: ReferenceModel,
    overrides: dict[str, TemplateValue],
) -> tuple[Parameters, SolutionLayers]:
    """Return the template's parameters and the layers that suit them, each mistake blamed."""
    own = template_parameters(problem, choice)
    layers = solution_layers(problem, model, own)
    if not overrides:
        return own, layers
    parameters = override_parameters(own, overrides)
    try:
        return parameters, solution_layers(problem, model, parameters)
    except ProblemError as error:
        # The problem's own parameters suit its model, so those of the command line are to blame.
        raise UserError(f"--set {', '.join(overrides)}: {error.message}") from error


def _solution(problem: Problem, model: ReferenceModel, template: str, chosen: _Rendering) -> str:
    parameters = chosen.parameters
    fast = None if chosen.choice is None else chosen.choice.product
    # The general kernel has nothing to keep of a weight.
    keeps = fast is not None and fast.kernel == "hopper"
    product = product_interface(parameters, chosen.backend, chosen.prepacking if keeps else "timed")
    norm = None
    if not isinstance(parameters, MatrixProduct):
        norm = kernel_interface(parameters, chosen.layers)
    parts = _kernel_parts(chosen, product, norm)
    blocks = (model.constructor, problem.get_inputs, problem.get_init_inputs)
    return (
        python_environment()
        .get_template(template)
        .render(
            header=header(
                problem,
                backend=chosen.backend,
                arch=None if chosen.choice is None else chosen.arch,
                templates=[
                    (python_environment(), template),
                    *((cpp_environment(), part.template) for part in parts),
                ],
                numbers=in_words(numbers_of(chosen.schedule)),
                settings=chosen.given,
            ),
            summary=problem.summary.rstrip("."),
            backend=chosen.backend,
            kernel=problem.identifier,
            written_for="" if chosen.choice is None else written_for(chosen.choice, chosen.arch),
            interface=norm,
            product=product,
            product_kernel="none" if fast is None else fast.kernel,
            parameters=parameters,
            layers=chosen.layers,
            model=model,
            constants=_assignments(chosen.constants),
            source="\n".join(part.render() for part in parts),
            functional=any(_uses(block, "F") for block in blocks),
            get_inputs=problem.get_inputs.strip("\n"),
            get_init_inputs=problem.get_init_inputs.strip("\n"),
        )
    )


def _assignments(constants: dict[str, ConstantValue]) -> str:
    """Return one line a constant, and a blank one after them if there are any."""
    return "".join(f"{name} = {value!r}\n" for name, value in constants.items())


def _uses(block: str, name: str) -> bool:
    nodes = ast.walk(ast.parse("class _:\n" + block if block.startswith(" ") else block))
    return any(isinstance(node, ast.Name) and node.id == name for node in nodes)
