"""The reference of one case: its module, its random parameters, inputs, and expected outputs."""

import contextlib
import copy
import functools
import hashlib
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelgen.grading.correctness.compare import Expected, relative_reference_error
from kernelgen.grading.correctness.indices import Rankings, is_integer
from kernelgen.grading.judged import ProblemFault
from kernelgen.grading.oracle.exact import ExactReference
from kernelgen.grading.oracle.flops import Products, products_of, products_or_none
from kernelgen.grading.oracle.footprint import Footprint
from kernelgen.grading.oracle.randomise import randomise
from kernelgen.grading.wire.device_errors import is_device_loss, is_out_of_memory
from kernelgen.grading.wire.generators import generator_states, set_generators
from kernelgen.grading.wire.messages import ReferenceState
from kernelgen.grading.wire.module_state import (
    Initial,
    initial_values,
    recorded_definitions,
    state_of,
)
from kernelgen.grading.wire.transport import deposit, span_bytes
from kernelgen.grading.wire.tree import Opaque, leaves
from kernelgen.grading.wire.values import copied, moved, tensors_of
from kernelgen.problem.record import KERNELBENCH_TOLERANCE, Rule

ResultT = TypeVar("ResultT")
# A reference that differs from itself by more than this share of its size verifies nothing.
LEAST_PRECISION = 1e-4
# One row of two can be another; of one it would be all.
_FEWEST_ROWS = 2


class Reference:
    """One case's reference on one device.

    Args:
        source: Python text that defines Model, get_inputs and get_init_inputs.
        seed: secret; parameters and every call's inputs derive from it.
        batch_independent: whether the exact result may be computed by chunks of rows.
        rule: what outputs are compared with.

    Attributes:
        name: of the case.
        eval_mode: the model runs under `eval()`.
        mutates_inputs: some call so far wrote into its inputs.
        draws: some call so far drew random numbers from a default generator.

    Raises:
        ProblemFault: the source does not run.
    """

    def __init__(  # noqa: PLR0913 (a case, and what is asked for)
        self,
        *,
        name: str,
        source: str,
        device: str,
        seed: bytes,
        batch_independent: bool,
        rule: Rule = "exact",
        eval_mode: bool = False,
    ) -> None:
        self.name, self.eval_mode = name, eval_mode
        self._rule, self._device, self._seed = rule, device, seed
        self._source, self._filename = source, f"<reference {name}>"
        self._batch_independent = batch_independent
        module = types.ModuleType(f"reference_{name}")
        with self._blame("the problem's code"):
            exec(compile(source, self._filename, "exec"), module.__dict__)  # noqa: S102
        self._module = module
        self._draw_init_inputs()
        with recorded_definitions() as self._definitions:
            self.model: torch.nn.Module = self._made("parameters")
        self._initial: dict[str, Initial] | None = None
        self.mutates_inputs = self.draws = False
        self.exact = self._exact()

    @property
    def init_inputs(self) -> list[Any]:
        """The constructor's arguments, new ones each time: a constructor may change them."""
        return copy.deepcopy(self._init_inputs)

    def state(self) -> list[tuple[str, torch.Tensor]]:
        """Return names and values of parameters, buffers and tensors that are attributes."""
        return state_of(self.model)

    def _draw_init_inputs(self) -> None:
        with self._blame("get_init_inputs()"), torch.device(self._device):
            self._init_inputs = _listed(self._seeded("init", self._module.get_init_inputs))

    def _made(self, parameters: str) -> torch.nn.Module:
        with self._blame("Model(...)"), torch.device(self._device):
            made = self._seeded("model", lambda: self._module.Model(*self.init_inputs))
            model: torch.nn.Module = made.to(self._device)
            generator = torch.Generator(self._device).manual_seed(self._derive(parameters))
            randomise(model, generator)
        return model.eval() if self.eval_mode else model

    def _exact(self) -> ExactReference:
        independent = self._batch_independent
        return ExactReference(self.model, self._device, batch_independent=independent)

    def begin_again(self, seed: bytes) -> bool:
        """Become what a new Reference with this seed would be; its model stays the same object.

        Returns:
            False where that cannot be known, and a new one is to be made.
        """
        before = repr(self._init_inputs)
        self._seed = seed
        self._draw_init_inputs()
        registered = len([*self.model.parameters(), *self.model.buffers()])
        plain = not tensors_of(self._init_inputs) and registered == len(self.state())
        if not plain or repr(self._init_inputs) != before:
            return False
        self._redraw("parameters")
        self._initial = None
        return True

    def redraw_parameters(self) -> None:
        """Draw other parameters, and write them over the present ones."""
        self._redraw("other parameters")

    def _redraw(self, what: str) -> None:
        self.exact = self._exact()
        # Drawn once more from the present ones, they would drift from those of a new module.
        other = self._made(what)
        pairs = [
            *zip(self.model.parameters(), other.parameters(), strict=True),
            *zip(self.model.buffers(), other.buffers(), strict=True),
        ]
        with torch.no_grad():
            for mine, new in pairs:
                if not torch.equal(mine, new):
                    mine.copy_(new)

    def described(self) -> ReferenceState:
        """Return what a candidate's process needs to know of `state()` beside its values."""
        names = tuple(name for name, _ in self.state())
        ranks = self._definitions.ranks(self.model, names)
        return ReferenceState(names=names, ranks=ranks, seed=self._derive("construction"))

    def initial_digests(self) -> tuple[str, ...]:
        """Return digests of the values with which `state()` begins under the seed that is told."""
        if self._initial is None:
            # On the CPU, whatever the device: there a candidate's constructor draws.
            with self._blame("Model(...)"):
                self._initial = initial_values(
                    self._seeded("construction", lambda: self._module.Model(*self.init_inputs))
                )
        return tuple(self._initial.get(name, Initial()).plain for name, _ in self.state())

    def footprint(self) -> Footprint | None:
        """Estimate bytes without allocating any, or None if the reference cannot run on no data."""
        parameters = sum(span_bytes(tensor) for _, tensor in self.state())
        try:
            inputs, outputs = self.on_no_data(lambda model, given: (given, model(*given)))
        except Exception:  # noqa: BLE001 (an estimate may fail in any way the reference can)
            return None
        given = deposit(inputs, None).total_bytes
        returned = deposit(outputs, None, pack=True).total_bytes
        return Footprint(inputs=given, parameters=parameters, outputs=returned)

    def products(self) -> Products:
        """Count the operations of the matrix products, on no data where the reference runs so."""
        try:
            return self.on_no_data(products_of)
        except Exception as error:
            if is_device_loss(error):
                raise
        return products_or_none(self.model, lambda: self.make_inputs(0))

    def on_no_data(
        self, look: Callable[[torch.nn.Module, list[Any]], ResultT], *, on_device: bool = False
    ) -> ResultT:
        """Return what a function finds on a model and inputs that have shapes and no memory.

        With `on_device` they pass for tensors of the device, as torch.compile needs them.
        """
        device = self._device if on_device else "meta"
        data = FakeTensorMode() if on_device else contextlib.nullcontext()
        with data, torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.device(device):
                inputs = [moved(value, device) for value in self._module.get_inputs()]
                model = self._module.Model(*self.init_inputs)
            if self.eval_mode:
                model.eval()
            # As it is called with data, what forward makes without a device is on the CPU.
            with contextlib.nullcontext() if on_device else torch.device(device):
                return look(model, inputs)

    def make_inputs(self, call: int) -> list[Any]:
        """Return the inputs of a call; the same call number gives the same values."""
        # What torch.rand makes is made on the device: on the CPU, gigabytes of it take seconds.
        with self._blame("get_inputs()"), torch.device(self._device):
            inputs = _listed(self._seeded(f"inputs {call}", self._module.get_inputs))
            _require_plain(inputs, "get_inputs()")
            return [moved(value, self._device) for value in inputs]

    def seed_of(self, call: int) -> int | None:
        """Return what the generators are to be seeded with for a call; None if none is used.

        A hash apart from that of the inputs: a candidate knows it, and learns nothing from it.
        """
        return self._derive(f"random numbers {call}") if self.draws else None

    def run(self, inputs: list[Any], call: int) -> Any:
        """Run the pinned fp32 reference; notes if it writes into its inputs, and if it draws."""
        set_generators(self._derive(f"random numbers {call}"))
        states = generator_states()
        given = tensors_of(inputs)
        versions = [tensor._version for tensor in given]  # noqa: SLF001
        with self._blame("Model.forward(...)"), torch.no_grad():
            outputs = self.model(*inputs)
        changed = versions != [tensor._version for tensor in given]  # noqa: SLF001
        self.mutates_inputs = self.mutates_inputs or changed
        self.draws = self.draws or generator_states() != states
        return outputs

    def expect(self, call: int, before: list[Any] | None = None) -> tuple[list[Any], Expected]:
        """Return a call's inputs, as they are before the call, and the expected outputs.

        With the inputs of the call before, only one row is new.
        """
        inputs = self._one_row_of(call, before)
        outputs = self.run(inputs, call)
        described = deposit(outputs, None)
        tensors = tensors_of(outputs)
        if len(tensors) != len(described.specs) or not tensors:
            raise ProblemFault(
                "Model.forward must return at least one plain tensor; return one, or a tuple, list "
                "or dict of them"
            )
        if any(tensor.device.type != self._device for tensor in tensors):
            raise ProblemFault(
                f"Model.forward returns a tensor that is not on the {self._device}; make it where "
                "its inputs are"
            )
        if self._shares_memory(tensors, inputs):
            tensors = copied(tensors)
        if self.mutates_inputs:
            inputs = self._one_row_of(call, before)
        seed = self.seed_of(call)
        exact, chunks = self.exact.of(inputs, tensors, seed)
        expected = Expected(
            described=described,
            ref32=tensors,
            exact_chunks=chunks,
            exact=exact,
            absolute=KERNELBENCH_TOLERANCE if self._rule == "kernelbench" else None,
            rankings=self._rankings(inputs, tensors, seed),
        )
        return inputs, self._drawn_alike(expected)

    def _rankings(
        self, inputs: list[Any], ref32: list[torch.Tensor], seed: int | None
    ) -> Rankings | None:
        if not any(map(is_integer, ref32)):
            return None
        # The inputs are held for as long as it may be asked.
        given = copied if self.mutates_inputs else list
        return functools.cache(lambda: self.exact.rankings(given(inputs), ref32, seed))

    def _drawn_alike(self, expected: Expected) -> Expected:
        """Return float32 as the exact result where the float64 reference draws other numbers."""
        if not self.draws or relative_reference_error(expected) <= LEAST_PRECISION:
            return expected
        self.exact.note = (
            "outputs are compared with the float32 reference, which draws random numbers in "
            "forward that float64 does not reproduce"
        )
        return expected.in_float32()

    def _one_row_of(self, call: int, before: list[Any] | None) -> list[Any]:
        inputs = self.make_inputs(call)
        if before is None:
            return inputs
        new, old = tensors_of(inputs), tensors_of(before)
        rows = new[0].shape[0] if new and new[0].dim() else 0
        if rows < _FEWEST_ROWS or [one.shape for one in new] != [one.shape for one in old]:
            return inputs
        row = self._derive(f"row {call}") % rows
        for tensor, was in zip(new, old, strict=True):
            if tensor.dim() and tensor.shape[0] == rows and 0 not in tensor.stride():
                kept = tensor[row].clone()
                tensor.copy_(was)
                tensor[row] = kept
        return inputs

    def _shares_memory(self, outputs: list[torch.Tensor], inputs: list[Any]) -> bool:
        held = [*tensors_of(inputs), *(tensor for _, tensor in self.state())]
        memory = {tensor.untyped_storage().data_ptr() for tensor in held}
        return any(tensor.untyped_storage().data_ptr() in memory for tensor in outputs)

    def _derive(self, what: str) -> int:
        material = self._seed + f"{self.name}/{what}".encode()
        return int.from_bytes(hashlib.sha256(material).digest()[:7], "big")

    def _seeded(self, what: str, function: Callable[[], Any]) -> Any:
        set_generators(self._derive(what))
        return function()

    @contextlib.contextmanager
    def _blame(self, what: str) -> Iterator[None]:
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
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == self._filename]
        if not lines or lines[-1] is None:
            return ""
        return f"\n  {self._source.splitlines()[lines[-1] - 1].strip()}"


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"it must return a list, one entry an argument, not {type(value).__name__}")
    return list(value)


def _require_plain(value: Any, what: str) -> None:
    for path, leaf in leaves(deposit(value, None).tree, "result"):
        if isinstance(leaf, Opaque):
            raise ProblemFault(
                f"{what}: {path} is a {leaf.type_name}, which cannot be handed on; use tensors, "
                "numbers, strings, and tuples, lists or dicts of them"
            )


def construction_of(reference: Reference) -> list[Any]:
    """Return what a candidate is made from: the constructor's arguments, and the state's values.

    Raises:
        ProblemFault: an argument is of a type that cannot cross to another process.
    """
    arguments = reference.init_inputs
    _require_plain(arguments, "get_init_inputs()")
    construction = [arguments, [tensor for _, tensor in reference.state()]]
    # Each of the two may be small enough, and both together not.
    _require_plain(construction, "get_init_inputs() and Model's parameters")
    return construction
