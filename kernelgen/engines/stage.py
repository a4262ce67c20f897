"""Stages of a plan: kernels of the engines', and operators that stay in torch.

A stage reads values and makes values; both have the names that the solution's forward gives them.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from kernelgen.graph.graph import NUMBER, VIEWS, Argument, Call, TensorType, references, strides_of

_COMPUTES = frozenset(
    """
    addmm baddbmm bilinear bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d einsum gru linear lstm matmul mm scaled_dot_product_attention
    """.split()  # noqa: SIM905
)

StepValue = str | float | int | bool
"""The name of an operand or of an earlier step, or a number."""

Accumulation = Literal[
    "sum", "mean", "prod", "max", "min", "argmax", "argmin", "sumexp", "variance", "pick"
]


class Operand(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a kernel reads element by element.

    Attributes:
        name: in the kernel.
        value: of the plan.
        type: at the main shape; `float64` without dimensions where it is a float of Python's.
        pattern: which element goes with one of the stage's shape. each: it has one for each; along:
            its elements differ along the dimensions `span` alone; across: it repeats along these,
            its elements differ along all others.
        span: [first, last) of the shape's dimensions, counted from its end: negative, 0 at most.
        flat: the value has one dimension, that of its type which is not 1.
    """

    name: str
    value: str
    type: TensorType
    pattern: Literal["each", "along", "across", "number"] = "each"
    span: tuple[int, int] = (0, 0)
    flat: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it is a float of Python's, which a kernel gets by value."""
        return self.type == NUMBER


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """name = operator(arguments), for one element.

    Attributes:
        operator: its name in the table of operators.
        arguments: by the operator's parameters; a whole number is an int where it is compared as
            one.
        dtype: of the value.
        whole: parameters whose operands together have the shape of all that the step reads.
    """

    name: str
    operator: str
    arguments: dict[str, StepValue]
    dtype: str
    whole: tuple[str, ...] = ()


def step_of(name: str, operator: str, left: StepValue, right: StepValue) -> Step:
    """Return a step of two numbers that gives a float."""
    arguments = {"self": left, "other": right}
    return Step(name=name, operator=operator, arguments=arguments, dtype="float32")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a kernel writes.

    Attributes:
        value: of the plan; also its name in the kernel.
        of: the step, operand or accumulator that it is.
        type: at the main shape.
        into: the operand in whose memory it is left, "" for memory of its own.
    """

    value: str
    of: StepValue
    type: TensorType
    into: str = ""


class Accumulator(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is gathered over the reduced elements.

    Attributes:
        name: of its outcome, for the epilogue.
        kind: argmax and argmin give the first position, as int64, counted in the reduced elements;
            sumexp the sum of e^(x - max); variance the mean squared deviation from the mean; pick
            the value at one position, NaN if there is none.
        of: the step or operand whose values are gathered.
        correction: of a variance, which divides by the count less this.
        at: of a pick, the operand in `beside` that holds the positions.
        fewest: elements that are gathered, where torch refuses fewer than it could gather.
    """

    name: str
    kind: Accumulation
    of: StepValue
    correction: float = 0.0
    at: str = ""
    fewest: int = 0


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A stage that an engine renders; the engine's own record adds fields.

    Attributes:
        name: of the kernel, from its operators.
        shape: what the operands are broadcast to.
        steps: from operands to what is gathered or written, for each element, in order.
        accumulators: each for itself, all over the same elements.
        beside: what the epilogue reads, of the shape of the results.
        epilogue: from what is gathered and `beside` to results, for each result's element.
    """

    name: str
    shape: tuple[int, ...]
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...] = ()
    accumulators: tuple[Accumulator, ...] = ()
    beside: tuple[Operand, ...] = ()
    epilogue: tuple[Step, ...] = ()
    results: tuple[Result, ...]

    @property
    def result(self) -> Result:
        """The first result; most kernels have no other."""
        return self.results[0]

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Steps, whenever they are done."""
        return (*self.steps, *self.epilogue)

    @property
    def roots(self) -> tuple[StepValue, ...]:
        """Values, written or gathered, whose operands have to have the stage's shape together."""
        return tuple(a.of for a in self.accumulators)

    @property
    def handed_on(self) -> tuple[str, ...]:
        """Results that a stage fused with this one takes; others stay results."""
        return writes(self)

    @property
    def mapped(self) -> StepValue:
        """The value that the epilogue makes of an element."""
        return self.result.of

    @property
    def extent_in_words(self) -> str:
        """Dimensions that are gathered, where their number is part of what a file is for."""
        return ""

    @property
    def replaceable(self) -> tuple[Operand, ...]:
        """Operands in whose memory a result may be: who writes an element has read it, alone."""
        return ()

    @property
    def spread(self) -> tuple[Operand, ...]:
        """Operands of which the kernel's Python needs no other shape than where they repeat."""
        return tuple(o for o in self.beside if o.pattern == "along")

    @property
    def mapped_again(self) -> tuple[Operand, ...]:
        """Operands that a map after it can read as it does."""
        return ()

    def followed_by(self, operands: tuple[Operand, ...], steps: tuple[Step, ...]) -> "Kernel":
        """Return a stage that goes on with steps, which read further operands."""
        beside, epilogue = (*self.beside, *operands), (*self.epilogue, *steps)
        return msgspec.structs.replace(self, beside=beside, epilogue=epilogue)

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of its Python function beside operands -> what a call gives them."""
        return {}


class Library(Call, frozen=True, kw_only=True, tag="library"):
    """A call of an operator that stays in torch, by the plan's values.

    Attributes:
        results: names of what it returns; a part that is not used has the name "_".
        types: of the results.
        in_place: its result is left in its first argument's memory.
    """

    results: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    in_place: bool = False

    @property
    def view(self) -> bool:
        """Whether it only looks at memory in another way."""
        return self.aten.split(".")[0] in VIEWS

    @property
    def computes(self) -> bool:
        """Whether it does a product, a convolution or the like: more than to move memory."""
        return self.aten.split(".")[0] in _COMPUTES

    @classmethod
    def calling(
        cls, name: str, aten: str, arguments: dict[str, Argument], made: TensorType
    ) -> "Library":
        """Return the call of an operator that makes one value."""
        given = len(arguments)
        return cls(
            name=name, aten=aten, arguments=arguments, given=given, results=(name,), types=(made,)
        )


Stage = Kernel | Library


class Views:
    """Values that are others, seen with other sizes in the same order.

    Attributes:
        types: of all values.
        stages: of the plan.
    """

    _RESIZING = frozenset(("unflatten", "flatten", "view", "squeeze", "unsqueeze"))

    def __init__(self, stages: Iterable[Stage], types: Mapping[str, TensorType]) -> None:
        """Take the stages of a plan, and the types of what it starts from."""
        self.types = dict(types)
        self.stages = tuple(stages)
        self._views: dict[str, Library] = {}
        for stage in self.stages:
            self.types |= made_types(stage)
            if isinstance(stage, Library) and stage.aten.split(".")[0] in self._RESIZING:
                self._views[stage.results[0]] = stage

    def behind(self, value: str) -> list[Library]:
        """Return the views between a value and what is in memory, the last one first."""
        found: list[Library] = []
        while (view := self._views.get(value)) is not None:
            found.append(view)
            value = reads(view)[0]  # behind it are sizes
        return found

    def looked_at(self, value: str) -> str:
        """Return what is in memory of a value."""
        behind = self.behind(value)
        return reads(behind[-1])[0] if behind else value


def operands_of(stage: Kernel) -> tuple[Operand, ...]:
    """Return what a kernel reads, in the order of its arguments."""
    return (*stage.operands, *stage.beside)


def read_by(steps: Iterable[Step]) -> list[StepValue]:
    """Return the arguments of steps, in order."""
    return [value for step in steps for value in step.arguments.values()]


def reads(stage: Stage) -> list[str]:
    """Return the values that a stage reads."""
    if isinstance(stage, Library):
        return references(*stage.arguments.values())
    return [operand.value for operand in operands_of(stage)]


def writes(stage: Stage) -> tuple[str, ...]:
    """Return the values that a stage makes."""
    if isinstance(stage, Library):
        return stage.results
    return tuple(result.value for result in stage.results)


def made_types(stage: Stage) -> dict[str, TensorType]:
    """Return the types of what a stage makes, as it lies in memory: kernels write in order."""
    if isinstance(stage, Library):
        pairs = zip(stage.results, stage.types, strict=True)
        return {name: found for name, found in pairs if found is not None and name != "_"}
    return {
        result.value: msgspec.structs.replace(result.type, strides=strides_of(result.type.shape))
        for result in stage.results
    }
