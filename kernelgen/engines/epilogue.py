"""A stage and the map of its result as one stage."""

from collections.abc import Iterable, Mapping

import msgspec

from kernelgen.engines.map import Map
from kernelgen.engines.naming import SUMS, Names
from kernelgen.engines.stage import Kernel, Operand, Step, StepValue, read_by
from kernelgen.engines.text.alike import names_in


def with_epilogue(first: Kernel, second: Kernel, others: Names) -> tuple[Kernel, ...]:
    """Return a stage whose result is mapped before it is written; () if that has another shape.

    `others` are the names of other kernels.
    """
    if not isinstance(second, Map) or second.shape != first.result.type.shape:
        return ()
    made = str(first.result.of)
    known = {first.result.value: made} | {o.value: o.name for o in first.mapped_again}
    # Before a bias, a product has a name that no operand has.
    read = (*read_by(first.all_steps), *(result.of for result in first.results))
    names = Renaming(second, known, taken=(SUMS, *names_in(first), *map(str, read)))
    result = msgspec.structs.replace(second.result, of=names.new(second.result.of))
    name = others.kernel((first.name, *[second.name] * bool(second.steps)), first.name)
    followed = first.followed_by(names.further, names.steps)
    results = (result, *first.results[len(first.handed_on) :])
    return (msgspec.structs.replace(followed, name=name, results=results),)


class Renaming:
    """Names in a map that unlike ones in the stage before it do not have.

    Attributes:
        steps: of the map, but for those that are `done` before it, which keep their names.
        further: its operands that are not `known`, under their names now; none is among `taken`.
    """

    def __init__(
        self,
        second: Kernel,
        known: Mapping[str, str],
        taken: Iterable[str],
        done: Iterable[Step] = (),
    ) -> None:
        fresh = Names(*taken).once
        self._new: dict[str, str] = {}
        further: list[Operand] = []
        for operand in second.operands:
            self._new[operand.name] = name = known.get(operand.value) or fresh(operand.name)
            if operand.value not in known:
                further.append(msgspec.structs.replace(operand, name=name))
        before = {_key(step.operator, step.arguments): step.name for step in done}
        steps: list[Step] = []
        for step in second.steps:
            arguments = {key: self.new(value) for key, value in step.arguments.items()}
            same = before.get(_key(step.operator, arguments))
            self._new[step.name] = name = same or fresh(step.name)
            if same is None:
                steps.append(msgspec.structs.replace(step, name=name, arguments=arguments))
        self.steps = tuple(steps)
        self.further = tuple(further)

    def name(self, operand: Operand) -> str:
        """Return what an operand of the map is called now."""
        return self._new[operand.name]

    def new(self, value: StepValue) -> StepValue:
        """Return a value that the map reads by its name now; a number stays."""
        return self._new.get(value, value) if isinstance(value, str) else value


def _key(operator: str, arguments: dict[str, StepValue]) -> object:
    return operator, tuple(sorted((name, repr(value)) for name, value in arguments.items()))
