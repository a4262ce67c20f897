"""A problem's source to its graph: runs the problem's code, on tensors without memory.

Not imported where the code is not trusted; `capture.py` runs it in a process of its own.
"""

import contextlib
import inspect
import re
import traceback
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from kernelgen.graph.graph import Graph, NotPlannedError, is_plain, likeness, written
from kernelgen.graph.sizes import Resize
from kernelgen.problem.record import DTYPES, Precision
from kernelgen.tracing.exported import Reader, ViewChangedError, by_values, number_of
from kernelgen.tracing.model.flattened import Flattened, inputs_of
from kernelgen.tracing.model.joint import joint_of
from kernelgen.tracing.model.made import (
    Made,
    attributes_of,
    attributes_read,
    generators,
    made_of,
    numbers_of,
    with_values,
)
from kernelgen.tracing.model.structures import Place, holds
from kernelgen.tracing.model.watched import (
    LAYOUTS,
    SOURCE_NAME,
    OnCpu,
    calls_outside,
    is_device,
    may_differ,
    questions,
)

_LISTS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
_BY_VALUES = ("DataDependent", "GuardOnDataDependent", "DynamicOutputShape")


def trace(
    source: str,
    *,
    eval_mode: bool = False,
    precision: Precision = "fp32",
    gradients: bool = False,
    resize: Resize | None = None,
) -> Graph:
    """Return the graph of a problem's forward, with `gradients` that of its backward as well.

    Args:
        source: Python that defines Model, get_inputs and get_init_inputs.
        eval_mode: trace it under `eval()`; else in training mode, as a new Model is.
        precision: of floating inputs, parameters and buffers.
        gradients: the last outputs are those of inputs and parameters.
        resize: what to make larger of get_inputs.

    Raises:
        NotPlannedError: forward has no graph, or one that changes what it was given.
        WrongInputsError: forward does not take what get_inputs returns.
        Exception: whatever the problem's code raises on tensors that have values.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, torch.no_grad(), questions(), OnCpu() as seen:
        made = made_of(source)
        if eval_mode:
            made.model.eval()
        inputs = inputs_of(made)
        if precision != "fp32":
            dtype = getattr(torch, DTYPES[precision])
            _narrow(made.model, dtype)
            inputs = inputs._replace(arguments=_rounded(inputs.arguments, dtype))
        # After that: what is not registered keeps its dtype.
        attributes = _attributes_as_buffers(made)

        def traced(*, floats: bool) -> Graph:
            flattened = Flattened(made, inputs, floats=floats)
            given = flattened.resized(resize)
            seen.clear()
            graph = _graph(made, flattened, attributes, given, gradients=gradients)
            fixed = graph.fixed | flattened.layouts_as_read(LAYOUTS & seen.asked)
            decided, asked = tuple(map(int, seen.decided)), frozenset(seen.asked)
            return msgspec.structs.replace(graph, fixed=fixed, decided=decided, asked=asked)

        floats = True
        try:
            graph = traced(floats=True)
        except NotPlannedError:
            # A float that a graph cannot keep as a number is fixed, as whole numbers are.
            if not holds([*inputs.arguments.values()], float):
                raise
            floats = False
            graph = traced(floats=False)
        # Not for each size, and not where nothing is used that could differ: it takes longer.
        if resize is None and may_differ(source):
            with calls_outside() as called:
                again = traced(floats=floats)
            if called:
                raise NotPlannedError(f"forward calls {called[0]}, whose result may differ")
            if repr(again) != repr(graph):
                raise NotPlannedError("forward computes with what differs in each call")
    bound = inspect.signature(made.space["Model"]).bind(*made.given)
    bound.apply_defaults()
    # Another machine may choose another device, and other values of tensors change no graph.
    given = {
        name: value
        for name, value in bound.arguments.items()
        if not (holds(value, torch.Tensor) or is_device(value, "cpu", "cuda"))
    }
    # The constructor refuses another argument, and the header says which it has.
    told = {f"self.{name}": written(value) for name, value in given.items() if is_plain(value)}
    return msgspec.structs.replace(
        graph,
        fixed={text: value for text, value in graph.fixed.items() if told.get(text) != value},
        arguments=inputs.names,
        kinds=inputs.kinds,
        made_with={name: value for name, value in given.items() if is_plain(value)},
        made_like={n: likeness(value) for n, value in given.items() if not is_plain(value)},
        indexed=_indexed(made.model),
    )


def _narrow(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Round parameters and buffers; not by `to`, which swaps tensors, and these cannot be."""
    for tensor in model.parameters():
        tensor.data = _rounded(tensor.data, dtype)
    # A view without values cannot have another dtype than what it is of.
    narrow: dict[Any, Any] = {one: _rounded(one, dtype) for one in model.buffers()}
    for module in model.modules():
        module._buffers.update({n: narrow.get(t) for n, t in module._buffers.items()})  # noqa: SLF001


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    """Return a value with all floats in it of a dtype."""
    return tree_map_only(
        torch.Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, value
    )


def _graph(
    made: Made, flattened: Flattened, attributes: frozenset[str], given: Any, *, gradients: bool
) -> Graph:
    """Return the graph of a Model's forward, or of that and its gradients.

    Raises:
        NotPlannedError: it has none, or none that keeps the floats that it gets.
    """
    state = torch.seed(), generators()
    try:
        with flattened, attributes_read(made) as read, _recurrences_by_shape():
            program = torch.export.export(made.model, given, strict=False)
    except NotPlannedError:
        raise
    except Exception as error:
        if _is_the_problems(error, made):
            raise
        if any(isinstance(one, torch.jit.ScriptModule) for one in made.model.modules()):
            raise NotPlannedError("it holds a module that torch.jit.script made") from error
        raise _not_exported(error) from error
    if (torch.initial_seed(), generators()) != state:
        raise NotPlannedError("forward seeds, or draws random numbers of Python's or numpy's")
    outside = {id(value): name for name, value in made.space.items()}
    graph = with_values(lambda: _read(program, flattened.places, attributes, outside))
    fixed, returns = with_values(lambda: numbers_of(read)), flattened.returns
    if gradients:
        with flattened:
            joint = joint_of(program, made.model, flattened.places, graph)
        if flattened.returns != returns:
            raise NotPlannedError("forward returns something else where gradients are recorded")
        both = with_values(lambda: Reader(joint, joint.places, attributes, outside).graph())
        graph = msgspec.structs.replace(both, backward=joint.backward)
    numbers = {place.name for place in flattened.places if place.kind == "scalar"}
    for node in graph.nodes:
        wide = any(found and found.dtype == "float64" for found in node.results)
        if wide and node.reads and numbers.issuperset(node.reads):
            raise NotPlannedError(f"forward computes a number of numbers (aten.{node.aten})")
    return msgspec.structs.replace(graph, returns=returns, fixed=flattened.fixed | fixed)


def _read(
    program: Any, places: list[Place], attributes: frozenset[str], outside: dict[int, str]
) -> Graph:
    try:
        return Reader(program, places, attributes, outside).graph()
    except ViewChangedError as error:
        # The same without changes in place. Not for every forward: some layers, such as a batch
        # norm in training mode, are called in another way then.
        try:
            with _recurrences_by_shape():
                program = program.run_decompositions({})
        except AssertionError:  # torch's own, where a buffer is seen by several names
            raise error from None
        return Reader(program, places, attributes, outside).graph()


def _indexed(model: torch.nn.Module) -> frozenset[str]:
    """Return where numbers in paths are positions, as of `Graph.indexed`."""
    return frozenset(
        f"{prefix}.{place}".lstrip(".")
        for prefix, owner in model.named_modules(remove_duplicate=False)
        if isinstance(owner, _LISTS)
        for place, inner in enumerate(owner)
        if getattr(owner, str(place), None) is inner and _item(owner, place) is inner
    )


def _item(owner: Any, place: int) -> Any:
    """Return what stands at a position; a class of the problem's own may see that otherwise."""
    try:
        return owner[place]
    except Exception:  # noqa: BLE001 - the problem's code may raise anything
        return None


@contextlib.contextmanager
def _recurrences_by_shape() -> Iterator[None]:
    """Have recurrent layers give tensors of the right shape at once.

    torch finds them by going through the whole sequence, step by step: 20 s for a GRU of 512.
    """
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    with contextlib.ExitStack() as after:
        for name in ("gru", "lstm", "rnn_relu", "rnn_tanh"):
            operator = getattr(torch.ops.aten, name).input
            forget = operator._dispatch_cache.clear  # noqa: SLF001 - it remembers the one before
            after.callback(forget)
            after.callback(operator.py_kernels.update, dict(operator.py_kernels))
            operator.py_kernels.update(dict.fromkeys(keys, _recurrent))
            forget()
        yield


def _recurrent(inputs: torch.Tensor, state: Any, *others: Any) -> tuple[torch.Tensor, ...]:
    """Return what a recurrent layer does, its last states included, without values."""
    *_, bidirectional, batch_first = others
    states = (state,) if isinstance(state, torch.Tensor) else tuple(state)
    size = states[0].shape[-1] * (2 if bidirectional else 1)
    if batch_first:
        out = inputs.new_empty(inputs.shape[1], inputs.shape[0], size).transpose(0, 1)
    else:
        out = inputs.new_empty(*inputs.shape[:-1], size)
    return (out, *map(torch.empty_like, states))


def _attributes_as_buffers(made: Made) -> frozenset[str]:
    """Register the tensors that modules hold as plain attributes; return their paths.

    A buffer may be replaced by forward and read again by the next call, as such an attribute is. A
    number that is written down in the constructor stays a constant.
    """
    paths = set()
    for text, (path, module, name, value) in attributes_of(made.model).items():
        if isinstance(value, torch.Tensor) and (number_of(value) is None or text in made.drawn):
            delattr(module, name)
            module.register_buffer(name, value, persistent=False)
            paths.add(path)
    return frozenset(paths)


def _is_the_problems(error: Exception, made: Made) -> bool:
    """Whether a line of forward's raises an error on tensors with values, too, or a name does."""
    (*_, last), space = traceback.walk_tb(error.__traceback__), made.space
    if last[0].f_code.co_filename != SOURCE_NAME and not isinstance(error, AttributeError):
        return False
    try:
        with_values(lambda: space["Model"](*space["get_init_inputs"]())(*space["get_inputs"]()))
    except Exception as eager:  # noqa: BLE001 - the problem's code may raise anything
        return (type(eager), str(eager)) == (type(error), str(error))
    return False


def _not_exported(error: Exception) -> NotPlannedError:
    if type(error).__name__.startswith(_BY_VALUES):
        found = re.search(r"aten[.:]+\w+", str(error))
        where = found[0].replace("::", ".") if found else "aten._local_scalar_dense"
        return by_values(where)
    if "SymInt" in str(error):
        return by_values("a size that follows from them")
    if ".numpy()" in str(error):
        return NotPlannedError("forward has numpy compute")
    if "doesn't match mode" in str(error):  # one that was made before the trace
        return NotPlannedError(
            "forward reads a tensor which no module of the Model's holds; "
            "let __init__ keep it, with register_buffer"
        )
    words = str(error).strip().splitlines() or [type(error).__name__]
    return NotPlannedError(f"torch.export finds no graph: {words[0]}")
