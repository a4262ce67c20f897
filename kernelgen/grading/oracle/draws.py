"""The float64 reference's random numbers: the very ones that the fp32 reference draws.

In float64 a generator gives other numbers than in float32, from the same state. So what draws is
run in float32, and its result widened.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

# By the names of ATen's operators. Others that draw, such as a recurrent net's own dropout, give
# other numbers, which shows in a result that is far from the fp32 reference's (reference.py).
_MAKERS = frozenset({"rand", "randn", "normal"})
_FILLERS = frozenset(
    {
        *("uniform_", "normal_", "bernoulli_", "exponential_", "cauchy_", "log_normal_"),
        *("geometric_", "random_"),
    }
)
_MAPS = frozenset({"rand_like", "randn_like", "normal", "bernoulli", "multinomial", "poisson"})


class Float32Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, floats are drawn in float32 and given out in float64."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, in float32 if it draws."""
        del types
        name, given = func.overloadpacket.__name__, dict(kwargs or {})
        if "out" in given:
            return func(*args, **given)
        tensors = [value for value in args if isinstance(value, torch.Tensor)]
        wide = any(tensor.dtype is torch.float64 for tensor in tensors)
        if name in _MAKERS and not tensors and given.get("dtype") is None:
            return _widened(func(*args, **{**given, "dtype": torch.float32}))
        if name in _FILLERS and wide:
            drawn = torch.empty_like(args[0], dtype=torch.float32)
            func(drawn, *_narrowed(args[1:]), **_narrowed(given))
            return args[0].copy_(drawn)
        if name == "native_dropout" and wide:
            value, share = args[0], args[1]
            _, kept = func(value.float(), *args[1:], **given)
            return value * kept / (1.0 - share), kept
        if name in _MAPS and wide:
            return _widened(func(*_narrowed(args), **_narrowed(given)))
        return func(*args, **given)


def _narrowed(values: Any) -> Any:
    return tree_map(_narrow, values)


def _narrow(value: Any) -> Any:
    wide = isinstance(value, torch.Tensor) and value.dtype is torch.float64
    return value.float() if wide else value


def _widened(result: torch.Tensor) -> torch.Tensor:
    return result.double() if result.dtype is torch.float32 else result
