"""Norms: of torch's layers, and written as quotients."""

from math import prod
from typing import Literal

from kernelgen.planning.graph import Argument, Node, Reference
from kernelgen.planning.recognition.forms import Affine, SegmentNorm, Statistics
from kernelgen.planning.recognition.parts import Core, Family

_QUOTIENTS = ("div.Tensor", "divide.Tensor", "true_divide.Tensor")
_MAGNITUDES = ("abs.default", "absolute.default")
_NORMS = ("group_norm.default", "instance_norm.default", "layer_norm.default", "rms_norm.default")
_SOFTMAXES: dict[str, Statistics] = {"softmax.int": "softmax", "log_softmax.int": "log_softmax"}
_INSTANCE_NORMS = {"InstanceNorm1d": 1, "InstanceNorm2d": 2, "InstanceNorm3d": 3}
_ROW_NORMS: dict[str, Statistics] = {"LayerNorm": "moments", "RMSNorm": "rms"}
_EUCLIDEAN = 2


class Norms(Family):
    """Segment norms of forward's first parameter."""

    def core(self, node: Node) -> Core | None:
        """Return a norm that ends with this node."""
        if node.aten in _QUOTIENTS:
            return self._quotient(node)
        if node.aten in _SOFTMAXES and node.arguments["dtype"] is None:
            return self._along(node, _SOFTMAXES[node.aten], node.arguments["dim"], node)
        return self._of_layer(node) if node.aten in _NORMS else None

    def _of_layer(self, node: Node) -> Core | None:
        """Return the norm that a layer of torch's, an attribute of Model, computes of an input."""
        x = node.argument("input")
        given = {key: node.arguments.get(key) for key in ("weight", "bias")}
        weights = {key: value.name for key, value in given.items() if isinstance(value, Reference)}
        if x not in self.inputs or not self._is_layer(node, weights):
            return None
        form = self._layer_form(node, self.shape(x), tuple(weights))
        if form is None:
            return None
        return Core(form=form, begins=(x,), reads=tuple(weights.values()), nodes=(node.name,))

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
            inputs=self.graph.arguments,
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
        paths = {key: self.paths.get(name) for key, name in weights.items()}
        return node.module.isidentifier() and all(
            path == f"{node.module}.{key}" for key, path in paths.items()
        )

    def _quotient(self, node: Node) -> Core | None:
        """Return x / mean(|x|) or x / ||x||, along one dimension."""
        divisor = self.node_of(node, "other")
        if divisor is None or divisor.arguments.get("keepdim") is not True:
            return None
        dims = divisor.arguments.get("dim")
        if not isinstance(dims, tuple) or len(dims) != 1 or divisor.arguments.get("dtype"):
            return None
        magnitude = self.node_of(divisor, "self")
        match divisor.aten:
            case "mean.dim" if magnitude is not None and magnitude.aten in _MAGNITUDES:
                return self._along(node, "l1", dims[0], magnitude, divisor)
            case "linalg_vector_norm.default" if divisor.arguments["ord"] == _EUCLIDEAN:
                return self._along(node, "l2", dims[0], divisor)
            case "norm.ScalarOpt_dim" if divisor.arguments["p"] == _EUCLIDEAN:
                return self._along(node, "l2", dims[0], divisor)
            case _:
                return None

    def _along(self, node: Node, statistics: Statistics, dim: object, *others: Node) -> Core | None:
        """Return a norm along a dimension, of which all nodes but the middle ones read x."""
        x = node.argument("self")
        if not isinstance(dim, int) or not self.shape(x) or x not in self.inputs:
            return None
        if others[0].argument("self") != x:
            return None
        length = self.shape(x)[dim]
        form = SegmentNorm(
            inputs=self.graph.arguments,
            statistics=statistics,
            normalises="rows",
            dim=dim,
            segments=prod(self.shape(x)) // max(length, 1),
            length=length,
        )
        return Core(form=form, begins=(x,), nodes=(node.name, *(other.name for other in others)))


def _is_plain(node: Node) -> bool:
    """Whether an instance_norm keeps no running statistics."""
    return node.arguments["use_input_stats"] is True and node.arguments["running_mean"] is None


def _numbers(argument: Argument) -> tuple[int, ...]:
    """Return the sizes that an argument is, or is made of."""
    given = argument if isinstance(argument, tuple) else (argument,)
    return tuple(n for n in given if isinstance(n, int))
