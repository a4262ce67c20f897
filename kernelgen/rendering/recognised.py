"""A problem whose Model is exactly what a template computes, as a problem with that template."""

from msgspec import structs

from kernelgen.errors import ProblemError
from kernelgen.planning.capture import graph_of
from kernelgen.planning.graph import Graph
from kernelgen.planning.recognise import template_of
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.rendering.layers import solution_layers
from kernelgen.rendering.parameters import template_parameters
from kernelgen.rendering.reference_model import read_model


def with_template(problem: Problem, case: Case, device: Device) -> Problem:
    """Return a problem with the template that its Model asks for; as it is if there is none.

    Raises:
        ProblemError: the problem's code fails, or its forward has no graph.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    if problem.template is not None or problem.module_source is not None or problem.eval_mode:
        return problem
    return with_template_of(problem, graph_of(problem, case, device))


def with_template_of(problem: Problem, graph: Graph) -> Problem:
    """Return a problem with the template that its graph asks for; as it is if there is none."""
    choice = template_of(graph)
    if choice is None:
        return problem
    chosen = structs.replace(problem, template=choice)
    try:
        # The template reads layers in Model's text, and may not find there what the graph has.
        solution_layers(chosen, read_model(chosen), template_parameters(chosen, choice))
    except ProblemError:
        return problem
    return chosen
