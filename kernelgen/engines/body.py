"""Operators that wait, and the steps of a stage that they become."""

from collections.abc import Container, Mapping

import msgspec

from kernelgen.engines.gathers import Gather
from kernelgen.engines.naming import Names
from kernelgen.engines.operators import NARROW, Operator
from kernelgen.engines.stage import Operand, Step, StepValue
from kernelgen.graph.graph import Argument, Reference, TensorType, references


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """A pointwise operator that waits."""

    operator: Operator
    arguments: dict[str, Argument]
    whole: tuple[str, ...] = ()


class Waiting:
    """Pointwise operators and reductions whose values are not in memory yet.

    Attributes:
        types: of all values, known as far as the planner has come.
        steps: by the name of their value.
        origins: of what a kernel has made, its first result; of a view, what it looks at.
    """

    def __init__(self, types: Mapping[str, TensorType], held: frozenset[str] = frozenset()) -> None:
        """Begin with nothing that waits; the Model's values are `held`, whose shapes stay."""
        self.types, self._held = types, held
        self.steps: dict[str, Apply | Gather] = {}
        self.origins: dict[str, str] = {}

    def computed_from(
        self, value: str, *, through_gathers: bool = True, but_for: Container[str] = ()
    ) -> list[str]:
        """Return what a value waits for, itself first, each once: a value may be read often.

        What some of these wait for is left out.
        """
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in found:
                return
            found[name] = None
            waiting = None if name in but_for else self.steps.get(name)
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
            found[name] = isinstance(waiting, Gather) or self.types[name].shape != shape
            if not found[name]:
                for read in inputs_of(waiting):
                    visit(read)

        visit(value)
        return [name for name, is_last in found.items() if is_last]

    def pass_of(self, value: str) -> object | None:
        """Return over what one reduction leads to a value, and operators after it; None if several.

        Values of the same pass are the results of one stage. Reductions that read nothing in common
        are none: they may have other shapes at other sizes. So may what is changed in place by
        what is reduced, of which a stage of its own refuses those that torch does.
        """
        waiting = map(self.steps.get, self.computed_from(value, through_gathers=False))
        for one in (one for one in waiting if isinstance(one, Apply)):
            for changed in references(*map(one.arguments.get, one.whole)):
                read = {self.origins.get(name, name) for name in self.computed_from(changed)}
                if not self.gathers(changed) and not read <= self.steps.keys() | self._held:
                    return None
        gathers = self.gathers(value)
        passes = {(self.types[g.of].shape, g.dims, g.keepdim) for g in gathers.values()}
        shapes = {self.types[name].shape for name in (*gathers, value)} if gathers else set()
        groups = self.together({gather.of: None for gather in gathers.values()})
        return passes.pop() if len(passes) == len(shapes) == len(groups) == 1 else None

    def together(self, keys: Mapping[str, object]) -> list[list[str]]:
        """Return together the values of a key that read something in common.

        Others may have other shapes at other sizes.
        """
        groups: list[tuple[object, set[str], list[str]]] = []
        for value, key in keys.items():
            read = {self.origins.get(name, name) for name in self.computed_from(value)}
            first, *rest = [g for g in groups if g[0] == key and g[1] & read] or [(key, read, [])]
            groups = [g for g in groups if g not in rest] + [first] * (not first[2])
            for _, known, names in (*rest, (key, read, [value])):
                first[1].update(known)
                first[2].extend(names)
        return [names for *_, names in groups]

    def gathers(self, value: str) -> dict[str, Gather]:
        """Return the reductions that a value waits for, nearest ones alone."""
        names = self.computed_from(value, through_gathers=False)
        waiting = ((name, self.steps.get(name)) for name in names)
        return {name: one for name, one in waiting if isinstance(one, Gather)}


class Body:
    """The steps of a stage, as they are found to be needed."""

    def __init__(
        self,
        waiting: Waiting,
        shape: tuple[int, ...],
        called: dict[str, str],
        names: Names | None = None,
    ) -> None:
        self._called = called
        self._waiting = waiting
        self.shape = shape
        self.known: dict[str, str] = {}
        self._operands: dict[str, Operand] = {}
        self._steps: list[Step] = []
        self.names = names or Names()

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Operands that the steps read of memory, in the order in which they were found."""
        return tuple(self._operands.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, each after those that it reads."""
        return tuple(self._steps)

    def value(self, name: str) -> str:
        """Return what a value is called in the kernel, computed if it waits."""
        if name in self.known:
            return self.known[name]
        waiting = self._waiting.steps.get(name)
        if isinstance(waiting, Apply) and self._is_of_storage(waiting):
            made = self.value(inputs_of(waiting)[0])
        elif isinstance(waiting, Apply):
            arguments: dict[str, StepValue] = {}
            kinds = {self._waiting.types[read].dtype for read in inputs_of(waiting)}
            whole = waiting.operator.takes == "any" and kinds <= {"bool", "int64"}
            for parameter, argument in waiting.arguments.items():
                if not waiting.operator.reads(parameter):
                    continue
                if isinstance(argument, Reference):
                    arguments[parameter] = self.value(argument.name)
                elif isinstance(argument, bool | int | float):
                    is_int = type(argument) is int and waiting.operator.takes == "any"
                    arguments[parameter] = float(argument) if is_int and not whole else argument
            made = self.names.local(waiting.operator.name)
            dtype = self._waiting.types[name].dtype
            step = Step(name=made, operator=waiting.operator.name, arguments=arguments, dtype=dtype)
            self._steps.append(msgspec.structs.replace(step, whole=waiting.whole))
        else:
            assert waiting is None, f"{name} is a reduction, and not in memory"
            made = self.names.local(self._called.get(name, name))
            self._operands[name] = operand_of(made, name, self._waiting.types[name], self.shape)
        self.known[name] = made
        return made

    def _is_of_storage(self, waiting: Apply) -> bool:
        """Whether an operator changes in how many bits memory holds a float, and not the float."""
        name = waiting.operator.name
        kinds = {self._waiting.types[read].dtype for read in inputs_of(waiting)}
        return name.startswith("stored_") or (name.endswith("_float") and kinds <= {*NARROW})


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
    operand = Operand(name=name, value=value, type=found)
    if not repeated:
        return operand
    first, last = (varied[0], varied[-1] + 1) if varied else (rank, rank)
    if all(shape[d] == 1 or own[d] != 1 for d in range(first, last)):
        return msgspec.structs.replace(operand, pattern="along", span=(first - rank, last - rank))
    first, last = repeated[0], repeated[-1] + 1
    if all(own[d] == 1 for d in range(first, last)):
        return msgspec.structs.replace(operand, pattern="across", span=(first - rank, last - rank))
    return operand
