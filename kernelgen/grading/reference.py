"""The reference of one case: its module, its random parameters, inputs, and expected outputs."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelgen.grading.correctness import Chunk, Expected
from kernelgen.grading.footprint import CHUNK_BYTES, Footprint, free_bytes
from kernelgen.grading.parameters import randomise, state_of
from kernelgen.grading.transport import deposit, span_bytes

# A whole float64 copy is made only while it takes less than this share of the free memory.
_EXACT_SHARE = 0.4


class ProblemFault(Exception):  # noqa: N818 (a finding about the problem)
    """The problem's own code fails or contradicts itself."""


class Reference:
    """One case's reference on one device.

    Args:
        name: of the case, for messages.
        source: Python text that defines Model, get_inputs and get_init_inputs.
        device: `cuda` or `cpu`.
        seed: secret; parameters and every call's inputs derive from it.
        batch_independent: whether the exact result may be computed by chunks of rows.

    Raises:
        ProblemFault: the source does not run.
    """

    def __init__(
        self, *, name: str, source: str, device: str, seed: bytes, batch_independent: bool
    ) -> None:
        self._name, self._device, self._seed = name, device, seed
        self._batch_independent = batch_independent
        module = types.ModuleType(f"reference_{name}")
        with self._blame("the problem's code"):
            exec(compile(source, f"<reference {name}>", "exec"), module.__dict__)  # noqa: S102
        self._module = module
        with self._blame("get_init_inputs()"), self._device_scope():
            self.init_inputs = list(self._seeded("init", module.get_init_inputs))
        with self._blame("Model(...)"), self._device_scope():
            model = self._seeded("model", lambda: module.Model(*self.init_inputs))
        self.model: torch.nn.Module = model.to(device)
        generator = torch.Generator(device).manual_seed(self._derive("parameters"))
        randomise(self.model, generator)
        self.mutates_inputs = False
        self._exact_model: torch.nn.Module | None = None

    def state(self) -> list[tuple[str, torch.Tensor]]:
        """Return names and values of parameters and buffers."""
        return state_of(self.model)

    def footprint(self) -> Footprint | None:
        """Estimate bytes without allocating any, or None if the reference cannot run on no data."""
        parameters = sum(span_bytes(tensor) for _, tensor in self.state())
        try:
            with torch.device("meta"), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                inputs = list(self._module.get_inputs())
                outputs = self._module.Model(*self.init_inputs)(*inputs)
        except Exception:  # noqa: BLE001 (an estimate may fail in any way the reference can)
            return None
        described = deposit([inputs, outputs], None)
        total = sum(spec.nbytes for spec in described.specs)
        given = deposit(inputs, None).total_bytes
        return Footprint(inputs=given, parameters=parameters, outputs=total - given)

    def make_inputs(self, call: int) -> list[Any]:
        """Return the inputs of a call; the same call number gives the same values."""
        with self._blame("get_inputs()"), self._device_scope():
            inputs = list(self._seeded(f"inputs {call}", self._module.get_inputs))
        return [_moved(value, self._device) for value in inputs]

    def run(self, inputs: list[Any]) -> Any:
        """Run the pinned fp32 reference; notes if it writes into its inputs."""
        torch.seed()  # a reference that draws random numbers must not draw the same ones again
        versions = [value._version for value in inputs if isinstance(value, torch.Tensor)]  # noqa: SLF001
        with self._blame("Model.forward(...)"), torch.no_grad():
            outputs = self.model(*inputs)
        after = [value._version for value in inputs if isinstance(value, torch.Tensor)]  # noqa: SLF001
        self.mutates_inputs = self.mutates_inputs or versions != after
        return outputs

    def expect(self, call: int) -> tuple[list[Any], Expected]:
        """Return a call's inputs, as they are before the call, and the expected outputs."""
        inputs = self.make_inputs(call)
        outputs = self.run(inputs)
        described = deposit(outputs, None)
        tensors: list[torch.Tensor] = []
        _collect(outputs, tensors)
        if len(tensors) != len(described.specs) or not tensors:
            raise ProblemFault("Model.forward must return at least one plain tensor")
        if self.mutates_inputs:
            tensors = [tensor.clone() for tensor in tensors]
            inputs = self.make_inputs(call)
        exact, chunks = self._exact(inputs, tensors)
        return inputs, Expected(
            described=described, ref32=tensors, exact_chunks=chunks, exact=exact
        )

    def _exact(
        self, inputs: list[Any], ref32: list[torch.Tensor]
    ) -> tuple[str, Callable[[], Iterator[Chunk]]]:
        """Choose how the exact result is computed; the first way that works and fits."""
        floats = any(t.is_floating_point() for t in ref32)
        if not floats:
            return "float32", lambda: iter([(0, ref32)])
        double = sum(2 * span_bytes(t) for t in [*tensors_of(inputs), *ref32])
        try:
            if (
                self._batch_independent
                and double > CHUNK_BYTES
                and self._chunks_are_sound(inputs, ref32)
            ):
                return "float64 by chunks", lambda: self._exact_by_chunks(inputs, ref32)
            if double < _EXACT_SHARE * free_bytes(self._device):
                whole = self._run_exact(inputs)
                _require_like(whole, ref32)
                return "float64", lambda: iter([(0, whole)])
        except (RuntimeError, TypeError) as error:
            # Such as an operator without a float64 form, or a cast to float32 in the model.
            warnings.warn(f"no float64 result: {error}", stacklevel=2)
        return "float32", lambda: iter([(0, ref32)])

    def _run_exact(self, inputs: list[Any]) -> list[torch.Tensor]:
        if self._exact_model is None:
            self._exact_model = copy.deepcopy(self.model).double()
        arguments = [_doubled(value) for value in inputs]
        results: list[torch.Tensor] = []
        with torch.no_grad():
            _collect(self._exact_model(*arguments), results)
        return results

    def _chunks_are_sound(self, inputs: list[Any], ref32: list[torch.Tensor]) -> bool:
        """Check the claim of batch independence: the first rows alone give their outputs."""
        rows = max(1, min(2, len(ref32[0]) - 1))
        few: list[torch.Tensor] = []
        with torch.no_grad():
            _collect(self.model(*[_rows(value, 0, rows, len(ref32[0])) for value in inputs]), few)
        for part, whole in zip(few, ref32, strict=True):
            limit = 1e-4 * max(1e-30, float(whole[:rows].abs().max()))
            if part.shape != whole[:rows].shape or float((part - whole[:rows]).abs().max()) > limit:
                raise ProblemFault(
                    "batch_independent is true, but a row alone gives another result"
                )
        return True

    def _exact_by_chunks(self, inputs: list[Any], ref32: list[torch.Tensor]) -> Iterator[Chunk]:
        total = len(ref32[0])
        row_bytes = sum(2 * span_bytes(t) for t in [*tensors_of(inputs), *ref32]) // max(1, total)
        rows = max(1, CHUNK_BYTES // max(1, row_bytes))
        for start in range(0, total, rows):
            stop = min(total, start + rows)
            yield start, self._run_exact([_rows(value, start, stop, total) for value in inputs])

    def _derive(self, what: str) -> int:
        material = self._seed + f"{self._name}/{what}".encode()
        return int.from_bytes(hashlib.sha256(material).digest()[:7], "big")

    def _seeded(self, what: str, function: Callable[[], Any]) -> Any:
        torch.manual_seed(self._derive(what))
        return function()

    def _device_scope(self) -> Any:
        # Factory functions in the problem's code (torch.rand) make their tensors on the device: on
        # the CPU, random numbers for 7.5 GB take seven seconds.
        return torch.device(self._device)

    @contextlib.contextmanager
    def _blame(self, what: str) -> Iterator[None]:
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError, ProblemFault):
            raise
        except Exception as error:
            raise ProblemFault(f"{what} raised {type(error).__name__}: {error}") from error


def tensors_of(values: list[Any]) -> list[torch.Tensor]:
    """Return every tensor of a value, in the order in which tree.describe lists them."""
    found: list[torch.Tensor] = []
    _collect(values, found)
    return found


def _collect(value: Any, into: list[torch.Tensor]) -> None:
    """Append every tensor of a result, in the order in which tree.describe lists them."""
    if isinstance(value, torch.Tensor):
        into.append(value.detach())
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, into)
    elif isinstance(value, dict):
        for key in sorted(value):
            _collect(value[key], into)


def _moved(value: Any, device: str) -> Any:
    """Move tensors to a device and leave their dtype alone: an index stays an integer."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, device) for item in value)
    return value


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    if isinstance(value, list | tuple):
        return type(value)(_doubled(item) for item in value)
    return value


def _rows(value: Any, start: int, stop: int, total: int) -> Any:
    """Take rows of every tensor that has as many of them as the output."""
    if isinstance(value, torch.Tensor) and value.dim() and len(value) == total:
        return value[start:stop]
    return value


def _require_like(exact: list[torch.Tensor], ref32: list[torch.Tensor]) -> None:
    if [tuple(t.shape) for t in exact] != [tuple(t.shape) for t in ref32]:
        raise RuntimeError("the float64 reference returns other shapes than the fp32 one")
