"""The oracle's part in a batch (timing/batch.py): its inputs, the control, the look at outputs.

A batch's inputs are all in the arena before the candidate may run. Its outputs are looked at
twice: some elements, drawn at random, as soon as the candidate reports completion, and all of them
afterwards. An element that changed in between was not done.
"""

import functools
import random
from time import perf_counter

import msgspec
import torch

from kernelgen.grading.correctness.compare import Expected, compare
from kernelgen.grading.correctness.form import form_problem, in_own_memory
from kernelgen.grading.oracle.calls import unless_forged
from kernelgen.grading.oracle.device import OracleArena
from kernelgen.grading.oracle.reference import Reference
from kernelgen.grading.timing.batch import BatchRun
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire import transport
from kernelgen.grading.wire.arena import GATE_BYTES, Arena, BorrowedBlock, DeviceArena, Places
from kernelgen.grading.wire.tree import TensorSpec
from kernelgen.grading.wire.values import tensors_of

_MAX_PADDING = 64
# Room of a batch beside its inputs, and outputs that are not in place.
MARGIN_BYTES = _MAX_PADDING * transport.ALIGNMENT_BYTES
# Of withheld inputs' size: their memory, and that in which their outputs are verified.
_ROOM_BESIDE = 3
_POISON = 0xFF
_SAMPLES = 1 << 14
_SAMPLED_CALLS = 8
_KEPT_LOOKS = 2


class Sample(msgspec.Struct, frozen=True):
    """Elements of a tensor's memory: their flat indices, and the bytes that were there."""

    indices: torch.Tensor
    values: torch.Tensor


class Batch(msgspec.Struct, kw_only=True):
    """The present batch.

    Attributes:
        asked: what the candidate's host is asked.
        sampled: position of the call and of the tensor -> the elements that were looked at.
    """

    first_call: int
    asked: m.RunBatch
    outputs: tuple[m.Placed, ...] = ()
    sampled: dict[tuple[int, int], Sample] = {}


class Batches:
    """Makes and judges batches of calls of one case."""

    def __init__(self, clock: Clock, tolerance: float, arena: OracleArena) -> None:
        self._device, self._wait, self._tolerance = clock.device, clock.wait, tolerance
        self._oracle_arena = arena
        self._batch: Batch
        self._blocks: dict[str, BorrowedBlock] = {}
        self._last_used: dict[str, int] = {}
        self._looks = 0
        self._draw = random.SystemRandom()
        self._withheld: DeviceArena | None = None
        # Calls with their outputs, as the candidate describes them and copies, to be compared.
        self._kept: list[tuple[int, m.Tensors, list[torch.Tensor]]] = []

    @functools.cached_property
    def _places(self) -> Places:
        return Places(self._device)

    @property
    def _arena(self) -> Arena:
        return self._oracle_arena.present

    def close(self) -> None:
        """Let go of all, also of what was kept to be compared."""
        self._kept.clear()
        self.close_memory()

    def close_memory(self) -> None:
        """Let go of the candidate's memory and of what was withheld from it."""
        for block in self._blocks.values():
            block.close()
        self._blocks.clear()
        if self._withheld is not None:
            self._withheld.close()
            self._withheld = None

    def make(self, message: m.MakeBatch, reference: Reference, output_bytes: int) -> m.RunBatch:
        """Put new inputs for each call into the arena, with room for the outputs of each."""
        numbers = range(message.first_call, message.first_call + message.count)
        inputs = reference.code.make_inputs(message.first_call + 1)
        input_bytes = transport.arena_bytes(tensors_of(inputs))
        # New addresses as well as new values.
        start = self._draw.randrange(_MAX_PADDING) * transport.ALIGNMENT_BYTES
        outputs_at = MARGIN_BYTES + message.count * input_bytes
        # A CPU's are copied out of the candidate's memory once it has been stopped.
        times = 1 if not message.in_place else transport.GAPPED if self._device == "cpu" else 0
        room = times * message.count * output_bytes
        self._oracle_arena.at_least(outputs_at + room)
        withheld = self._withhold(outputs_at) if message.withheld else None
        destination = withheld or self._arena
        sent = []
        for position, number in enumerate(numbers):
            if position:
                inputs = reference.code.make_inputs(number + 1)
            sent.append(
                transport.deposit(inputs, destination, start=start + position * input_bytes)
            )
        self._wait()
        seeds = [reference.seed_of(number + 1) for number in numbers]
        asked = m.RunBatch(
            arena=self._oracle_arena.handle(),
            inputs=tuple(sent),
            outputs_at=outputs_at,
            in_place=message.in_place,
            seeds=tuple(seed for seed in seeds if seed is not None),
            gated=withheld is not None,
        )
        self._batch = Batch(first_call=message.first_call, asked=asked)
        return asked

    def _withhold(self, nbytes: int) -> DeviceArena | None:
        """Return memory of the oracle's own for inputs, and close the gate; None without room."""
        if self._withheld is not None and self._withheld.capacity_bytes < nbytes:
            self._withheld.close()
            self._withheld = None
        if self._withheld is None:
            if not self._oracle_arena.leaves(_ROOM_BESIDE * nbytes):
                return None
            self._withheld = DeviceArena(nbytes)
        self._oracle_arena.gate.view(0, GATE_BYTES).fill_(0)
        self._arena.view(0, nbytes).fill_(_POISON)
        return self._withheld

    def open_gate(self) -> float:
        """Put the withheld inputs into the arena, which takes the ms returned; open the gate."""
        assert self._withheld is not None
        nbytes = self._batch.asked.outputs_at
        self._wait()
        start = perf_counter()
        self._arena.write(0, self._withheld.view(0, nbytes))
        self._wait()
        elapsed_ms = (perf_counter() - start) * 1e3
        self._oracle_arena.gate.view(0, GATE_BYTES).fill_(1)
        return elapsed_ms

    def control(self, message: m.RunControl, reference: Reference) -> m.ControlRan:
        """Run the reference on the batch as a candidate host runs a candidate."""
        asked = self._batch.asked
        # On a CPU copying is a part of the candidate's time: no time that it can choose is taken
        # off a wait.
        copies = self._device == "cuda" and not asked.in_place
        places = None if copies else self._places
        given = asked.inputs[: message.count]
        apart_ms = alone_ms = self._time_calls(reference) if copies else 0.0
        start = perf_counter()
        run = BatchRun(reference.model, self._arena, asked.outputs_at, places, self._wait)
        run.finish(run.enqueue(given, asked.seeds))
        elapsed_ms = (perf_counter() - start) * 1e3
        del run
        start = perf_counter()
        if copies:
            # The candidate's outputs go where these lie: none of them may be there by then.
            left = self._arena.capacity_bytes - asked.outputs_at
            self._arena.view(asked.outputs_at, left).fill_(_POISON)
        if reference.mutates_inputs:
            for position, sent in enumerate(given):
                start_at = min(spec.offset for spec in sent.specs if spec.nbytes)
                inputs = reference.code.make_inputs(self._batch.first_call + position + 1)
                transport.deposit(inputs, self._arena, start=start_at)
        if copies or reference.mutates_inputs:
            self._wait()
            apart_ms += (perf_counter() - start) * 1e3
        # Copying a GPU's outputs is overhead: a candidate's time is that of its calls.
        calls_ms = min(alone_ms, elapsed_ms) if copies else elapsed_ms
        return m.ControlRan(elapsed_ms=calls_ms, apart_ms=apart_ms)

    def _time_calls(self, reference: Reference) -> float:
        arguments = [transport.look(sent, self._arena) for sent in self._batch.asked.inputs]
        self._wait()
        start = perf_counter()
        with torch.no_grad():
            for given in arguments:
                reference.model(*given)
        self._wait()
        return (perf_counter() - start) * 1e3

    def sample(self, message: m.SampleBatch) -> bool:
        """Look at some elements of every output; return whether that was possible at once."""
        self._batch.outputs, self._batch.sampled = message.outputs, {}
        # The last call first, which ends last; then some at random: the look must be quick and
        # unpredictable.
        last = len(message.outputs) - 1
        others = self._draw.sample(range(last), min(last, _SAMPLED_CALLS - 1)) if last > 0 else []
        chosen = [last, *others] if message.outputs else []
        wanted = {block for call in chosen for block in message.outputs[call].blocks if block}
        at_once = wanted <= self._blocks.keys()
        for call in chosen:
            placed = message.outputs[call]
            pairs = zip(placed.tensors.specs, placed.blocks, strict=True)
            for position, (spec, block) in enumerate(pairs):
                if spec.nbytes:
                    elements = _elements(spec, self._source(block))
                    count = min(len(elements), _SAMPLES)
                    indices = torch.randint(len(elements), (count,), device=self._device)
                    self._batch.sampled[call, position] = Sample(indices, elements[indices])
        self._wait()
        for placed in message.outputs:
            for block in placed.blocks:
                self._source(block)
        self._close_unused()
        return at_once

    def _close_unused(self) -> None:
        """Unmap what no batch has used for a while: what is mapped here stays allocated there."""
        self._looks += 1
        for placed in self._batch.outputs:
            self._last_used.update(dict.fromkeys(filter(None, placed.blocks), self._looks))
        for block, used in tuple(self._last_used.items()):
            if self._looks - used >= _KEPT_LOOKS:
                self._blocks.pop(block).close()
                del self._last_used[block]

    def verify(self, reference: Reference) -> m.Verified | None:
        """Compare every output of the batch, or keep all of them for later."""
        outputs, calls = self._batch.outputs, len(self._batch.asked.inputs)
        if len(outputs) != calls:
            reason = f"{len(outputs)} results came for {calls} calls"
            return m.Verified(status=Status.TAMPERED, reason=reason)
        later = unless_forged(lambda: self._may_keep(reference.form)) is True
        found = m.Verified(status=Status.TAMPERED, reason="no call was verified")
        for position, placed in enumerate(outputs):
            call = self._batch.first_call + position + 1
            expected = None if later else reference.expect(call)[1]
            form = expected.described if expected else reference.form
            fetched = unless_forged(functools.partial(self._fetched, position, form))
            self._wait()
            if isinstance(fetched, m.Verified):
                return fetched
            if expected is None:
                self._kept.append((call, placed.tensors, fetched))
                continue
            found = self._compared(fetched, placed.tensors, expected)
            if found.status is not Status.PASSED:
                return found
        return None if later else found

    def _may_keep(self, form: m.Tensors) -> bool:
        """Whether all outputs look like the last call's, and there is room for copies.

        Those that do not may still be right: sizes and numbers may depend on the inputs' values.
        """
        described = [placed.tensors for placed in self._batch.outputs]
        return all(form_problem(one, form) is None for one in described) and (
            self._oracle_arena.has_room_to_keep(
                sum(one.nbytes for _, _, kept in self._kept for one in kept),
                sum(spec.nbytes for one in described for spec in one.specs),
            )
        )

    def verify_kept(self, reference: Reference) -> m.Verified:
        """Compare what was kept."""
        found = m.Verified(status=Status.TAMPERED, reason="no call was verified")
        while self._kept:
            call, described, outputs = self._kept.pop(0)
            _, expected = reference.expect(call)
            wrong_form = form_problem(described, expected.described)
            found = wrong_form or self._compared(outputs, described, expected)
            if found.status is not Status.PASSED:
                break
        return found

    def _compared(
        self, outputs: list[torch.Tensor], described: m.Tensors, expected: Expected
    ) -> m.Verified:
        found = compare(outputs, expected, self._tolerance, full=False)
        return in_own_memory(found, described, expected.described)

    def _fetched(self, call: int, form: m.Tensors) -> list[torch.Tensor] | m.Verified:
        """Return private copies of a call's outputs, or what is wrong with their form."""
        placed = self._batch.outputs[call]
        if (wrong_form := form_problem(placed.tensors, form)) is not None:
            return wrong_form
        fetched = []
        pairs = zip(placed.tensors.specs, placed.blocks, strict=True)
        for position, (spec, block) in enumerate(pairs):
            tensor = transport.fetch(spec, self._source(block), self._device)
            fetched.append(tensor)
            sample = self._batch.sampled.get((call, position))
            if sample is not None and not _still(tensor, sample):
                reason = (
                    "the outputs changed after the candidate had reported completion: "
                    "it stopped the clock before its work ended"
                )
                return m.Verified(status=Status.TAMPERED, reason=reason)
        return fetched

    def _source(self, block: str) -> Arena:
        if not block:
            return self._arena
        if block not in self._blocks:
            try:
                self._blocks[block] = BorrowedBlock(bytes.fromhex(block))
            except OSError as error:
                raise ValueError(f"a handle that opens nothing: {error}") from error
        return self._blocks[block]


def _elements(spec: TensorSpec, source: Arena) -> torch.Tensor:
    """Return the memory from a tensor's first element to its last, in place: a row an element."""
    transport.require_inside(spec, source)
    itemsize = transport.dtype_of(spec).itemsize
    if spec.offset % itemsize:
        raise ValueError("a tensor that does not lie inside the arena as its elements do")
    return source.view(spec.offset, spec.nbytes).view(-1, itemsize)


def _still(tensor: torch.Tensor, sample: Sample) -> bool:
    """Whether the elements that were looked at are, bit for bit, still what they were."""
    now = transport.span(tensor).view(-1, tensor.element_size())[sample.indices]
    return torch.equal(now, sample.values)
