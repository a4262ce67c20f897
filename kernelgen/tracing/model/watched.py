"""A problem's code as it runs: what it reads of the world, and of the tensors that it is given."""

import ast
import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch._subclasses.fake_tensor import FakeTensor
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
_DEVICES = frozenset(("get_device", "is_cpu", "is_cuda"))
_ASKS_DEVICE = "forward asks on which kind of device a tensor is (is_cuda)"
_RANKS = frozenset(("dim", "ndimension"))
# Functions of torch's, a mode's of torch.export's among them, between a call and this one.
_BETWEEN = ("__len__", "__torch_function__", "handle_torch_function")
_SIZES = (torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement, torch.numel)
_CONSTANTS = (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor)
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
        decided: sizes that were compared, divided, looked up or made another number, in order.
    """

    decided: ClassVar[list[int]] = []


def _noting(name: str) -> Callable[..., Any]:
    def method(self: Size, *others: Any) -> Any:
        found = getattr(int, name)(self, *others)
        if name in _COMPUTED and found is not NotImplemented:
            return Size(found)
        passed_on = name in _PASSED_ON and _is_torchs(sys._getframe(1))  # noqa: SLF001
        if isinstance(others[0], float) if name in _COMPUTED else not passed_on:
            self.decided.append(int.__int__(self))
        return found

    return method


def _is_torchs(frame: types.FrameType) -> bool:
    return frame.f_globals["__name__"].partition(".")[0] in {"kernelgen", "torch"}


# Results are sizes again, or nothing that forward decides by, such as what it prints.
_COMPUTED = (
    *("__add__", "__mul__", "__neg__", "__pos__", "__radd__", "__rmul__", "__rsub__", "__sub__"),
    *("__abs__", "__ceil__", "__floor__", "__round__", "__trunc__", "conjugate"),
)
_PLAIN = ("__format__", "__getattribute__", "__getnewargs__", "__new__", "__repr__")
_PASSED_ON = ("__hash__", "__int__")  # by torch, which asks for them to do so
for _name, _own in vars(int).items():
    if callable(_own) and _name not in _PLAIN:
        setattr(Size, _name, _noting(_name))


@contextlib.contextmanager
def with_names(of: types.ModuleType | type, names: dict[str, Any]) -> Iterator[None]:
    """Have names of a module or class stand for others."""
    with contextlib.ExitStack() as after:
        for name, value in names.items():
            after.callback(setattr, of, name, getattr(of, name))
            setattr(of, name, value)
        yield


class Device(str):
    """A tensor's device, which forward may hand on, or compare with another tensor's, and not ask.

    It names its kind in torch's calls.
    """

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that forward takes it for."""
        return torch.device

    @property
    def type(self) -> "Device":
        """Its kind, which is asked by no other way."""
        return self


def _asking(name: str) -> Callable[..., Any]:
    def method(self: Device, *others: Any) -> Any:
        theirs = _is_torchs(sys._getframe(1))  # noqa: SLF001
        if not theirs and not any(type(other) is Device for other in others):
            raise NotPlannedError(_ASKS_DEVICE)
        return getattr(str, name)(self, *others)

    return method


for _name, _own in vars(str).items():
    if callable(_own) and _name not in _PLAIN:
        setattr(Device, _name, _asking(_name))


class Identities(ast.NodeTransformer):
    """Has `a is b`, and `type(a) == b`, call a function, which sees what is compared."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Return the call, or the comparison as it is."""
        self.generic_visit(node)
        classes = [ast.unparse(one).startswith("type(") for one in (node.left, *node.comparators)]
        match node:
            case ast.Compare(ops=[op], comparators=[other]) if isinstance(
                op, ast.Is | ast.IsNot
            ) or (isinstance(op, ast.Eq | ast.NotEq) and any(classes)):
                name = "is_" if isinstance(op, ast.Is | ast.Eq) else "is_not"
                function = ast.parse(f"__import__('operator').{name}", mode="eval").body
                call = ast.Call(function, [node.left, other], [])
                return ast.fix_missing_locations(ast.copy_location(call, node))
        return node


@contextlib.contextmanager
def questions() -> Iterator[None]:
    """Refuse what forward may ask of tensors without calling torch.

    That is whether two are one, as another call may give one for both, a device's kind, and the
    classes that others stand in for.
    """

    def device(tensor: FakeTensor) -> torch.device | Device:
        found: torch.device = of_tensor.fget(tensor)
        own = sys._getframe(1).f_code.co_filename == SOURCE_NAME  # noqa: SLF001
        return Device(found) if own and torch.compiler.is_compiling() else found

    def same(name: str, *given: Any) -> bool:
        stand_in = any(one is kind for one in given for kind in (FakeTensor, Size, Shape, Device))
        two = all(isinstance(one, torch.Tensor) for one in given)
        if torch.compiler.is_compiling() and (stand_in or two):
            what = (
                "for the class of a tensor or size" if stand_in else "whether two tensors are one"
            )
            raise NotPlannedError(f"forward asks {what} (is)")
        return bool(comparisons[name](*given))

    of_tensor: Any = FakeTensor.device
    comparisons = {name: getattr(operator, name) for name in ("is_", "is_not")}
    noting = {name: functools.partial(same, name) for name in comparisons}
    with with_names(FakeTensor, {"device": property(device)}), with_names(operator, noting):
        yield


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """Refuse what sets the state of torch's random numbers, even where forward restores it."""

    class Generator:
        def __getattr__(self, name: str) -> Any:
            if name in {"manual_seed", "seed", "set_state"}:
                raise NotPlannedError("forward seeds torch's random numbers, or sets their state")
            return getattr(torch.default_generator, name)

    # A GPU's is seeded by way of a function that waits until there is one.
    lazily = {"_lazy_call": lambda *_, **__: Generator().seed()}
    own = {"default_generator": Generator()}
    with with_names(torch.random, own), with_names(torch.cuda.random, lazily):
        yield


class Shape(tuple[Size, ...]):
    """A tensor's sizes that forward reads; whether it counts dimensions is noted.

    A graph is that of one rank, in which `x.shape[-1]` is the size of a dimension from the front.

    Attributes:
        asked: `rank` where forward depends on how many dimensions there are, `end` where it counts
            them from the last one, `error` where a call of torch's fails.
    """

    __slots__ = ()
    asked: ClassVar[set[str]] = set()

    def __getitem__(self, at: Any) -> Any:
        """Return a size, or several."""
        self.asked.add("rank" if isinstance(at, slice) else "end" if at < 0 else "front")
        found = super().__getitem__(at)
        return found if isinstance(found, int) else Shape(found)

    def __radd__(self, other: tuple[int, ...]) -> tuple[int, ...]:
        """Return sizes before these, and these."""
        return *other, *self

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that forward takes it for."""
        return torch.Size

    def __repr__(self) -> str:
        """Return what torch shows."""
        return repr(torch.Size(self))

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
        caller = _caller(sys._getframe(1))  # noqa: SLF001
        if caller.co_name == "get_device_module":
            return function(*args, **(kwargs or {}))  # it looks for a module of that name
        of = getattr(function, "__self__", None)
        if of is torch.Tensor.data:
            if name == "__get__" and not is_lazy(args[0]):
                return args[0].detach()  # a trace does not see what the other leads to
            if torch.compiler.is_compiling():
                raise NotPlannedError("forward sets a tensor's .data; copy_ changes its values")
        if torch.compiler.is_compiling() and caller.co_filename == SOURCE_NAME:
            self._note(function, tree_leaves((args, kwargs)))
            if function in _SIZES or of is torch.Tensor.shape:
                self.asked.add("sizes")
                sizes = function(*args, **(kwargs or {}))
                return Size(sizes) if isinstance(sizes, int) else Shape(map(Size, sizes))
        named = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if function in _DRAWN_ANEW:
            # A layout that is given tells of the default device, which may not be the inputs'.
            named["layout"] = torch.strided if named.get("device") is None else None
        try:
            return function(*map(_on_cpu, args), **named)
        except Exception:
            self.asked |= {"error"} if caller.co_filename == SOURCE_NAME else set()
            raise

    def _note(self, function: Any, given: list[Any]) -> None:
        """Note what a call of forward's own asks of tensors, and which sizes it makes constants."""
        name, of = getattr(function, "__name__", ""), getattr(function, "__self__", None)
        if _DEVICES & {name, getattr(of, "__name__", "")}:
            raise NotPlannedError(_ASKS_DEVICE)
        shaped = any(one is ... or isinstance(one, Shape) for one in given)
        if shaped or name in _RANKS or of is torch.Tensor.ndim:
            self.asked.add("rank")
        self.asked |= LAYOUTS & {name}
        if function in _SIZES:
            self.asked.update("end" for one in given if isinstance(one, int) and one < 0)
        if name == "__len__":  # Python makes it a plain number
            self.decided.append(len(given[0]))
        if function in _CONSTANTS:
            self.decided.extend(one for one in given if isinstance(one, Size))


def _caller(frame: types.FrameType) -> types.CodeType:
    while frame.f_code.co_name in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


def _on_cpu(value: Any) -> Any:
    return "cpu" if is_device(value, "cuda") else value


def is_device(value: Any, *kinds: str) -> bool:
    """Return whether a value is a device of one of some kinds, or its name."""
    return isinstance(value, str | torch.device) and str(value).split(":")[0] in kinds
