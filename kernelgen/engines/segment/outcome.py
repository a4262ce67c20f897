"""Parts that both renderings of a segment share: names, formula, the outcome's precision."""

from collections.abc import Sequence
from typing import Any

import msgspec

from kernelgen.engines.naming import SUMS, Names
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import Step, StepValue
from kernelgen.engines.text.names import names_of
from kernelgen.engines.text.reading import Reading
from kernelgen.engines.text.stage_text import filled, gathered_in_words, in_words
from kernelgen.problem.record import Backend


def segment_names(
    stage: Segment, backend: Backend, operands: Sequence[Reading], *, has_workspace: bool = False
) -> dict[str, Any]:
    """Return a template's names for what a segment is, and for its kernel's arguments."""
    given, extent = names_of(stage, backend, operands), stage.extent
    weights = () if extent is None else extent.weights
    others = (o for o in stage.operands if o.name not in weights)
    left = [{"name": f"out_{n}", "of": r.of} for n, r in enumerate(stage.results[1:], 2)]
    return given | {
        "left": left,
        "spread": sorted((o for o in operands if o.repeats), key=lambda o: o.name not in weights),
        "formula": formula_of(stage),
        "extent": extent,
        "by_dim": extent.by if extent is not None and extent.kind == "dim" else None,
        "fixed_rank": extent is None or any(o.pattern != "each" for o in others if not o.is_number),
        "first": 0 if extent is not None else stage.dims[0],
        "last": 0 if extent is not None else stage.dims[-1] + 1,
        "has_workspace": has_workspace,
        "signature": [
            *(f"const {o.c_type}* {o.name}" for o in given["tensors"]),
            f"{given['out_type']}* out" + ", void* workspace" * has_workspace,
            *(f"float* {one['name']}" for one in left),
            *(f"float {o.name}" for o in given["numbers"]),
        ],
    }


def formula_of(stage: Segment, *, whole: bool = False) -> str:
    """Return the result as a formula; a `whole` one has no name of the step that is held."""
    before = gathered_in_words(stage)
    made = {
        name: filled(in_words(stage.epilogue, of), before) for name, of in stage.outcome.items()
    }
    if whole and stage.held:
        made[stage.held] = in_words(stage.steps, stage.held)
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
