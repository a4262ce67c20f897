"""A problem's Model, made by running the problem's code, and what it holds beside tensors.

Not imported where that code is not trusted.
"""

import contextlib
import io
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.nn.parameter import is_lazy

from kernelgen.graph.graph import NotPlannedError, is_plain, written
from kernelgen.solution.importing import run_text
from kernelgen.tracing.exported import number_of
from kernelgen.tracing.model.watched import SOURCE_NAME, Identities, may_differ, with_names

_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
_HOLDERS = (
    *(types.FunctionType, types.GeneratorType, types.MethodType, types.CellType, types.FrameType),
    *(classmethod, property, staticmethod),
)
_HELD = (
    *("__closure__", "__defaults__", "__dict__", "__func__", "__kwdefaults__", "__self__"),
    *("cell_contents", "f_lasti", "f_locals", "fget", "gi_frame"),
)
_OPAQUE = (
    *(torch.nn.Module, torch.Generator, type, types.ModuleType),
    *(types.FunctionType, types.BuiltinFunctionType),
)
T = TypeVar("T")


class Made(NamedTuple):
    """A Model, made with what get_init_inputs returns.

    Attributes:
        space: names of the problem's module.
        given: what get_init_inputs returns.
        drawn: Python for what is held, such as `self.scale`, that follows from random numbers, or
            from others that differ in each process.
    """

    space: dict[str, Any]
    given: list[Any]
    model: Any
    drawn: frozenset[str] = frozenset()


def made_of(source: str) -> Made:
    """Return a problem's Model, under fake tensors; with values only where it reads what they hold.

    Raises:
        NotPlannedError: its forward cannot be called as it is written.
        Exception: whatever the problem's code raises on tensors that have values.
    """
    before, values = generators(), False
    try:
        made = _run(source)
    except Exception:  # noqa: BLE001 - it may be one of tensors without values
        values = True
        made = with_values(lambda: _run(source))
    if values or generators() != before or may_differ(source):
        # A value that another Model holds otherwise follows from random numbers, or from time.
        held = held_by(made)
        del made  # it may be large
        made = with_values(lambda: _run(source, seed=1)) if values else _run(source, seed=1)
        other = held_by(made)
        made = made._replace(drawn=frozenset(n for n in held if held[n] != other.get(n)))
    if any(map(is_lazy, chain(made.model.parameters(), made.model.buffers()))):
        raise NotPlannedError("its lazy modules have no parameters before the first call")
    if made.model._forward_hooks or made.model._forward_pre_hooks:  # noqa: SLF001
        raise NotPlannedError("the Model has forward hooks of its own")
    return made


def _run(source: str, *, seed: int = 0) -> Made:
    """Run a problem's module and make its Model, with what they draw from a seed."""
    torch.manual_seed(seed)
    space = vars(run_text("reference", source, SOURCE_NAME, Identities()))
    if not isinstance(space["Model"], type):
        raise NotPlannedError("Model is no class, which ModelNew could inherit")
    given = list(space["get_init_inputs"]())
    return Made(space, given, space["Model"](*given))


def generators() -> object:
    """Return the states of Python's and numpy's generators of random numbers."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy and _pickled(numpy.random.get_state())


def with_values(function: Callable[[], T]) -> T:
    """Return what a function does where tensors have values."""
    with unset_fake_temporarily(), disable_proxy_modes_tracing():
        return function()


def without_memory_if_it_can(function: Callable[[], T]) -> T:
    """Return what a function does, with tensors that have values only where it reads them."""
    try:
        return function()
    except Exception:  # noqa: BLE001 - it may be one of tensors without values
        return with_values(function)


class Attribute(NamedTuple):
    """A value that a module holds without having registered it.

    Attributes:
        path: such as `net.0.scales`.
    """

    path: str
    module: Any
    name: str
    value: Any


def attributes_of(model: Any) -> dict[str, Attribute]:
    """Return what a Model's modules hold without having registered it, by the Python for it."""
    found = {}
    for path, module in model.named_modules():
        plain = all(part.isidentifier() for part in path.split("."))
        text = f"self.{path}" if plain else f"self.get_submodule({path!r})" if path else "self"
        for name, value in vars(module).items():
            if name not in _OF_MODULES:
                own = f"{path}.{name}" if path else name
                found[f"{text}.{name}"] = Attribute(own, module, name, value)
    return found


@contextlib.contextmanager
def attributes_read(made: Made) -> Iterator[dict[str, Any]]:
    """Note what forward reads of the Model itself, by the Python for it: `self.scale`."""
    found: dict[str, Any] = {}

    def read(module: Any, name: str) -> Any:
        value = object.__getattribute__(module, name)
        by_forward = sys._getframe(1).f_code.co_filename == SOURCE_NAME  # noqa: SLF001
        if by_forward and module is made.model and torch.compiler.is_compiling():
            held = (object.__getattribute__(module, "__dict__"), *map(vars, type(module).__mro__))
            # No property, which the file may not have.
            if name != "training" and any(of.get(name) is value for of in held):
                found[f"self.{name}"] = value
        return value

    with with_names(torch.nn.Module, {"__getattribute__": read}):
        yield found


def numbers_of(attributes: dict[str, Any]) -> dict[str, str]:
    """Return those of attributes that are plain, or tensors of one number: Python for each."""
    numbers = {t: number_of(v) for t, v in attributes.items() if isinstance(v, torch.Tensor)}
    found = attributes | {f"{t}.item()": v.item() for t, v in numbers.items() if v is not None}
    return {text: written(value) for text, value in found.items() if is_plain(value)}


def held_by(made: Made) -> dict[str, bytes]:
    """Return what a problem's module and the Model's modules hold, as bytes, by the Python for it.

    A tensor is any tensor there, but for a number that is known. Of a class or function of the
    problem's, it is what that holds itself, such as default arguments.
    """
    held = {name: value for name, value in made.space.items() if not name.startswith("__")}
    for name, kind in [*held.items()]:
        if isinstance(kind, type) and kind.__module__ == made.space["__name__"]:
            own = vars(kind).items()
            held |= {f"{name}.{n}": v for n, v in own if n[-2:] != "__" or callable(v)}
    held |= {text: one.value for text, one in attributes_of(made.model).items()}
    for path, module in made.model.named_modules():
        hooks = {**module._forward_pre_hooks, **module._forward_hooks}  # noqa: SLF001
        held |= {f"hooks of {path}": [*hooks.values()]} if hooks else {}
    return with_values(lambda: {text: _pickled(held[text]) for text in held})


class _Pickler(pickle.Pickler):
    fast = True  # equal values have equal bytes, be they one object or several

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._functions = set[int]()  # that are looked into, such as call themselves

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for a value that is not looked into."""
        if isinstance(value, torch.Tensor):
            return "Tensor", str(number_of(value))
        if isinstance(value, types.FunctionType) and id(value) not in self._functions:
            self._functions.add(id(value))
            own = value.__code__.co_filename == SOURCE_NAME or hasattr(value, "__wrapped__")
            return None if own else value.__name__
        return type(value).__name__ if isinstance(value, _OPAQUE) else None

    def reducer_override(self, value: Any) -> Any:
        """Return what a function or generator holds, by which it may do otherwise next time."""
        if isinstance(value, _HOLDERS):
            return str, tuple(getattr(value, part, None) for part in _HELD)
        return NotImplemented


def _pickled(value: Any) -> bytes:
    """Return bytes that differ where a value does; none of what pickle cannot say."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(value)
    except Exception:  # noqa: BLE001 - a stranger's class may raise anything
        return b""
    return stream.getvalue()
