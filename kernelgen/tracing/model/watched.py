"""A problem's code as it runs: what it reads of the world, and of the tensors that it is given."""

import ast
import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from kernelgen.graph.graph import NotPlannedError
from kernelgen.problem.python_text import parse_python

SOURCE_NAME = "<problem>"
# Modules of functions that give other results at another time, or on another machine.
_OUTSIDE = frozenset(("_io", "datetime", "io", "os", "posix", "secrets", "time", "uuid"))
_PURE = frozenset(
    ("__future__", "collections", "dataclasses", "functools", "math", "torch", "typing")
)
LAYOUTS = frozenset(("is_contiguous", "storage_offset", "stride"))
_RANKS = frozenset(("dim", "ndimension"))
# Functions of torch's, a mode's of torch.export's among them, between a call and this one.
_BETWEEN = ("__len__", "__torch_function__", "handle_torch_function")
_SIZES = (torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement, torch.numel)
_DRAWN_ANEW = {torch.rand, torch.randint, torch.randn, torch.randperm}


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


class Shape(tuple[Size, ...]):
    """A tensor's sizes that forward reads; whether it counts dimensions is noted.

    A graph is that of one rank, in which `x.shape[-1]` is the size of a dimension from the front.

    Attributes:
        asked: `rank` where forward depends on how many dimensions there are, `end` where it counts
            them from the last one.
    """

    __slots__ = ()
    asked: ClassVar[set[str]] = set()

    def __getitem__(self, at: Any) -> Any:
        """Return a size, or several."""
        self.asked.add("rank" if isinstance(at, slice) else "end" if at < 0 else "front")
        found = super().__getitem__(at)
        return found if isinstance(found, int) else torch.Size(found)

    def __radd__(self, other: tuple[int, ...]) -> tuple[int, ...]:
        """Return sizes before these, and these."""
        return *other, *self

    def numel(self) -> Size:
        """Return how many elements a tensor of this shape has."""
        return Size(torch.Size(self).numel())


def _counting(name: str) -> Callable[..., Any]:
    def method(self: Shape, *others: Any) -> Any:
        self.asked.add("rank")
        return getattr(tuple, name)(self, *others)

    return method


for _name in ("__add__", "__eq__", "__iter__", "__len__", "__mul__", "__ne__"):
    setattr(Shape, _name, _counting(_name))


class OnCpu(TorchFunctionMode):
    """Has torch take the CPU where it is asked for a GPU, and `x.data` be `x.detach()`.

    Random tensors of no given device are made with a layout; forward reads sizes as a `Size`.

    Attributes:
        decided: as of `Size`.
        asked: as of `Shape`; and names of the methods by which forward reads where a tensor's
            elements lie.
    """

    decided, asked = Size.decided, Shape.asked

    def clear(self) -> None:
        """Begin again, for another trace."""
        self.decided.clear()
        self.asked.clear()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, with the CPU in place of any GPU."""
        name = getattr(function, "__name__", "")
        if name == "cuda":
            return args[0]
        of = getattr(function, "__self__", None)
        if of is torch.Tensor.data:
            if name == "__get__" and not is_lazy(args[0]):
                return args[0].detach()  # a trace does not see what the other leads to
            if torch.compiler.is_compiling():
                raise NotPlannedError("forward sets a tensor's .data; copy_ changes its values")
        if torch.compiler.is_compiling() and _is_called_by_problem(sys._getframe(1)):  # noqa: SLF001
            given = tree_leaves((args, kwargs))
            shaped = any(one is ... or isinstance(one, Shape) for one in given)
            if shaped or name in _RANKS or of is torch.Tensor.ndim:
                self.asked.add("rank")
            self.asked |= LAYOUTS & {name}
            if name == "__len__":  # Python makes it a plain number
                self.decided.append(len(args[0]))
            if function in _SIZES or of is torch.Tensor.shape:
                self.asked.update("end" for one in given if isinstance(one, int) and one < 0)
                sizes = function(*args, **(kwargs or {}))
                return Size(sizes) if isinstance(sizes, int) else Shape(map(Size, sizes))
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
