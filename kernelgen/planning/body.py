"""Operators that wait, and the steps of a stage that they become."""

import msgspec

from kernelgen.planning.graph import Argument, Reference, TensorType, references
from kernelgen.planning.naming import Names
from kernelgen.planning.operators import Operator
from kernelgen.planning.plan import Operand, Step, StepValue
from kernelgen.planning.reductions import Gather


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """A pointwise operator that waits."""

    operator: Operator
    arguments: dict[str, Argument]


class Body:
    """The steps of a stage, as they are found to be needed."""

    def __init__(
        self,
        waiting: dict[str, Apply | Gather],
        types: dict[str, TensorType],
        shape: tuple[int, ...],
        called: dict[str, str],
        names: Names | None = None,
    ) -> None:
        self._called = called
        self._waiting = waiting
        self._types = types
        self._shape = shape
        self.known: dict[str, str] = {}
        self._operands: dict[str, Operand] = {}
        self._steps: list[Step] = []
        self.names = names or Names()

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What the steps read of memory, in the order in which it was found."""
        return tuple(self._operands.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, each after those that it reads."""
        return tuple(self._steps)

    def value(self, name: str) -> str:
        """Return what a value is called in the kernel, computed if it waits."""
        if name in self.known:
            return self.known[name]
        waiting = self._waiting.get(name)
        if isinstance(waiting, Apply):
            arguments: dict[str, StepValue] = {}
            for parameter, argument in waiting.arguments.items():
                if not waiting.operator.reads(parameter):
                    continue
                if isinstance(argument, Reference):
                    arguments[parameter] = self.value(argument.name)
                elif isinstance(argument, bool | int | float):
                    arguments[parameter] = argument
            made = self.names.local(waiting.operator.name)
            step = Step(name=made, operator=waiting.operator.name, arguments=arguments)
            self._steps.append(step)
        else:
            assert waiting is None, f"{name} is a reduction, and not in memory"
            made = self.names.local(self._called.get(name, name))
            self._operands[name] = operand_of(made, name, self._types[name], self._shape)
        self.known[name] = made
        return made


def inputs_of(waiting: Apply | Gather) -> list[str]:
    """Return the values that an operator reads."""
    if isinstance(waiting, Gather):
        return [waiting.of]
    return references(*waiting.arguments.values())


def operand_of(name: str, value: str, found: TensorType, shape: tuple[int, ...]) -> Operand:
    """Return a value as an operand of a stage of that shape.

    One that repeats in no simple pattern is written out at its full size before the kernel reads
    it; so is, at another shape than the main one, an operand that does not fit its pattern.
    """
    own = (1,) * (len(shape) - len(found.shape)) + found.shape
    rank = len(shape)
    repeated = [d for d in range(rank) if own[d] == 1 and shape[d] != 1]
    varied = [d for d in range(rank) if own[d] != 1]
    if not repeated:
        return Operand(name=name, value=value, type=found)
    if not varied:
        return Operand(name=name, value=value, type=found, pattern="along", span=(0, 0))
    first, last = varied[0], varied[-1] + 1
    if all(shape[d] == 1 or own[d] != 1 for d in range(first, last)):
        span = (first - rank, last - rank)
        return Operand(name=name, value=value, type=found, pattern="along", span=span)
    first, last = repeated[0], repeated[-1] + 1
    if all(own[d] == 1 for d in range(first, last)):
        span = (first - rank, last - rank)
        return Operand(name=name, value=value, type=found, pattern="across", span=span)
    return Operand(name=name, value=value, type=found)
