"""A Model's forward with the gradients of what it returns, as one program of ATen operators.

torch derives it: forward runs as it would in training, and what autograd does is recorded.
"""

import re
from itertools import accumulate, pairwise
from math import prod
from operator import attrgetter, mul
from typing import Any, NamedTuple

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.export import ExportedProgram
from torch.export import graph_signature as signed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.stateless import _reparametrize_module

from kernelgen.graph.graph import Backward, Graph, NotPlannedError
from kernelgen.tracing.model.structures import Place

_ATEN = torch.ops.aten
_IN, _OUT = signed.InputKind, signed.OutputKind
_OWN = frozenset((_IN.PARAMETER, _IN.BUFFER))
# Calls that make a tensor of a number.
_NUMBERS = (_ATEN.full.default, _ATEN.scalar_tensor.default)
_FILLS = (_ATEN.fill.Scalar, _ATEN.full_like.default)
# Forward's operators that autograd leaves whole, beside those that torch would take apart anyway.
_FORWARDS = """_fused_rms_norm _log_softmax _native_batch_norm_legit _softmax native_group_norm
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_layer_norm"""
# These do more than what torch would put in their place, or kernels here know them better.
_KEPT = "binary_cross_entropy empty_like full_like ones_like zeros_like"


class Joint(NamedTuple):
    """A program as `Reader` reads one of torch.export's.

    Attributes:
        graph: nodes.
        graph_signature: of inputs and outputs, the gradients' last.
        constants: values of nodes that are no calls, or calls that make a number, by their names.
        places: of the inputs that are none of the Model's, the gradients of outputs last.
        backward: about these gradients.
    """

    graph: torch.fx.Graph
    graph_signature: signed.ExportGraphSignature
    constants: dict[str, Any]
    places: list[Place]
    backward: Backward


def joint_of(program: ExportedProgram, model: Any, places: list[Place], graph: Graph) -> Joint:
    """Return a program of forward and backward.

    It has the inputs of the exported program, and behind them a gradient for each output that
    records one. It returns the outputs, what is left in buffers, and a gradient for each input and
    parameter that has one.

    Args:
        program: of forward alone.
        model: its forward takes tensors in a row.
        places: of these tensors.
        graph: of the program.

    Raises:
        NotPlannedError: no operators say all that eager training does.
    """
    drawn = (n.aten for n in graph.nodes if n.draws and n.arguments.get("dropout_p") != 0.0)
    if aten := next(drawn, ""):
        raise NotPlannedError(f"torch has the gradients of what may draw numbers (aten.{aten})")
    read: list[signed.InputSpec] = []
    primals: list[torch.Tensor] = []
    called: list[str] = []  # those that are read: an argument W is w_1 in the program
    given = iter(places)
    nodes = program.graph.find_nodes(op="placeholder")
    for spec, node in zip(program.graph_signature.input_specs, nodes, strict=True):
        name, kind, _ = next(given) if spec.kind is _IN.USER_INPUT else (node.name, "", "")
        # A tensor of the Model's that has several names is read by one of them.
        if kind or (spec.kind in _OWN and node.users):
            value = node.meta["val"]
            own = attrgetter(str(spec.target))(model).requires_grad if not kind else False
            if value.is_complex() or (own and spec.kind is _IN.BUFFER):
                raise NotPlannedError(f"no gradient of {spec.target or node.name} is recorded here")
            records = kind == "input" or spec.kind is _IN.PARAMETER
            read.append(spec)
            called.append(name)
            primals.append(value.detach().requires_grad_(records and value.is_floating_point()))
    records_of: list[bool] = []

    def forward(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = [*zip(read, values, strict=True)]
        own = {str(spec.target): value for spec, value in named if spec.kind in _OWN}
        own |= {path: own[path].clone() for path in graph.updates}
        with _reparametrize_module(model, own, tie_weights=True):
            outputs = model(*(value for spec, value in named if spec.kind not in _OWN))
            left = [attrgetter(path)(model).detach() for path in graph.updates]
        records_of[:] = [one.requires_grad for one in outputs]
        # They are to lie in memory of their own; the copies are left out again.
        return tuple(one.clone() for one in (*outputs, *left))

    whole = [getattr(_ATEN, name) for name in _FORWARDS.split()]
    table = {**core_aten_decompositions(), **get_decompositions(whole)}
    for name in _KEPT.split():
        table.pop(getattr(_ATEN, name).default, None)
    found = _recorded(forward, tuple(primals), table)
    upstream: dict[str, int] = {}
    for number in (n for n, records in enumerate(records_of) if records):
        name = f"upstream_{number}"
        while any(name == place.name for place in places):
            name += "_"
        upstream[name] = number
        read.append(signed.InputSpec(_IN.USER_INPUT, signed.TensorArgument(name), None))
    nodes, constants, returned = _copied(found, [spec.arg.name for spec in read])
    left = len(records_of) + len(graph.updates)
    pairs = zip(called, returned[left:], strict=False)
    gradients = {name: one for name, one in pairs if one is not None}
    nodes.output([*(copy.args[0] for copy in returned[:left]), *gradients.values()])
    nodes.eliminate_dead_code()
    paths = [*([None] * len(records_of)), *graph.updates, *([None] * len(gradients))]
    user, buffer, none = _OUT.USER_OUTPUT, _OUT.BUFFER_MUTATION, signed.TensorArgument("")
    outputs = [signed.OutputSpec(buffer if path else user, none, path) for path in paths]
    return Joint(
        nodes,
        signed.ExportGraphSignature(read, outputs),
        constants,
        [*places, *(Place(name, "input", "") for name in upstream)],
        Backward(upstream=upstream, gradients=tuple(gradients)),
    )


def _recorded(forward: Any, primals: tuple[torch.Tensor, ...], table: Any) -> Any:
    """Return a module of forward and backward; raises NotPlannedError where torch makes none."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        try:
            return aot_export_joint_simple(forward, primals, trace_joint=True, decompositions=table)
        except RuntimeError as error:  # of what eager mode may do, such as fill_diagonal_
            words = str(error).splitlines()[0].partition(". ")[0]
            raise NotPlannedError(f"torch records no gradients of it: {words}") from error


def _copied(found: Any, names: list[str]) -> tuple[torch.fx.Graph, dict[str, Any], list[Any]]:
    """Return a graph with other names of its inputs, its constants, and what it returns.

    Raises:
        NotPlannedError: it has other inputs, or calls what a GPU does not have.
    """
    *nodes, end = found.graph.nodes
    inputs = [node for node in nodes if node.op == "placeholder"]
    if len(inputs) != len(names):
        raise NotPlannedError("autograd records another number of outputs than forward returns")
    graph, known, constants = torch.fx.Graph(), dict[Any, Any](), dict[str, Any]()
    # Inputs come first, so that no result of an operator's has taken the name of one.
    for node, name in zip(inputs, names, strict=True):
        known[node] = graph.placeholder(name)
        known[node].name = name  # a graph calls what is called like a builtin otherwise
        known[node].meta = node.meta
    for node in nodes:
        if re.search("cpu|mkl", str(node.target)):
            raise NotPlannedError(f"its gradient is traced as a CPU's alone ({node.target})")
        if node not in known:
            own = _simpler(node)
            known[node] = known[own] if own is not node else graph.node_copy(node, known.get)
        if node.op == "get_attr":
            constants[known[node].name] = getattr(found, node.target)
        elif node.target in _NUMBERS and node.meta["val"].dim() == 0:
            with unset_fake_temporarily():
                constants[known[node].name] = node.target(*node.args, **node.kwargs)
    return graph, constants, [known.get(one) for one in end.args[0]]


def _simpler(node: Any) -> Any:
    """Return the node that has the same value, and change its arguments to what says the same."""
    of: Any = node.args[0] if node.args else None
    if node.target is _ATEN.permute.default:
        # The gradient of a transposed weight is transposed and back.
        if of.target is _ATEN.permute.default:
            node.args = of.args[0], [of.args[1][d] for d in node.args[1]]
        return node.args[0] if node.args[1] == [*range(len(node.args[1]))] else node
    if node.target in _FILLS and of.target is _ATEN.empty_like.default:
        node.args = of.args[0], node.args[1]
    if node.target is _ATEN.view.default:
        old, new = list(of.meta["val"].shape), node.args[1]
        if joined := _joined(old, new):
            node.target, node.args = _ATEN.flatten.using_ints, (of, *joined)
        else:
            node.args = of, _inferred(of.meta["val"].shape, new)
    return node


def _joined(old: list[int], new: list[int]) -> tuple[int, int] | None:
    """Return the first and last of the dimensions that a view joins, which may have no elements."""
    count = len(old) - len(new) + 1
    begin = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    end = begin + count
    whole = [*old[:begin], prod(old[begin:end]), *old[end:]]
    return (begin, end - 1) if count > 1 and new == whole else None


def _inferred(old: torch.Size, new: list[int]) -> list[int]:
    """Return a shape of a view with -1 for a size that joins several, or all, and follows each."""
    ends = [*accumulate(old, mul)]
    for at, (begin, end) in enumerate(pairwise([1, *accumulate(new, mul)])):
        inside = [place for place in ends if begin < place < end]
        if begin in [1, *ends] and end in ends and (inside or len(new) == 1):
            return [*new[:at], -1, *new[at + 1 :]]
    return new
