"""A solution as stages: a pure function of a graph, and the source of all rendering."""

import msgspec

from kernelgen.engines.stage import Stage
from kernelgen.graph.graph import Graph, GraphInput


class Differentiated(msgspec.Struct, frozen=True, kw_only=True):
    """A forward and its gradients, as two plans of the same sources.

    Attributes:
        saved: values that forward returns last, and backward begins with.
        forward: returns what the Model's does, what is left in buffers, and these.
        backward: begins with gradients of outputs as well; returns gradients of sources.
    """

    saved: tuple[str, ...]
    forward: "Plan"
    backward: "Plan"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A forward as stages.

    Attributes:
        graph: that it is of.
        sources: inputs of the graph that it starts from.
        stages: in order.
        outputs: names of the values that it returns.
        updates: path of a buffer -> the value that forward leaves in it.
        in_place: those that stages have written there themselves.
        bound: (source, dimension) whose size is that of the plan; others are refused.
        ordered: inputs whose dimensions lie in memory in the order of the plan's; other orders
            would be given other random numbers, or other elements of `as_strided`.
        identities: of algebra that it computes by, in words.
        differentiated: in place of its own stages, where gradients are recorded.
    """

    graph: Graph
    sources: tuple[GraphInput, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    updates: dict[str, str] = {}
    in_place: dict[str, str] = {}
    bound: frozenset[tuple[str, int]] = frozenset()
    ordered: frozenset[str] = frozenset()
    identities: tuple[str, ...] = ()
    differentiated: Differentiated | None = None

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The stages of a file, of forward and then of backward."""
        found = self.differentiated
        return (*found.forward.stages, *found.backward.stages) if found else self.stages

    @property
    def attributes(self) -> frozenset[str]:
        """Paths of tensors that the Model holds without registering: they stay where they are."""
        return frozenset(i.path for i in self.graph.inputs if i.kind == "attribute")

    @property
    def inputs(self) -> tuple[GraphInput, ...]:
        """The tensors that forward gets."""
        return tuple(s for s in self.sources if s.kind == "input")

    def fixed_sizes(self) -> str:
        """Return in words which sizes of the inputs are those of the plan, "" if none is."""
        words = []
        for source in self.inputs:
            dims = [d for d in range(len(source.type.shape)) if (source.name, d) in self.bound]
            if len(dims) == len(source.type.shape) > 0:
                words.append(f"all of {source.name}")
            elif dims:
                words.append(f"{', '.join(map(str, dims))} of {source.name}")
        return "; ".join(words)
