"""A problem's source to its graph: runs the problem's code, on tensors without memory.

Not imported where the code is not trusted; `capture.py` runs it in a process of its own.
"""

import inspect
import operator
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

from kernelgen.planning.graph import (
    Argument,
    Graph,
    GraphInput,
    Named,
    Node,
    Reference,
    Scalar,
    TensorType,
)


class NotPlannedError(Exception):
    """A forward does what a graph cannot say; the message is for the user."""


def trace(source: str, *, eval_mode: bool = False) -> Graph:
    """Return the graph of a problem's forward.

    Args:
        source: Python that defines Model, get_inputs and get_init_inputs.
        eval_mode: trace it under `eval()`; else in training mode, as a new Model is.

    Raises:
        NotPlannedError: forward has no graph, or one that changes what it was given.
        Exception: whatever the problem's code raises.
    """
    space: dict[str, Any] = {"__name__": "reference"}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        exec(compile(source, "<problem>", "exec"), space)  # noqa: S102 - contained by the caller
        given = space["get_inputs"]()
        made_with = space["get_init_inputs"]()
        model = space["Model"](*made_with)
        if eval_mode:
            model.eval()
        # A float stays an argument only as a tensor; it promotes no dtype.
        inputs = [torch.tensor(x, dtype=torch.float64) if type(x) is float else x for x in given]
        try:
            program = torch.export.export(model, tuple(inputs), strict=False)
        except Exception as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise NotPlannedError(f"torch.export finds no graph: {words[0]}") from error
    names = tuple(inspect.signature(model.forward).parameters)[: len(given)]
    graph = _graph(program, names, given)
    parameters = list(inspect.signature(space["Model"]).parameters)
    plain = {n: v for n, v in zip(parameters, made_with, strict=False) if _is_plain(v)}
    return msgspec.structs.replace(graph, made_with=plain)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _graph(program: ExportedProgram, names: tuple[str, ...], given: list[Any]) -> Graph:
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    users = [s.arg.name for s in specs.values() if s.kind is InputKind.USER_INPUT]
    by_user = dict(zip(users, zip(names, given, strict=True), strict=True))
    renamed: dict[str, str] = {}
    inputs: list[GraphInput] = []
    nodes: list[Node] = []
    fixed: dict[str, Scalar] = {}
    owners: dict[str, GraphInput] = {}
    updates: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            renamed[node.name] = node.name
            spec = specs[node.name]
            if spec.kind is InputKind.USER_INPUT:
                name, value = by_user[node.name]
                if not isinstance(value, torch.Tensor | float):
                    fixed[name] = value
                    continue
                renamed[node.name] = name
            found = _input(node, spec, renamed[node.name], by_user)
            inputs.append(found)
            owners[found.name] = found
        elif node.op == "call_function":
            made = _node(node, renamed)
            base = made.aten.split(".")[0]
            if base.endswith("_") and not base.endswith("__"):
                # The name goes on as that of the new value.
                target = made.argument(next(iter(made.arguments)))
                made = _functional(made)
                root = node.args[0].name
                _forbid_views(nodes, target)
                renamed[root] = made.name
                owner = owners.get(target)
                if owner is not None and owner.kind == "buffer":
                    updates[owner.path] = made.name
                elif owner is not None:
                    raise NotPlannedError(f"forward changes {owner.path or owner.name} in place")
                if owner is not None:
                    owners[made.name] = owner
            renamed[node.name] = made.name
            nodes.append(made)
        elif node.op == "output":
            outputs = tuple(_output_name(x, renamed) for x in node.args[0])
        else:
            raise NotPlannedError(f"the graph has a node of kind {node.op}")
    spec = program.call_spec.out_spec
    return Graph(
        arguments=names,
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=outputs,
        single=spec is None or spec.is_leaf(),
        updates=updates,
        fixed=fixed,
    )


def _functional(node: Node) -> Node:
    """Return the same call of the operator that changes nothing in place."""
    base, overload = node.aten.split(".")
    return msgspec.structs.replace(node, aten=f"{base[:-1]}.{overload}")


_VIEWS = frozenset(
    """alias chunk detach diagonal expand flatten movedim narrow permute reshape select slice split
    squeeze t transpose unbind unsqueeze view view_as""".split()  # noqa: SIM905
)


def _forbid_views(nodes: list[Node], target: str) -> None:
    """Refuse a change in place of what shares its memory with another value."""
    for node in nodes:
        is_view = node.aten.split(".")[0] in _VIEWS
        involved = node.name == target or target in (
            a.name for a in node.arguments.values() if isinstance(a, Reference)
        )
        if is_view and involved:
            raise NotPlannedError(f"forward changes a view in place ({node.aten} of {target})")


def _output_name(output: Any, renamed: dict[str, str]) -> str:
    if not isinstance(output, torch.fx.Node):
        raise NotPlannedError(f"forward returns {output!r} beside tensors")
    return renamed[output.name]


def _input(
    node: torch.fx.Node, spec: InputSpec, name: str, by_user: dict[str, tuple[str, Any]]
) -> GraphInput:
    found = _type(node.meta["val"])
    assert found is not None
    match spec.kind:
        case InputKind.USER_INPUT:
            scalar = isinstance(by_user[node.name][1], float)
            return GraphInput(name=name, kind="scalar" if scalar else "input", type=found)
        case InputKind.PARAMETER | InputKind.BUFFER:
            kind = "parameter" if spec.kind is InputKind.PARAMETER else "buffer"
            return GraphInput(name=name, kind=kind, type=found, path=spec.target or "")
        case _:
            raise NotPlannedError(f"forward uses a constant tensor ({spec.target or node.name})")


def _node(node: torch.fx.Node, renamed: dict[str, str]) -> Node:
    module = ""
    if stack := node.meta.get("nn_module_stack"):
        module = list(stack.values())[-1][0].removeprefix("L['self'].").removeprefix("L['self']")
    if node.target is operator.getitem:
        value, index = node.args
        arguments: dict[str, Argument] = {
            "value": _argument(value, renamed),
            "index": _argument(index, renamed),
        }
        types = (_type(node.meta["val"]),)
        return Node(name=node.name, aten="getitem", arguments=arguments, given=2, results=types)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        raise NotPlannedError(f"the graph calls {target}, which is no operator of torch")
    namespace = target.namespace
    if namespace != "aten":
        raise NotPlannedError(f"the graph calls {namespace}::{target.__name__}")
    parameters = target._schema.arguments
    values = {
        p.name: _argument(p.default_value if p.has_default_value() else None, renamed)
        for p in parameters
    }
    given = len(node.args)
    for parameter, value in zip(parameters, node.args, strict=False):
        values[parameter.name] = _argument(value, renamed)
    for name, value in node.kwargs.items():
        values[name] = _argument(value, renamed)
        given = max(given, list(values).index(name) + 1)
    result = node.meta["val"]
    results = result if isinstance(result, list | tuple) else (result,)
    return Node(
        name=node.name,
        aten=target.__name__,
        arguments=values,
        given=given,
        results=tuple(_type(value) for value in results),
        module=module,
    )


def _argument(value: Any, renamed: dict[str, str]) -> Argument:
    match value:
        case torch.fx.Node():
            return Reference(renamed.get(value.name, value.name))
        case torch.dtype() | torch.memory_format() | torch.layout():
            return Named(str(value).removeprefix("torch."))
        case torch.device():
            return Named("device")
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return tuple(_argument(item, renamed) for item in value)
        case _:
            raise NotPlannedError(f"the graph has an argument of kind {type(value).__name__}")


def _type(value: Any) -> TensorType | None:
    if not isinstance(value, torch.Tensor):
        return None
    return TensorType(
        shape=tuple(map(int, value.shape)),
        strides=tuple(map(int, value.stride())),
        dtype=str(value.dtype).removeprefix("torch."),
    )
