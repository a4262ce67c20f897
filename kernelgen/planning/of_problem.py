"""A problem's plan, with the numbers that follow sizes of its inputs read when it runs."""

from collections.abc import Iterable

import msgspec

from kernelgen.engines.architectures import DEFAULT_ARCHITECTURE, Architecture
from kernelgen.engines.stage import Library, Stage
from kernelgen.errors import ProblemError
from kernelgen.graph.graph import Argument, Graph, GraphInput, TensorType
from kernelgen.graph.sizes import Resize, dimensions_of, resizes_of, sizes_like, with_size
from kernelgen.planning.gradients import with_engines_for_each, with_gradients
from kernelgen.planning.plan import Plan
from kernelgen.planning.planner import Choices, choices_of, plan_of_simple, simplified
from kernelgen.problem.record import Case, Device, Problem
from kernelgen.tracing.capture import NoGraphError, graph_of, graphs_of


class ProblemPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a problem's main case, which is that of all its cases.

    Attributes:
        plan: at the main shapes.
        free: the constructor's parameters that get other values in other cases.
    """

    plan: Plan
    free: frozenset[str]


def plan_of_problem(
    problem: Problem, main: Case, device: Device, arch: Architecture = DEFAULT_ARCHITECTURE
) -> ProblemPlan:
    """Return the plan of a problem; on a GPU, products and long norms are for an architecture.

    Raises:
        ProblemError: its code fails, its forward has no graph, or its cases have different plans.
        KernelgenFault: the process that traces does not start, or cannot be contained.
    """
    traced = graph_of(problem, main, device)
    choices = choices_of(traced, problem.algebra)
    try:
        found = _shared(_Traces(problem, main, device, traced, choices))
    except ProblemError:
        if not choices.means:
            raise
        # Other means and sums may come first at the sizes of another case.
        choices = choices._replace(means={})
        found = _shared(_Traces(problem, main, device, traced, choices))
    plan = msgspec.structs.replace(found.plan, identities=choices.identities)
    plan = with_engines_for_each(plan, arch if device == "cuda" else None)
    return msgspec.structs.replace(found, plan=plan)


def _shared(traces: "_Traces") -> ProblemPlan:
    """Return the plan of all cases, with the engines that every device has."""
    problem, graph = traces.problem, _with_sizes(traces)
    plan = with_gradients(plan_of_simple(graph))
    free: set[str] = set()
    bound = plan.bound
    skeleton = _skeleton(plan)
    cases = graphs_of(problem, [(case, None) for case in problem.cases], traces.device)
    for case, found in zip(problem.cases, cases, strict=True):
        if isinstance(found, ProblemError):
            raise found
        other = sizes_like(graph, simplified(found, traces.choices))
        if difference := _difference(skeleton, _skeleton(with_gradients(plan_of_simple(other)))):
            if graph.backward is not None:
                raise NoGraphError(problem.path, f"case {case.name} would need other kernels")
            message = f"its plan is not the main case's, which a file is rendered for: {difference}"
            raise ProblemError(problem.path, None, f"cases.{case.name}", message)
        own, its = ({**one.made_with, **one.made_like} for one in (graph, other))
        free |= {name for name, value in own.items() if its.get(name) != value}
        sizes = dimensions_of(other)
        sources = tuple(_with_alike(source, sizes) for source in plan.sources)
        # A Model that is made with other values holds others.
        same = {
            text: value
            for text, value in plan.graph.fixed.items()
            if not text.startswith("self.") or other.fixed.get(text) == value
        }
        graph_of_all = msgspec.structs.replace(plan.graph, fixed=same)
        plan = msgspec.structs.replace(plan, sources=sources, graph=graph_of_all)
        # Sizes that another case shares with the main one.
        bound &= {place for place, _ in dimensions_of(graph).items() & sizes.items()}
    plan = msgspec.structs.replace(plan, bound=bound)
    return ProblemPlan(plan=plan, free=frozenset(free))


def _with_alike(source: GraphInput, sizes: dict[tuple[str, int], int]) -> GraphInput:
    """Return a source whose size is only alike to what has that size in another case as well."""
    if source.size is None:
        return source
    own = sizes[source.size.input, source.size.dim]
    alike = frozenset(place for place in source.size.alike if sizes.get(place) == own)
    return msgspec.structs.replace(source, size=msgspec.structs.replace(source.size, alike=alike))


class _Traces:
    """A case's graph as it is traced and simplified, and traces of it with other sizes."""

    def __init__(
        self, problem: Problem, case: Case, device: Device, traced: Graph, choices: Choices
    ) -> None:
        self.problem, self.case, self.device = problem, case, device
        self.traced, self.choices = traced, choices
        self.main = simplified(traced, choices)

    def resized(self, *ways: Resize) -> list[Graph | None]:
        """Return a graph for each way, or None where there is none."""
        found = graphs_of(self.problem, [(self.case, way) for way in ways], self.device)
        return [one if isinstance(one, Graph) else None for one in found]

    def read(self, graph: Graph | None, resizes: Iterable[Resize]) -> Graph | None:
        """Return a graph with sizes read; None where a trace is another one, or there is none."""
        for resize in resizes:
            (other,) = self.resized(resize)
            if graph is None or other is None or other.decided != self.main.decided:
                return None
            graph = with_size(graph, self.main, simplified(other, self.choices), resize)
            told = with_size(self.traced, self.traced, other, resize)
            # Only now: the other trace tells whether forward loops over the size.
            ways = resize.extremes(self.traced, other) if graph is not None else []
            for way, there in zip(ways, self.resized(*ways), strict=True):
                same = there is None or with_size(self.traced, self.traced, there, way) == told
                if not same or (there and there.decided != self.main.decided):
                    return None
        return graph


def _with_sizes(traces: _Traces) -> Graph:
    """Return a case's graph with its sizes, those bound that cannot be read or changed."""
    graph = traces.main
    everywhere = dimensions_of(graph)
    # Twice nothing is nothing.
    known = {0, 1} if 1 in graph.decided else {0}
    bound = {place for place, size in everywhere.items() if size in known}
    for resize in resizes_of(graph):
        found = traces.read(graph, [resize])
        split = resize.split() if resize.dims[1:] else [[resize]]
        if found is None or _has_ties(found.inputs[len(graph.inputs) :]):
            ways = (traces.read(graph, way) for way in split)
            found = next((way for way in ways if way), found)
        # A parameter may have the size of a first dimension by chance.
        for part in split[0] if found is None else []:
            read = traces.read(graph, [part])
            # Of a size 1 no double says nothing: it is that of what is broadcast.
            if read is None and (part.size > 1 or any(traces.resized(part))):
                bound.update(p for p, size in everywhere.items() if part.changes(p[1], size))
            graph = read or graph
        graph = found or graph
    return msgspec.structs.replace(graph, bound=frozenset(bound))


def _has_ties(inputs: Iterable[GraphInput]) -> bool:
    """Whether a number may follow dimensions at several positions, which have one size."""
    sizes = [one.size for one in inputs if one.size is not None]
    return any(dim != size.dim for size in sizes for _, dim in size.alike)


def _skeleton(plan: Plan) -> list[str]:
    """Return a plan without its sizes: a description of each stage, in order."""
    return [*map(_described, plan.all_stages), f"{plan.graph.returns} {plan.outputs}"]


def _difference(skeleton: list[str], other: list[str]) -> str:
    """Return the first stage in which another plan differs, "" if none does."""
    for own, its in zip(skeleton, other, strict=False):
        if own != its:
            return f"{its}, not {own}"
    if len(skeleton) != len(other):
        return f"{len(other)} stages, not {len(skeleton)}"
    return ""


# Fields that follow from sizes, or are found anew for each of them when the file runs.
_SIZES = frozenset(("type", "types", "shape", "dims", "pattern", "span", "length", "way"))


def _described(stage: Stage) -> str:
    if isinstance(stage, Library):
        return f"{stage.aten}({', '.join(map(str, stage.arguments.values()))})"
    described, extent = _without_sizes(stage), stage.extent_in_words
    return f"{extent} dimensions: {described}" if extent else described


def _without_sizes(value: msgspec.Struct | TensorType | Argument | Iterable[object]) -> str:
    match value:
        case msgspec.Struct():
            fields = (
                f"{name}={_without_sizes(getattr(value, name))}"
                for name in value.__struct_fields__
                if name not in _SIZES
            )
            return f"{type(value).__name__}({', '.join(fields)})"
        case tuple():
            return f"({', '.join(_without_sizes(item) for item in value)})"
        case dict():
            return f"{{{', '.join(f'{k}: {_without_sizes(v)}' for k, v in value.items())}}}"
        case _:
            return repr(value)
