"""The text of a solution, from the plan of its problem."""

import re
import textwrap
from collections.abc import Mapping

import msgspec

from kernelgen.engines.architectures import DEFAULT_ARCHITECTURE, SIMPLE, architecture
from kernelgen.engines.environment import cpp_environment, in_docstring, python_environment
from kernelgen.engines.known import schedule_of
from kernelgen.engines.schedule import Schedule
from kernelgen.graph.graph import PlainValue
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.planning.plan import Plan
from kernelgen.problem.python_text import bound_names
from kernelgen.problem.record import MAIN, Backend, Case, Problem, device_of
from kernelgen.rendering.from_plan import PlanText, plan_text
from kernelgen.rendering.header import header
from kernelgen.rendering.model_source import COLUMNS, forward_line, model_source, whole_module
from kernelgen.rendering.overrides import override_schedule, sort_overrides
from kernelgen.rendering.schedule_table import DEFAULT_ARCHITECTURES, in_words, schedule_for
from kernelgen.solution.file import NO_KERNEL, STAYS
from kernelgen.tracing.capture import NoGraphError

_LIKENESS = 'getattr({0}, "__name__", repr({0}))'
_OTHER_FLOATS = ("float16", "bfloat16", "float64")
# Functions that a solution may need beside its stages; each may call those before it.
_HELPERS = (
    *("function", "launch", "broadcast", "factors", "workspace", "multiply", "readable", "heads"),
    *("read", "windows", "places", "expect", "left", "asked"),
)


def render_planned(
    problem: Problem,
    backend: Backend,
    settings: Mapping[str, str],
    case: Case = MAIN,
    arch: str | None = None,
) -> str:
    """Return the text of a problem's solution, planned from its Model.

    The main case has the overrides in force; `settings` are these as they were asked for, for the
    header. Products and long norms are for the architecture, of a GPU.

    Raises:
        ProblemError: the problem's code fails, or its cases have different plans.
        NoGraphError: its forward has no graph.
    """
    device, named = device_of(backend), arch or DEFAULT_ARCHITECTURES[backend]
    wanted = architecture(named) if backend == "cuda" else DEFAULT_ARCHITECTURE
    found = plan_of_problem(problem, case, device, wanted)
    plan = found.plan
    schedule = _schedule(plan, problem, backend, named, settings)
    text = plan_text(plan, backend, named, schedule)
    if plan.differentiated and not text.kernels:
        raise NoGraphError(problem.path, "no kernel here computes it, or its gradients")
    source = model_source(problem, case, device, plan.graph.returns % ((0,) * plan.graph.returned))
    made = (plan.graph.made_with, plan.graph.made_like)
    kept = {n for one in made for n in one if source.module or n in source.unchanged} - found.free
    pinned, like = ({n: value for n, value in one.items() if n in kept} for one in made)
    made_with = {n: repr(value) for n, value in pinned.items()} | like
    names = msgspec.structs.asdict(text) | msgspec.structs.asdict(source)
    names |= {
        "summary": in_docstring(problem.summary.rstrip(".")),
        "backend": backend,
        "identifier": problem.identifier,
        "idea": _idea(text),
        "written_for": in_docstring(_written_for(plan, made_with)),
        "hopper": "own" in text.features,
        "forward": _forward(plan, text.arguments),
        "preamble": "import inspect" if source.module and kept else source.preamble,
        "pinned": _expectation(pinned, like, inherited=bool(source.module)),
    }

    def part(name: str) -> str:
        return python_environment().get_template(f"frame/{name}.py.jinja").render(names).strip("\n")

    used = ["differentiated"] if text.differentiated else []
    parts = [*text.functions, *map(part, used), part("model")]
    for name in reversed(_HELPERS):
        if any(f"_{name}(" in other for other in parts):
            parts.insert(0, part(name))
            used.append(name)
    frame = ("head", *used, "model")
    common: tuple[str, ...] = ()
    if text.kernels:
        parts.insert(0, part("library"))
        frame = ("head", "library", *used, "model")
        common = (f"frame/common.{'cu' if backend == 'cuda' else 'cpp'}.jinja",)
    names_of_all = [*(f"frame/{name}.py.jinja" for name in frame), *common, *text.templates]
    templates = [
        (python_environment() if name.endswith(".py.jinja") else cpp_environment(), name)
        for name in names_of_all
    ]
    first = header(
        problem,
        backend=backend,
        arch=named if text.features - {""} or named == SIMPLE else None,
        templates=templates,
        numbers="" if schedule is None else in_words(msgspec.structs.asdict(schedule)),
        identities=plan.identities,
        settings=settings,
    )
    if not text.kernels:
        first += _without_kernels(plan)
    if source.module:
        parts[-1] = parts[-1].replace("(nn.Module)", "(Model)", 1)
        own = _without_clashes([part("head"), *parts], source.module)
        parts = [f"{first}\n{source.module}", *own]
    else:
        parts = [f"{first}\n{part('head')}", *parts, source.get_inputs, source.get_init_inputs]
    return "\n\n\n".join(parts) + "\n"


def _schedule(
    plan: Plan, problem: Problem, backend: Backend, arch: str, settings: Mapping[str, str]
) -> Schedule | None:
    """Return the schedule of the only stage that has one; None if there is none, or several."""
    constants = tuple(problem.constants_for(MAIN, device_of(backend)))
    suggested = schedule_of(plan.all_stages, arch)
    if suggested is None:
        sort_overrides(settings, (), constants)
        return None
    base = schedule_for(problem, backend, arch, suggested)
    numbers = sort_overrides(settings, base.__struct_fields__, constants)["schedule"]
    return override_schedule(base, numbers)


def _without_kernels(plan: Plan) -> str:
    """Return what a header says where all stays in torch, with the reason where types are it."""
    tensors = (source for source in plan.sources if not source.is_number)
    others = [source for source in tensors if source.type.dtype in _OTHER_FLOATS]
    of_float32 = "kernels for this are for float32"
    why = [f"{one.name} is {one.type.dtype}, and {of_float32}" for one in others[:1]]
    return "".join([f"\n{NO_KERNEL}", *(f"\n{STAYS}{reason}" for reason in why)])


def render_in_torch(
    problem: Problem, backend: Backend, settings: Mapping[str, str], case: Case, why: str
) -> str:
    """Return the text of a solution without kernels: the problem's module, with ModelNew."""
    first = header(problem, backend=backend, arch=None, templates=[], settings=settings)
    module = whole_module(problem, case, device_of(backend))
    return f"{first}\n{NO_KERNEL}\n{STAYS}{why}\n{module}\n\n\nModelNew = Model\n"


def _without_clashes(parts: list[str], module: str) -> list[str]:
    """Return a file's own parts with other names for functions that the module has as well."""
    own = set(re.findall(r"^def (\w+)", "\n".join(parts), re.MULTILINE))
    for name in sorted(own & bound_names(module)):
        # An argument of forward may have such a name; it is not called.
        parts = [re.sub(rf"\b{name}(?=\()", f"{name}_", part) for part in parts]
    return parts


def _expectation(
    pinned: Mapping[str, PlainValue], like: Mapping[str, str], *, inherited: bool
) -> list[str]:
    """Return the lines that refuse another Model than the one that the file is written for.

    Arguments are plain values, or like what has this name or repr.
    """
    if not pinned and not like:
        return []
    if inherited:
        lines = [
            "given = inspect.signature(Model).bind(*args, **kwargs)",
            "given.apply_defaults()",
        ]
        for values, found in ((pinned, "one"), (like, _LIKENESS.format("one"))):
            if values:
                lines += [
                    f"for name, value in {values}.items():",
                    "    one = given.arguments[name]",
                    f'    _expect(f"the Model\'s arguments, {{name}}", {found}, value)',
                ]
        return lines
    found = f"[{', '.join([*pinned, *map(_LIKENESS.format, like)])}]"
    expected = repr([*pinned.values(), *like.values()])
    if len(found) + len(expected) < COLUMNS - 40:
        return [f'_expect("the Model\'s arguments", {found}, {expected})']
    return ["_expect(", '    "the Model\'s arguments",', f"    {found},", f"    {expected},", ")"]


def _written_for(plan: Plan, pinned: Mapping[str, str]) -> str:
    shapes = " and ".join(f"{source.name} of shape {source.type.shape}" for source in plan.inputs)
    words = f"Written for {shapes}" if shapes else "Written for its constants"
    if pinned:
        words += f", and a Model made with {', '.join(f'{n}={v}' for n, v in pinned.items())}"
    if not shapes:
        return f"{words}."
    fixed = plan.fixed_sizes()
    others = f"fixed are dimensions {fixed}" if fixed else "other shapes are taken as well"
    return f"{words}; {others}."


def _forward(plan: Plan, called: Mapping[str, str]) -> str:
    """Return the first lines of forward.

    Arguments that its body cannot call by their own names are passed on to a method that can.
    """
    kinds = [plan.graph.kinds.get(name, "torch.Tensor") for name in plan.graph.arguments]
    returned = _returned(plan.graph.returns)
    line = forward_line(dict(zip(plan.graph.arguments, kinds, strict=True)), returned)
    if called == {name: name for name in plan.graph.arguments}:
        return line
    inner = forward_line(dict(zip(called.values(), kinds, strict=True)), returned)
    inner = inner.replace("def forward(", "def _forward(", 1)
    owner = "self_" if "self" in plan.graph.arguments else "self"
    line = line.replace("self", owner, 1)
    return f"{line}\n        return {owner}._forward({', '.join(plan.graph.arguments)})\n\n{inner}"


def _returned(text: str) -> str:
    """Return the type of what a forward returns."""
    if text == "%s":
        return "torch.Tensor"
    kind = {"(": "tuple", "[": "list", "{": "dict"}.get(text[0], "object")
    if named := re.match(r"([\w.]+)\(", text):
        return named[1]
    if re.sub(r"'[^']*': |%s|[, )\]}]", "", text[1:]) or kind == "object":
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
