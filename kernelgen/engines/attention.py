"""Attention: weights of a softmax over scores, and what they make of the values, as one stage."""

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any, NamedTuple

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.engine import Before, Engine, Target, Work
from kernelgen.engines.epilogue import Renaming
from kernelgen.engines.map import Map
from kernelgen.engines.product.claims import factors_of
from kernelgen.engines.reduce.record import Reduce
from kernelgen.engines.segment.record import Segment
from kernelgen.engines.stage import (
    Kernel,
    Library,
    Operand,
    Result,
    Stage,
    Step,
    StepValue,
    reads,
    step_of,
)
from kernelgen.engines.text.names import text_of
from kernelgen.engines.text.stage_text import C_TYPES, StageText, body_of, in_words
from kernelgen.graph.graph import MATRIX, Reference, TensorType

_FUSED = "scaled_dot_product_attention.default"
_SCORE = "score"
# Names that the kernels and their function have beside operands and steps.
_WORDS = """
    a batch batches column depth head heads key keys lead out queries query row score sizes tensors
    value whole width workspace
    """.split()  # noqa: SIM905 - a list of words reads best as words
MOST_WIDTH = 128  # whose sums a warpgroup's registers hold
_LEAST_ROWS = 64  # queries of a warpgroup, and keys of a tile
_LEAST_PRODUCTS = 1 << 28  # less is over before its kernels are launched
_SHARED_BYTES = 225 << 10
_QUERIES = 64  # of a warpgroup
_OF_HALVES = 4  # bytes of hi and lo


class Attention(Kernel, frozen=True, kw_only=True, tag="attention"):
    """A softmax over each row of scores, whose weights are multiplied by the values.

    Attributes:
        shape: of the scores: (..., queries, keys).
        operands: `query` (..., queries, depth), `key` (..., keys, depth), `value` (..., keys,
            width).
        turned: whether each of them has its last two dimensions the other way round.
        beside: what steps read beside a score, of shapes that are broadcast to the scores'.
        epilogue: steps from `score`, the product of a query and a key.
        weighed: the step that the softmax is of.
        causal: whether a query has no keys behind its own position.
        is_safe: whether rows without keys are zeros, and not NaN.
    """

    turned: tuple[bool, bool, bool]
    weighed: StepValue
    causal: bool = False
    is_safe: bool = False


class Tile(NamedTuple):
    """Sizes of what a block computes at a time.

    Attributes:
        keys: of a tile.
        groups: warpgroups of 64 queries.
        depth, width: of keys and values, with zeros behind.
        stages: tiles that shared memory holds.
    """

    keys: int
    groups: int
    depth: int
    width: int
    stages: int


class AttentionEngine(Engine[Attention]):
    """Attention in place of two products and a softmax, whose scores are never in memory."""

    record = Attention

    def replacement(
        self, stage: Library, before: Before, arch: Architecture | None
    ) -> tuple[Stage, ...]:
        """Return attention in place of torch's, or of the last of the products it is written as."""
        if arch != "sm_90a":
            return ()
        found = _fused(stage, before) if stage.aten == _FUSED else _written_out(stage, before)
        return (found,) if found is not None and _pays(found) else ()

    def work(self, stage: Attention) -> Work:
        """Return the operations of both products, and the bytes of the split of keys and values."""
        depth, width = _widths(stage)
        split = 2 * sum(operand.type.bytes for operand in stage.operands[1:])
        return Work(flops=2 * prod(stage.shape) * (depth + width), split_bytes=split, halves=True)

    def words(self, stage: Attention) -> str:
        """Return attention as a formula of the plan's values."""
        return _formula(stage, [operand.value for operand in stage.operands])

    def text(self, stage: Attention, target: Target) -> StageText:
        """Return attention as text."""
        depth, width = _widths(stage)
        tensors = [o for o in stage.beside if not o.is_number]
        names = {o.name: f"a.of_{o.name}" if o.is_number else f"{o.name}_i" for o in stage.beside}
        body = body_of(stage.epilogue, [stage.weighed], target.backend, names)
        summary = _formula(stage, ["query", "key", "value"])
        given = {
            "summary": summary,
            "depth": depth,
            "width": width,
            "g": tile_of(depth, width),
            "beside": [
                {"name": o.name, "c_type": C_TYPES[o.type.dtype], "dtype": o.type.dtype}
                for o in tensors
            ],
            "numbers": [o for o in stage.beside if o.is_number],
            "lines": body.lines,
            "value": body.values[0],
        }
        idea = f"{summary}: tensor cores multiply halves, and scores are never in memory"
        return msgspec.structs.replace(text_of(stage, target.backend, idea, given), features="own")


def tile_of(depth: int, width: int) -> Tile:
    """Return the sizes that registers and shared memory hold."""
    depth, width = (-(-size // 16) * 16 for size in (depth, width))
    widest = max(depth, width)
    keys, groups = (128, 3) if widest <= 32 else (128, 2) if widest <= 64 else (64, 2)  # noqa: PLR2004
    rest = _SHARED_BYTES - _OF_HALVES * _QUERIES * groups * depth
    return Tile(keys, groups, depth, width, min(3, rest // (_OF_HALVES * keys * (depth + width))))


def _formula(stage: Attention, factors: Sequence[str]) -> str:
    """Return attention as a formula of these factors."""
    weighed = in_words(stage.epilogue, stage.weighed)
    own = f" of {weighed}" * (weighed != _SCORE)
    query, key, value = factors
    ends = ", of keys up to its own" * stage.causal
    return f"attention({query}, {key}, {value}){own}{ends}"


def _widths(stage: Attention) -> tuple[int, int]:
    """Return the elements of a key and of a value."""
    _, key, value = (
        one.type.shape[-2:][:: -1 if turned else 1]
        for one, turned in zip(stage.operands, stage.turned, strict=True)
    )
    return key[1], value[1]


def _pays(stage: Attention) -> bool:
    """Whether attention is large enough for its kernels to be sooner done than torch's."""
    *_, queries, keys = stage.shape
    depth, width = _widths(stage)
    return (
        0 < max(depth, width) <= MOST_WIDTH
        and min(queries, keys) >= _LEAST_ROWS
        and prod(stage.shape) * (depth + width) >= _LEAST_PRODUCTS
    )


def _fused(stage: Library, before: Before) -> Attention | None:
    """Return torch's operator as attention; None if it draws, or shares keys in another way."""
    given = stage.arguments
    names = [given[name] for name in ("query", "key", "value")]
    if given["dropout_p"] != 0 or given.get("enable_gqa"):
        return None
    values = [one.name for one in names if isinstance(one, Reference)]
    depth = before.types[values[0]].shape[-1]
    scale = given["scale"] if isinstance(given["scale"], int | float) else 1 / sqrt(depth)
    steps = [step_of("scaled", "mul", _SCORE, scale)]
    beside: tuple[Operand, ...] = ()
    if isinstance(mask := given["attn_mask"], Reference):
        found = before.types[mask.name]
        beside = (Operand(name="mask", value=mask.name, type=found),)
        if found.dtype == "bool":
            arguments: dict[str, StepValue] = {"condition": "mask", "self": "scaled"}
            arguments["other"] = float("-inf")
            one = Step(name="masked", operator="where", arguments=arguments, dtype="float32")
            steps.append(one)
        else:
            steps.append(step_of("masked", "add", "scaled", "mask"))
    return _attention(
        stage,
        before.types,
        tuple(values),
        turned=(False, False, False),
        beside=beside,
        epilogue=tuple(steps),
        weighed=steps[-1].name,
        causal=bool(given["is_causal"]),
        is_safe=True,
    )


def _written_out(last: Library, before: Before) -> Attention | None:
    """Return a product as attention if its rows are weights of a softmax of products."""
    factors = factors_of(last, before.types)
    if factors is None or len(factors.values) != MATRIX or factors.turned[0]:
        return None
    weights, value = factors.values
    softmax = _softmax(before.only(weights), before)
    if softmax is None:
        return None
    for score in softmax.operands:
        first = before.makers.get(score.value)
        found = factors_of(first, before.types) if isinstance(first, Library) else None
        # A reduction and a map both read the scores.
        others = before.counts[score.value] - (1 if isinstance(softmax, Segment) else 2)
        if found is None or score.pattern != "each" or others > 0:
            continue
        query, key, *added = found.values
        # A bias is added to the product.
        made = "biased" if added else _SCORE
        biases = [Operand(name="added", value=one, type=before.types[one]) for one in added]
        steps = [step_of("biased", "add", _SCORE, "added") for _ in added]
        names = Renaming(softmax, {score.value: made}, (*_WORDS, "added", "biased"))
        return _attention(
            last,
            before.types,
            (query, key, value),
            turned=(found.turned[0], not found.turned[1], factors.turned[1]),
            beside=(*biases, *names.further),
            epilogue=(*steps, *names.steps),
            weighed=names.new(softmax.accumulators[0].of),
        )
    return None


def _softmax(stage: Stage | None, before: Before) -> Reduce | Segment | None:
    """Return what a softmax along the last dimension gathers, if a stage ends one."""
    gathered: Reduce | Segment
    if isinstance(stage, Segment):
        gathered, steps, outcome = stage, stage.after, dict(stage.outcome)
        last = (
            stage.dims
            if stage.extent is None
            else (stage.extent.by,) * (stage.extent.kind == "dim")
        )
    elif isinstance(stage, Map) and len(stage.results) == 1:
        made = (before.makers.get(value) for value in reads(stage))
        found = next((one for one in made if isinstance(one, Reduce)), None)
        if found is None or found.epilogue:
            return None
        gathered, last = found, found.dims
        results = {result.value: result.of for result in gathered.results}
        values = {operand.name: operand.value for operand in stage.operands}
        if any(values.get(o.name) != o.value for o in gathered.operands):
            return None
        outcome = {name: results[value] for name, value in values.items() if value in results}
        steps = tuple(step for step in stage.steps if step not in gathered.steps)
    else:
        return None
    kinds = {a.name: a.kind for a in gathered.accumulators}
    of = gathered.accumulators[0].of
    given = [list(step.arguments.values()) for step in steps]
    is_softmax = (
        [step.operator for step in steps] == ["sub", "exp", "div"]
        and [kinds.get(str(outcome.get(str(one[-1])))) for one in given] == ["max", None, "sumexp"]
        and {a.of for a in gathered.accumulators} == {of}
        and [one[0] for one in given] == [of, steps[0].name, steps[1].name]
        and stage.result.of == steps[2].name
    )
    is_last = last in {(-1,), (len(gathered.shape) - 1,)}
    return gathered if is_softmax and is_last else None


def _attention(
    stage: Library, types: Mapping[str, TensorType], values: tuple[str, ...], **own: Any
) -> Attention | None:
    """Return attention that leaves what a stage of torch's does; None of what is not float32."""
    (out,) = stage.types
    read = [types[value] for value in values]
    if out is None or any(
        one.dtype != "float32" or len(one.shape) < MATRIX for one in (*read, out)
    ):
        return None
    if any(o.flat or o.type.dtype not in {"float32", "bool", "float64"} for o in own["beside"]):
        return None
    named = zip(("query", "key", "value"), values, read, strict=True)
    keys = read[1].shape[-1 if own["turned"][1] else -2]
    return Attention(
        name="attention",
        shape=(*out.shape[:-1], keys),
        operands=tuple(Operand(name=name, value=value, type=one) for name, value, one in named),
        results=(Result(value=stage.name, of="attended", type=out),),
        **own,
    )
