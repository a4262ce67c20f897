"""A solution as stages: a pure function of a graph, and the source of all rendering.

A stage reads values and makes values; both have the names that the solution's forward gives them.
"""

from math import prod
from typing import Literal

import msgspec

from kernelgen.planning.graph import Argument, InputKind, SizeOf, TensorType, references
from kernelgen.planning.products.choice import ProductChoice

StepValue = str | float | int | bool
"""The name of an operand or of an earlier step, or a number."""

POOLED = "pooled"
"""The outcome of a window in a pool's epilogue; no operand and no step has the name."""

MULTIPLIED = "multiplied"
"""The sum of an element's products in a product's epilogue; likewise."""

Way = Literal["held", "registers", "cache", "rings", "columns", "slices"]
"""How the kernels of a segment hold it: in the registers of threads, of a block, in a block's L1
cache, in the shared memory of all blocks, by rings of slots or by fixed columns; or not at all."""

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
    """

    name: str
    value: str
    type: TensorType
    pattern: Literal["each", "along", "across"] = "each"
    span: tuple[int, int] = (0, 0)

    @property
    def is_number(self) -> bool:
        """Whether it is a float of Python's, which a kernel gets by value."""
        return self.type.dtype == "float64" and not self.type.shape


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """name = operator(arguments), for one element.

    Attributes:
        operator: its name in the table of operators.
        arguments: by the operator's parameters; a whole number is an int where it is compared as
            one.
        dtype: of the value.
    """

    name: str
    operator: str
    arguments: dict[str, StepValue]
    dtype: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a kernel writes.

    Attributes:
        value: of the plan; also its name in the kernel.
        of: the step, operand or accumulator that it is.
        type: at the main shape.
    """

    value: str
    of: StepValue
    type: TensorType


class Map(msgspec.Struct, frozen=True, kw_only=True, tag="map"):
    """Results are computed element by element.

    Attributes:
        name: of the kernel, from its operators.
        shape: what the operands are broadcast to.
        steps: in order.
        results: of that shape.
    """

    name: str
    shape: tuple[int, ...]
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]


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
    """

    name: str
    kind: Accumulation
    of: StepValue
    correction: float = 0.0
    at: str = ""


class Reduce(msgspec.Struct, frozen=True, kw_only=True, tag="reduce"):
    """Elements are gathered along some dimensions.

    Attributes:
        shape: what the operands are broadcast to.
        dims: that are reduced, ascending, counted from the front of `shape`.
        keepdim: they stay as ones in the results.
        steps: from operands to what is gathered, for each element.
        accumulators: each for itself, all over the same dimensions.
        beside: what the epilogue reads, of the shape of the results.
        epilogue: from accumulators and `beside` to results, for each result's element.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    keepdim: bool
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    accumulators: tuple[Accumulator, ...]
    beside: tuple[Operand, ...]
    epilogue: tuple[Step, ...]
    results: tuple[Result, ...]


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a layer's, or along a dimension: a run of memory in a tensor of any rank.

    Attributes:
        kind: groups of channels of a sample; channels of a sample, each an image of `by`
            dimensions; rows, the last sizes, which are `by`; or dim, along the dimension `by`.
        by: the number of groups or the like as the plan's, or the path of the layer's attribute
            that has it.
        weights: names of the operands of the layer's, one for each channel or element.
        length: elements of a segment of the main shape.
    """

    kind: Literal["groups", "channels", "rows", "dim"]
    by: int | str | tuple[int, ...]
    weights: tuple[str, ...]
    length: int


class Segment(msgspec.Struct, frozen=True, kw_only=True, tag="segment"):
    """A reduction along neighbouring dimensions, and a map of the same elements with its outcome.

    Attributes:
        shape: what the operands are broadcast to.
        dims: that are reduced, neighbours, ascending, counted from the front of `shape`.
        kept: names of the operands that both the reduction and the map read element by element.
        steps: from operands to what is gathered.
        held: the step that is both gathered and mapped, in place of the kept operands; or "".
        accumulators, epilogue: as of a reduction, whose epilogue reads nothing else.
        outcome: what the map reads of these: its name in `after` -> accumulator or epilogue's step.
        after: steps of the map.
        result: of that shape.
        extent: what a segment is, where it is no fixed dimensions: of any rank.
        way: how a GPU holds it.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]
    operands: tuple[Operand, ...]
    kept: tuple[str, ...]
    steps: tuple[Step, ...]
    held: str
    accumulators: tuple[Accumulator, ...]
    epilogue: tuple[Step, ...]
    outcome: dict[str, StepValue]
    after: tuple[Step, ...]
    result: Result
    extent: Extent | None = None
    way: Way = "held"

    @property
    def length(self) -> int:
        """Elements of a segment of the main shape."""
        if self.extent is not None:
            return self.extent.length
        return prod(self.shape[d] for d in self.dims)

    @property
    def inner(self) -> int:
        """How far its elements are apart in memory."""
        return 1 if self.extent is not None else prod(self.shape[self.dims[-1] + 1 :])


class Scan(msgspec.Struct, frozen=True, kw_only=True, tag="scan"):
    """Each element is gathered with all before it along a dimension.

    Attributes:
        kind: sum or prod.
        dim: as the Model counts it, from the end where it is negative.
        reverse: with all after it, instead.
        exclusive: the element itself is left out; the first result is 0 or 1.
        steps: from operands to what is gathered.
        of: step or operand.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["sum", "prod"]
    dim: int
    reverse: bool
    exclusive: bool
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    of: str
    result: Result


class Pool(msgspec.Struct, frozen=True, kw_only=True, tag="pool"):
    """A window moves over the last dimensions.

    Attributes:
        kind: max or mean.
        kernel, stride, padding, dilation: one number for each of the last 1 to 3 dimensions.
        ceil_mode: the last window may hang over the end.
        count_padding: a mean divides by the window with its padding.
        divisor: what a mean divides by instead, 0 if nothing else.
        steps: from operands to what is gathered.
        beside: what the epilogue reads, of the shape of the result.
        epilogue: from `POOLED`, a window's outcome, and `beside` to the result.
    """

    name: str
    shape: tuple[int, ...]
    kind: Literal["max", "mean"]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    count_padding: bool
    divisor: int
    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    of: str
    beside: tuple[Operand, ...] = ()
    epilogue: tuple[Step, ...] = ()
    result: Result


class Product(msgspec.Struct, frozen=True, kw_only=True, tag="product"):
    """Rows of one operand are multiplied by columns of another.

    Attributes:
        aten: what multiplies them in torch: `matmul`.
        shape: of the result.
        operands: of shapes (..., rows, depth) and (..., depth, columns). A third one is a bias, of
            all columns.
        turned: whether each of the first two has its last dimensions the other way round.
        beside: what the epilogue reads, of the shape of the result.
        epilogue: from `MULTIPLIED`, the sum with its bias, and `beside` to the result.
        fast: the kernel for the main shape.
    """

    name: str
    aten: str
    shape: tuple[int, ...]
    operands: tuple[Operand, ...]
    turned: tuple[bool, bool]
    steps: tuple[Step, ...] = ()
    beside: tuple[Operand, ...] = ()
    epilogue: tuple[Step, ...] = ()
    result: Result
    fast: ProductChoice


class Library(msgspec.Struct, frozen=True, kw_only=True, tag="library"):
    """An operator that stays in torch.

    Attributes:
        name: of the first result.
        aten: `conv2d.default`.
        arguments: by its parameters, in order; values are those of the plan.
        given: how many of them stand in the call.
        named: those that stand in it by name alone.
        results: names of what it returns; a part that is not used has the name "_".
        types: of the results.
        view: it only looks at memory in another way.
        computes: it does a product, a convolution or the like: more than to move memory.
    """

    name: str
    aten: str
    arguments: dict[str, Argument]
    given: int
    named: tuple[str, ...] = ()
    results: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    view: bool
    computes: bool


Kernel = Map | Reduce | Segment | Scan | Pool | Product
Stage = Kernel | Library


def operands_of(stage: Kernel) -> tuple[Operand, ...]:
    """Return what a kernel reads, in the order of its arguments."""
    return (*stage.operands, *getattr(stage, "beside", ()))


def results_of(stage: Kernel) -> tuple[Result, ...]:
    """Return what a kernel writes."""
    return stage.results if isinstance(stage, Map | Reduce) else (stage.result,)


def reads(stage: Stage) -> list[str]:
    """Return the values that a stage reads."""
    if isinstance(stage, Library):
        return references(*stage.arguments.values())
    return [operand.value for operand in operands_of(stage)]


def writes(stage: Stage) -> tuple[str, ...]:
    """Return the values that a stage makes."""
    if isinstance(stage, Library):
        return stage.results
    return tuple(result.value for result in results_of(stage))


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A value that forward starts from.

    Attributes:
        kind: of the graph's input; a `scalar` is a float of Python's.
        path: of a parameter or buffer; "" for an argument of forward.
        text: as of the graph's input, Python for what has neither a name nor a path.
        size: what of another source it is, where forward does not get it.
    """

    name: str
    type: TensorType
    kind: InputKind = "input"
    path: str = ""
    text: str = ""
    size: SizeOf | None = None

    @property
    def is_number(self) -> bool:
        """Whether it is a float of Python's."""
        return self.kind == "scalar"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A forward as stages.

    Attributes:
        arguments: forward's parameters.
        sources: the values that it starts from.
        stages: in order.
        outputs: names of the values that it returns.
        returns: what it returns, with `%s` for each of them.
        updates: path of a buffer -> the value that forward leaves in it.
        kinds, fixed: as of the graph.
        attributes: paths of tensors that the Model holds without having registered them, so that
            they stay where they were made.
        bound: (source, dimension) whose size is that of the plan; others are refused.
        indexed: as of the graph.
        ordered: inputs whose dimensions lie in memory in the order of the plan's; other orders
            would be given other random numbers, or other elements of `as_strided`.
    """

    arguments: tuple[str, ...]
    sources: tuple[Source, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    returns: str
    updates: dict[str, str] = {}
    kinds: dict[str, str] = {}
    fixed: dict[str, str] = {}
    attributes: frozenset[str] = frozenset()
    bound: frozenset[tuple[str, int]] = frozenset()
    indexed: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The tensors that forward gets."""
        return tuple(s for s in self.sources if s.kind == "input")

    def fixed_sizes(self) -> str:
        """Return in words which sizes of the inputs are those of the plan, "" if none is."""
        words = []
        for source in self.inputs:
            dims = [d for d in range(len(source.type.shape)) if (source.name, d) in self.bound]
            if len(dims) == len(source.type.shape) > 0:
                words.append(f"all of {source.name}")
            elif dims:
                words.append(f"{', '.join(map(str, dims))} of {source.name}")
        return "; ".join(words)
