"""Graphs that are exactly what a template computes, as the forms that say so."""

import re
from math import prod
from typing import Any, Literal

import msgspec

from kernelgen.planning.forms import (
    Affine,
    Form,
    LinearSegmentNorm,
    MatrixProduct,
    SegmentNorm,
    Statistics,
    Step,
    Symbol,
)
from kernelgen.planning.graph import Argument, Graph, Node, Reference, references

_SYMBOLS: dict[str, Symbol] = {
    "add.Tensor": "+",
    "sub.Tensor": "-",
    "subtract.Tensor": "-",
    "mul.Tensor": "*",
    "multiply.Tensor": "*",
}
_ACTIVATIONS = {f"{name}.default": name for name in ("gelu", "relu", "sigmoid", "silu", "tanh")}
_QUOTIENTS = ("div.Tensor", "divide.Tensor", "true_divide.Tensor")
_MAGNITUDES = ("abs.default", "absolute.default")
_NORMS = ("group_norm.default", "instance_norm.default", "layer_norm.default", "rms_norm.default")
_PRODUCTS = ("matmul.default", "mm.default", "bmm.default", "linear.default", "einsum.default")
# The dimension of one that they add or take out is named, so they do the same at any size.
_SHAPING = ("unsqueeze.default", "squeeze.dim")
_INSTANCE_NORMS = {"InstanceNorm1d": 1, "InstanceNorm2d": 2, "InstanceNorm3d": 3}
_ROW_NORMS: dict[str, Statistics] = {"LayerNorm": "moments", "RMSNorm": "rms"}
_TRANSPOSED: dict[tuple[bool, bool], Literal["none", "left", "right", "both"]] = {
    (False, False): "none",
    (True, False): "left",
    (False, True): "right",
    (True, True): "both",
}
_MATRIX = 2  # dimensions
_EUCLIDEAN = 2


class _Core(msgspec.Struct, frozen=True, kw_only=True):
    """What stands before an epilogue.

    Attributes:
        form: without steps.
        begins: forward's parameters that it reads.
        reads: parameters of layers, likewise, by the names of their values.
        nodes: names of all nodes that it is made of.
    """

    form: Form
    begins: tuple[str, ...]
    nodes: tuple[str, ...]
    reads: tuple[str, ...] = ()


def form_of(graph: Graph) -> Form | None:
    """Return what a template computes if that is all of a graph; None if it is not.

    A Model that is made with other words than numbers is none: they may say what is in the graph,
    and a file is for any Model that is made with other numbers.
    """
    if graph.updates or graph.fixed or not graph.single:
        return None
    if any(i.kind == "scalar" or i.type.dtype != "float32" for i in graph.inputs):
        return None
    found = _Recogniser(graph).form()
    return None if found is None or _is_told(found, graph.made_with) else found


def _is_told(form: Form, made_with: dict[str, Any]) -> bool:
    """Whether arguments of Model's constructor may say what its form is, beyond the sizes."""
    if any(value is None or isinstance(value, bool | str) for value in made_with.values()):
        return True
    return isinstance(form, SegmentNorm) and form.dim is not None and form.dim in made_with.values()


class _Recogniser:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._inputs = {i.name: i.type for i in graph.inputs if i.kind == "input"}
        self._paths = {i.name: i.path for i in graph.inputs if i.kind == "parameter"}
        self._types = {i.name: i.type for i in graph.inputs}
        self._types |= {n.name: n.results[0] for n in graph.nodes if n.results[0] is not None}

    def form(self) -> Form | None:
        value = self._graph.outputs[0]
        steps: list[Step] = []
        nodes: list[str] = []
        while (node := self._nodes.get(value)) is not None:
            if (core := self._core(node)) is not None:
                form = msgspec.structs.replace(core.form, steps=tuple(reversed(steps)))
                return form if self._is_whole(core, {*form.operands}, nodes) else None
            if (step := self._step(node)) is None:
                return None
            value, done = step
            steps.append(done)
            nodes.append(node.name)
        return None

    def _is_whole(self, core: _Core, operands: set[str], steps: list[str]) -> bool:
        """Whether there is nothing in the graph beside core and epilogue."""
        return (
            {*core.nodes, *steps} == self._nodes.keys()
            and {*core.begins, *core.reads, *operands} == {i.name for i in self._graph.inputs}
            and {*core.begins, *operands} == {*self._graph.arguments}
            and operands.isdisjoint(core.begins)
            # A norm is one of forward's first parameter; a product names its two.
            and (isinstance(core.form, MatrixProduct) or core.begins == self._graph.arguments[:1])
        )

    def _step(self, node: Node) -> tuple[str, Step] | None:
        """Return the value that a step of an epilogue goes on from, and the step."""
        if (activation := _ACTIVATIONS.get(node.aten)) is not None:
            if node.arguments.get("approximate", "none") != "none":
                return None
            return node.argument("self"), Step(activation=activation)
        symbol = _SYMBOLS.get(node.aten)
        left, right = node.arguments.get("self"), node.arguments.get("other")
        if symbol is None or node.arguments.get("alpha", 1) != 1:
            return None
        if not isinstance(left, Reference) or not isinstance(right, Reference):
            return None
        value, operand = left.name, right.name
        if value in self._inputs and symbol != "-":
            value, operand = operand, value
        alike = operand in self._inputs and self._shape(operand) == self._shape(value)
        return (value, Step(symbol=symbol, operand=operand)) if alike else None

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
            case "softmax.int" if node.arguments["dtype"] is None:
                return self._along(node, "softmax", node.arguments["dim"], node)
            case "log_softmax.int" if node.arguments["dtype"] is None:
                return self._along(node, "log_softmax", node.arguments["dim"], node)
            case _:
                return self._of_layer(node) if node.aten in _NORMS else None

    def _of_layer(self, node: Node) -> _Core | None:
        """Return the norm that a layer of torch's, an attribute of Model, computes of an input."""
        x = node.argument("input")
        given = {key: node.arguments.get(key) for key in ("weight", "bias")}
        weights = {key: value.name for key, value in given.items() if isinstance(value, Reference)}
        if x not in self._inputs or not self._is_layer(node, weights):
            return None
        form = self._layer_form(node, self._shape(x), tuple(weights))
        if form is None:
            return None
        return _Core(form=form, begins=(x,), reads=tuple(weights.values()), nodes=(node.name,))

    def _layer_form(
        self, node: Node, shape: tuple[int, ...], weights: tuple[str, ...]
    ) -> SegmentNorm | None:
        rank = _INSTANCE_NORMS.get(node.layer, 0)
        statistics: Statistics = "moments"
        groups = channels = inner = 0
        normalises: Literal["groups", "channels", "rows"] = "rows"
        if node.layer in _ROW_NORMS:
            statistics = _ROW_NORMS[node.layer]
            length = prod(_numbers(node.arguments["normalized_shape"]))
        elif node.layer == "GroupNorm":
            normalises = "groups"
            (groups,) = _numbers(node.arguments["num_groups"])
            channels, inner = shape[1] // groups, prod(shape[2:])
            length = channels * inner
        elif rank and _is_plain(node):
            normalises = "channels"
            groups, channels, inner = shape[1], 1, prod(shape[2:])
            length = inner
        else:
            return None
        affine: Affine = "element" if normalises == "rows" else "channel"
        by_channel = affine == "channel" and bool(weights)
        return SegmentNorm(
            inputs=self._graph.arguments,
            statistics=statistics,
            normalises=normalises,
            affine=affine if weights else "none",
            bias="bias" in weights,
            layer=node.module,
            spatial_rank=rank,
            segments=prod(shape) // max(length, 1),
            length=length,
            inner=inner if by_channel else 0,
            channels=channels if by_channel else 0,
            groups=groups if by_channel else 0,
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

    def _along(
        self, node: Node, statistics: Statistics, dim: object, *others: Node
    ) -> _Core | None:
        """Return a norm along a dimension, of which all nodes but the middle ones read x."""
        x = node.argument("self")
        if not isinstance(dim, int) or not self._shape(x) or x not in self._inputs:
            return None
        if others[0].argument("self") != x:
            return None
        length = self._shape(x)[dim]
        form = SegmentNorm(
            inputs=self._graph.arguments,
            statistics=statistics,
            normalises="rows",
            dim=dim,
            segments=prod(self._shape(x)) // max(length, 1),
            length=length,
        )
        return _Core(form=form, begins=(x,), nodes=(node.name, *(other.name for other in others)))

    def _linear_norm(self, node: Node) -> _Core | None:
        """Return a Linear whose rows an InstanceNorm without weights takes as one channel each."""
        names: list[str] = []
        norm = self._unshaped(node, names)
        if norm is None or norm.layer not in _INSTANCE_NORMS or not _is_plain(norm):
            return None
        names.append(norm.name)
        linear = self._unshaped(self._node_of(norm, "input"), names)
        if linear is None or linear.layer != "Linear" or linear.arguments["bias"] is None:
            return None
        x = linear.argument("input")
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
        form = LinearSegmentNorm(
            inputs=self._graph.arguments,
            linear=linear.module,
            layer=norm.module,
            x=self._types[x],
            weight=self._types[weights["weight"]],
        )
        return _Core(
            form=form, begins=(x,), reads=tuple(weights.values()), nodes=(*names, linear.name)
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
        if not {left, right} <= self._inputs.keys():
            return None
        shapes = self._shape(left), self._shape(right)
        if min(map(len, shapes)) < _MATRIX:
            return None
        # An einsum repeats a dimension of one, along which a product would sum.
        if shapes[0][-2 if left_turned else -1] != shapes[1][-1 if right_turned else -2]:
            return None
        a, b = self._types[left], self._types[right]
        form = MatrixProduct(
            inputs=self._graph.arguments,
            left=left,
            right=right,
            transposed=_TRANSPOSED[left_turned, right_turned],
            a=a.transposed() if left_turned else a,
            b=b if right_turned else b.transposed(),
        )
        return _Core(
            form=form,
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


def _numbers(argument: Argument) -> tuple[int, ...]:
    """Return the sizes that an argument is, or is made of."""
    given = argument if isinstance(argument, tuple) else (argument,)
    return tuple(n for n in given if isinstance(n, int))


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
