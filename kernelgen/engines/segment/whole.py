"""A norm that stays whole, as the segment that it is."""

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple, cast

import msgspec

from kernelgen.engines.engine import Given
from kernelgen.engines.segment.record import Extent, Segment
from kernelgen.engines.stage import Accumulation, Accumulator, Operand, Result, Step, StepValue
from kernelgen.graph.graph import Argument, Reference


class _Formula(NamedTuple):
    """A norm of elements x: each line is `name = operator(arguments)`.

    Attributes:
        gathered: what becomes of an element before it is gathered, "" if nothing.
        kinds: of the accumulators, which have their kinds' names.
        then: from these to what the map reads, once a segment.
        map: of each element; the last line's is the result.
    """

    gathered: str
    kinds: tuple[Accumulation, ...]
    then: tuple[str, ...]
    map: tuple[str, ...]


_FORMULAS = {
    "moments": _Formula(
        "",
        ("mean", "variance"),
        ("shifted = add(variance, eps)", "rsqrt_ = rsqrt(shifted)"),
        ("centred = sub(x, mean)", "normalised = mul(centred, rsqrt_)"),
    ),
    "rms": _Formula(
        "squared = square(x)",
        ("mean",),
        ("shifted = add(mean, eps)", "rsqrt_ = rsqrt(shifted)"),
        ("normalised = mul(x, rsqrt_)",),
    ),
    "l1": _Formula("magnitude = abs(x)", ("mean",), (), ("normalised = div(x, mean)",)),
    "l2": _Formula(
        "squared = square(x)", ("sum",), ("root = sqrt(sum)",), ("normalised = div(x, root)",)
    ),
    "softmax": _Formula(
        "",
        ("max", "sumexp"),
        (),
        ("centred = sub(x, max)", "power = exp(centred)", "normalised = div(power, sumexp)"),
    ),
    "log_softmax": _Formula(
        "",
        ("max", "sumexp"),
        ("logarithm = log(sumexp)",),
        ("centred = sub(x, max)", "normalised = sub(centred, logarithm)"),
    ),
}
_LINE = re.compile(r"(\w+) = (\w+)\((\w+)(?:, (\w+))?\)")
# Names of layers' norms; the others have the names of their statistics.
_NAMES = {
    ("moments", "groups"): "group_norm",
    ("moments", "channels"): "instance_norm",
    ("moments", "rows"): "layer_norm",
    ("rms", "rows"): "rms_norm",
    ("l1", "dim"): "l1_norm",
    ("l2", "dim"): "l2_norm",
}


def segment_of(given: Given) -> Segment:
    """Return the stage of a node `segment.KIND`."""
    node, arguments, types, names = given.node, given.arguments, given.types, given.kernels
    statistics, kind = str(arguments["statistics"]), node.aten.rpartition(".")[2]
    formula = _FORMULAS[statistics]
    out = node.type
    tensors = {"x": arguments["self"]}
    tensors |= {key: arguments[key] for key in ("weight", "bias") if arguments[key] is not None}
    operands = []
    for name, value in tensors.items():
        assert isinstance(value, Reference)
        found = Operand(name=name, value=value.name, type=types[value.name])
        if name != "x":
            span = (-len(found.type.shape), 0)
            if kind != "rows":
                # Channels are before an image's dimensions: it need not be one of a batch.
                image = arguments["count"] if kind == "channels" else len(out.shape) - 2
                span = (-cast("int", image) - 1, -cast("int", image))
            found = msgspec.structs.replace(found, pattern="along", span=span)
        operands.append(found)
    after = [*formula.map]
    last = after[-1].partition(" = ")[0]
    for name, operator in (("weight", "mul"), ("bias", "add")):
        if name in tensors:
            after.append(f"{operator}_{name} = {operator}({last}, {name})")
            last = f"{operator}_{name}"
    steps = _steps([formula.gathered] if formula.gathered else [], arguments["eps"])
    epilogue = _steps(formula.then, arguments["eps"])
    of = steps[-1].name if steps else "x"
    made = {*formula.kinds, *(step.name for step in epilogue)}
    mapped = _steps(after, arguments["eps"])
    read = {str(v) for step in mapped for v in step.arguments.values()}
    return Segment(
        name=names.kernel((), _NAMES.get((statistics, kind), statistics)),
        shape=out.shape,
        dims=(),
        operands=tuple(operands),
        kept=("x",),
        steps=steps,
        held="",
        accumulators=tuple(
            Accumulator(name=one, kind=one, of=of, fewest=2 * (kind == "channels"))
            for one in formula.kinds
        ),
        epilogue=epilogue,
        outcome={name: name for name in sorted(read & made)},
        after=mapped,
        results=(Result(value=node.name, of=last, type=out),),
        extent=Extent(
            kind=cast("Any", kind),
            by=cast("Any", arguments["by"]),
            weights=tuple(tensors)[1:],
            length=_length(kind, arguments, out.shape),
        ),
    )


def _steps(lines: Iterable[str], eps: Argument) -> tuple[Step, ...]:
    steps = []
    for line in lines:
        found = _LINE.fullmatch(line)
        assert found is not None
        name, operator, *values = found.groups()
        read = {
            key: cast("StepValue", eps) if value == "eps" else value
            for key, value in zip(("self", "other"), values, strict=True)
            if value
        }
        steps.append(Step(name=name, operator=operator, arguments=read, dtype="float32"))
    return tuple(steps)


def _length(kind: str, arguments: Mapping[str, Argument], shape: tuple[int, ...]) -> int:
    """Return the elements of a segment of a tensor of that shape."""
    match kind:
        case "groups":
            return prod(shape[1:]) // cast("int", arguments["count"])
        case "rows" | "channels":
            return prod(shape[-cast("int", arguments["count"]) :])
        case _:
            return shape[-1]
