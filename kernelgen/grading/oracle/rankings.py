"""Which outputs of the reference are indices, and of what: seen while it runs.

A view of recorded indices is known by its memory, whatever was sliced, squeezed or transposed; a
copy or a cast to another integer type is followed. What is computed from indices is no index.
"""

import math
from typing import Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgen.grading.correctness.indices import Ranking

# ATen's operators that return the index, in the dimension `dim`, of one of the values of `self`,
# and leave open which of several equal ones. The others, such as cummax and stable sort, do not.
_RANKERS = frozenset(
    {
        *("argmax.default", "argmin.default", "max.dim", "min.dim", "topk.default"),
        *("sort.default", "sort.stable", "kthvalue.default", "median.dim", "nanmedian.dim"),
    }
)
_COPIES = frozenset({"clone.default", "_to_copy.default"})


class _Indices(msgspec.Struct, frozen=True):
    """Indices that an operator returned, as they were, and what they point into.

    Attributes:
        held: the tensor itself: while it lives, no other one has its memory.
        copy, starts: its values, and Ranking's `starts`: for each element of its memory, -1 for
            those between its own.
        version: of `values`, which counts what was written to them.
    """

    held: torch.Tensor
    copy: torch.Tensor
    starts: torch.Tensor
    step: int
    count: int
    values: torch.Tensor
    version: int


class RankingRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, operators that return indices are noted.

    Args:
        given: tensors that are not computed, unless the run writes to them.
    """

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._given = {_memory(tensor): tensor._version for tensor in given}  # noqa: SLF001
        self._found: dict[int, _Indices] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and note its indices."""
        del types
        result = func(*args, **(kwargs or {}))
        name = func.__name__
        if name in _RANKERS:
            self._note_ranking(_bound_arguments(func, args, kwargs or {}), result)
        elif name in _COPIES:
            self._note_copy(args[0], result)
        return result

    def ranking(self, output: torch.Tensor, ref: torch.Tensor) -> Ranking | None:
        """Return what indices of the recorded run point into; None if unknown, or not `ref`'s."""
        seen = self._seen(output)
        if seen is None or seen.values._version != seen.version:  # noqa: SLF001
            return None
        starts, copy = _like(seen.starts, output), _like(seen.copy, output)
        known = torch.equal(output.long(), copy) and torch.equal(output, ref)
        if not known or bool((starts < 0).any()):
            return None
        return Ranking(
            starts=starts,
            step=seen.step,
            count=seen.count,
            values=seen.values,
            exact=seen.values,
            given=self._given.get(_memory(seen.values)) == seen.version,
        )

    def _seen(self, tensor: torch.Tensor) -> _Indices | None:
        seen = self._found.get(_memory(tensor))
        return seen if seen is not None and seen.held.dtype is tensor.dtype else None

    def _note_ranking(self, bound: dict[str, Any], result: Any) -> None:
        indices = result if isinstance(result, torch.Tensor) else result[1]
        values, dim = bound["self"], bound["dim"]
        if not bound.get("stable"):
            flat = dim is None or values.dim() == 0
            shape = (values.numel(),) if flat else tuple(values.shape)
            dim = 0 if flat else dim % len(shape)
            step = math.prod(shape[dim + 1 :])
            starts = _starts(shape, dim, indices.device)
            if indices.dim() < len(shape):
                starts = starts.squeeze(dim)
            starts, version = starts.expand(indices.shape), values._version  # noqa: SLF001
            self._note(_Indices(indices, indices, starts, step, shape[dim], values, version))

    def _note_copy(self, source: torch.Tensor, result: torch.Tensor) -> None:
        seen = self._seen(source)
        if seen is not None and _same_values(source, result):
            starts = _like(seen.starts, source)
            self._note(msgspec.structs.replace(seen, held=result, copy=result, starts=starts))

    def _note(self, seen: _Indices) -> None:
        """Take in what `held` is, with `copy` and `starts` of its shape."""
        held = seen.held
        if held.numel():
            copy, starts = _laid_out(seen.copy, held), _laid_out(seen.starts, held)
            self._found[_memory(held)] = msgspec.structs.replace(seen, copy=copy, starts=starts)


def _bound_arguments(func: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's arguments by name."""
    names = func._schema.arguments  # noqa: SLF001
    defaults = {one.name: one.default_value for one in names}
    return {**defaults, **dict(zip((one.name for one in names), args, strict=False)), **kwargs}


def _starts(shape: tuple[int, ...], dim: int, device: torch.device) -> torch.Tensor:
    """Return the flat index of the first value of each slice, with a 1 in the shape for `dim`."""
    inner = math.prod(shape[dim + 1 :])
    outer = torch.arange(math.prod(shape[:dim]), device=device) * (shape[dim] * inner)
    flat = outer[:, None] + torch.arange(inner, device=device)
    return flat.reshape(*shape[:dim], 1, *shape[dim + 1 :])


def _laid_out(values: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """Return a flat tensor, as long as a pattern's memory, with values where the pattern's are."""
    length = pattern.untyped_storage().nbytes() // pattern.element_size()
    memory = torch.full((length,), -1, dtype=torch.int64, device=values.device)
    _like(memory, pattern).copy_(values)
    return memory


def _like(memory: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """Return of a flat tensor what `view` is of its own memory."""
    return memory.as_strided(view.shape, view.stride(), view.storage_offset())


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    integers = not (other.is_floating_point() or other.dtype is torch.bool)
    return integers and one.shape == other.shape and bool((one == other).all())
