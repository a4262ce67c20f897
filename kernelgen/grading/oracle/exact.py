"""The exact result: the reference in float64 on the same inputs, whole or by chunks of rows."""

import functools
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kernelgen.errors import in_one_line
from kernelgen.grading.correctness.compare import Chunk, Nearby
from kernelgen.grading.correctness.indices import Ranking
from kernelgen.grading.oracle.footprint import CHUNK_BYTES, free_bytes
from kernelgen.grading.oracle.rankings import RankingRecorder
from kernelgen.grading.verdict import ProblemFault
from kernelgen.grading.wire.device_errors import is_device_loss, is_out_of_memory
from kernelgen.grading.wire.generators import set_generators
from kernelgen.grading.wire.module_state import changed_copy, state_of
from kernelgen.grading.wire.transport import span_bytes
from kernelgen.grading.wire.values import doubled, map_tensors, rows_of, tensors_of

# A whole float64 copy is made only while it takes less than this share of the free memory.
_EXACT_SHARE = 0.4
# Runs with and without cuDNN before the quicker one is kept; the very first pays for both starts.
_TRIALS = 3
# Float inputs are scaled by so many steps more than 1: no bit below is rounded as it was. A step is
# at least a rounding of theirs. They are shaken by parts of a lesser one, some of fp32's roundings.
_NEARBY_STEPS, _NEARBY_STEP, _SHAKEN_STEP = (1, -1, 2, -2, 3, -3), 2.0**-14, 2.0**-19
# In 16 bits these parts are sines of so many times the number, as good as random.
_PHASE = 1e5
_FLOAT64_BYTES = 8
# Times which rows are far off, after which 1 is added: of either sign, and zeros are others, too.
_FAR = -5.0
_TIED_SHARE = 0.01  # of indices, at most: a result of other rows differs nearly everywhere
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

Chunks = Callable[[], Iterator[Chunk]]


class ExactReference:
    """A reference model's twin in float64.

    Args:
        model: the pinned fp32 reference, whose parameters are final: others need a new twin.
        batch_independent: whether the result may be computed by chunks of rows.
        dtype: of the model's floats.
        needed: nothing else tells how far off a result may be, as one of 16 bits may be off by one
            rounding while the reference is off by several.

    Attributes:
        note: why there is no float64 result, or "".
    """

    def __init__(
        self,
        model: torch.nn.Module,
        device: str,
        *,
        batch_independent: bool,
        dtype: torch.dtype = torch.float32,
        needed: bool = False,
    ) -> None:
        self._model, self._device, self._dtype = model, device, dtype
        self._needed = needed
        self._batch_independent = batch_independent
        self._twin: torch.nn.Module | None = None
        # By the shapes of inputs: seconds of the first runs, and whether they were cuDNN's.
        self._tried: dict[tuple[torch.Size, ...], list[tuple[float, bool]]] = {}
        self._succeeded: set[tuple[torch.Size, ...]] = set()
        self._apart: dict[tuple[torch.Size, ...], bool] = {}
        self._seed: int | None = None
        self.note = ""

    def of(
        self,
        inputs: list[Any],
        ref32: list[torch.Tensor],
        seed: int | None = None,
        *,
        at_once: bool = True,
    ) -> tuple[str, Chunks]:
        """Return how the exact result is computed, and a way to iterate over it.

        The seed is that of the generators which `ref32` was drawn with, None if nothing was. Unless
        it is due `at_once`, what has been computed for such inputs before is computed when somebody
        iterates: they must not change until then.
        """
        self._seed = seed
        if self._dtype is torch.float32 and not any(map(torch.is_floating_point, ref32)):
            return "float32", lambda: iter([(0, ref32)])
        shapes = _shapes(inputs)
        whole = functools.cache(lambda: self._whole(inputs, ref32, seed))
        double = _float64_bytes(inputs, ref32)
        # One that is needed always is worth a search for rows apart: others need room, too.
        by_chunks = self._batch_independent or (self._needed and not at_once)
        large = by_chunks and double > CHUNK_BYTES
        if shapes in self._succeeded and not (at_once or large) and self._fits(double):
            return "float64", lambda: iter([(0, whole())])
        try:
            fits = self._fits(double)
            if (large or not (fits or at_once)) and self._rows_are_apart(inputs, ref32):
                # The chunks are computed later, one by one: whether float64 works shows here.
                next(self._by_chunks(inputs, ref32))
                return "float64 by chunks", lambda: self._by_chunks(inputs, ref32)
            if fits:
                whole()
                self._succeeded.add(shapes)
                return "float64", lambda: iter([(0, whole())])
            fault: Exception = MemoryError("there is not enough for the float64 reference")
            self.note = (
                "outputs are compared with the float32 reference: "
                "there is not enough memory for float64"
            )
        except ProblemFault:
            raise
        except Exception as error:  # noqa: BLE001 (what is to be raised, `_note` does)
            # Not a cast, an assertion in the model or an operator that lacks float64.
            told = "outputs are compared with the float32 reference, which does not run in float64"
            self._note(error, told)
            dtype = str(self._dtype).removeprefix("torch.")
            fault = ProblemFault(
                f"the reference does not run in float64 ({in_one_line(error)}), which says what "
                f"outputs in {dtype} are to be; have it take its inputs' dtype, or compare by "
                "--tolerance kernelbench"
            )
        if self._needed:
            raise fault
        return "float32", lambda: iter([(0, ref32)])

    def rankings(
        self, inputs: list[Any], ref32: list[torch.Tensor], seed: int | None
    ) -> list[Ranking | None]:
        """Run again, and return what each output ranks; None for one that is no index.

        The inputs are as they were before the call; the model may write into them.
        """
        self._seed = seed
        found: list[Ranking | None] = [None] * len(ref32)
        try:
            found = self._rankings32(inputs, ref32)
            computed = [each.values for each in found if each is not None and not each.given]
            if computed and self._fits(_float64_bytes(inputs, computed)):
                with RankingRecorder([]) as recorder:
                    exact = [recorder.ranking(out, out) for out in self._run(inputs)]
                found = [a and a.with_exact(b) for a, b in zip(found, exact, strict=True)]
        except Exception as error:  # noqa: BLE001 (what is to be raised, `_note` does)
            told = "ties of indices are judged without a float64 result: the reference gives none"
            self._note(error, told)
        return found

    def _note(self, error: Exception, told: str) -> None:
        if is_device_loss(error) or is_out_of_memory(error):
            raise error
        self.note = f"{told}: {in_one_line(error)}"

    def _rankings32(self, inputs: list[Any], ref32: list[torch.Tensor]) -> list[Ranking | None]:
        # A run may change buffers.
        model = changed_copy(self._model, torch.clone)
        given = [*tensors_of(inputs), *(tensor for _, tensor in state_of(model))]
        if self._seed is not None:
            set_generators(self._seed)
        with RankingRecorder(given) as recorder, torch.no_grad():
            outputs = tensors_of(model(*inputs))
        return [recorder.ranking(out, ref) for out, ref in zip(outputs, ref32, strict=True)]

    def _fits(self, nbytes: int) -> bool:
        return nbytes < _EXACT_SHARE * free_bytes(self._device)

    def perturbed(
        self, inputs: list[Any], change: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the float64 outputs, each float tensor of model and inputs changed."""
        twin = _in_float64(self._model)
        with torch.no_grad():
            for _, tensor in state_of(twin):
                if tensor.is_floating_point():
                    tensor.copy_(change(tensor))

        def change_floats(tensor: torch.Tensor) -> torch.Tensor:
            return change(tensor.double()) if tensor.is_floating_point() else tensor

        return self._evaluate(twin, map_tensors(inputs, change_floats))

    def nearby(self, inputs: list[Any], seed: int | None, *, shaken: bool) -> Iterator[Nearby]:
        """Yield fp32 and float64 results of a few inputs so near that only rounding differs much.

        The inputs are as they were before the call; the model may write into them. With `shaken` it
        is float64 results of inputs and parameters that are off by roundings to either side, and
        the exact one: where that jumps within these roundings, one side's is another. In 16 bits it
        is both: registers of fp32 turn a sign that rounding their sum to 16 bits keeps.
        """
        self._seed = seed
        exact: list[torch.Tensor] = []
        for steps in _NEARBY_STEPS:
            near = functools.partial(_scaled, steps)
            try:
                if shaken:
                    generator = torch.Generator(self._device).manual_seed(abs(steps))
                    wide = self._dtype is torch.float32
                    shake = functools.partial(_shaken, steps, generator if wide else None)
                    exact = exact or self._run(inputs)
                    yield self.perturbed(inputs, shake), exact
                    if wide:
                        continue
                model = changed_copy(self._model, torch.clone)  # a run may change buffers
                if seed is not None:
                    set_generators(seed)
                with torch.no_grad():
                    ref32 = tensors_of(model(*map_tensors(inputs, near)))
                yield ref32, self._run(map_tensors(inputs, near))
            except Exception as error:
                if is_device_loss(error):
                    raise
                return  # others may break an assertion of the model's, or take too much memory

    def _whole(
        self, inputs: list[Any], ref32: list[torch.Tensor], seed: int | None
    ) -> list[torch.Tensor]:
        self._seed = seed
        found = self._run(inputs)
        _require_like(found, ref32)
        return found

    def _run(self, inputs: list[Any]) -> list[torch.Tensor]:
        if self._twin is None:
            self._twin = _in_float64(self._model)
        if self._device != "cuda":
            return self._evaluate(self._twin, inputs)
        # cuDNN takes several times what ATen's columns and products do for most convolutions in
        # float64, transposed ones above all, and less for few channels: the first runs tell.
        tried = self._tried.setdefault(_shapes(inputs), [])
        by_cudnn = min(tried)[1] if len(tried) == _TRIALS else len(tried) % 2 == 1
        enabled, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, by_cudnn
        began = time.perf_counter()
        try:
            found = self._evaluate(self._twin, inputs)
            torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            if by_cudnn:
                raise
            # The columns are what did not fit.
            tried[:] = [(0.0, True)] * _TRIALS
        else:
            if len(tried) < _TRIALS:
                tried.append((time.perf_counter() - began, by_cudnn))
            return found
        finally:
            torch.backends.cudnn.enabled = enabled
        # Only here, where the error holds no tensor any more.
        return self._run(inputs)

    def _evaluate(self, twin: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        if self._seed is not None:
            set_generators(self._seed)
        default = torch.get_default_dtype()
        # For what a model makes inside forward.
        torch.set_default_dtype(torch.float64)
        try:
            # In any case: what a model draws under a seed of its own leaves no trace.
            draws = NarrowDraws(self._dtype)
            with torch.no_grad(), warnings.catch_warnings(), draws:
                warnings.simplefilter("ignore")
                return tensors_of(twin(*doubled(inputs)))
        finally:
            torch.set_default_dtype(default)

    def _rows_are_apart(self, inputs: list[Any], ref32: list[torch.Tensor]) -> bool:
        """Whether each chunk gives the outputs that it has beside all others without them.

        A result that needs rows of other chunks shows in one of them, and it is looked at once for
        inputs of these shapes. Raises ProblemFault where the problem says that none does.
        """
        shapes = _shapes(inputs)
        totals = {len(one) if one.dim() else 0 for one in ref32}
        if self._seed is not None or totals <= {0} or len(totals) > 1:
            return False
        if shapes in self._apart:
            return self._apart[shapes]
        chunks = _chunks_of(inputs, ref32)
        model = changed_copy(self._model, torch.clone)  # a run may change buffers
        try:
            apart = all(_gives_rows(model, inputs, ref32, one) for one in chunks)
        except Exception as error:
            if is_device_loss(error) or is_out_of_memory(error):
                raise
            apart = False  # it insists on its batch
        if self._batch_independent and not apart:
            raise ProblemFault(
                "batch_independent is true, but a row alone gives another result; take that "
                "line out of the problem"
            )
        self._apart[shapes] = apart and len(chunks) > 1
        return self._apart[shapes]

    def _by_chunks(self, inputs: list[Any], ref32: list[torch.Tensor]) -> Iterator[Chunk]:
        for rows in _chunks_of(inputs, ref32):
            yield rows.start, self._run(rows_of(inputs, rows.start, rows.stop, len(ref32[0])))


def _chunks_of(inputs: list[Any], ref32: list[torch.Tensor]) -> list[slice]:
    total = len(ref32[0])
    row_bytes = _float64_bytes(inputs, ref32) // max(1, total)
    rows = max(1, CHUNK_BYTES // max(1, row_bytes))
    return [slice(start, min(total, start + rows)) for start in range(0, total, rows)]


def _gives_rows(
    model: torch.nn.Module, inputs: list[Any], ref32: list[torch.Tensor], rows: slice
) -> bool:
    """Whether a model gives these rows of its outputs beside quite other rows, but for rounding.

    Those by themselves have about the mean of all: it is rows far off that change it, or any other
    number that a batch has in common. There are never as many rows as in the whole batch.
    """
    total, count = len(ref32[0]), rows.stop - rows.start
    others = count // 2 + 1 + (count + count // 2 + 1 == total)

    def with_others(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or len(tensor) != total:
            return tensor
        own = tensor[rows]
        # Whole numbers, such as indices, are at least all alike.
        far = own[:1].mul(_FAR).add(1) if own.is_floating_point() else own[:1]
        return torch.cat((own, far.expand(others, *own.shape[1:])))

    with torch.no_grad():
        few = tensors_of(model(*map_tensors(inputs, with_others)))
    return len(few) == len(ref32) and all(
        len(part) == count + others and _is_near(part[:count], whole[rows])
        for part, whole in zip(few, ref32, strict=True)
    )


def _is_near(part: torch.Tensor, whole: torch.Tensor) -> bool:
    if part.shape != whole.shape:
        return False
    if not whole.is_floating_point():
        # Where values tie, an index may be another one's.
        return int((part != whole).sum()) <= _TIED_SHARE * whole.numel()
    largest = max(1e-30, float(whole.abs().nan_to_num(nan=0.0, posinf=0.0).max()))
    off = max(1e-4, 2 * torch.finfo(whole.dtype).eps) * largest
    return torch.allclose(part, whole, rtol=0.0, atol=off, equal_nan=True)


def _shapes(inputs: list[Any]) -> tuple[torch.Size, ...]:
    return tuple(each.shape for each in tensors_of(inputs))


def _scaled(steps: int, tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.clone()
    return tensor * (1.0 + steps * max(_NEARBY_STEP, torch.finfo(tensor.dtype).eps))


def _shaken(steps: int, generator: torch.Generator | None, tensor: torch.Tensor) -> torch.Tensor:
    if generator is None:
        # Many are equal, and stay so: to which of them a maximum's gradient goes is not rounding's.
        parts = torch.sin(abs(steps) * _PHASE * torch.frexp(tensor).mantissa).nan_to_num_() / 2
    else:
        parts = torch.rand(tensor.shape, generator=generator, device=tensor.device) - 0.5
    return tensor * (1.0 + steps * _SHAKEN_STEP * parts)


def _float64_bytes(inputs: list[Any], others: list[torch.Tensor]) -> int:
    tensors = [*tensors_of(inputs), *others]
    return sum(_FLOAT64_BYTES * span_bytes(one) // one.itemsize for one in tensors)


def _in_float64(model: torch.nn.Module) -> torch.nn.Module:
    def double(tensor: torch.Tensor) -> torch.Tensor:
        # A copy in any case: what rounds the twin must not round the reference.
        return tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor.clone()

    # A module that torch.jit.script made is copied as it is.
    return changed_copy(model, double).double()


def _require_like(exact: list[torch.Tensor], ref32: list[torch.Tensor]) -> None:
    if [tuple(t.shape) for t in exact] != [tuple(t.shape) for t in ref32]:
        raise RuntimeError("the float64 reference returns other shapes than the fp32 one")


class NarrowDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, floats are drawn in the reference's dtype and given out in float64.

    In float64 a generator gives other numbers than in float32, from the same state. So what draws
    is run in that dtype, and its result widened: the very numbers that the reference draws.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtype = dtype

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
        # Where the reference's floats have 16 bits, one that asks for 64 asks for an input's.
        dtypes: dict[torch.dtype | None, torch.dtype] = {None: torch.float32}
        if self._dtype is not torch.float32:
            dtypes[torch.float64] = self._dtype
        if name in _MAKERS and not tensors and given.get("dtype") in dtypes:
            return _widened(func(*args, **{**given, "dtype": dtypes[given.get("dtype")]}))
        if name in _FILLERS and wide:
            drawn = torch.empty_like(args[0], dtype=self._dtype)
            func(drawn, *self._narrowed(args[1:]), **self._narrowed(given))
            return args[0].copy_(drawn)
        if name == "native_dropout" and wide:
            value, share = args[0], args[1]
            _, kept = func(value.to(self._dtype), *args[1:], **given)
            return value * kept / (1.0 - share), kept
        if name in _MAPS and wide:
            return _widened(func(*self._narrowed(args), **self._narrowed(given)))
        return func(*args, **given)

    def _narrowed(self, values: Any) -> Any:
        return tree_map_only(torch.Tensor, self._narrow, values)

    def _narrow(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.dtype is torch.float64 else tensor


def _widened(result: torch.Tensor) -> torch.Tensor:
    return result.double() if result.is_floating_point() else result
