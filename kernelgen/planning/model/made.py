"""A problem's Model, made by running the problem's code, and what it holds beside tensors.

Not imported where that code is not trusted.
"""

import ast
import contextlib
import io
import pickle
import random
import sys
import types
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from kernelgen.planning.exported import number_of
from kernelgen.planning.graph import NotPlannedError
from kernelgen.problem.python_text import parse_python
from kernelgen.solution.importing import run_text

SOURCE_NAME = "<problem>"
_OF_MODULES = frozenset(vars(torch.nn.Module())) - {"training"}
_OPAQUE = (
    *(torch.nn.Module, torch.Generator, type, types.ModuleType),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType),
)
# Modules of functions that give other results at another time, or on another machine.
_OUTSIDE = frozenset(("_io", "datetime", "io", "os", "posix", "secrets", "time", "uuid"))
_PURE = frozenset(
    ("__future__", "collections", "dataclasses", "functools", "math", "torch", "typing")
)
_LAYOUTS = ("is_contiguous", "storage_offset", "stride")
_SHAPE = torch.Tensor.shape
# Functions of torch's, a mode's of torch.export's among them, between a call and this one.
_BETWEEN = ("__len__", "__torch_function__", "handle_torch_function")
_SIZES = (torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement)
_DRAWN_ANEW = {torch.rand, torch.randint, torch.randn, torch.randperm}
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
    space = vars(run_text("reference", source, SOURCE_NAME))
    if not isinstance(space["Model"], type):
        raise NotPlannedError("Model is no class, which ModelNew could inherit")
    given = list(space["get_init_inputs"]())
    return Made(space, given, space["Model"](*given))


def may_differ(source: str) -> bool:
    """Return whether a module uses others than such as compute the same everywhere."""
    names = set[str]()
    for node in ast.walk(parse_python(source)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                names.add(node.module or "")
            case ast.Name(id="__import__" | "eval" | "exec" | "open" as name):
                names.add(name)
    return not _PURE.issuperset(name.partition(".")[0] for name in names)


def generators() -> object:
    """Return the states of Python's and numpy's generators of random numbers."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy and _pickled(numpy.random.get_state())


@contextlib.contextmanager
def calls_outside() -> Iterator[list[str]]:
    """Note the names of functions that a problem's own code calls to read time, files and the like.

    A library's code may, as logging does: that changes nothing in what it computes.
    """
    found: list[str] = []

    def note(frame: types.FrameType, event: str, function: Any) -> None:
        caller: types.FrameType | None = frame
        if event == "call":
            name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
            caller = frame.f_back
            while caller and caller.f_globals.get("__name__") == "collections.abc":
                caller = caller.f_back  # `get` of a mapping, as of os.environ
        elif event == "c_call" and frame.f_code.co_filename == SOURCE_NAME:
            owner = getattr(function, "__self__", None)
            kind = owner if isinstance(owner, type) else type(owner)
            module = getattr(function, "__module__", None) or kind.__module__
            name = f"{module}.{function.__name__}"
        else:
            return
        if name.split(".")[0] in _OUTSIDE and caller and caller.f_code.co_filename == SOURCE_NAME:
            found.append(name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


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


def held_by(made: Made) -> dict[str, bytes]:
    """Return what a problem's module and the Model's modules hold, as bytes, by the Python for it.

    A tensor is any tensor there, but for a number that is known.
    """
    held = {name: value for name, value in made.space.items() if not name.startswith("__")}
    held |= {text: one.value for text, one in attributes_of(made.model).items()}
    return with_values(lambda: {text: _pickled(held[text]) for text in held})


class _Pickler(pickle.Pickler):
    fast = True  # equal values have equal bytes, be they one object or several

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for a value that is not looked into."""
        if isinstance(value, torch.Tensor):
            return "Tensor", str(number_of(value))
        return type(value).__name__ if isinstance(value, _OPAQUE) else None


def _pickled(value: Any) -> bytes:
    """Return bytes that differ where a value does; none of what pickle cannot say."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(value)
    except Exception:  # noqa: BLE001 - a stranger's class may raise anything
        return b""
    return stream.getvalue()


class Size(int):
    """A tensor's size that forward reads as a number: what it decides by it is noted.

    A graph shows what follows a size in proportion. It shows no branch that was not taken, and no
    difference between a remainder and a constant.

    Attributes:
        decided: sizes that were compared, divided or made a float, in order.
    """

    decided: ClassVar[list[int]] = []


def _deciding(name: str) -> Callable[..., Any]:
    def method(self: Size, *others: Any) -> Any:
        self.decided.append(int(self))
        return getattr(int, name)(self, *others)

    return method


def _computing(name: str) -> Callable[..., Any]:
    def method(self: Size, *others: Any) -> Any:
        found = getattr(int, name)(self, *others)
        if found is not NotImplemented:
            return Size(found)
        if isinstance(others[0], float):
            self.decided.append(int(self))
        return found

    return method


for _name in (
    *("__bool__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"),
    *("__divmod__", "__floordiv__", "__mod__", "__rdivmod__", "__rfloordiv__", "__rmod__"),
    *("__float__", "__pow__", "__rpow__", "__rtruediv__", "__truediv__"),
):
    setattr(Size, _name, _deciding(_name))
for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__neg__"):
    setattr(Size, _name, _computing(_name))


class OnCpu(TorchFunctionMode):
    """Has torch take the CPU where it is asked for a GPU, and `x.data` be `x.detach()`.

    Random tensors of no given device are made with a layout; forward reads sizes as a `Size`.

    Attributes:
        decided: as of `Size`.
        layouts: names of the methods by which forward reads where a tensor's elements lie.
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        super().__init__()
        self.decided, self.layouts = Size.decided, set[str]()

    def clear(self) -> None:
        """Begin again, for another trace."""
        self.decided.clear()
        self.layouts.clear()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, with the CPU in place of any GPU."""
        name = getattr(function, "__name__", "")
        if name == "cuda":
            return args[0]
        if getattr(function, "__self__", None) is torch.Tensor.data:
            if name == "__get__":
                return args[0].detach()  # a trace does not see what the other leads to
            if torch.compiler.is_compiling():
                raise NotPlannedError("forward sets a tensor's .data; copy_ changes its values")
        if torch.compiler.is_compiling() and _is_called_by_problem(sys._getframe(1)):  # noqa: SLF001
            if name in _LAYOUTS:
                self.layouts.add(name)
            if name == "__len__":  # Python makes it a plain number
                self.decided.append(len(args[0]))
            if function in _SIZES or getattr(function, "__self__", None) is _SHAPE:
                sizes = function(*args, **(kwargs or {}))
                return Size(sizes) if isinstance(sizes, int) else torch.Size(map(Size, sizes))
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if function in _DRAWN_ANEW:
            # A layout that is given tells of the default device, which may not be the inputs'.
            named["layout"] = torch.strided if named.get("device") is None else None
        return function(*map(_on_cpu, args), **named)


def _is_called_by_problem(caller: types.FrameType | None) -> bool:
    while caller is not None and caller.f_code.co_name in _BETWEEN:
        caller = caller.f_back
    return caller is not None and caller.f_code.co_filename == SOURCE_NAME


def _on_cpu(value: Any) -> Any:
    return "cpu" if is_device(value, "cuda") else value


def is_device(value: Any, *kinds: str) -> bool:
    """Return whether a value is a device of one of some kinds, or its name."""
    return isinstance(value, str | torch.device) and str(value).split(":")[0] in kinds
