"""A problem's code under a secret seed: what it draws, and whose fault it is where it raises."""

import contextlib
import copy
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgen.errors import line_in
from kernelgen.grading.oracle.randomise import randomise
from kernelgen.grading.precision import narrow, rounded
from kernelgen.grading.verdict import ProblemFault
from kernelgen.grading.wire.device_errors import is_device_loss, is_out_of_memory
from kernelgen.grading.wire.generators import SEED_OF_IMPORTS, set_generators
from kernelgen.grading.wire.gradients import of_own_parameters, with_gradients
from kernelgen.grading.wire.messages import CaseSource, SetUpOracle
from kernelgen.grading.wire.module_state import Initial, held_values, initial_values, move
from kernelgen.grading.wire.transport import at_offset_0, deposit
from kernelgen.grading.wire.tree import Opaque, leaves, path_to
from kernelgen.grading.wire.values import map_tensors, moved, tensors_of
from kernelgen.solution.importing import run_text
from kernelgen.solution.lending import construction_source

ResultT = TypeVar("ResultT")
# One row of two can be another; of one it would be all.
_FEWEST_ROWS = 2


class ProblemCode:
    """The code of one case on one device.

    Args:
        case: its source defines Model, get_inputs and get_init_inputs.
        setup: parameters and every call's inputs derive from its seed, which is secret.

    Attributes:
        manner: with gradients, inputs end with upstream ones, and models return theirs as well.
        default_dtype: that the problem's code sets, else float32.

    Raises:
        ProblemFault: the source does not run.
    """

    def __init__(self, case: CaseSource, setup: SetUpOracle) -> None:
        self._name, self._device, self._seed = case.name, setup.device, bytes.fromhex(setup.seed)
        self.manner = setup.manner
        self._source, self._filename = case.source, f"<reference {case.name}>"
        torch.set_default_dtype(torch.float32)
        set_generators(SEED_OF_IMPORTS)
        with self.blame("the problem's code"):
            self._module = run_text(f"reference_{case.name}", case.source, self._filename)
        self.default_dtype = torch.get_default_dtype()
        self._draw_init_inputs()
        self._initial: dict[str, Initial] | None = None

    def without_model(self) -> str:
        """Return what makes arguments, without Model, which no candidate's process may have."""
        return construction_source(self._source)

    @property
    def init_inputs(self) -> list[Any]:
        """The constructor's arguments, new ones each time: a constructor may change them."""
        return copy.deepcopy(self._init_inputs)

    def begin_again(self, seed: bytes) -> bool:
        """Take another seed; return whether only parameters and inputs surely depend on it."""
        before = repr(self._init_inputs)
        self._seed = seed
        self._draw_init_inputs()
        self._initial = None
        same = not tensors_of(self._init_inputs) and repr(self._init_inputs) == before
        return same and not self._holds_drawn

    def _draw_init_inputs(self) -> None:
        with self.blame("get_init_inputs()"), torch.device(self._device):
            self._init_inputs = _listed(self._seeded("construction", self._module.get_init_inputs))

    def make_model(self, parameters: str, *, forward_alone: bool = False) -> torch.nn.Module:
        """Return a new model, with the parameters that the seed gives under a name."""
        with self.blame("Model(...)"):
            # On the CPU a candidate's constructor draws: seconds, for a large model.
            told, own = ("construction", "cpu"), ("model", self._device)
            model: torch.nn.Module = self._constructed(*(told if self._holds_drawn else own))
            move(model, self._device)
            narrow(model, self.manner.precision)
            randomise(model, torch.Generator(self._device).manual_seed(self.derive(parameters)))
            if self.manner.eval_mode:
                model.eval()
            if self.manner.gradients and not forward_alone:
                with_gradients(model, of_own_parameters)
        return model

    @functools.cached_property
    def _holds_drawn(self) -> bool:
        """Whether Model holds, beside parameters and buffers, what it computes from drawn values.

        That is equal to a candidate's only where both are constructed under one seed.
        """
        one, other = (self._constructed(what, self._device) for what in ("model", "other"))
        return held_values(one) != held_values(other)

    def _constructed(self, what: str, device: str) -> Any:
        with torch.device(device):
            return self._seeded(what, lambda: self._module.Model(*self.init_inputs))

    def initial_values(self) -> dict[str, Initial]:
        """Return how a model's tensors begin under the seed that a candidate is told, by name."""
        if self._initial is None:
            with self.blame("Model(...)"):
                self._initial = initial_values(self._constructed("construction", "cpu"))
        return self._initial

    def on_no_data(
        self,
        look: Callable[[torch.nn.Module, list[Any]], ResultT],
        *,
        on_device: bool = False,
        forward_alone: bool = False,
    ) -> ResultT:
        """Return what a function finds on a model and inputs that have shapes and no memory.

        With `on_device` they pass for tensors of the device, as torch.compile needs them.
        """
        device = self._device if on_device else "meta"
        data = FakeTensorMode() if on_device else contextlib.nullcontext()
        torch.set_default_dtype(self.default_dtype)
        with data, torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.device(device):
                inputs = [self._given(value, device) for value in self._module.get_inputs()]
                model = self._module.Model(*self.init_inputs)
            narrow(model, self.manner.precision)
            if self.manner.eval_mode:
                model.eval()
            if self.manner.gradients and not forward_alone:
                inputs.append([one.new_empty(one.shape, device=device) for one in self._upstream])
                with_gradients(model, of_own_parameters)
            # As it is called with data, what forward makes without a device is on the CPU.
            with contextlib.nullcontext() if on_device else torch.device(device):
                return look(model, inputs)

    def make_inputs(self, call: int) -> list[Any]:
        """Return the inputs of a call; the same call number gives the same values."""
        # torch.rand makes its values on the device: on the CPU, gigabytes of it take seconds.
        with self.blame("get_inputs()"), torch.device(self._device):
            inputs = _listed(self._seeded(f"inputs {call}", self._module.get_inputs))
            require_plain(inputs, "get_inputs()")
            given = [self._given(value, self._device) for value in inputs]
            if self.manner.gradients:
                ends = self._upstream  # which draws numbers the first time
                self.begin(f"upstream {call}")
                given.append([torch.randn(one.shape, dtype=one.dtype) for one in ends])
            return [map_tensors(value, at_offset_0) for value in given]

    @functools.cached_property
    def _upstream(self) -> list[torch.Tensor]:
        """The outputs of forward that are floats, without data."""
        try:
            found = self.on_no_data(lambda model, given: model(*given), forward_alone=True)
        except Exception:  # noqa: BLE001 (forward may depend on values)
            model, given = (
                self.make_model("parameters", forward_alone=True),
                self._module.get_inputs(),
            )
            with self.blame("Model.forward(...)"), torch.no_grad():
                found = model(*(self._given(value, self._device) for value in given))
        return [one.to("meta") for one in tensors_of(found) if one.is_floating_point()]

    def _given(self, value: Any, device: str) -> Any:
        return map_tensors(moved(value, device), lambda one: rounded(one, self.manner.precision))

    def one_row_of(self, call: int, before: list[Any] | None) -> list[Any]:
        """Return the inputs of a call; with those of the call before, only one row is new."""
        inputs = self.make_inputs(call)
        if before is None:
            return inputs
        new, old = tensors_of(inputs), tensors_of(before)
        rows = new[0].shape[0] if new and new[0].dim() else 0
        if rows < _FEWEST_ROWS or [one.shape for one in new] != [one.shape for one in old]:
            return inputs
        row = self.derive(f"row {call}") % rows
        for tensor, was in zip(new, old, strict=True):
            if tensor.dim() and tensor.shape[0] == rows and 0 not in tensor.stride():
                kept = tensor[row].clone()
                tensor.copy_(was)
                tensor[row] = kept
        return inputs

    def derive(self, what: str) -> int:
        """Return the seed of one purpose; it tells nothing of the others'."""
        material = self._seed + f"{self._name}/{what}".encode()
        return int.from_bytes(hashlib.sha256(material).digest()[:7], "big")

    def _seeded(self, what: str, function: Callable[[], Any]) -> Any:
        self.begin(what)
        return function()

    def begin(self, what: str) -> None:
        """Put generators and default dtype into the state that is a purpose's."""
        set_generators(self.derive(what))
        torch.set_default_dtype(self.default_dtype)

    @contextlib.contextmanager
    def blame(self, what: str) -> Iterator[None]:
        """Say of what is raised that this part of the problem raised it, and in which line."""
        try:
            yield
        except ProblemFault:
            raise
        except Exception as error:
            if is_device_loss(error):
                raise
            if is_out_of_memory(error):
                raise MemoryError(str(error)) from error
            reason = f"{what} raised {type(error).__name__}: {error}"
            raise ProblemFault(reason + self._source_line(error)) from error

    def _source_line(self, error: BaseException) -> str:
        """Return the line of the problem's code that raised, or ""."""
        numbered = dict(enumerate(self._source.splitlines(), 1))
        line = numbered.get(line_in(error, self._filename) or 0)
        return "" if line is None else f"\n  {line.strip()}"


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"it must return a list, one entry an argument, not {type(value).__name__}")
    return list(value)


def require_plain(value: Any, what: str) -> None:
    """Raise ProblemFault if a value holds what cannot cross to another process."""
    for place, leaf in leaves(deposit(value, None).tree):
        if isinstance(leaf, Opaque):
            raise ProblemFault(
                f"{what}: {path_to(place, 'result')} is a {leaf.type_name}, which cannot be handed "
                "on; use tensors, numbers, strings, and tuples, lists or dicts of them"
            )
