"""A pool: the maximum or the mean of a window that moves over the last dimensions."""

from math import gcd, prod

from kernelgen.planning.plan import Pool
from kernelgen.problem.record import Backend
from kernelgen.rendering.environment import cpp_environment, python_environment
from kernelgen.rendering.stages.gathering import gathered_names
from kernelgen.rendering.stages.reading import VECTOR
from kernelgen.rendering.stages.stage_text import StageText, call_of, operators_of

_THREADS = 256
_FOURS = 4 * _THREADS  # that a block gathers, about
_FOURS_OF_ROW = 512
_BYTES = 24 << 10
_BATCH = 8  # at most, loads of a thread that are under way together
_LONGEST_IN_FLOAT = 64  # a longer sum is gathered in double
_UNROLLED = 32


def render_pool(stage: Pool, backend: Backend) -> StageText:
    """Return a pool as text."""
    rank = len(stage.kernel)
    given = gathered_names(stage, backend, [stage.of])
    window = " x ".join(map(str, stage.kernel))
    summary = f"the {'maximum' if stage.kind == 'max' else 'mean'} of {given['formula']}"
    summary += f" in windows of {window}"
    ones = 3 - rank
    taps = prod(stage.kernel[:-1])
    in_double = stage.kind == "mean" and taps + stage.kernel[-1] > _LONGEST_IN_FLOAT
    counts = stage.result.type.shape[-rank:]
    outputs = _outputs(stage, counts[-1])
    fours = _fours(stage, outputs)
    of_block = min(_FOURS, _BYTES // (VECTOR * (8 if in_double else 4))) // fours
    varies = stage.ceil_mode or (not stage.count_padding and any(stage.padding))
    given |= {
        "kind": stage.kind,
        "rank": rank,
        "summary": summary,
        "kernel": (1,) * ones + stage.kernel,
        "stride": (1,) * ones + stage.stride,
        "padding": (0,) * ones + stage.padding,
        "dilation": (1,) * ones + stage.dilation,
        "windows": tuple(
            (*numbers, stage.ceil_mode)
            for numbers in zip(
                stage.kernel, stage.stride, stage.padding, stage.dilation, strict=True
            )
        ),
        "varies": stage.kind == "mean" and not stage.divisor and varies,
        "count_padding": stage.count_padding,
        "divisor": stage.divisor or prod(stage.kernel),
        "value_type": "double" if in_double else "float",
        "outputs": outputs,
        "fours": fours,
        "rows": max(1, min(of_block, prod(stage.result.type.shape[:-1]))),
        "threads": _THREADS,
        "batch": -(-taps // -(-taps // _BATCH)),
        "taps": taps,
        "unroll": "" if stage.kernel[-1] <= _UNROLLED else " 8",
    }
    folder, suffix = ("cuda", "cu") if backend == "cuda" else ("cpp", "cpp")
    return StageText(
        kind="pool",
        idea=f"{summary[0].upper()}{summary[1:]}",
        kernel=cpp_environment().get_template(f"{folder}/stages/pool.{suffix}.jinja").render(given),
        function=python_environment().get_template("stages/pool.py.jinja").render(given),
        call=call_of(stage.name, stage.operands),
        operators=operators_of(stage.steps),
    )


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
    stride, padding = stage.stride[-1], stage.padding[-1]
    span = (outputs - 1) * stride + (stage.kernel[-1] - 1) * stage.dilation[-1] + 1
    step = gcd(outputs * stride, VECTOR)
    before = VECTOR - step + -padding % step
    return -(-(span + before) // VECTOR)
