"""A problem's source to its graph: runs the problem's code, on tensors without memory.

Not imported where the code is not trusted; `capture.py` runs it in a process of its own.
"""

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch._C import DispatchKey
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode

from kernelgen.planning.exported import (
    NotPlannedError,
    Reader,
    ViewChangedError,
    by_values,
    number_of,
)
from kernelgen.planning.graph import Graph, is_plain
from kernelgen.planning.sizes import Resize

SOURCE_NAME = "<problem>"
_BY_VALUES = ("DataDependent", "GuardOnDataDependent", "DynamicOutputShape")


def trace(source: str, *, eval_mode: bool = False, resize: Resize | None = None) -> Graph:
    """Return the graph of a problem's forward.

    Args:
        source: Python that defines Model, get_inputs and get_init_inputs.
        eval_mode: trace it under `eval()`; else in training mode, as a new Model is.
        resize: what to make larger of get_inputs.

    Raises:
        NotPlannedError: forward has no graph, or one that changes what it was given.
        Exception: whatever the problem's code raises.
    """
    space: dict[str, Any] = {"__name__": "reference"}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        exec(compile(source, SOURCE_NAME, "exec"), space)  # noqa: S102 - contained by the caller
        try:
            given = space["get_inputs"]()
            made_with = space["get_init_inputs"]()
            with _Tables():
                model = space["Model"](*made_with)
        except DataDependentOutputException as error:
            raise NotPlannedError(
                f"its constructor reads values of tensors ({error.func})"
            ) from error
        if eval_mode:
            model.eval()
        attributes = _attributes_as_buffers(model)
        # A float stays an argument only as a tensor; it promotes no dtype.
        inputs = [torch.tensor(x, dtype=torch.float64) if type(x) is float else x for x in given]
        if resize is not None:
            inputs = [_resized(x, resize) for x in inputs]
        try:
            with _recurrences_by_shape():
                program = torch.export.export(model, tuple(inputs), strict=False)
        except Exception as error:
            raise _not_exported(error) from error
    names = tuple(inspect.signature(model.forward).parameters)[: len(given)]
    try:
        graph = Reader(program, names, given, attributes).graph()
    except ViewChangedError:
        # The same without changes in place. Not for every forward: some layers, such as a batch
        # norm in training mode, are called in another way then.
        with _recurrences_by_shape():
            program = program.run_decompositions({})
        graph = Reader(program, names, given, attributes).graph()
    parameters = list(inspect.signature(space["Model"]).parameters)
    plain = {n: v for n, v in zip(parameters, made_with, strict=False) if is_plain(v)}
    return msgspec.structs.replace(graph, made_with=plain)


def _resized(value: Any, resize: Resize) -> Any:
    if not isinstance(value, torch.Tensor) or (shape := resize.shape(value.shape)) == value.shape:
        return value
    return value.new_empty(shape)


@contextlib.contextmanager
def _recurrences_by_shape() -> Iterator[None]:
    """Have recurrent layers give tensors of the right shape at once.

    torch finds them by going through the whole sequence, step by step: 20 s for a GRU of 512.
    """
    kept = []
    for name in ("gru", "lstm", "rnn_relu", "rnn_tanh"):
        operator = getattr(torch.ops.aten, name).input
        kept.append((operator, dict(operator.py_kernels)))
        for key in (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd):
            operator.py_kernels[key] = _recurrent
        operator._dispatch_cache.clear()  # noqa: SLF001 - where the one before is remembered
    try:
        yield
    finally:
        for operator, kernels in kept:
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()  # noqa: SLF001


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


class _Tables(TorchFunctionMode):
    """Has `torch.linspace`, and what is computed from it alone, have values in a constructor.

    Rates that rise from layer to layer are made so, and read one by one.
    """

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, with tensors that have values if it is about such ones."""
        given = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        fake = any(isinstance(x, FakeTensor) for x in given)
        if function is torch.linspace or (given and not fake):
            with unset_fake_temporarily():
                return function(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))


def _attributes_as_buffers(model: torch.nn.Module) -> frozenset[str]:
    """Register the tensors that modules hold as plain attributes; return their paths.

    A buffer may be replaced by forward and read again by the next call, as such an attribute is. A
    number that is written down in the constructor stays a constant.
    """
    paths = set()
    for prefix, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and number_of(value) is None:
                delattr(module, name)
                module.register_buffer(name, value, persistent=False)
                paths.add(f"{prefix}.{name}" if prefix else name)
    return frozenset(paths)


def _not_exported(error: Exception) -> NotPlannedError:
    if type(error).__name__.startswith(_BY_VALUES):
        found = re.search(r"aten[.:]+\w+", str(error))
        where = found[0].replace("::", ".") if found else "aten._local_scalar_dense"
        return by_values(where)
    words = str(error).strip().splitlines() or [type(error).__name__]
    return NotPlannedError(f"torch.export finds no graph: {words[0]}")
