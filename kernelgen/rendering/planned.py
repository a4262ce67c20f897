"""A problem that no template computes to the text of its solution, by way of its plan."""

import textwrap
from collections.abc import Mapping

from kernelgen.planning.graph import PlainValue
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.planning.plan import Plan
from kernelgen.problem.record import MAIN_CASE, Backend, Case, Problem, device_of
from kernelgen.rendering.choose import architecture
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.from_plan import PlanText, plan_text
from kernelgen.rendering.header import header
from kernelgen.rendering.model_source import COLUMNS, forward_line, model_source
from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES
from kernelgen.solution.file import NO_KERNEL

_MAIN = Case(name=MAIN_CASE)
# Folders of a kind's function and of its kernels, where these are not `stages`.
_FOLDERS = {"product": ("plan", "product")}
# What a solution may need beside its stages; each may call those before it.
_HELPERS = ("launch", "multiply", "readable", "along", "across", "windows", "expect")


def render_planned(
    problem: Problem,
    backend: Backend,
    settings: Mapping[str, str],
    case: Case = _MAIN,
    arch: str | None = None,
) -> str:
    """Return the text of a problem's solution, planned from its Model.

    The main case has the overrides in force; `settings` are these as they were asked for, for the
    header. Products are for the architecture, of a GPU.

    Raises:
        ProblemError: the Model has no graph, or the cases of the problem have different plans.
    """
    device = device_of(backend)
    found = plan_of_problem(problem, case, device)
    plan = found.plan
    named = architecture(arch or DEFAULT_ARCHITECTURES[backend]) if backend == "cuda" else None
    text = plan_text(plan, backend, named)
    has_products = "product" in text.kinds
    source = model_source(problem, case, device)
    pinned = {
        name: value
        for name, value in found.graph.made_with.items()
        if name not in found.free and name in source.unchanged
    }
    names = {
        "summary": problem.summary.rstrip("."),
        "backend": backend,
        "identifier": problem.identifier,
        "idea": _idea(text),
        "written_for": _written_for(plan, pinned),
        "kernels": text.kernels,
        "hopper": has_products and named == "sm_90a",
        "body": text.body,
        "forward": _forward(plan),
        "preamble": source.preamble,
        "functional": source.functional,
        "constructor": source.constructor,
        "pinned": _expectation(pinned),
    }

    def part(name: str) -> str:
        return python_environment().get_template(f"plan/{name}.py.jinja").render(names).strip("\n")

    parts = [*text.functions, part("model"), source.get_inputs, source.get_init_inputs]
    used = []
    for name in reversed(_HELPERS):
        if any(f"_{name}(" in other for other in parts):
            parts.insert(0, part(name))
            used.append(name)
    kinds: tuple[str, ...] = ()
    if text.kernels:
        parts.insert(0, part("library"))
        used.insert(0, "library")
        kinds = ("common", *text.kinds)
    suffix = "cu" if backend == "cuda" else "cpp"
    frame = ("head", *used, "model")
    templates = [(python_environment(), f"plan/{name}.py.jinja") for name in frame]
    for kind in kinds:
        functions, folder = _FOLDERS.get(kind, ("stages", "stages"))
        templates.append((cpp_environment(), f"{backend}/{folder}/{kind}.{suffix}.jinja"))
        if kind != "common":
            templates.append((python_environment(), f"{functions}/{kind}.py.jinja"))
    first = header(
        problem,
        backend=backend,
        arch=named if has_products else None,
        templates=templates,
        settings=settings,
    )
    if not text.kernels:
        first += f"\n{NO_KERNEL}"
    return "\n\n\n".join([f"{first}\n{part('head')}", *parts]) + "\n"


def _expectation(pinned: Mapping[str, PlainValue]) -> list[str]:
    """Return the lines that refuse another Model than the one that the file is written for."""
    if not pinned:
        return []
    found, expected = f"[{', '.join(pinned)}]", repr(list(pinned.values()))
    if len(found) + len(expected) < COLUMNS - 40:
        return [f'_expect("the Model\'s arguments", {found}, {expected})']
    return ["_expect(", '    "the Model\'s arguments",', f"    {found},", f"    {expected},", ")"]


def _written_for(plan: Plan, pinned: Mapping[str, PlainValue]) -> str:
    shapes = " and ".join(f"{source.name} of shape {source.type.shape}" for source in plan.inputs)
    words = f"Written for {shapes}" if shapes else "Written for its constants"
    if pinned:
        words += f", and a Model made with {', '.join(f'{n}={v!r}' for n, v in pinned.items())}"
    if not shapes:
        return f"{words}."
    fixed = plan.fixed_sizes()
    others = f"fixed are dimensions {fixed}" if fixed else "other shapes are taken as well"
    return f"{words}; {others}."


def _forward(plan: Plan) -> str:
    numbers = {s.name for s in plan.sources if s.is_number and s.size is None}
    fixed = {name: type(value).__name__ for name, value in plan.fixed.items()}
    kinds = (fixed.get(n, "float" if n in numbers else "torch.Tensor") for n in plan.arguments)
    return forward_line(dict(zip(plan.arguments, kinds, strict=True)), _returned(plan.returns))


def _returned(text: str) -> str:
    """Return the type of what a forward returns."""
    kind = {"%": "torch.Tensor", "(": "tuple", "[": "list", "{": "dict"}[text[0]]
    if text == "%s" or set(text[1:]) & {*"([{"}:
        return kind
    parts = {"tuple": "torch.Tensor, ...", "list": "torch.Tensor", "dict": "str, torch.Tensor"}
    return f"{kind}[{parts[kind]}]"


def _idea(text: PlanText) -> str:
    if len(text.ideas) == 1:
        return textwrap.fill(f"{text.ideas[0]}.", COLUMNS, break_long_words=False)
    wrapped = (
        textwrap.fill(f"{n}. {idea}.", COLUMNS, subsequent_indent="   ", break_long_words=False)
        for n, idea in enumerate(text.ideas, 1)
    )
    return "\n".join(wrapped)
