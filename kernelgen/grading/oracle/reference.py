"""The reference of one case: its model, its random parameters, and the expected outputs."""

import functools
from typing import Any

import torch

from kernelgen.grading.correctness.compare import Expected, relative_reference_error
from kernelgen.grading.correctness.indices import Rankings, is_integer
from kernelgen.grading.oracle.exact import ExactReference
from kernelgen.grading.oracle.flops import Products, products_of, products_or_none
from kernelgen.grading.oracle.footprint import Footprint
from kernelgen.grading.oracle.problem_code import ProblemCode, require_plain
from kernelgen.grading.precision import narrow_dtype
from kernelgen.grading.verdict import ProblemFault
from kernelgen.grading.wire.device_errors import is_device_loss
from kernelgen.grading.wire.generators import generator_states
from kernelgen.grading.wire.messages import CaseSource, ReferenceState, SetUpOracle, Tensors
from kernelgen.grading.wire.module_state import Initial, recorded_definitions, state_of, tied_names
from kernelgen.grading.wire.transport import deposit, span_bytes
from kernelgen.grading.wire.tree import Opaque, leaves, rebuild
from kernelgen.grading.wire.values import copied, tensors_of
from kernelgen.problem.record import KERNELBENCH_TOLERANCE

# A reference that differs from itself by more than this share of its size verifies nothing. fp32
# sums of 32768 products come to 1e-4. Bounds are at most twice the difference, and the worst of
# many results from TF32 operands is off by 6e-4 and more. In 16 bits it is so many roundings.
_LEAST_PRECISION = 2e-4
_MOST_ROUNDINGS = 64


class Reference:
    """One case's reference on one device.

    Args:
        case, setup: see `ProblemCode`; the setup of each candidate is the same but for its seed.

    Attributes:
        rule, tolerance: what outputs are compared with, and how closely.
        code: the problem's, which makes its inputs.
        mutates_inputs: some call so far wrote into its inputs.
        draws: some call so far drew random numbers from a default generator.
        changes_itself: some call so far wrote into a buffer, which the next one may read.
        form: of the last call's outputs.

    Raises:
        ProblemFault: the source does not run.
    """

    def __init__(self, case: CaseSource, setup: SetUpOracle) -> None:
        self.rule, self.tolerance, self._device = setup.rule, setup.tolerance, setup.device
        # A parameter's gradient is a sum over the batch.
        self._batch_independent = setup.batch_independent and not setup.manner.gradients
        self.code = ProblemCode(case, setup)
        with recorded_definitions() as self._definitions:
            self.model: torch.nn.Module = self.code.make_model("parameters")
        self.mutates_inputs = self.draws = self.changes_itself = False
        self.form: Tensors
        self.exact = self._exact()
        self._errors: dict[int, float] = {}

    def state(self) -> list[tuple[str, torch.Tensor]]:
        """Return names and values of parameters, buffers and tensors that are attributes."""
        return state_of(self.model)

    @property
    def least_precision(self) -> float:
        """How far off itself the reference may be, as a share of its size."""
        dtype = narrow_dtype(self.code.manner.precision)
        return _LEAST_PRECISION if dtype is None else _MOST_ROUNDINGS * torch.finfo(dtype).eps / 2

    @property
    def differentiated(self) -> tuple[str, ...] | None:
        """The parameters whose gradients are compared; None if none is asked for."""
        named = self.model.named_parameters()
        return tuple(n for n, p in named if p.requires_grad) if self.code.manner.gradients else None

    @property
    def normalizes_by_batch(self) -> bool:
        """Whether some layer takes its batch's statistics, and under eval() its running ones."""
        layers = self.model.modules()
        return any(
            layer.training and getattr(layer, "running_mean", None) is not None for layer in layers
        )

    def _exact(self) -> ExactReference:
        narrow = narrow_dtype(self.code.manner.precision)
        return ExactReference(
            self.model,
            self._device,
            batch_independent=self._batch_independent,
            dtype=narrow or torch.float32,
            needed=narrow is not None and self.rule != "kernelbench",
        )

    def begin_again(self, seed: bytes) -> bool:
        """Become what a new Reference with this seed would be; its model stays the same object.

        Returns:
            False where that cannot be known, and a new one is to be made.
        """
        same = self.code.begin_again(seed)
        registered = len([*self.model.parameters(), *self.model.buffers()])
        if not same or registered != len(self.state()):
            return False
        self.redraw_parameters("parameters")
        self.mutates_inputs = self.draws = self.changes_itself = False
        return True

    def draw_again(self) -> bool:
        """Begin again with the seed that follows from the present one."""
        return self.begin_again(self.code.derive("next draw").to_bytes(7, "big"))

    def redraw_parameters(self, what: str = "other parameters") -> None:
        """Draw parameters of a name, and write them over the present ones."""
        self.exact, self._errors = self._exact(), {}
        # Drawn once more from the present ones, they would drift from those of a new module.
        other = self.code.make_model(what)
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
        return ReferenceState(
            names=names,
            ranks=ranks,
            seed=self.code.derive("construction"),
            default_dtype=str(self.code.default_dtype).removeprefix("torch."),
            tied=tied_names(self.model),
        )

    def initial_digests(self) -> tuple[str, ...]:
        """Return digests of the values with which `state()` begins under the seed that is told."""
        initial = self.code.initial_values()
        return tuple(initial.get(name, Initial()).plain for name, _ in self.state())

    def footprint(self) -> Footprint | None:
        """Estimate bytes without allocating any, or None if the reference cannot run on no data."""
        parameters = sum(span_bytes(tensor) for _, tensor in self.state())
        try:
            inputs, outputs = self.code.on_no_data(lambda model, given: (given, model(*given)))
        except Exception:  # noqa: BLE001 (an estimate may fail in any way the reference can)
            return None
        given = deposit(inputs, None).total_bytes
        returned = deposit(outputs, None, pack=True).total_bytes
        return Footprint(inputs=given, parameters=parameters, outputs=returned)

    def products(self) -> Products:
        """Count the operations of the matrix products, on no data where the reference runs so."""
        try:
            return self.code.on_no_data(products_of)
        except Exception as error:
            if is_device_loss(error):
                raise
        return products_or_none(self.model, lambda: self.code.make_inputs(0))

    def seed_of(self, call: int) -> int | None:
        """Return what the generators are to be seeded with for a call; None if none is used.

        A hash apart from that of the inputs: a candidate knows it, and learns nothing from it.
        """
        return self.code.derive(f"random numbers {call}") if self.draws else None

    def run(self, inputs: list[Any], call: int) -> Any:
        """Run the pinned fp32 reference; notes if it writes into its inputs, and if it draws."""
        self.code.begin(f"random numbers {call}")
        states = generator_states()
        given = tensors_of(inputs)
        versions, held = [tensor._version for tensor in given], self._held()  # noqa: SLF001
        with self.code.blame("Model.forward(...)"), torch.no_grad():
            outputs = self.model(*inputs)
        changed = versions != [tensor._version for tensor in given]  # noqa: SLF001
        self.mutates_inputs = self.mutates_inputs or changed
        self.changes_itself = self.changes_itself or held != self._held()
        self.draws = self.draws or generator_states() != states
        return outputs

    def _held(self) -> list[tuple[int, int]]:
        return [(one.data_ptr(), one._version) for _, one in self.state()]  # noqa: SLF001

    def expect(self, call: int, before: list[Any] | None = None) -> tuple[list[Any], Expected]:
        """Return a call's inputs, as they are before the call, and the expected outputs.

        With the inputs of the call before, only one row is new.
        """
        inputs = self.code.one_row_of(call, before)
        outputs = self.run(inputs, call)
        tensors = tensors_of(outputs)
        # Autograd itself often returns upstream gradients, or parts of them, as those of inputs.
        may_share = tensors if self.code.manner.gradients else tensors_of(inputs)
        described = deposit(outputs, None, inputs=may_share)
        if len(tensors) != len(described.specs) or not tensors:
            others = (n.type_name for _, n in leaves(described.tree) if isinstance(n, Opaque))
            raise ProblemFault(
                "Model.forward must return at least one plain tensor, and returns "
                f"{next(others, 'none')}; return some, of complex ones torch.view_as_real"
            )
        if any(tensor.device.type != self._device for tensor in tensors):
            raise ProblemFault(
                f"Model.forward returns a tensor that is not on the {self._device}; make it where "
                "its inputs are"
            )
        self.form = described
        if self._shares_memory(tensors, inputs):
            tensors = copied(tensors)
        if self.mutates_inputs:
            inputs = self.code.one_row_of(call, before)
        seed, precision = self.seed_of(call), self.code.manner.precision
        # The twin in float64 changes itself as often as it is run.
        at_once = self.mutates_inputs or self.changes_itself
        exact, chunks = self.exact.of(inputs, tensors, seed, at_once=at_once)
        forward = outputs["outputs"] if self.code.manner.gradients else outputs
        shaken = self.code.manner.gradients
        nearby = functools.partial(self.exact.nearby, inputs, seed, shaken=shaken)
        expected = Expected(
            described=described,
            ref32=tensors,
            exact_chunks=chunks,
            exact=exact,
            absolute=KERNELBENCH_TOLERANCE[precision] if self.rule == "kernelbench" else None,
            rankings=self._rankings(inputs, tensors, seed),
            nearby=nearby if exact != "float32" else None,
            gradients=len(tensors) - len(tensors_of(forward)),  # by their keys, outputs come last
            errors=self._errors,
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
        if not self.draws or relative_reference_error(expected) <= self.least_precision:
            return expected
        self.exact.note = (
            "outputs are compared with the float32 reference, which draws random numbers in "
            "forward that float64 does not reproduce"
        )
        return expected.in_float32()

    def _shares_memory(self, outputs: list[torch.Tensor], inputs: list[Any]) -> bool:
        held = [*tensors_of(inputs), *(tensor for _, tensor in self.state())]
        memory = {tensor.untyped_storage().data_ptr() for tensor in held}
        return any(tensor.untyped_storage().data_ptr() in memory for tensor in outputs)


def construction_of(reference: Reference) -> list[Any]:
    """Return what a candidate is made from: the constructor's arguments, and the state's values.

    Arguments that cannot cross to another process as they are, such as functions, are None; the
    candidate's makes them from the problem's code.

    Raises:
        ProblemFault: there are too many tensors.
    """
    arguments = reference.code.init_inputs
    values = [tensor for _, tensor in reference.state()]
    construction = [arguments if _comes_back(arguments) else None, values]
    # Each of the two may be small enough, and both together not.
    require_plain(construction, "get_init_inputs() and Model's parameters")
    return construction


def _comes_back(value: Any) -> bool:
    """Whether what another process makes of a value is like it, types and order included."""
    try:
        return repr(rebuild(deposit(value, None).tree, tensors_of(value))) == repr(value)
    except TypeError:
        return False
