"""Values of any structure, for a trace that takes and gives tensors alone."""

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from kernelgen.graph.graph import InputKind, NotPlannedError, written

Rebuilt = Callable[[Sequence[torch.Tensor]], Any]


class Place(NamedTuple):
    """A tensor that a trace gets: its name in the graph, and where forward finds it.

    Attributes:
        text: Python for it, such as `state[0]`; "" if it is the parameter of its name.
    """

    name: str
    kind: InputKind
    text: str


class Flat:
    """Values of any structure as tensors in a row.

    Attributes:
        places: of the tensors.
        tensors: without values, each in memory of its own.
        fixed: Python for what is no tensor, and for sizes of structures -> what it has to be.
    """

    def __init__(self, names: Iterable[str], *, floats: bool) -> None:
        """Begin with names that are given already; `floats` become tensors of one number."""
        self.places: list[Place] = []
        self.tensors: list[torch.Tensor] = []
        self.fixed: dict[str, str] = {}
        self._names, self._floats = {*names}, floats

    def add(self, value: Any, text: str, kind: InputKind = "input") -> Rebuilt:
        """Return a function that makes a value again, of the tensors in a row.

        Args:
            value: of any structure.
            text: Python for it: forward's parameter, or `self.path` of an attribute.
            kind: of its tensors. Of an input, all else is fixed.

        Raises:
            NotPlannedError: a part of it has no text, or is no strided tensor.
        """
        if isinstance(value, torch.Tensor) or (self._floats and type(value) is float):
            return self._add_tensor(value, text, kind)
        if not holds(value, torch.Tensor) and not (self._floats and holds(value, float)):
            if kind == "input":
                self.fixed[text] = written(value)
            return lambda _: copy.deepcopy(value) if kind == "input" else value
        is_dict = isinstance(value, dict)
        keys = [*value] if is_dict else [*range(len(value))]
        if kind == "input":
            size = f"{{{', '.join(map(written, keys))}}}" if is_dict else str(len(keys))
            self.fixed[f"{'set' if is_dict else 'len'}({text})"] = size
        parts = {key: self.add(value[key], f"{text}[{written(key)}]", kind) for key in keys}

        def rebuilt(given: Sequence[torch.Tensor]) -> Any:
            made = {key: part(given) for key, part in parts.items()}
            if isinstance(value, tuple):
                return getattr(value, "_make", tuple)(made.values())
            whole = copy.copy(value)
            for key, part in made.items():
                whole[key] = part
            return whole

        return rebuilt

    def _add_tensor(self, value: torch.Tensor | float, text: str, kind: InputKind) -> Rebuilt:
        if isinstance(value, float):
            # A float stays an argument only as a tensor.
            kind, tensor = "scalar", torch.empty((), dtype=torch.float64)
        elif value.layout is not torch.strided or value.is_quantized:
            raise NotPlannedError(f"{text} is a tensor of layout {value.layout}")
        else:
            tensor = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        at, name = len(self.tensors), text
        if not text.isidentifier():
            name = re.sub(r"\W+", "_", text.removeprefix("self."), flags=re.ASCII).strip("_")
            while name in self._names:
                name += "_"
            self._names.add(name)
        self.places.append(Place(name, kind, "" if name == text else text))
        self.tensors.append(tensor)
        return lambda given: given[at]


def holds(value: Any, kind: type, which: Callable[[Any], bool] = lambda _: True) -> bool:
    """Return whether a value is such a one of a type, or a list, tuple or dict that holds one."""
    if isinstance(value, list | tuple | dict):
        parts = value.values() if isinstance(value, dict) else value
        return any(holds(part, kind, which) for part in parts)
    return isinstance(value, kind) and which(value)
