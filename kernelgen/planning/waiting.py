"""Values that wait to be computed: what each is made from, and which reductions lead to it."""

from collections.abc import Mapping

from kernelgen.planning.body import Apply, inputs_of
from kernelgen.planning.graph import TensorType
from kernelgen.planning.reductions import Gather


class Waiting:
    """Pointwise operators and reductions whose values are not in memory yet.

    Attributes:
        steps: by the name of their value.
    """

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        """Begin with the types of all values, known as far as the planner has come."""
        self._types = types
        self.steps: dict[str, Apply | Gather] = {}

    def computed_from(self, value: str, *, through_gathers: bool = True) -> list[str]:
        """Return what a value waits for, itself first, each once: a value may be read often."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in found:
                return
            found[name] = None
            waiting = self.steps.get(name)
            if isinstance(waiting, Apply) or (through_gathers and waiting is not None):
                for read in inputs_of(waiting):
                    visit(read)

        visit(value)
        return list(found)

    def last_reduced(self, value: str, shape: tuple[int, ...]) -> list[str]:
        """Return the last values before one of that shape that reductions lead to."""
        found: dict[str, bool] = {}

        def visit(name: str) -> None:
            waiting = self.steps.get(name)
            if name in found or waiting is None or not self.gathers(name):
                return
            found[name] = isinstance(waiting, Gather) or self._types[name].shape != shape
            if not found[name]:
                for read in inputs_of(waiting):
                    visit(read)

        visit(value)
        return [name for name, is_last in found.items() if is_last]

    def pass_of(self, value: str) -> object | None:
        """Return over what one reduction leads to a value, and operators after it; None if several.

        Values of the same pass are the results of one stage.
        """
        gathers = self.gathers(value)
        passes = {(self._types[g.of].shape, g.dims, g.keepdim) for g in gathers.values()}
        shape = self._types[value].shape
        alike = all(self._types[name].shape == shape for name in gathers)
        return passes.pop() if len(passes) == 1 and alike else None

    def gathers(self, value: str) -> dict[str, Gather]:
        """Return the reductions that a value waits for, nearest ones alone."""
        names = self.computed_from(value, through_gathers=False)
        waiting = ((name, self.steps.get(name)) for name in names)
        return {name: one for name, one in waiting if isinstance(one, Gather)}
