"""A problem without a template to the text of its solution, by way of its plan."""

import textwrap

from kernelgen.planning.planner import plan_of
from kernelgen.planning.segments import with_segments
from kernelgen.planning.tracing import trace
from kernelgen.problem.record import MAIN_CASE, Case, ConstantValue, Device, Problem
from kernelgen.rendering.context import Backend
from kernelgen.rendering.environment import python_environment
from kernelgen.rendering.from_plan import PlanText, plan_text
from kernelgen.rendering.model_source import model_source

_HELPERS = ("launch", "readable", "along", "across", "expect")


def render_planned(
    problem: Problem, backend: Backend, arch: str | None, constants: dict[str, ConstantValue]
) -> str:
    """Return the text of a problem's solution, planned from its Model."""
    device: Device = "cuda" if backend == "cuda" else "cpu"
    case = Case(name=MAIN_CASE, constants=constants)
    graph = trace(problem.reference_source(case, device), eval_mode=problem.eval_mode)
    plan = with_segments(plan_of(graph))
    text = plan_text(plan, backend)
    source = model_source(problem, case, device)
    names = {
        "header": "# header",
        "summary": problem.summary.rstrip("."),
        "backend": backend,
        "identifier": problem.name,
        "idea": _idea(text),
        "written_for": "",
        "kernels": text.kernels,
        "body": text.body,
        "arguments": plan.arguments,
        "preamble": source.preamble,
        "constructor": source.constructor,
    }

    def part(name: str) -> str:
        return python_environment().get_template(f"plan/{name}.py.jinja").render(names).strip("\n")

    parts = [part("model"), source.get_inputs, source.get_init_inputs]
    parts = [*text.functions, *parts]
    for name in reversed(_HELPERS):
        # What a helper calls stands before it.
        if any(f"_{name}(" in other for other in parts):
            parts.insert(0, part(name))
    if text.kernels:
        parts.insert(0, part("library"))
    return "\n\n\n".join([part("head"), *parts]) + "\n"


def _idea(text: PlanText) -> str:
    if len(text.ideas) == 1:
        return textwrap.fill(f"{text.ideas[0]}.", 100, break_long_words=False)
    wrapped = (
        textwrap.fill(f"{n}. {idea}.", 100, subsequent_indent="   ", break_long_words=False)
        for n, idea in enumerate(text.ideas, 1)
    )
    return "\n".join(wrapped)
