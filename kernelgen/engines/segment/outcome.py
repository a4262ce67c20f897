"""Parts that both renderings of a segment share: extent, formula, the outcome's precision."""

from typing import Any

import msgspec

from kernelgen.engines.naming import SUMS, Names
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Step, StepValue
from kernelgen.engines.text.stage_text import filled, gathered_in_words, in_words


def extent_names(stage: Segment) -> dict[str, Any]:
    """Return the Python template's names for what a segment is."""
    extent = stage.extent
    weights = () if extent is None else extent.weights
    others = (o for o in stage.operands if o.name not in weights)
    return {
        "extent": extent,
        "by_dim": extent.by if extent is not None and extent.kind == "dim" else None,
        "fixed_rank": extent is None or any(o.pattern != "each" for o in others if not o.is_number),
        "first": 0 if extent is not None else stage.dims[0],
        "last": 0 if extent is not None else stage.dims[-1] + 1,
        "has_workspace": False,
    }


def formula_of(stage: Segment) -> str:
    """Return the result as a formula."""
    before = gathered_in_words(stage)
    made = {
        name: filled(in_words(stage.epilogue, of), before) for name, of in stage.outcome.items()
    }
    return filled(in_words(stage.after, stage.result.of), made)


class Precise:
    """The steps of a segment's map, with numbers of the outcome as accurate as they are read.

    What is subtracted comes as a float and a rest; what divides, as a power of two and the inverse
    of its product with that: floats have inverses but for tiny ones. With `inverses` alone: a
    processor divides as fast as it reads.

    Attributes:
        steps, result: of the map.
        made: more of the outcome: name -> of which, and C of its double.
    """

    def __init__(self, stage: Segment, *, inverses: bool) -> None:
        exact = {a.name for a in stage.accumulators if a.kind in {"max", "min"}}
        steps_of_all = (*stage.steps, *stage.epilogue, *stage.after)
        taken = (*(step.name for step in steps_of_all), *(o.name for o in stage.operands))
        self._names = Names(SUMS, *stage.outcome, *taken)
        self.made: dict[str, tuple[str, str]] = {}
        self.result: StepValue = stage.result.of
        steps: list[Step] = []
        for step in stage.after:
            by = step.arguments.get("other")
            if not isinstance(by, str) or by not in stage.outcome:
                steps.append(step)
            elif step.operator == "sub" and stage.outcome[by] not in exact:
                steps += self._twice(step, "sub", by, self._more(by, "rest", "rest_of({})"))
            elif step.operator == "div" and inverses:
                scale = self._more(by, "scale", "scale_of({})")
                inverse = self._more(by, "inverse", "float(1.0 / (({0}) * scale_of({0})))")
                steps += self._twice(step, "mul", scale, inverse)
            else:
                steps.append(step)
        self.steps = steps

    def _more(self, of: str, word: str, text: str) -> str:
        known = next((n for n, found in self.made.items() if found == (of, text)), None)
        name = known or self._names.local(f"{of[:5]}_{word}")
        self.made[name] = (of, text)
        return name

    def _twice(self, step: Step, operator: str, first: str, second: str) -> list[Step]:
        """Return two steps in place of one whose second argument is two numbers."""
        name = self._names.local(f"{step.name[:5]}_part")
        given = step.arguments["self"]
        return [
            msgspec.structs.replace(step, name=n, operator=operator, arguments=arguments)
            for n, arguments in (
                (name, {"self": given, "other": first}),
                (step.name, {"self": name, "other": second}),
            )
        ]
