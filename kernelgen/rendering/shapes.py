"""The shapes of a problem's main case: what a kernel that is written for them has to know.

The problem's code runs on torch's meta device, where tensors have shapes and strides and no memory.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from kernelgen.errors import ProblemError
from kernelgen.problem.record import Case, ConstantValue, Device, Problem

_LAYER_NUMBERS = ("num_groups", "normalized_shape")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor's shape, and its strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def transposed(self) -> "Layout":
        """Return the layout with its last two dimensions swapped."""
        shape, strides = self.shape, self.strides
        return Layout(
            shape=(*shape[:-2], shape[-1], shape[-2]),
            strides=(*strides[:-2], strides[-1], strides[-2]),
        )


class MainShapes(msgspec.Struct, frozen=True, kw_only=True):
    """What forward gets, and what the model is made with.

    Attributes:
        inputs: the layouts of get_inputs, in its order; None for what is no tensor.
        parameters: name -> shape, such as `linear.weight` -> (8192, 8192).
        numbers: attribute of a layer -> what its shape follows from, such as `gn.num_groups` ->
            (8,) and `ln.normalized_shape` -> (64, 256, 256).
    """

    inputs: tuple[Layout | None, ...]
    parameters: dict[str, tuple[int, ...]]
    numbers: dict[str, tuple[int, ...]]


def main_shapes(
    problem: Problem, constants: Mapping[str, ConstantValue], device: Device
) -> MainShapes:
    """Return the shapes of a problem's main case with these constants in force.

    The first call in a process imports torch, which takes seconds.

    Raises:
        ProblemError: the problem's code fails with them.
    """
    case = Case(name="main", constants=dict(constants))
    try:
        return _run(problem.reference_source(case, device))
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        message = f"the main case cannot be made: {type(error).__name__}: {words[0]}"
        raise ProblemError(problem.path, None, "model", message) from error


@lru_cache(maxsize=64)
def _run(source: str) -> MainShapes:
    import torch

    space: dict[str, Any] = {"__name__": "reference"}
    with torch.device("meta"):
        exec(compile(source, "<problem>", "exec"), space)  # noqa: S102 - the user's own problem
        inputs = space["get_inputs"]()
        model = space["Model"](*space["get_init_inputs"]())
    numbers = {
        f"{name}.{attribute}": _as_tuple(getattr(layer, attribute))
        for name, layer in model.named_modules()
        for attribute in _LAYER_NUMBERS
        if hasattr(layer, attribute)
    }
    return MainShapes(
        inputs=tuple(
            Layout(shape=tuple(x.shape), strides=tuple(x.stride()))
            if isinstance(x, torch.Tensor)
            else None
            for x in inputs
        ),
        parameters={name: tuple(p.shape) for name, p in model.named_parameters()},
        numbers=numbers,
    )


def _as_tuple(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)
