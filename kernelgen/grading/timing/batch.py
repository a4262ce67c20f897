"""A batch: several calls in a row on inputs that lie ready, timed by the supervisor's clock alone.

One protocol, in five modules:

1. `timing/confirm.py` decides how many calls a batch has, and whether a claim holds.
2. `timing/waits.py` computes what the waits say of a claim.
3. `supervisor/batch_runner.py` runs one: MakeBatch and RunControl go to the oracle, RunBatch to the
   candidate with the clock beside it, SampleBatch and VerifyBatch to the oracle, then Probe. Behind
   a gate, RunBatch only enqueues; OpenGate and AwaitBatch follow.
4. `oracle/batches.py` makes the inputs, runs the control, looks at outputs at once, verifies all.
5. This one does the calls. The candidate host and, as the control, the oracle run the very same
   code. Nothing is copied that does not have to be, no cache is emptied, nothing is timed in here:
   between the supervisor's message and the answer there is the work itself, and little that a
   candidate could leave out.
"""

from collections.abc import Callable
from typing import Any

import torch

from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import Arena, DeviceArena, Places
from kernelgen.grading.wire.generators import set_generators
from kernelgen.grading.wire.transport import aligned, deposit, locate, look
from kernelgen.grading.wire.values import tensors_of


class BatchRun:
    """One batch of calls of `forward`.

    Args:
        outputs_at: where in it the outputs go that are not left in place.
        places: to leave outputs where they are made, if that is possible; None copies them.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        arena: Arena,
        outputs_at: int,
        places: Places | None,
        wait: Callable[[], None],
    ) -> None:
        self._forward, self._arena = forward, arena
        self._outputs_at, self._places = outputs_at, places
        self.wait = wait
        self._arguments: list[Any] = []
        self._seeds: tuple[int, ...] = ()
        self._results: list[Any] = []
        self._kept: list[torch.Tensor] = []

    def enqueue(
        self,
        batch: tuple[m.Tensors, ...],
        seeds: tuple[int, ...] = (),
        *,
        gated: bool = False,
    ) -> m.BatchRan:
        """Call forward on each of the inputs; return where the outputs will be.

        With seeds, the generators are set before each call: of a reference that draws, as of every
        candidate. Gated, the device waits at the gate first.
        """
        self._seeds = seeds
        self._arguments = [look(sent, self._arena) for sent in batch]
        if gated:
            assert isinstance(self._arena, DeviceArena)
            self._arena.wait_at_gate()
        if self._places is None:
            return m.BatchRan(outputs=())
        with torch.no_grad():
            self._results = [self._call(position) for position in range(len(batch))]
        try:
            _require_apart(self._results, self._arena)
            places = self._places
            # While the device is still at work: an address is known before what is there.
            placed = tuple(
                locate(made, places, self._kept, tensors_of(given))
                for made, given in zip(self._results, self._arguments, strict=True)
            )
            return m.BatchRan(outputs=placed)
        except OSError as error:
            return m.BatchRan(outputs=(), why_not_in_place=str(error))

    def finish(self, enqueued: m.BatchRan) -> m.BatchRan:
        """Wait for the device, or call forward and copy the outputs if they are not in place."""
        if self._places is not None:
            self.wait()
            return enqueued
        return m.BatchRan(outputs=self._copied())

    def _call(self, position: int) -> Any:
        if self._seeds:
            set_generators(self._seeds[position])
        return self._forward(*self._arguments[position])

    def _copied(self) -> tuple[m.Placed, ...]:
        """Call forward, and copy each call's outputs before the next one."""
        placed = []
        cursor = self._outputs_at
        with torch.no_grad():
            for position, given in enumerate(self._arguments):
                made, inputs = self._call(position), tensors_of(given)
                sent = deposit(made, self._arena, pack=True, start=cursor, inputs=inputs)
                cursor = aligned(max([cursor, *(s.offset + s.nbytes for s in sent.specs)]))
                placed.append(m.Placed(tensors=sent, blocks=("",) * len(sent.specs)))
        self.wait()
        return tuple(placed)


def _require_apart(results: list[Any], arena: Arena) -> None:
    """Refuse outputs of which a later call has overwritten an earlier one's.

    A call's inputs are its own, and so are outputs in their memory.
    """
    seen: set[int] = set()
    inputs = arena.view(0, 1).untyped_storage().data_ptr()
    for result in results:
        starts = {t.untyped_storage().data_ptr() for t in tensors_of(result) if t.numel()}
        if (starts - {inputs}) & seen:
            raise OSError("the outputs of one call lie where those of another call lay")
        seen |= starts
