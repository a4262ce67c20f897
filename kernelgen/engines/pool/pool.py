"""A pool: the maximum or the mean of a window that moves over the last dimensions."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import gcd, prod

import msgspec

from kernelgen.engines.architectures import Architecture
from kernelgen.engines.engine import Claim, Engine, Given, Target
from kernelgen.engines.epilogue import with_epilogue
from kernelgen.engines.naming import Names
from kernelgen.engines.pool.record import POOLED, Pool, Window
from kernelgen.engines.pool.window import window_of
from kernelgen.engines.stage import Kernel, Result
from kernelgen.engines.text.names import element_names, gathered_names, text_of
from kernelgen.engines.text.reading import VECTOR, Reading, index_of, power_of_two
from kernelgen.engines.text.stage_text import StageText, body_of, filled, in_words
from kernelgen.graph.graph import Node, TensorType
from kernelgen.problem.record import Backend

_STRIP = (4, 4, 2)  # rows of outputs of a thread, at most, by the dimensions of the window
_LINES = 21  # rows that these windows span, at most
_THREADS = 160
_FOURS_OF_ROW = 257
_BYTES = 46 << 10
_BATCH = 8  # at most, loads of a thread that are under way together
_LANES = 32
_EACH = 4  # outputs of a thread, at most, whose addresses differ by constants
_LONGEST_IN_FLOAT = 64  # a longer sum is gathered in double
_UNROLLED = 32


class PoolEngine(Engine[Pool]):
    """Windows that move over the last dimensions."""

    record = Pool

    def claim(self, node: Node, types: Mapping[str, TensorType]) -> Claim | None:
        """Return how a node becomes a pool."""
        window = window_of(node, types)
        return None if window is None else Claim(partial(_made, window), window.of)

    def fused(
        self, first: Kernel, second: Kernel, others: Names, arch: Architecture | None
    ) -> tuple[Kernel, ...]:
        """Return a pool with the map of its result."""
        del arch
        return with_epilogue(first, second, others) if isinstance(first, Pool) else ()

    def words(self, stage: Pool) -> str:
        """Return a pool as a formula."""
        w = stage.window
        window = "x".join(map(str, w.kernel))
        pooled = f"{w.kind} of {window}({in_words(stage.steps, w.of)})"
        return filled(in_words(stage.epilogue, stage.result.of), {POOLED: pooled})

    def text(self, stage: Pool, target: Target) -> StageText:
        """Return a pool as text."""
        return _text(stage, target.backend)


def _made(window: Window, given: Given) -> Pool:
    """Return the stage of a window."""
    body = given.body
    return Pool(
        name=given.kernels.kernel((*body.steps, f"{window.kind}_pool"), window.kind),
        shape=body.shape,
        operands=body.operands,
        steps=body.steps,
        results=(Result(value=given.node.name, of=POOLED, type=given.types[given.node.name]),),
        window=msgspec.structs.replace(window, of=given.of),
    )


def _text(stage: Pool, backend: Backend) -> StageText:
    w = stage.window
    rank = len(w.kernel)
    given = gathered_names(stage, backend, [w.of], in_32_bits=True)
    by_line = backend == "cuda" and bool(given["spread_before"]) and not given["vectors"]
    by_line &= all(
        o.inner % stage.shape[-1] == 0 or (o.pattern, o.size) == ("along", 1)
        for o in given["spread_before"]
    )
    window = " x ".join(map(str, w.kernel))
    summary = f"the {'maximum' if w.kind == 'max' else 'mean'} of {given['formula']}"
    summary += f" in windows of {window}"
    names = {o.name: o.element for o in given["beside"] if o.is_number}
    names |= element_names(given["beside"], backend)
    names[POOLED] = POOLED if w.kind == "max" else "outcome"
    after = body_of(stage.epilogue, [stage.result.of], backend, names)
    if stage.epilogue:
        summary = in_words(stage.epilogue, stage.result.of).replace(POOLED, summary)
    headline = summary if stage.epilogue else f"{summary[0].upper()}{summary[1:]}"
    ones = 3 - rank
    taps = prod(w.kernel[:-1])
    in_double = w.kind == "mean" and taps + w.kernel[-1] > _LONGEST_IN_FLOAT
    counts = stage.result.type.shape[-rank:]
    outputs = _outputs(stage, counts[-1])
    fours = _fours(stage, outputs)
    strip, pitch, lines = _strip(stage)
    row_bytes = fours * VECTOR * (8 if in_double else 4)
    strips = max(1, min(_THREADS // fours, _BYTES // (strip * row_bytes)))
    lanes = min(_LANES, power_of_two(outputs))
    each = min(_EACH, -(-outputs // lanes))
    varies = w.ceil_mode or (not w.count_padding and any(w.padding))
    given |= {
        "kind": w.kind,
        "by_line": by_line,
        "columns": True,
        "at_plane": _at_plane(stage, given["spread_before"]),
        "condition": _is_main(stage, given["spread_before"]),
        "main_sizes": stage.shape[-2:],
        "hangs": w.ceil_mode or any(w.padding),
        "main": "kMain" if by_line else "kVectors",
        "after": after.lines,
        "mapped": after.values[0] if stage.epilogue else "",
        "rank": rank,
        "summary": summary,
        "headline": headline,
        "kernel": (1,) * ones + w.kernel,
        "stride": (1,) * ones + w.stride,
        "padding": (0,) * ones + w.padding,
        "dilation": (1,) * ones + w.dilation,
        "windows": tuple(
            (*numbers, w.ceil_mode)
            for numbers in zip(w.kernel, w.stride, w.padding, w.dilation, strict=True)
        ),
        "varies": w.kind == "mean" and not w.divisor and varies,
        "count_padding": w.count_padding,
        "divisor": w.divisor or prod(w.kernel),
        "value_type": "double" if in_double else "float",
        "outputs": outputs,
        "fours": fours,
        "strip": strip,
        "strips": strips,
        "lines_read": lines,
        "batch": -(-lines // -(-lines // _BATCH)),
        "pitch": pitch,
        "lanes": lanes,
        "each": each,
        "pieces": -(-outputs // (lanes * each)),
        "unroll": "" if w.kernel[-1] <= _UNROLLED else " 8",
    }
    return text_of(stage, backend, headline, given)


def _at_plane(stage: Pool, spread: Sequence[Reading]) -> dict[str, str]:
    """Return the indices, at the main shape, of operands that are the same for a plane of lines."""
    plane = prod(stage.shape[-2:])
    return {
        o.name: index_of(o.pattern, o.inner_name, o.size_name, o.index_type, "plane")
        for o in spread
        if o.pattern == "along" and o.inner % plane == 0 and len(stage.window.kernel) > 1
    }


def _is_main(stage: Pool, spread: Sequence[Reading]) -> str:
    """Return the C condition on sizes under which the kernel for the main shape is right."""
    if not spread:
        return f"a.width % {VECTOR} == 0"
    names = ("width", "height", "depth")[: len(stage.window.kernel)]
    sizes = dict(zip(names, stage.shape[::-1], strict=False))
    parts = [f"a.{name} == {size}" for name, size in sizes.items()]
    if spread[0].index_type == "unsigned":
        images = ("a.height", "a.slices", "a.slices / a.count_d")[len(names) - 1]
        parts += [f"int64_t{{{images}}} * {prod(sizes.values())} <= UINT32_MAX"]
    return " && ".join(parts)


def _strip(stage: Pool) -> tuple[int, int, int]:
    """Return of how many rows a thread gathers the windows, and which lines these read.

    Those are the second number apart; the third says how many.
    """
    w = stage.window
    most = _STRIP[len(w.kernel) - 1]
    if len(w.kernel) == 1:
        strip = min(most, prod(stage.result.type.shape[:-1]))
        return strip, 1, strip
    kernel, stride, dilation = w.kernel[-2], w.stride[-2], w.dilation[-2]
    pitch = gcd(stride, dilation)
    for strip in range(min(most, stage.result.type.shape[-2]), 1, -1):
        lines = ((strip - 1) * stride + (kernel - 1) * dilation) // pitch + 1
        if lines <= _LINES:
            return strip, pitch, lines
    return 1, dilation, kernel


def _outputs(stage: Pool, count: int) -> int:
    """Return how many neighbouring outputs a block computes of a row at the main shape."""
    most = max(_FOURS_OF_ROW, _fours(stage, 1))
    outputs = min(count, VECTOR * most)
    while outputs > 1 and _fours(stage, outputs) > most:
        outputs -= 1
    blocks = -(-count // outputs)
    if blocks > 1 and outputs >= VECTOR:
        outputs = min(outputs // VECTOR, -(-count // (blocks * VECTOR))) * VECTOR
    return outputs


def _fours(stage: Pool, outputs: int) -> int:
    """Return how many aligned fours cover neighbouring windows, wherever a block begins."""
    w = stage.window
    stride, padding = w.stride[-1], w.padding[-1]
    span = (outputs - 1) * stride + (w.kernel[-1] - 1) * w.dilation[-1] + 1
    step = gcd(outputs * stride, VECTOR)
    before = VECTOR - step + -padding % step
    return -(-(span + before) // VECTOR)
