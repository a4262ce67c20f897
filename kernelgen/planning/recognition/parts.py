"""What a family of templates looks for in a graph, and how it says what it found."""

import abc

import msgspec

from kernelgen.planning.graph import Graph, Node, Reference
from kernelgen.planning.recognition.forms import SegmentNorm


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before an epilogue.

    Attributes:
        form: without steps.
        begins: forward's parameters that it reads.
        reads: parameters of layers, likewise, by the names of their values.
        nodes: names of all nodes that it is made of.
    """

    form: SegmentNorm
    begins: tuple[str, ...]
    nodes: tuple[str, ...]
    reads: tuple[str, ...] = ()


class Family(abc.ABC):
    """Cores of one family of templates in a graph.

    Attributes:
        nodes, types: by the names of their values.
        inputs, paths: types of forward's parameters, and paths of layers' parameters, likewise.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {node.name: node for node in graph.nodes}
        self.inputs = {i.name: i.type for i in graph.inputs if i.kind == "input"}
        self.paths = {i.name: i.path for i in graph.inputs if i.kind == "parameter"}
        self.types = graph.types

    @abc.abstractmethod
    def core(self, node: Node) -> Core | None:
        """Return the core whose last node this is; None if the family has none like it."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.types[name].shape

    def node_of(self, node: Node, argument: str) -> Node | None:
        """Return the node whose result an argument is."""
        value = node.arguments.get(argument)
        return self.nodes.get(value.name) if isinstance(value, Reference) else None
