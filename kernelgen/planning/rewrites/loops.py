"""Recurrences that a Model writes as a loop over steps, as torch's operator for all steps."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kernelgen.engines.naming import without_overload
from kernelgen.graph.graph import Argument, Graph, Node, Reference, contiguous, renamed
from kernelgen.planning.rewrites.builder import Builder
from kernelgen.planning.rewrites.scans import with_read_nodes

_CELLS = {
    "lstm_cell.default": "lstm",
    "gru_cell.default": "gru",
    "rnn_tanh_cell.default": "rnn_tanh",
    "rnn_relu_cell.default": "rnn_relu",
}
_ACTIVATIONS = {"tanh.default": "rnn_tanh", "relu.default": "rnn_relu"}
_LINEAR = "linear.default"
_FEWEST_STEPS = 3


class _Cell(NamedTuple):
    """One step of a recurrence.

    Attributes:
        kind: what torch calls the operator for all steps.
        given: the step's input.
        before: the states that it begins with, and the cells of an LSTM.
        weights: of the input and of the states, then their biases. A matrix with the columns of
            both stands twice.
        is_behind: of such a matrix, whether the states' columns are behind the input's; else None.
    """

    kind: str
    given: Argument
    before: tuple[Argument, ...]
    weights: tuple[Reference | None, ...]
    is_behind: bool | None = None

    @property
    def layer(self) -> tuple[object, ...]:
        """The facts that the steps of a recurrence have in common."""
        return self.kind, self.weights, self.is_behind


class _Place(NamedTuple):
    """A step's part of a sequence."""

    of: str
    dim: int
    step: int


def with_loops(graph: Graph) -> Graph:
    """Return a graph in which cells that follow each other through a sequence are one operator.

    So are the linear layers of all its steps where their results are stacked.
    """
    return _Loops(graph).rewritten()


class _Loops:
    """Reads a graph's nodes in their order, and finds those that are steps."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._types = graph, graph.types
        self._nodes = {node.name: node for node in graph.nodes}
        self._readers = graph.readers
        # The parts of each node of several results.
        self._parts: dict[str, dict[Argument, Reference]] = defaultdict(dict)
        for node in graph.nodes:
            if node.aten == "getitem":
                part = node.arguments["index"]
                self._parts[node.argument("value")][part] = Reference(node.name)
        # Cells by the states that they begin with.
        self._after: dict[tuple[Argument, ...], list[tuple[Node, _Cell]]] = defaultdict(list)
        for node in graph.nodes:
            for cell in self._cells(node):
                self._after[cell.before].append((node, cell))
        self._places: dict[str, _Place] = {}

    def rewritten(self) -> Graph:
        """Return the graph."""
        if not self._after:
            return self._graph
        nodes: list[Node] = []
        became: dict[str, Node] = {}
        for node in self._graph.nodes:
            if node.name in became:
                nodes.append(became[node.name])
                continue
            builder = Builder(node, self._types, frozenset())
            if chain := self._chain(node):
                became |= self._as_one(chain, builder)
            whole = self._stacked(node, builder)
            nodes += [*builder.nodes, became.get(node.name, whole or node)]
        return _numbered(with_read_nodes(nodes, self._graph)) if became else self._graph

    def _cells(self, node: Node) -> Iterator[_Cell]:
        """Yield the steps that a node may be."""
        arguments = node.arguments
        if (kind := _CELLS.get(node.aten)) is not None:
            before, given = arguments["hx"], arguments["input"]
            states = before if isinstance(before, tuple) else (before,)
            names = ("w_ih", "w_hh", "b_ih", "b_hh")
            yield _Cell(kind, given, states, tuple(_value(arguments.get(name)) for name in names))
        elif (kind := _ACTIVATIONS.get(node.aten)) is not None:
            yield from self._written_out(kind, self._nodes.get(node.argument("self")))

    def _written_out(self, kind: str, summed: Node | None) -> Iterator[_Cell]:
        """Yield the steps of which a value may be the sum: linear layers of input and states."""
        layers = [summed]
        if summed is not None and summed.aten == "add.Tensor":
            layers = [self._nodes.get(name) for name in summed.reads]
            if summed.arguments.get("alpha", 1) != 1 or len(layers) != len("ab"):
                return
        found = [one.arguments for one in layers if one is not None and one.aten == _LINEAR]
        if len(found) != len(layers):
            return
        inputs, weights, biases = (
            [_value(one.get(key)) for one in found] for key in ("input", "weight", "bias")
        )
        is_behind = None
        if len(found) == 1:
            # Input and states lie beside each other, and so do their columns of the weight.
            beside = self._nodes.get(inputs[0].name) if inputs[0] else None
            if beside is None or beside.aten != "cat.default" or len(beside.reads) != len("ab"):
                return
            if beside.arguments["dim"] not in {1, -1}:
                return
            inputs, weights, biases = [*map(Reference, beside.reads)], weights * 2, [*biases, None]
            is_behind = True
        yield _Cell(kind, inputs[0], (inputs[1],), (*weights, *biases), is_behind)
        if is_behind is None:
            weights, biases = weights[::-1], biases[::-1]
        else:
            is_behind = False
        yield _Cell(kind, inputs[1], (inputs[0],), (*weights, *biases), is_behind)

    def _outcomes(self, node: Node, cell: _Cell) -> tuple[Argument, ...]:
        """Return what the next step begins with."""
        if cell.kind != "lstm":
            return (Reference(node.name),)
        parts = self._parts[node.name]
        return tuple(parts.get(part) for part in (0, 1))

    def _chain(self, node: Node) -> list[tuple[Node, _Cell]]:
        """Return the steps of a whole sequence of which a node is the first; [] if it is none."""
        for cell in self._cells(node):
            if (place := self._place(cell.given)) is None or place.step:
                continue
            steps = [(node, cell)]
            length = self._types[place.of].shape[place.dim]
            while len(steps) < length:
                after = self._after.get(self._outcomes(*steps[-1]), ())
                alike = [one for one in after if one[1].layer == cell.layer]
                if len(alike) != 1:
                    break
                steps.append(alike[0])
            if length >= _FEWEST_STEPS and self._is_whole(steps, place):
                return steps
        return []

    def _is_whole(self, steps: list[tuple[Node, _Cell]], first: _Place) -> bool:
        """Whether steps take a sequence from its begin to its end, and show no cell on the way."""
        if self._sequence([cell.given for _, cell in steps]) != first:
            return False
        # The states before the first step may be repeated for all of a batch.
        batch = self._types[first.of].shape[1 - first.dim]
        states = [
            self._types[of.name].shape for of in steps[0][1].before if isinstance(of, Reference)
        ]
        if any(shape[:-1] != (batch,) for shape in states):
            return False
        cells = [self._outcomes(*step)[1] for step in steps[:-1] if step[1].kind == "lstm"]
        return all(self._readers[of.name] == 1 for of in cells if isinstance(of, Reference))

    def _sequence(self, parts: list[Argument]) -> _Place | None:
        """Return the first place of a sequence of which these are all parts, in order."""
        places = [self._place(part) for part in parts]
        if not places or (first := places[0]) is None:
            return None
        whole = [first._replace(step=step) for step in range(len(places))]
        shape = self._types[first.of].shape
        is_one = places == whole and len(shape) == 3 and first.dim < 2  # noqa: PLR2004
        return first if is_one and shape[first.dim] == len(places) else None

    def _place(self, value: Argument) -> _Place | None:
        if not isinstance(value, Reference) or value.name in self._places:
            return self._places.get(getattr(value, "name", ""))
        node = self._nodes.get(value.name)
        if node is not None and node.aten == "getitem":
            index, node = node.arguments["index"], self._nodes.get(node.argument("value"))
            base = "unbind.int"
        else:
            index, base = None if node is None else node.arguments.get("index"), "select.int"
        if node is None or node.aten != base or not isinstance(index, int):
            return None
        of, dim = node.argument("self"), node.take("dim", int)
        shape = self._types[of].shape
        return _Place(of, dim % len(shape), index % shape[dim])

    def _as_one(self, steps: list[tuple[Node, _Cell]], b: Builder) -> dict[str, Node]:
        """Add the operator of all steps; return what becomes of each step's results."""
        first, cell = steps[0]
        place = self._place(cell.given)
        assert place is not None
        dim = place.dim
        before = [b.type_of(value) for value in cell.before]
        units = before[0].shape[-1]
        begin: list[Reference] = [
            b.emit("unsqueeze.default", {"self": value, "dim": 0}, (1, *of.shape))
            for value, of in zip(cell.before, before, strict=True)
        ]
        params = self._params(cell, units, b)
        states = contiguous((*self._types[place.of].shape[:2], units))
        ends = tuple(contiguous((1, *of.shape)) for of in before)
        arguments: dict[str, Argument] = {
            "input": Reference(place.of),
            "hx": tuple(begin) if cell.kind == "lstm" else begin[0],
            "params": params,
            "has_biases": len(params) == len(cell.weights),
            "num_layers": 1,
            "dropout": 0.0,
            "train": False,
            "bidirectional": False,
            "batch_first": dim == 1,
        }
        name = f"{first.name}_{cell.kind}"
        node = Node(
            name=name,
            aten=f"{cell.kind}.input",
            arguments=arguments,
            given=len(arguments),
            results=(states, *ends),
            module=first.module,
        )
        b.nodes.append(node)
        made = []
        for index in (0, 2)[: len(before)]:
            found = node.results[index]
            assert found is not None
            made.append(b.emit("getitem", {"value": Reference(name), "index": index}, found.shape))
        became: dict[str, Node] = {}
        for index, step in enumerate(steps):
            state, *last = self._outcomes(*step)
            assert isinstance(state, Reference)
            self._places[state.name] = _Place(made[0].name, dim, index)
            is_last = index == len(steps) - 1
            # The last one is that of any number of steps.
            became[state.name] = self._nodes[state.name].calling(
                "select.int", self=made[0], dim=dim, index=-1 if is_last else index
            )
            if is_last and last and isinstance(last[0], Reference):
                became[last[0].name] = self._nodes[last[0].name].calling(
                    "select.int", self=made[1], dim=0, index=0
                )
        return became

    def _params(self, cell: _Cell, units: int, b: Builder) -> tuple[Reference | None, ...]:
        """Return the weights of the input and of the states, and both biases or none."""
        of_input, of_states, *biases = cell.weights
        if cell.is_behind is not None:
            rows, columns = b.type_of(of_input).shape
            inputs = columns - units
            starts = (0, inputs) if cell.is_behind else (units, 0)
            of_input, of_states = (
                b.emit(
                    "narrow.default",
                    {"self": of_input, "dim": 1, "start": start, "length": length},
                    (rows, length),
                )
                for start, length in zip(starts, (inputs, units), strict=True)
            )
        known = next((bias for bias in biases if bias is not None), None)
        if known is None:
            return (of_input, of_states)
        shape = b.type_of(known).shape
        zeros = [bias or b.emit("zeros_like.default", {"self": known}, shape) for bias in biases]
        return (of_input, of_states, *zeros)

    def _stacked(self, node: Node, b: Builder) -> Node | None:
        """Return the states that are stacked for all steps, or their linear layer, done once."""
        parts, along = node.arguments.get("tensors"), node.arguments.get("dim")
        if node.aten != "stack.default" or not isinstance(parts, tuple) or along not in {0, 1}:
            return None
        made = [one for name in node.reads if (one := self._nodes.get(name)) is not None]
        layers = [one.arguments for one in made if one.aten == _LINEAR]
        weights = {(one["weight"], one.get("bias")) for one in layers}
        is_layer = len(layers) == len(parts) and len(weights) == 1
        place = self._sequence([one["input"] for one in layers] if is_layer else list(parts))
        if place is None or place not in self._places.values():
            return None
        value = Reference(place.of)
        if is_layer:
            ((weight, bias),) = weights
            shape = (*self._types[place.of].shape[:2], b.type_of(weight).shape[0])
            value = b.emit(_LINEAR, {"input": value, "weight": weight, "bias": bias}, shape)
        if along == place.dim:
            return node.calling("alias.default", self=value)
        return node.calling("transpose.int", self=value, dim0=0, dim1=1)


def _numbered(graph: Graph) -> Graph:
    """Return a graph whose nodes have the same names for any number of steps."""
    given = {source.name for source in graph.inputs}
    names: dict[str, str] = {}
    for number, node in enumerate(graph.nodes):
        name = f"{without_overload(node.aten)}_{number}"
        names[node.name] = f"{name}_" if name in given else name

    def name_of(value: str) -> str:
        return names.get(value, value)

    nodes = []
    for node in graph.nodes:
        arguments = renamed(node, name_of)
        nodes.append(msgspec.structs.replace(node, name=names[node.name], arguments=arguments))
    return msgspec.structs.replace(
        graph,
        nodes=tuple(nodes),
        outputs=tuple(map(name_of, graph.outputs)),
        updates={path: name_of(value) for path, value in graph.updates.items()},
    )


def _value(argument: Argument) -> Reference | None:
    return argument if isinstance(argument, Reference) else None
