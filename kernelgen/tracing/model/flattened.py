"""A Model's forward as a trace calls it: on tensors in a row, for tensors in a row."""

import dataclasses
import inspect
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from kernelgen.graph.graph import InputKind, NotPlannedError, written
from kernelgen.graph.sizes import Resize
from kernelgen.tracing.exported import memory_of, number_of
from kernelgen.tracing.model.made import Made, attributes_of, held_by, without_memory_if_it_can
from kernelgen.tracing.model.structures import Flat, Rebuilt, holds
from kernelgen.tracing.model.watched import Shape, Size, unseeded

Buffer = tuple[dict[str, Any], str, torch.Tensor]
"""A module's buffers, the name of one of them, and what it is."""

_BY_ORDER = inspect.Parameter.POSITIONAL_OR_KEYWORD


class WrongInputsError(Exception):
    """Forward does not take the inputs of get_inputs; the message is for the user."""


class Inputs(NamedTuple):
    """The inputs of get_inputs, by forward's parameters.

    Attributes:
        rest: the parameter that gets a tuple of all the rest; "" if none does.
    """

    arguments: dict[str, Any]
    rest: str

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, with a star before the one for the rest."""
        return tuple(f"*{name}" if name == self.rest else name for name in self.arguments)

    @property
    def kinds(self) -> dict[str, str]:
        """The types of those that are no tensor, as annotations."""
        return {
            name: _kind(value)
            for name, value in self.arguments.items()
            if name != self.rest and not isinstance(value, torch.Tensor)
        }


def inputs_of(made: Made) -> Inputs:
    """Return what a problem's get_inputs returns.

    Raises:
        WrongInputsError: forward does not take it.
    """
    given: Any = without_memory_if_it_can(made.space["get_inputs"])
    if not isinstance(given, list | tuple):
        name = "Tensor" if isinstance(given, torch.Tensor) else type(given).__name__
        raise WrongInputsError(
            f"get_inputs returns a {name}; let it return the list of forward's arguments"
        )
    signature = inspect.signature(made.model.forward)
    try:
        arguments = signature.bind(*given).arguments
    except TypeError as error:
        raise WrongInputsError(
            f"get_inputs returns {len(given)} arguments, but forward takes {signature}: {error}"
        ) from error
    rest = (n for n, p in signature.parameters.items() if p.kind is p.VAR_POSITIONAL)
    return Inputs(dict(arguments), next(rest, ""))


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    kind = next((one for one in (list, tuple, dict) if isinstance(value, one)), type(value))
    return f"torch.{kind.__name__}" if kind.__module__ == "torch" else kind.__name__


class Flattened(Flat):
    """A forward on tensors in a row, which the Model has while this is entered.

    The tensors are those of its arguments, and those that modules hold in lists and the like.

    Attributes:
        returns: what it returned as Python, with `%s` for each tensor, after a call.
    """

    def __init__(self, made: Made, inputs: Inputs, *, floats: bool) -> None:
        """Find the tensors; `floats` among the arguments are tensors too.

        Raises:
            NotPlannedError: an argument has no text, or what is held follows from what was drawn.
        """
        super().__init__(inputs.arguments, floats=floats)
        self.returns = ""
        self._made, self._model, self._rest = made, made.model, inputs.rest
        registered = chain(made.model.named_parameters(), made.model.named_buffers())
        self._own = {id(one): path for path, one in registered}
        self._arguments = {name: self.add(value, name) for name, value in inputs.arguments.items()}
        self._held: dict[str, tuple[dict[str, Any], str, Any, Rebuilt]] = {}
        for text, (_, module, name, value) in attributes_of(made.model).items():
            drawn = text in made.drawn
            is_number = drawn and floats and type(value) is float
            if is_number or holds(value, torch.Tensor, lambda x: number_of(x) is None):
                self._held[text] = vars(module), name, value, self.add(value, text, "attribute")
            elif drawn:
                raise NotPlannedError(f"{text} follows from what the constructor draws or reads")
        if outside := sorted(text for text in made.drawn if not text.startswith("self.")):
            raise NotPlannedError(f"{outside[0]} differs in each process")

    def _add_tensor(self, value: torch.Tensor | float, text: str, kind: InputKind) -> Rebuilt:
        """Add a tensor; one of the Model's own stays that, under another name."""
        if (path := self._own.get(id(value))) is not None:
            return lambda _: attrgetter(path)(self._model)
        return super()._add_tensor(value, text, kind)

    def resized(self, resize: Resize | None) -> tuple[torch.Tensor, ...]:
        """Return the tensors, inputs of another size."""
        return tuple(
            torch.empty(shape, dtype=x.dtype)
            if place.kind == "input" and resize and (shape := resize.shape(x.shape)) != x.shape
            else x
            for x, place in zip(self.tensors, self.places, strict=True)
        )

    def layouts_as_read(self, read: frozenset[str]) -> dict[str, str]:
        """Return what has to be so, as of `fixed`, where forward reads how tensors lie in memory.

        Raises:
            NotPlannedError: a trace does not know it.
        """
        if "storage_offset" in read:
            raise NotPlannedError("forward reads where in memory a tensor begins (storage_offset)")
        fixed = {}
        for place, tensor in zip(self.places, self.tensors, strict=True):
            if read and place.kind == "input":
                method = "is_contiguous" if tensor.is_contiguous() else "stride"
                text = f"{place.text or place.name}.{method}()"
                fixed[text] = repr(getattr(tensor, method)())
        return fixed

    def __enter__(self) -> None:
        """Have the Model's forward take these tensors, under the names of their places."""
        forward = self._model.forward

        def flattened(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for space, name, _, kept in self._held.values():
                space[name] = kept(given)
            passed = {name: argument(given) for name, argument in self._arguments.items()}
            rest, before = passed.pop(self._rest, ()), self._state()
            told = written([passed, rest], _identity)
            buffers = list(self._inner_buffers())
            with unseeded():
                result = self._noted(forward(*passed.values(), *rest))
            if "error" in Shape.asked:
                raise NotPlannedError("forward catches an error of torch's")
            if written([passed, rest], _identity) != told:
                raise NotPlannedError("forward changes a list or dict that it is given")
            _keep_replaced(buffers)
            after = self._state()
            changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            if changed:
                words = f"forward keeps state in {min(changed)}; let it be a buffer"
                raise NotPlannedError(f"{words} that __init__ registers")
            return result

        parameters = [inspect.Parameter(place.name, _BY_ORDER) for place in self.places]
        flattened.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self._model.forward = flattened

    def __exit__(self, *error: object) -> None:
        """Give the Model its own forward back, and its modules what they held."""
        del self._model.forward
        for space, name, value, _ in self._held.values():
            space[name] = value

    def _inner_buffers(self) -> Iterator[Buffer]:
        """Yield the buffers of the Model's parts: torch.export notices what replaces its own.

        Not those that lie in another's memory, where nothing may be left: a spectral norm's weight
        begins as a view of the parameter that it is computed from in each call.
        """
        shared = Counter(map(memory_of, chain(self._model.parameters(), self._model.buffers())))
        for path, module in self._model.named_modules():
            for name, value in module._buffers.items():  # noqa: SLF001 - where they are replaced
                if path and value is not None and shared[memory_of(value)] == 1:
                    yield module._buffers, name, value  # noqa: SLF001

    def _state(self) -> dict[str, object]:
        """Return what forward may read in its next call; tensors in lists are those objects."""
        same = {
            text: [*map(id, tree_leaves(space[name]))]
            for text, (space, name, *_) in self._held.items()
        }
        state: dict[str, object] = {
            text: (value, same.get(text)) for text, value in held_by(self._made).items()
        }
        registered = chain(self._model.named_parameters(), self._model.named_buffers())
        return state | {f"self.{name}": "registered" for name, _ in registered}

    def _noted(self, result: Any) -> tuple[torch.Tensor, ...]:
        outputs: list[torch.Tensor] = []

        def mark(value: Any) -> str | None:
            if isinstance(value, torch.Tensor):
                outputs.append(value)
                return "\0"
            if isinstance(value, Size):
                return str(int(value))
            record = _as_called(value)
            structure = isinstance(value, tuple | OrderedDict) or record is not None
            if not structure or type(value) in {tuple, torch.Size, Shape}:
                return None
            name = self._name_of(type(value))
            if record is not None:
                return f"{name}({', '.join(written(part, mark) for part in record)})"
            if isinstance(value, dict):
                return f"{name}({written(dict(value), mark)})"
            parts = ", ".join(written(part, mark) for part in value)
            return f"{name}({parts})" if hasattr(value, "_fields") else f"{name}(({parts}))"

        self.returns = written(result, mark).replace("%", "%%").replace("\0", "%s")
        return tuple(outputs)

    def _name_of(self, kind: type) -> str:
        """Return what the problem's module calls a class.

        Raises:
            NotPlannedError: it has no name for it.
        """
        for name, value in self._made.space.items():
            if value is kind:
                return name
            if getattr(value, kind.__name__, None) is kind and isinstance(value, ModuleType):
                return f"{name}.{kind.__name__}"
        whole = f"{kind.__module__}.{kind.__name__}"
        if kind.__module__.startswith("torch."):
            return whole
        raise NotPlannedError(f"forward returns a {whole}, which its module has no name for")


def _as_called(value: Any) -> list[Any] | None:
    """Return the arguments that make such an object again; None where it is no plain dataclass."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type | dict):
        return None
    names = [field.name for field in dataclasses.fields(value) if field.init and not field.kw_only]
    others = getattr(value, "__dict__", {}).keys() - {*names}
    if others or names != [*inspect.signature(type(value)).parameters]:
        return None
    return [getattr(value, name) for name in names]


def _identity(value: object) -> str | None:
    return str(id(value)) if isinstance(value, torch.Tensor) else None


def _keep_replaced(buffers: list[Buffer]) -> None:
    """Leave the values of tensors that forward has put in place of buffers in these.

    Raises:
        NotPlannedError: one has another shape or dtype.
    """
    found = [(of, name, old, of[name]) for of, name, old in buffers if _replaced(of, name, old)]
    for _, name, old, new in found:
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise NotPlannedError(f"forward puts another shape or dtype in place of {name}")
    # A value in memory that another is left in would change before it is read.
    memory = {memory_of(old) for *_, old, _ in found}
    values = [new.clone() if memory_of(new) in memory else new for *_, new in found]
    for (of, name, old, _), value in zip(found, values, strict=True):
        old.copy_(value)
        of[name] = old


def _replaced(of: dict[str, Any], name: str, old: torch.Tensor) -> bool:
    return of.get(name) is not old and isinstance(of.get(name), torch.Tensor)
