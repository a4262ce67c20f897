"""A solution as stages: a pure function of a graph, and the source of all rendering."""

import msgspec

from kernelgen.engines.stage import Stage
from kernelgen.graph.graph import InputKind, SizeOf, TensorType


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A value that forward starts from.

    Attributes:
        kind: of the graph's input; a `scalar` is a float of Python's.
        path: of a parameter or buffer; "" for an argument of forward.
        text: as of the graph's input, Python for what has neither a name nor a path.
        size: what of another source it is, where forward does not get it.
    """

    name: str
    type: TensorType
    kind: InputKind = "input"
    path: str = ""
    text: str = ""
    size: SizeOf | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a float of Python's."""
        return self.kind == "scalar"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A forward as stages.

    Attributes:
        arguments: forward's parameters.
        sources: the values that it starts from.
        stages: in order.
        outputs: names of the values that it returns.
        returns: what it returns, with `%s` for each of them.
        updates: path of a buffer -> the value that forward leaves in it.
        in_place: those that stages have written there themselves.
        kinds, fixed: as of the graph.
        attributes: paths of tensors that the Model holds without having registered them, so that
            they stay where they were made.
        bound: (source, dimension) whose size is that of the plan; others are refused.
        indexed: as of the graph.
        ordered: inputs whose dimensions lie in memory in the order of the plan's; other orders
            would be given other random numbers, or other elements of `as_strided`.
        identities: of algebra that it computes by, in words.
    """

    arguments: tuple[str, ...]
    sources: tuple[Source, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    returns: str
    updates: dict[str, str] = {}
    in_place: dict[str, str] = {}
    kinds: dict[str, str] = {}
    fixed: dict[str, str] = {}
    attributes: frozenset[str] = frozenset()
    bound: frozenset[tuple[str, int]] = frozenset()
    indexed: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    identities: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Source, ...]:
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
