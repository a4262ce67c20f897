"""Graphs that are exactly what a template computes, and the parameters that say so."""

import re
from math import prod

import msgspec

from kernelgen.planning.graph import Graph, Node, Reference, references
from kernelgen.problem.record import TemplateChoice, TemplateValue

_OPERATIONS = {
    "add.Tensor": "add",
    "sub.Tensor": "subtract",
    "subtract.Tensor": "subtract",
    "mul.Tensor": "multiply",
    "multiply.Tensor": "multiply",
}
_ACTIVATIONS = {f"{name}.default": name for name in ("gelu", "relu", "sigmoid", "silu", "tanh")}
_QUOTIENTS = ("div.Tensor", "divide.Tensor", "true_divide.Tensor")
_MAGNITUDES = ("abs.default", "absolute.default")
_PRODUCTS = ("matmul.default", "mm.default", "bmm.default", "linear.default", "einsum.default")
# The dimension of one that they add or take out is named, so they do the same at any size.
_SHAPING = ("unsqueeze.default", "squeeze.dim")
_MATRIX = 2  # dimensions
_EUCLIDEAN = 2


class _Core(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before an epilogue.

    Attributes:
        begins: forward's parameters that it reads.
        reads: parameters of layers, likewise, by the names of their values.
        nodes: names of all nodes that it is made of.
    """

    name: str
    parameters: dict[str, TemplateValue]
    begins: tuple[str, ...]
    nodes: tuple[str, ...]
    reads: tuple[str, ...] = ()


def template_of(graph: Graph) -> TemplateChoice | None:
    """Return the template whose solution computes a graph; None if there is none.

    Whether the layers that it names are made as the template reads them, the text of Model says.
    """
    if graph.updates or graph.fixed or not graph.single:
        return None
    if any(i.kind == "scalar" or i.type.dtype != "float32" for i in graph.inputs):
        return None
    return _Recogniser(graph).choice()


class _Recogniser:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._inputs = {i.name: i.type for i in graph.inputs if i.kind == "input"}
        self._paths = {i.name: i.path for i in graph.inputs if i.kind == "parameter"}
        self._types = {i.name: i.type for i in graph.inputs}
        self._types |= {n.name: n.results[0] for n in graph.nodes if n.results[0] is not None}

    def choice(self) -> TemplateChoice | None:
        value = self._graph.outputs[0]
        epilogue: list[TemplateValue] = []
        steps: list[str] = []
        while (node := self._nodes.get(value)) is not None:
            if (core := self._core(node)) is not None:
                return self._whole(core, tuple(reversed(epilogue)), steps)
            if (step := self._step(node)) is None:
                return None
            value, done = step
            epilogue.append(done)
            steps.append(node.name)
        return None

    def _whole(
        self, core: _Core, epilogue: tuple[TemplateValue, ...], steps: list[str]
    ) -> TemplateChoice | None:
        """Return the choice if there is nothing in the graph beside core and epilogue."""
        operands = {name for step in epilogue if isinstance(step, dict) for name in step.values()}
        parameters = dict(core.parameters)
        if epilogue or core.name == "linear_segment_norm":
            parameters["epilogue"] = epilogue
        whole = (
            {*core.nodes, *steps} == self._nodes.keys()
            and {*core.begins, *core.reads, *operands} == {i.name for i in self._graph.inputs}
            and {*core.begins, *operands} == {*self._graph.arguments}
            and operands.isdisjoint(core.begins)
            # A norm is one of forward's first parameter; a product names its two.
            and (core.name == "matrix_product" or core.begins == self._graph.arguments[:1])
        )
        return TemplateChoice(name=core.name, parameters=parameters) if whole else None

    def _step(self, node: Node) -> tuple[str, TemplateValue] | None:
        """Return the value that a step of an epilogue goes on from, and the step."""
        if (activation := _ACTIVATIONS.get(node.aten)) is not None:
            if node.arguments.get("approximate", "none") != "none":
                return None
            return node.argument("self"), activation
        operation = _OPERATIONS.get(node.aten)
        left, right = node.arguments.get("self"), node.arguments.get("other")
        if operation is None or node.arguments.get("alpha", 1) != 1:
            return None
        if not isinstance(left, Reference) or not isinstance(right, Reference):
            return None
        value, operand = left.name, right.name
        if value in self._inputs and operation != "subtract":
            value, operand = operand, value
        alike = operand in self._inputs and self._shape(operand) == self._shape(value)
        return (value, {operation: operand}) if alike else None

    def _core(self, node: Node) -> _Core | None:
        if node.aten in _QUOTIENTS:
            return self._quotient(node)
        if node.aten in _PRODUCTS:
            return self._product(node)
        if node.aten in _SHAPING:
            return self._linear_norm(node)
        return self._norm(node)

    # Norms.

    def _norm(self, node: Node) -> _Core | None:
        match node.aten:
            case "softmax.int" | "log_softmax.int" if node.arguments["dtype"] is None:
                statistics = node.aten.removesuffix(".int")
                return self._along(node, statistics, node.arguments["dim"], node)
            case "group_norm.default":
                return self._of_layer(node, "groups", "channel")
            case "instance_norm.default" if _is_plain(node):
                # A lone image goes by another way through views.
                return self._of_layer(node, "channels", "channel")
            case "layer_norm.default":
                return self._of_layer(node, "rows", "element")
            case "rms_norm.default":
                return self._of_layer(node, "rows", "element", "rms")
            case _:
                return None

    def _of_layer(
        self, node: Node, normalises: str, affine: str, statistics: str = "moments"
    ) -> _Core | None:
        x = node.argument("input")
        given = {key: node.arguments.get(key) for key in ("weight", "bias")}
        weights = {key: value.name for key, value in given.items() if isinstance(value, Reference)}
        has_bias = "bias" in weights
        # A layer's bias comes with a weight; that of a row may be left out.
        known = (
            has_bias == bool(weights)
            if affine == "channel"
            else not has_bias or "weight" in weights
        )
        if not known or not self._is_layer(node, weights) or x not in self._inputs:
            return None
        return _Core(
            name="segment_norm",
            parameters={
                "statistics": statistics,
                "normalises": normalises,
                "affine": affine if weights else "none",
            },
            begins=(x,),
            reads=tuple(weights.values()),
            nodes=(node.name,),
        )

    def _is_layer(self, node: Node, weights: dict[str, str]) -> bool:
        """Whether a layer that is an attribute of Model calls a node with its own weights."""
        paths = {key: self._paths.get(name) for key, name in weights.items()}
        return node.module.isidentifier() and all(
            path == f"{node.module}.{key}" for key, path in paths.items()
        )

    def _quotient(self, node: Node) -> _Core | None:
        """Return x / mean(|x|) or x / ||x||, along one dimension."""
        divisor = self._node_of(node, "other")
        if divisor is None or divisor.arguments.get("keepdim") is not True:
            return None
        dims = divisor.arguments.get("dim")
        if not isinstance(dims, tuple) or len(dims) != 1 or divisor.arguments.get("dtype"):
            return None
        magnitude = self._node_of(divisor, "self")
        match divisor.aten:
            case "mean.dim" if magnitude is not None and magnitude.aten in _MAGNITUDES:
                return self._along(node, "l1", dims[0], magnitude, divisor)
            case "linalg_vector_norm.default" if divisor.arguments["ord"] == _EUCLIDEAN:
                return self._along(node, "l2", dims[0], divisor)
            case "norm.ScalarOpt_dim" if divisor.arguments["p"] == _EUCLIDEAN:
                return self._along(node, "l2", dims[0], divisor)
            case _:
                return None

    def _along(self, node: Node, statistics: str, dim: object, *others: Node) -> _Core | None:
        """Return a norm along a dimension, of which all nodes but the middle ones read x."""
        x = node.argument("self")
        if not isinstance(dim, int) or not self._shape(x) or x not in self._inputs:
            return None
        if others[0].argument("self") != x:
            return None
        return _Core(
            name="segment_norm",
            parameters={
                "statistics": statistics,
                "normalises": "rows",
                "affine": "none",
                "dim": dim,
            },
            begins=(x,),
            nodes=(node.name, *(other.name for other in others)),
        )

    def _linear_norm(self, node: Node) -> _Core | None:
        """Return a Linear whose rows an InstanceNorm without weights takes as one channel each."""
        names: list[str] = []
        norm = self._unshaped(node, names)
        if norm is None or norm.aten != "instance_norm.default" or not _is_plain(norm):
            return None
        names.append(norm.name)
        linear = self._unshaped(self._node_of(norm, "input"), names)
        if linear is None or linear.aten != "linear.default" or linear.arguments["bias"] is None:
            return None
        weights = {key: linear.argument(key) for key in ("weight", "bias")}
        rows = self._shape(linear.name)
        image = self._shape(norm.argument("input"))
        known = (
            len(rows) == _MATRIX
            and self._shape(node.name) == rows
            and (prod(image[:2]), prod(image[2:])) == rows
            and norm.arguments["weight"] is None
            and self._is_layer(norm, {})
            and self._is_layer(linear, weights)
        )
        if not known:
            return None
        return _Core(
            name="linear_segment_norm",
            parameters={},
            begins=(linear.argument("input"),),
            reads=tuple(weights.values()),
            nodes=(*names, linear.name),
        )

    def _unshaped(self, node: Node | None, names: list[str]) -> Node | None:
        """Return the node that others give dimensions of one, with whose names `names` grows."""
        while node is not None and node.aten in _SHAPING:
            names.append(node.name)
            node = self._node_of(node, "self")
        return node

    # Products.

    def _product(self, node: Node) -> _Core | None:
        given = _einsum(node) if node.aten == "einsum.default" else _operands(node)
        if given is None or node.arguments.get("bias") is not None:
            return None
        (left, left_nodes, left_turned), (right, right_nodes, right_turned) = (
            self._factor(value, turned=turned) for value, turned in given
        )
        if left == right or not {left, right} <= self._inputs.keys():
            return None
        shapes = self._shape(left), self._shape(right)
        if min(map(len, shapes)) < _MATRIX:
            return None
        # An einsum repeats a dimension of one, along which a product would sum.
        if shapes[0][-2 if left_turned else -1] != shapes[1][-1 if right_turned else -2]:
            return None
        words = {(True, False): "left", (False, True): "right", (True, True): "both"}
        parameters: dict[str, TemplateValue] = {"left": left, "right": right}
        if left_turned or right_turned:
            parameters["transposed"] = words[left_turned, right_turned]
        return _Core(
            name="matrix_product",
            parameters=parameters,
            begins=(left, right),
            nodes=(node.name, *left_nodes, *right_nodes),
        )

    def _factor(self, value: str, *, turned: bool) -> tuple[str, list[str], bool]:
        """Return the value that transpositions of the last two dimensions lead to, and these."""
        found: list[str] = []
        while (node := self._nodes.get(value)) is not None and self._is_transposition(node):
            found.append(node.name)
            value, turned = node.argument("self"), not turned
        return value, found, turned

    def _is_transposition(self, node: Node) -> bool:
        rank = len(self._shape(node.argument("self"))) if "self" in node.arguments else 0
        if rank < _MATRIX:
            return False
        match node.aten:
            case "numpy_T.default" | "t.default":
                return rank == _MATRIX
            case "mT.default":
                return True
            case "transpose.int":
                ends = {node.arguments["dim0"], node.arguments["dim1"]}
                return {d % rank for d in ends if isinstance(d, int)} == {rank - 1, rank - 2}
            case "permute.default":
                dims = node.arguments["dims"]
                assert isinstance(dims, tuple)
                order = [d % rank for d in dims if isinstance(d, int)]
                return order == [*range(rank - 2), rank - 1, rank - 2]
            case _:
                return False

    # Values.

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._types[name].shape

    def _node_of(self, node: Node, argument: str) -> Node | None:
        """Return the node whose result an argument is."""
        value = node.arguments.get(argument)
        return self._nodes.get(value.name) if isinstance(value, Reference) else None


def _is_plain(node: Node) -> bool:
    """Whether an instance_norm keeps no running statistics."""
    return node.arguments["use_input_stats"] is True and node.arguments["running_mean"] is None


def _operands(node: Node) -> list[tuple[str, bool]]:
    """Return the factors of a product, and whether each is transposed."""
    left, right = list(node.arguments)[:2]
    return [(node.argument(left), False), (node.argument(right), node.aten == "linear.default")]


def _einsum(node: Node) -> list[tuple[str, bool]] | None:
    """Return the same of an einsum that is a product of matrices."""
    equation, tensors = node.arguments["equation"], node.arguments["tensors"]
    found = re.fullmatch(r"([a-z]+),([a-z]+)->([a-z]+)", str(equation).replace(" ", ""))
    if found is None or len(found[3]) < _MATRIX:
        return None
    left, right = found[1], found[2]
    *batch, row, column = list(found[3])
    depth = "".join(sorted(set(left) - set(found[3])))
    if len(depth) != 1 or len({*batch, row, column}) != len(found[3]):
        return None
    forms = []
    for letters, first, last in ((left, row, depth), (right, depth, column)):
        *lead, one, other = list(letters.rjust(2))
        if lead not in ([], batch) or {one, other} != {first, last}:
            return None
        forms.append(one != first)
    if not {*batch} <= {*left, *right}:
        return None
    return list(zip(references(tensors), forms, strict=True))
