"""Whether torch's operators alone make a call's outputs of its inputs, whatever else it runs.

What each operator reads is compared with what operators have left in memory: an own kernel that has
a part in the result has written something that one of them, or the caller, reads.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelgen.grading.kernels.names import is_torch_operator, operator_computes
from kernelgen.grading.kernels.trace_file import FOLLOWED
from kernelgen.grading.wire.values import tensors_of

# Of a tensor's elements: an own kernel that changes no more is there for show.
_MOST_CHANGED = 0.01
# Of an element; what a comparison at 1e-5 lets pass for every one is less than half of it.
_ROUNDING = 4e-5
_MOST_BYTES = 2 << 30
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_")
_EMPTY = ("aten::empty", "aten::new_empty")
_KNOWN = "left by operators"  # of a tensor without memory, an attribute
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)  # noqa: SLF001 (there is no other way)


class Follower(TorchDispatchMode):
    """Follows calls on a CPU; the first one tells what there is before, such as constants.

    Attributes:
        by_torch: whether torch's operators alone made the last call's outputs; None if none of
            them computed something, or the call could not be followed.
        missing: why the last call could not be followed for no doing of its own, or "".
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left: dict[int, torch.UntypedStorage] = {}
        self._numbers: set[float] = set()
        self._learns = True
        self._computed = False
        self.by_torch: bool | None = None
        self.missing = ""

    def call(self, function: Callable[[], Any], inputs: Any) -> Any:
        """Call the function, which reads these inputs; where it cannot be followed, as ever."""
        self.by_torch, self._computed = None, False
        try:
            for tensor in tensors_of(inputs):
                self._leave(tensor, known=True)
            with self:
                result = function()
            made = [self._is_known(tensor) for tensor in tensors_of(result)]
        except Exception:  # noqa: BLE001 (not every operator can be followed, or runs in here)
            return function()
        self.by_torch = all(made) if self._computed and not self._learns else None
        self._learns = False
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; note whether it reads what operators left, and what it leaves."""
        schema, kwargs = func._schema, kwargs or {}  # noqa: SLF001 (what an operator declares)
        if not is_torch_operator(schema.name):
            with self:
                return func.redispatch(_CPU, *args, **kwargs)
        by_name = {one.name: arg for one, arg in zip(schema.arguments, args, strict=False)} | kwargs
        given = [(one, by_name[one.name]) for one in schema.arguments if one.name in by_name]
        over = schema.name in _OVERWRITES
        reads = [arg for one, arg in given if not (one.is_out or (one.is_write and over))]
        read = [self._is_known(one) for one in tree_leaves(reads)]
        with profiler.record_function(FOLLOWED):
            result = func(*args, **kwargs)
        for one in tree_leaves([result, [arg for one, arg in given if one.is_write]]):
            if isinstance(one, torch.Tensor) and schema.name.startswith(_EMPTY):
                # Whatever lies there, and however much: memory that nobody has written to.
                self._left.pop(one.untyped_storage().data_ptr(), None)
            elif isinstance(one, torch.Tensor):
                # A noise, say, that leaves what there was is no part in the result either.
                self._leave(one, known=all(read) or self._is_known(one, rounded=True))
            elif all(read) and isinstance(one, float):
                self._numbers.add(one)
        self._computed |= all(read) and operator_computes(schema.name)
        return result

    def _is_known(self, value: Any, *, rounded: bool = False) -> bool:
        if isinstance(value, float):
            self._numbers |= {value} if self._learns else set()
            return value in self._numbers
        if not isinstance(value, torch.Tensor) or not value.numel():
            return True
        if (memory := _memory_of(value)) is None:
            return bool(value.__dict__.get(_KNOWN, self._learns))
        if self._learns and memory.data_ptr() not in self._left:
            self._leave(value, known=True)
        # In whatever memory: to copy what an operator made is no computation.
        return any(
            _is_alike(value, left, rounded=rounded or at == memory.data_ptr())
            for at, left in self._left.items()
        )

    def _leave(self, tensor: torch.Tensor, *, known: bool) -> None:
        """Keep what lies in a tensor; of what is not known, what cannot lie there."""
        if (memory := _memory_of(tensor)) is None:
            tensor.__dict__[_KNOWN] = known
            return
        if len(self._left.get(memory.data_ptr(), ())) != len(memory):
            self._left.pop(memory.data_ptr(), None)
            if len(memory) + sum(map(len, self._left.values())) > _MOST_BYTES:
                self.missing = "the data are too large to be followed"
                raise MemoryError
            self._left[memory.data_ptr()] = memory.clone()  # type: ignore[no-untyped-call]
        bits = _bits(tensor, self._left[memory.data_ptr()])
        bits.copy_(_bits(tensor, memory) if known else ~_bits(tensor, memory))


def _memory_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return where a tensor's elements lie; None if it does not tell, as a sparse one."""
    try:
        memory = tensor.untyped_storage()
        return memory if memory.data_ptr() and tensor.numel() and not tensor.is_nested else None
    except RuntimeError:
        return None


def _bits(tensor: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    """Return what lies in some memory where a tensor lies in its own, each element once."""
    words = max(1, tensor.itemsize // max(_BITS))
    bits = torch.empty(0, dtype=_BITS[tensor.itemsize // words])
    shape = [n if step else 1 for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
    steps = [step * words for step in tensor.stride()]
    return bits.set_(memory, tensor.storage_offset() * words, (*shape, words), (*steps, 1))


def _is_alike(tensor: torch.Tensor, memory: torch.UntypedStorage, *, rounded: bool) -> bool:
    """Whether some memory holds what a tensor's own holds, to the bit or `rounded`."""
    if len(own := tensor.untyped_storage()) != len(memory):
        return False
    now, left = _bits(tensor, own), _bits(tensor, memory)
    differs, most = now != left, _MOST_CHANGED * now.numel()
    real = tensor.dtype.to_real()
    if int(differs.sum()) > most and rounded and real.is_floating_point and real.itemsize > 1:
        now, left = now.view(real), left.view(real)
        differs = ~torch.isclose(now, left, _ROUNDING, atol=0.0, equal_nan=True)
    return int(differs.sum()) <= most
