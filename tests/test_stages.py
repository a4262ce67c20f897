"""The contract of stages: each kind gives what torch gives, whatever its operands are.

One list for maps, reductions, scans, pools, segments and products, run as C++, as CUDA in the
emulation and as CUDA on a GPU: operands of every pattern, dimensions, odd sizes, memory that is not
aligned or not in order, NaN and infinities.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from planned_models import Planned, problem_of, ptx_of

from kernelgen.engines.product import claims
from kernelgen.engines.reduce import reduce
from kernelgen.problem.record import Backend, Device

pytestmark = pytest.mark.sampled(rest="ci")

BACKENDS: tuple[Backend, ...] = ("cuda", "cpp")
Shape = tuple[int, ...]
INF, NAN = float("inf"), float("nan")


class Sample(NamedTuple):
    """A forward whose kernels the planner writes.

    Attributes:
        forward: an expression of x and other inputs.
        main: their main shapes, such as `x=6,8 y=8`. One with a point is a number, one behind `?` a
            mask; `()` has no dimension. Or an input's expression, with `torch.` in it.
        others: shapes in the same order, such as `3,8 8`, separated by semicolons.
        layers: statements of the constructor.
        launches: kernels of a call; 0 is any number, and nothing is left to torch.
        data: expressions of x, each of which x is to be as well.
        any_values: x may be infinite or NaN.
        text: what stands in CUDA's text.
    """

    forward: str
    main: str
    others: str = ""
    layers: str = ""
    launches: int = 1
    data: tuple[str, ...] = ()
    any_values: bool = True
    text: str = ""


# Operands of every pattern around one of a kind: an element for each, along some dimensions, across
# them, a number, a mask, one for all.
AROUND = "((({}) - c) * b + y * s - d / 4 + p) * m"
BEFORE = AROUND.format("x")
IMAGES = "x={0} y={0} b=5,1,1 c=2,1,8,{1} d={1} p=() s=0.5 m=?{0}"
OTHER_IMAGES = (
    "3,2,9,7 3,2,9,7 2,1,1 3,1,9,7 7 () -2.0 3,2,9,7;"
    "2,5,8,16 2,5,8,16 5,1,1 2,1,8,16 16 () 2.0 2,5,8,16;"
    # In another pattern than at the main sizes.
    "2,3,8,16 2,3,8,16 1,8,16 1,3,8,16 1 () 1.0 1,16;"
    "1,5,8,13 1,5,8,13 1,1,1 1,1,8,13 13 () 0.0 8,13"
)


def around(forward: str, width: int = 16, **others: Any) -> Sample:
    """Return a sample with operands of every pattern."""
    main = IMAGES.format(f"2,5,8,{width}", width)
    return Sample(forward, main, OTHER_IMAGES, **others)


def statistics(dims: str) -> str:
    """Return a forward with every kind of accumulator that goes along these dimensions."""
    names = ("sum", "mean", "amax", "amin") + (() if "(" in dims else ("prod",))
    results = [f"x.{name}({dims})" for name in names]
    results += [f"torch.var(x, {dims})", f"torch.logsumexp(x, {dims})"]
    return f"({', '.join(results)}, torch.square(x).mean({dims}) * 2 + x.sum({dims}))"


MAPS = [
    around(BEFORE),
    around(BEFORE, 13),
    Sample("torch.relu(x) * 2 + 1", "x=5,7", "6,8;1;0,4;2,3,4"),
    Sample("torch.sigmoid(x) + y", "x=6,8 y=8", "3,8 8;5,7 7;5,7 5,7;5,7 5,1;1 1;2,3,4 3,1;0,4 4"),
    Sample("x + y", "x=6,8 y=6,1"),
    Sample("x + y", "x=6,8,4 y=6,1,4"),
    Sample("x + y", "x=3,6,8,4 y=1,6,1,4"),
    Sample("x + y", "x=6,1 y=1,5"),
    Sample("x * y + z", "x=2,9001 y=2,1 z=9001"),
    Sample("(x > 0, torch.exp(x))", "x=6,8"),
    Sample("(torch.zeros_like(x) + 1, torch.relu(x))", "x=6,8"),
    # Of the shape of what is not read.
    Sample("torch.full_like(x, 3.0) * y", "x=6,8 y=8"),
    Sample("torch.relu(y) - torch.ones_like(x)", "x=6,8 y=8"),
]
FAR = ("x + 1000", "x + 10_000", "x * 1e-3 - 100", "x.clone().index_fill_(1, ZERO, 1e6)")
EXTREMES = "(*torch.max(x, 1), *torch.min(x, 1), torch.argmax(x, 1), torch.argmin(x, 1, True))"
REDUCTIONS = [
    *(around(f"({BEFORE}).{over}", width) for over, width in (
        ("sum(-1)", 16), ("mean((0, 2, 3))", 16), ("amax(1)", 13), ("sum((1, 2, 3))", 13)
    )),
    # Rows, short and long; of pieces.
    Sample(statistics("-1"), "x=5,12", "3,7;4,40;2,2503;3,20003"),
    Sample(statistics("(1,)"), "x=3,2052", "2,2051;2,9"),
    Sample(statistics("(0, 2, 3)"), "x=4,3,5,8", "2,3,5,8;3,2,2,3"),
    Sample(statistics("(0, 2)"), "x=4,3,64", "2,5,7"),
    Sample(statistics("(1, 3)"), "x=2,3,2,8", "2,2,3,5"),
    # Columns.
    Sample(statistics("1"), "x=3,20,7", "2,5,70"),
    Sample(statistics("0"), "x=40,6", "9,3;33,65"),
    # Four neighbouring columns of a thread, but for sizes that are no multiple of that.
    around(f"(({BEFORE}).amax(1), ({BEFORE}).var(1))", text="kAcross * (main ? 4 : 1)"),
    Sample(statistics("1"), "x=3,20,8", "2,5,72;2,5,7;1,131,4", text="gather_columns<true>"),
    Sample("(x.var(1), x.logsumexp(1), x.argmin(1))", "x=2,600,8", "1,3,132", data=FAR[:1],
           text="gather_columns<true>"),
    Sample("(x.sum(0), x.std(0), torch.argmin(x, 0))", "x=5000,4", "1301,72;2,5",
           data=("x + 1000",), text="combine<<<"),
    # Neither: permuted.
    Sample(statistics("(0, 2)"), "x=3,4,5,6", "2,3,2,3"),
    Sample(statistics("(1, 3)"), "x=2,3,4,2,3", "1,2,3,4,5"),
    Sample("(x.sum(1), x.mean(1), x.prod(1))", "x=3,8", "3,0;0,3;3,1"),
    # Long enough that several blocks share one.
    Sample("(x.mean(), x.var(), x.amax(), torch.argmax(x), x.logsumexp((0, 1)))", "x=2,40000",
           "3,10001;7,3", data=("x + 1000", "x * 0"), text="combine<<<"),
    Sample("(x.sum(0), x.std(0), torch.argmin(x, 0))", "x=5000,3", "1301,70;2,5",
           data=("x + 1000",), text="combine<<<"),
    Sample("(x.sum(1), x.argmax(1))", "x=2,600,5", "1,3,130", data=FAR, text="kThreads = 1024;"),
    # Of so many states there is no room for more threads.
    Sample("(x.var(1), x.logsumexp(1), x.argmin(1))", "x=2,600,5", "1,3,130", data=FAR[:1],
           text="kThreads = 256;"),
    Sample(EXTREMES, "x=3,8", "6,2400;2,9", launches=2),
    Sample(EXTREMES, "x=3,4,7", "1,6,6;6,2400,1;2,9,5", launches=2),
    Sample("(x.var(1), x.std(1, correction=0), *torch.var_mean(x, 1, unbiased=False))", "x=3,512",
           "2,77", data=FAR),
    # Torch's mean of an infinity depends on its place.
    Sample("torch.var_mean(x, 1)", "x=3,8", "2,1", any_values=False),
    Sample("((x - y) ** 2).mean()", "x=6,8 y=8", "13,8 8"),
    Sample("(x * y).sum(1)", "x=6,80 y=6,1", "13,80 1,1"),
    Sample("(x * y).sum(1)", "x=3,6,7 y=7", "7,6,7 7"),
    Sample("(x * s).sum(1) / s + y", "x=6,8 s=3.5 y=6"),
    Sample("x.sum(1, keepdim=True) + y", "x=4,6,8 y=8", "9,6,8 8"),
    Sample("(x * y).sum((0, 2))", "x=3,4,5,6 y=6", "7,4,5,6 6"),
    Sample("(x.mean(), x.mean((0, 1), keepdim=True), torch.argmax(x), x.argmin(keepdim=True))",
           "x=3,4", "5,7", launches=2),
    Sample("x.sum()", "x=3,4", "();0,3;2,3,4"),  # of any rank, as torch has it
    Sample("(torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(x, 1),"
           " torch.linalg.vector_norm(x, float('inf'), dim=0), torch.norm(x),"
           " torch.linalg.vector_norm(x, 3, 1, True))", "x=9,20", launches=0),
    Sample("(x.mean(0), x.argmax(-1), x.var(0, correction=0), x.norm(dim=0), x.logsumexp(-1))",
           "x=()", launches=0),  # a dimension may be named all the same
]  # fmt: skip
CLASSES = "y=torch.arange(9)%5"
PLACES = "y=torch.arange(12).view(3,4)%5"
LOSSES = [
    Sample(forward, main, launches=launches, any_values="F.cross_entropy" in forward)
    for launches, forward, main in (
        (6, """(F.mse_loss(x, y), F.mse_loss(x, y, reduction='none'), F.cosine_similarity(x, y),
         F.smooth_l1_loss(x, y, beta=0.7), F.smooth_l1_loss(x, y, beta=0.0),
         F.l1_loss(x, y, reduction='sum'), F.huber_loss(x, y, delta=0.6),
         F.kl_div(x, y, log_target=True, reduction='sum'), F.cosine_embedding_loss(x, y, t),
         F.triplet_margin_loss(x, y, z, margin=0.5))""",
         "x=9,20 y=9,20 z=9,20 t=torch.randn(9).sign()"),
        (1, """(F.kl_div(torch.log(x), y, reduction='batchmean'),
         F.binary_cross_entropy_with_logits(x, y))""",
         "x=torch.rand(9,20) y=torch.rand(9,20).round()"),
        (1, "F.huber_loss(x, y)", "x=9,20 y=9,20"),
        (2, "F.triplet_margin_loss(x, y, z)", "x=9,20 y=9,20 z=9,20"),
        (2, "F.cross_entropy(x, y)", "x=9,40 y=torch.arange(9)*4"),
        (1, "F.cross_entropy(x, y, reduction='none')", "x=9,2500 y=torch.arange(9)"),
        (5, """(F.cross_entropy(x * 3, y), F.cross_entropy(x * 3, y, reduction='sum'),
         F.cross_entropy(x, y, ignore_index=3), F.cross_entropy(x, y, reduction='none'))""",
         f"x=9,20 {CLASSES}"),
        (4, """(F.cross_entropy(x, y, label_smoothing=0.1),
         F.cross_entropy(x, y, label_smoothing=1.0),
         F.cross_entropy(x, y, ignore_index=3, label_smoothing=0.3))""", f"x=9,20 {CLASSES}"),
        (2, "F.cross_entropy(x, y)", f"x=3,5,4 {PLACES}"),
        (5, """(F.nll_loss(torch.log_softmax(x, 1), y), F.nll_loss(x * 2, y, reduction='sum'),
         F.nll_loss(x, y, ignore_index=3), F.nll_loss(x, y, reduction='none'))""",
         f"x=9,20 {CLASSES}"),
        (2, "F.nll_loss(x, y)", "x=2,40000 y=torch.arange(2)*39999"),
        (2, "F.nll_loss(x.exp(), y)", f"x=3,5,4 {PLACES}"),
    )
]  # fmt: skip
FROM_END = "torch.cumsum(x.flip({0}), dim={0}).flip({0})"
EXCLUSIVE = (
    "torch.cat((torch.zeros_like(x.select({0}, 0).unsqueeze({0})),"
    " torch.cumsum(x.narrow(dim={0}, start=0, length=x.size({0}) - 1), dim={0})), dim={0})"
)
ROWS = "1,1;2,2;3,131;2,515;4,132;0,9"
COLUMNS = "1,1;2,2;131,3;515,2;132,4;0,9"
CUBES = "1,19,1;2,19,2;3,131,7;4,1,132;0,19,7"
# Of both signs and of sizes far apart, whose sums come back to 0.
CANCELLING = "torch.stack((H := x[:, ::2] * 10.0 ** (x[:, ::2] * 2).round(), -H), 2).flatten(1)"
SCANS = [
    around(f"torch.cumsum({BEFORE}, -1)"),
    around(f"torch.cumsum({BEFORE}, 1)", 13),
    Sample("torch.cumsum(x, 1)", "x=3,4100", ROWS),
    Sample("torch.cumprod(x, 1)", "x=3,300", ROWS),
    Sample(FROM_END.format(1), "x=2,2308", ROWS),
    Sample(EXCLUSIVE.format(1), "x=2,2308", ROWS),
    Sample("torch.cumsum(x, 0)", "x=37,5", COLUMNS),
    Sample("torch.cumprod(x, 1)", "x=2,19,7", CUBES),
    Sample(FROM_END.format(1), "x=2,19,70", CUBES),
    Sample(EXCLUSIVE.format(0), "x=19,3", "1,1;2,2;131,3;515,2;132,4;19,0"),
    Sample("torch.cumsum(torch.relu(x) * 2 - 1, -1)", "x=5,33", ROWS),
    Sample("torch.cumsum(torch.relu(x) * 2 - 1, 0)", "x=5,33", COLUMNS),
    Sample("torch.cumsum(x * m, 1)", "x=3,132 m=?132", "3,132 3,1;5,30 30;5,33 5,33"),
    Sample("torch.cumsum(x, 1)", "x=2,32768", data=(CANCELLING, "x.abs()")),
    Sample("torch.cumsum(x, 0)", "x=32768,2", data=(CANCELLING.replace("x", "x.t()") + ".t()",)),
    # Over all of a double's range, of which a zero stays zero.
    Sample("torch.cumprod(x, 1)", "x=torch.rand(2,4096)", any_values=False,
           data=("torch.where(x > 0.5, 1, -1) * torch.exp(0.001 * x)",)),
]  # fmt: skip
# The options of KernelBench's problems 41 to 46, and others; sizes down to those smaller than a
# window.
POOLS = [
    *(around(forward, width) for forward, width in (
          (f"F.max_pool2d({BEFORE}, 3, 2, 1)", 13),
          (f"F.avg_pool2d(torch.tanh({BEFORE}), (3, 4), (2, 1), (1, 2))", 13),
          (f"F.avg_pool3d({BEFORE}, (1, 2, 3)) * s", 13),
          (AROUND.format("F.max_pool2d(x, 3, 1, 1)"), 16),
          (AROUND.format("F.avg_pool2d(torch.tanh(x) * s, 3, 1, 1)"), 16),
          (AROUND.format("F.avg_pool3d(x, (1, 3, 3), 1, (0, 1, 1), count_include_pad=False)"), 16),
    )),
    # Repeated elements are read once a line.
    Sample("F.max_pool2d((x - c.exp()) * b + p * s, 3, 2, 1)",
           "x=2,5,7,13 c=2,1,7,13 b=5,1,1 p=() s=0.5",
           "3,5,14,13 3,1,14,13 5,1,1 () -2.0;3,5,8,16 1,5,8,16 1,8,16 () 1.0",
           text="is_for_lines"),
    Sample("F.mish(F.max_pool2d(x, 2)) * s + b", "x=2,5,8,16 b=5,1,1 s=0.5"),
    Sample("s - F.avg_pool2d(x, 3, 2, 1, True, False) * s * b", "x=2,5,8,16 b=5,1,1 s=0.5"),
    Sample("F.max_pool2d(x, 3, 1, 1) > c", "x=2,5,8,16 c=2,1,8,16"),
    Sample("F.max_pool1d(x, 8, 1, 4, dilation=3)", "x=2,3,3000", "2,3,40;5,3,31;2,3,14;0,3,3000"),
    Sample("F.max_pool1d(x, 3, 2, 1, ceil_mode=True)", "x=2,3,16", "2,3,15;2,3,2;5,3,1"),
    Sample("F.max_pool2d(x, 4, 1, 1)", "x=2,3,12,20", "2,3,9,33;5,3,2,2;2,3,5,4;0,3,12,20"),
    Sample("F.max_pool2d(x, (2, 3), (3, 1), (0, 1), (1, 2))", "x=3,9,12", "3,8,7;5,2,3"),
    Sample("F.max_pool2d(x, 3, 2, 1, ceil_mode=True)", "x=3,8,12", "3,7,13;5,1,1"),
    Sample("F.max_pool2d(x, 3, 2, 1)", "x=2,8,12", "2,8,13", data=("-1 - x.abs()", "x * 0 - INF")),
    Sample("F.max_pool3d(x, 3, 2, 1, 3)", "x=2,8,9,12", "2,7,5,6;2,5,10,21"),
    Sample("F.avg_pool1d(x, 8, 1, 4)", "x=2,3,3000", "2,3,40;5,3,5;2,3,1"),
    Sample("F.avg_pool1d(x, 4, 3, 2, True, False)", "x=3,12", "3,14;5,15;3,2"),
    Sample("F.avg_pool2d(x, 11)", "x=2,3,24,44", "5,3,33,23;2,3,11,11"),
    Sample("F.avg_pool2d(x, 3, 2, 1, True)", "x=2,8,12", "2,7,13;5,6,6;2,2,1"),
    Sample("F.avg_pool2d(x, 3, 2, 1, False, False)", "x=2,8,12", "2,7,13;5,2,2"),
    Sample("F.avg_pool2d(x, (2, 3), (1, 2), divisor_override=5)", "x=2,8,12", "5,4,7"),
    Sample("F.avg_pool2d(x, (80, 2), 1)", "x=1,81,12", "5,83,5"),
    Sample("F.avg_pool3d(x, 3, 2, 1)", "x=2,6,8,16", "2,5,6,7;5,3,4,3"),
    Sample("F.avg_pool3d(x, 2, 3, 1, True, False)", "x=2,6,5,8", "5,5,6,7"),
    # Read by who calls forward, by torch, or by a map that is larger than the pool's result.
    *(Sample(forward.replace("p(x)", "F.max_pool2d(x, 3, 1, 1)"), main, launches=launches)
      for forward, main, launches in (
          ("(p(x), torch.relu(p(x)))", "x=2,8,8", 2),
          ("(lambda q: (q, torch.relu(q)))(p(x))", "x=2,8,8", 2),
          ("(lambda q: torch.relu(q) + q.sort(-1).values)(p(x))", "x=2,8,8", 2),
          ("torch.relu(p(x)) + y", "x=2,8,8 y=3,2,8,8", 2),
          ("torch.relu(p(x)).sum(-1)", "x=2,8,8", 2),
          ("(lambda q: torch.relu(q) * q)(p(x))", "x=2,8,8", 1),
      )),
    # A norm before it, which is a reduction and a pool, or a segment and a pool.
    Sample("F.max_pool2d(F.group_norm(x, 2), 2)", "x=3,8,6,5", launches=2),
    Sample("F.avg_pool1d(F.group_norm(x, 4).tanh(), 3)", "x=2,8,12", launches=2),
    Sample("F.max_pool2d(F.group_norm(x, 2), 2)", "x=3,8,6", launches=2),
]  # fmt: skip
RMS = "x / torch.sqrt((x ** 2).mean(dim=1, keepdim=True) + 1e-5)"
LAYER = "self.n = nn.LayerNorm({})"
UNBATCHED = "self.n = nn.InstanceNorm{}, affine=True)\nnn.init.uniform_(self.n.weight)"
OTHER_COLUMNS = (
    "1,8,4,4;5,8,4,4;8,64,1,1;3,9,4,4;2,700,1,1;3,8,5,5;2,1,3,3;1,300,40,1;0,8,4,4;3,8,0,4"
)
SEGMENTS = [
    around(f"torch.softmax({BEFORE}, -1)", launches=0),
    around(f"torch.softmax({BEFORE}, 1)", 13, launches=0),
    around(AROUND.format("torch.softmax(x, -1)")),
    around(AROUND.format("torch.softmax(x, 1)")),
    # Columns, each held by a thread.
    Sample(RMS, "x=3,8,5,7"),
    Sample(RMS, "x=3,8,4,4", OTHER_COLUMNS),
    Sample("torch.softmax(x, 1) + x.mean(1, keepdim=True)", "x=8,64,1,1", OTHER_COLUMNS),
    Sample("torch.softmax(x, 1)", "x=3,128,50"),
    # Nothing to sum.
    Sample("(x.logsumexp(1), (torch.softmax(x, 1) * x).sum(1), torch.log_softmax(x, 1))", "x=3,8",
           "3,0;0,8;0,0", launches=0),
    Sample("(x - x.amin((1, 2), keepdim=True)) * y / s", "x=2,3,4,6 y=2,1,1,6 s=2.5"),
    Sample("x * y / (x + y).sum(0, keepdim=True).abs().add(1)", "x=9,33 y=9,33"),
    Sample("torch.softmax(x, 1) + y", "x=2,128,9 y=128,1"),
    # Rows, in a few lanes, a warp and a block; the values of a lane as vectors or one by one.
    Sample("torch.relu(self.n(x)) + x", "x=70,16", layers=LAYER.format(16)),
    Sample("self.n(x)", "x=9,64", layers=LAYER.format(64),
           data=("x + 30", "x * 1e-3", "x * 0 + 0.125")),
    Sample("torch.log_softmax(x, -1)", "x=40,13", "3,24", data=("50 * x + 1e4", "x * 0 - INF")),
    Sample("self.n(x + y)", "x=5,300 y=300", layers=LAYER.format(300)),
    Sample("self.n(x) * y", "x=3,2052 y=3,1", layers=LAYER.format(2052)),
    Sample("torch.softmax(x, 1)", "x=3,1001", data=("50 * x + 1e4",)),
    Sample("x > x.amax(2, keepdim=True) - 0.5", "x=3,5,20"),
    Sample("(torch.softmax(x, 1), x - x.amax(1, keepdim=True), x - x.amin(1, keepdim=True))",
           "x=4,6,5", "3,24,1", launches=3, data=("50 * x + 1e4",)),
    # Of each segment, a number is left as well.
    Sample("(x - (m := x.mean(1, keepdim=True)), m)", "x=9,64", "3,0;0,8;0,0;5,1001"),
    Sample("((x + y - (m := (x + y).mean(1, keepdim=True))) * s, m)", "x=3,2052 y=2052 s=2.5"),
    Sample("(m := x.square().sum(1, keepdim=True), x * torch.rsqrt(m + 1))", "x=40,13", "7,24"),
    Sample("(x / (m := x.abs().amax(1, keepdim=True).clamp(min=1)), m)", "x=3,8,50", "2,5,3;3,8,0"),
    # Groups, with what stands before and after.
    Sample("F.hardtanh(self.n(torch.relu(x * self.b))) + y", "x=3,12,5,3 y=3,12,5,3",
           layers="self.n = nn.GroupNorm(4, 12)\nself.b = nn.Parameter(torch.ones(12, 1, 1))"),
    Sample("self.n(x)", "x=2,6,8,9", layers="self.n = nn.InstanceNorm2d(6, affine=True)"),
    # Images that are none of a batch, each channel with a weight of its own.
    Sample("self.n(x) + y", "x=4,6 y=4,6", "4,9 4,9", layers=UNBATCHED.format("1d(4")),
    Sample("self.n(x)", "x=16,64,17", layers=UNBATCHED.format("2d(16")),
    Sample("(self.n(x), torch.softmax(y, 1))", "x=3,8 y=3,8", layers=LAYER.format(8), launches=2),
    # A map behind dimensions that are merged again.
    Sample("F.silu(self.n(x).flatten(2)) * s + 1", "x=2,6,8,9 s=0.5", "3,6,4,5 2.0;1,6,1,7 -1.0",
           layers="self.n = nn.InstanceNorm2d(6, affine=True)"),
    Sample("(self.n(x[:, None, None]).squeeze(1).squeeze(1) + y) * y", "x=5,1030 y=5,1030",
           "3,300 3,300;2,1030 1,1030", layers="self.n = nn.InstanceNorm2d(1)"),
    Sample("self.n(x).view(x.size(0), -1) - y", "x=3,4,6,5 y=3,1", "7,4,6,5 1,1;1,4,6,5 1,1",
           layers="self.n = nn.GroupNorm(2, 4)"),
    Sample("self.n(x).reshape(-1, 9).clamp(0) + y", "x=4,3,9 y=9", "6,3,9 9", launches=0,
           layers=LAYER.format(9)),
    # Some stay two kernels.
    Sample(RMS, "x=3,129,2", launches=2),
    Sample("torch.softmax(x, 1)", "x=3,8193", launches=1),
    # A value that is gathered and mapped, a weight, and what a norm gathers in float and in double.
    Sample("torch.softmax(x * 2 + 1, 1) * y", "x=3,8193 y=8193"),
    Sample("x.exp() / x.exp().sum(1, keepdim=True) + y", "x=3,8193 y=3,8193"),
    Sample("x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * y", "x=3,8193 y=8193"),
    Sample("(x.sin() - x.sin().mean(1, keepdim=True)) / x.sin().std(1, keepdim=True)", "x=3,8193",
           launches=2),
    Sample("x / x.sum((0, 2), keepdim=True)", "x=3,8,4", launches=2),
    Sample("x / x.prod(1, keepdim=True)", "x=3,8", launches=2),
    Sample("x / x.sum(0)", "x=8,8", launches=2),
]  # fmt: skip
PRODUCTS = [
    Sample(AROUND.format("x @ w"), f"{IMAGES.format('2,5,8,16', 16)} w=16,16", ";".join(
        f"{shapes} {n},{n}"
        for shapes, n in zip(OTHER_IMAGES.split(";"), (7, 16, 16, 13), strict=True)
    )),
    Sample("F.gelu(x @ y + z)", "x=5,7 y=7,6 z=5,6", "9,7 7,6 9,6"),
    Sample("F.gelu(x @ y + z) * 2 - w", "x=5,7 y=7,6 z=6 w=5,1"),
    Sample("torch.where(z > 0, x @ y, w)", "x=5,7 y=7,6 z=1,6 w=()"),
    Sample("torch.tanh(torch.matmul(y, z) - x)", "x=5,7 y=2,3,5,8 z=2,3,8,7"),
    Sample("(torch.bmm(x, y) * z).relu()", "x=3,5,8 y=3,8,7 z=3,1,1"),
    Sample("torch.einsum('bij,kj->bik', x, y) / z", "x=3,5,8 y=4,8 z=5,4"),
    Sample("torch.einsum('ji,bjk->bik', x, y).exp()", "x=8,5 y=3,8,4"),
    # Operands of rows, of batches' columns, and of both, and one that was of rows.
    Sample("torch.bmm(x, y) * z - w + u", "x=3,5,8 y=3,8,7 z=5,1 w=3,1,7 u=3,5,1",
           "2,9,8 2,8,4 9,1 2,1,4 2,9,1;2,5,8 2,8,7 1,1 2,1,7 2,5,1"),
    # A bias that is no weight of the Model's.
    Sample("torch.relu(F.linear(x, y, z)) * s", "x=9,33 y=20,33 z=20 s=0.5", "4,33 20,33 20 2.0"),
    Sample("torch.addmm(z, x, y)", "x=9,33 y=33,20 z=20"),
    Sample("x.mT @ y.mT + z.sum()", "x=2,8,5 y=4,8 z=5,7", launches=2),
]  # fmt: skip
# Views that merge dimensions between operators, for which no value comes to memory.
VIEWS = [
    Sample(forward, f"x=3,8,6,5 {others}", launches=launches)
    for forward, others, launches in (
        ("torch.softmax(x.clamp(0, 1).reshape(3, 8, -1), 2).reshape(3, 8, 6, 5) * y", "y=8,1,1", 1),
        ("torch.relu(x).reshape(3, 8, -1) * y + 1", "y=8,1", 1),
        ("torch.relu(x).flatten(1).mean(1)", "", 1),
        ("torch.relu(x).flatten(1).mean(0).exp()", "", 1),
        ("torch.relu(x).reshape(24, 6, 5).amax(0)", "", 1),
        ("torch.relu(x).reshape(3, 8, -1).sum(0) * y", "y=8,1", 1),
        ("torch.relu(x).reshape(3, 8, -1).sum(0, keepdim=True) * 2", "", 1),
        ("torch.relu(x).reshape(3, 48, 5).sum((0, 2)) * 2", "", 1),
        # Read in that shape, in another one, or as it was.
        ("torch.relu(x).reshape(3, 8, -1) * y", "y=30", 2),
        ("torch.relu(x).reshape(3, 8, -1).exp().reshape(3, 8, 5, 6) + 1", "", 2),
        ("(torch.relu(x).reshape(3, 8, -1).exp(), torch.relu(x).sum(1))", "", 2),
        ("(lambda r: r.reshape(3, 8, -1) * r.sum())(torch.relu(x))", "", 3),
        ("F.normalize(F.normalize(x).reshape(3, -1))", "", 2),
    )
]
KINDS = {
    "map": MAPS,
    "reduce": REDUCTIONS,
    "loss": LOSSES,
    "scan": SCANS,
    "pool": POOLS,
    "segment": SEGMENTS,
    "product": PRODUCTS,
    "view": VIEWS,
}
SAMPLES = [
    pytest.param(sample, id=f"{kind}_{number}")
    for kind, samples in KINDS.items()
    for number, sample in enumerate(samples)
]
# Rows of what is out of the ordinary: equal ones, zeros of both signs, infinities, NaN.
SPECIAL = [
    [1.0, 2.0, 2.0, 1.0, 0.0, 0.0],
    [-INF] * 6,
    [INF, -INF] * 3,
    [1.0, NAN, INF, NAN, -INF, 3.0],
    [0.0, -0.0, 0.0, -0.0, 0.0, 0.0],
    [NAN] * 6,
    [-INF, 1.0, 2.0, 0.5, 1.0, 2.0],
    [INF, 1.0, 2.0, 0.5, 1.0, 2.0],
]


def names_of(main: str) -> dict[str, str]:
    return dict(one.split("=", 1) for one in main.split())


def expression(shape: str) -> str:
    """Return what makes an input of this shape, or is the number."""
    if "torch." in shape or "." in shape:
        return shape
    return f"torch.rand({shape[1:]}) > 0.3" if shape.startswith("?") else f"torch.randn({shape})"


def special(shape: Shape, dim: int, *, whole: bool) -> Any:
    """Return rows of SPECIAL along a dimension; where they are not whole, ones follow."""
    others = list(shape)
    length = others.pop(dim)
    along = torch.arange(length)
    rows = torch.tensor(SPECIAL)[torch.arange(torch.Size(others).numel()) % len(SPECIAL)]
    x = rows[:, along % 6]
    if not whole:
        x[:, 6:] = 1.0
    return x.view(*others, length).movedim(-1, dim).contiguous()


def laid_out(x: Any, how: int) -> Any:
    """Return a tensor in memory that is in order, not aligned, with gaps, or in reverse order."""
    if not isinstance(x, torch.Tensor) or not x.dim():
        return x
    match how % 4:
        case 1:
            return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)
        case 2:
            return x.repeat_interleave(2, dim=-1)[..., 1::2]
        case 3:
            order = tuple(reversed(range(x.dim())))
            return x.permute(order).contiguous().permute(order)
    return x


def inputs_of(sample: Sample, device: Device) -> list[list[Any]]:
    """Return inputs of the main shapes, then of the others."""
    main = names_of(sample.main).values()
    given = [list(main), *(one.split() for one in sample.others.split(";") if one)]
    masks = [shape.startswith("?") for shape in main]
    space = {"torch": torch}
    made = []
    for shapes in given:
        marked = [
            f"?{shape}" if mask and not shape.startswith("?") else shape
            for shape, mask in zip(shapes, masks, strict=True)
        ]
        values = [eval(expression(shape), space) for shape in marked]
        made.append([x.to(device) if isinstance(x, torch.Tensor) else x for x in values])
    return made


def keep_contract(planned: Planned, sample: Sample) -> None:
    """Compare with torch for inputs of all shapes, in memory and of values of all sorts."""
    torch.manual_seed(2)
    main, *others = inputs_of(sample, planned.device)
    planned.check(*main)
    assert planned.launched
    assert sample.launches in {0, len(planned.launched)}
    for given in others:
        planned.check(*given)
    small = [given for given in (main, *others) if given[0].numel() <= 5000]
    for number, given in enumerate([main, *small, main, main][:4] + small[3:]):
        planned.check(*(laid_out(x, number + n + 1) for n, x in enumerate(given)))
    x, *beside = main
    names = {"torch": torch, "x": x, "ZERO": torch.tensor([0], device=x.device), "INF": INF}
    for text in sample.data:
        planned.check(eval(text, names), *beside)
    if not sample.any_values:
        return
    for value in (INF, -INF, NAN):
        one = x.clone()
        one.view(-1)[x.numel() // 2] = value
        planned.check(one, *beside)
    for x, *beside in small or [main]:
        for dim in {0, x.dim() // 2, x.dim() - 1} if x.numel() and x.dim() else ():
            planned.check(special(x.shape, dim, whole=dim != 1).to(x.device), *beside)


def made(
    sample: Sample, backend: Backend, folder: Path, compiled: Path, device: Device = "cpu"
) -> Planned:
    inputs = {name: expression(shape) for name, shape in names_of(sample.main).items()}
    forward = " ".join(sample.forward.split())
    problem = problem_of(folder, forward, layers=sample.layers or "pass", **inputs)
    return Planned(problem, backend, compiled, device)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # torch's, of one value
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_stage_gives_what_torch_gives(
    sample: Sample, backend: Backend, tmp_path: Path, compiled_folder: Path
) -> None:
    if sample in PRODUCTS and backend == "cuda":
        pytest.skip("tests/test_hopper_emulation.py has it")
    planned = made(sample, backend, tmp_path, compiled_folder)
    left = re.search(r"torch\.(ops\.aten|conv)", planned.text)
    assert not left or (sample.launches and sample not in LOSSES)
    assert backend == "cpp" or sample.text in planned.text
    if sample in PRODUCTS:
        assert planned.text.count('_multiply("') == 1
        assert not re.search(r"aten\.(einsum|matmul|bmm|mm)\b", planned.text)
    keep_contract(planned, sample)


@pytest.mark.parametrize("forward", [statistics("-1"), EXTREMES, f"({BEFORE}).var(-1)"])
def test_few_threads_of_a_short_row_read_ahead(
    forward: str, tmp_path: Path, compiled_folder: Path
) -> None:
    sample = Sample(forward, "x=9,64", "5,96;3,40;2,7;8,66", launches=0)
    if BEFORE in forward:
        sample = around(forward, 64)
    with mock.patch.object(reduce, "_BUSY", 1):  # rows as many as they would have to be
        planned = made(sample, "cuda", tmp_path, compiled_folder)
    assert re.search("kGroup = [48];", planned.text)
    keep_contract(planned, sample)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # torch's, of one value
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_stage_gives_what_torch_gives_on_a_gpu(
    sample: Sample, tmp_path: Path, compiled_folder: Path
) -> None:
    with mock.patch.object(claims, "_pays", return_value=True):  # products, however small
        keep_contract(made(sample, "cuda", tmp_path, compiled_folder, "cuda"), sample)


@pytest.mark.nvcc
def test_a_reduction_that_only_picks_compiles(tmp_path: Path) -> None:
    """Its state is empty: an array of no words, which C++ compilers take and nvcc does not."""
    classes = names_of(CLASSES)["y"]
    problem = problem_of(tmp_path, "F.nll_loss(x * 2, y)", x=expression("9,20"), y=classes)
    assert "gather_rows" in ptx_of(problem, tmp_path)


SHAPE = r"the shape of x.*: the file is for torch.Size"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("forward", "main", "works", "refused", "message"),
    [
        # Results of an input's own shape.
        ("(x * y, torch.relu(x))", "x=6,9 y=9", "4,9 9", "4,1 9", SHAPE),
        ("((x * y).sum(0), x.amax(0))", "x=6,9 y=9", "4,9 9", "4,1 9", SHAPE),
        ("torch.softmax(x, 1) * y", "x=6,9 y=9", "4,9 9", "4,1 9", SHAPE),
        ("x / (x * y).sum(1, keepdim=True)", "x=6,9 y=9", "4,9 9", "4,1 9", SHAPE),
        ("(x * z * y, torch.relu(x) + z)", "x=6,9 y=9 z=6,1", "4,9 9 4,1", "4,1 9 4,1", SHAPE),
        ("x.amax(1)", "x=3,8", "0,8", "3,0", "fewer than 1 elements"),
        ("(x - x.amax(1, keepdim=True)).exp()", "x=3,8", "0,8", "3,0", "fewer than 1 elements"),
        ("F.max_pool1d(x, 2)", "x=3,2,8", "0,2,8", "3,0,8", "expected channels"),
        ("x.sum(1)", "x=3,8", "3,0", "3,4,5", "dimensions"),
        # Sizes that torch refuses, though they could be broadcast.
        ("x.relu().add_(y)", "x=6,9 y=6,9", "4,9 1,9", "1,9 4,9", SHAPE),
        ("x.relu().mul_(y).sum(0)", "x=6,9 y=6,9", "4,9 9", "4,1 4,9", SHAPE),
        ("(x > 0).long().add_((y > 0).long()).relu()", "x=6,9 y=6,9", "4,9 1,9", "1,9 4,9",
         "expanded size"),
        ("x.relu().masked_fill_(y > 0, 2.0) * z", "x=6,9 y=6,9 z=6,9", "1,9 1,9 4,9",
         "1,9 4,9 4,9", SHAPE),
        ("torch.empty_like(x).copy_(y) + 1", "x=6,9 y=6,9", "4,9 1,9", "1,9 4,9", "expanded size"),
        ("(x * 2).add_(y.sum(-1)).relu()", "x=6 y=6,9", "4 4,9", "1 4,9", "the shape of"),
        ("(x * 2).mul_(y).sub_(z.mean(-1, True))", "x=6,9 y=6,9 z=6,5", "4,9 4,9 4,5",
         "1,9 1,9 4,5", "the shape of"),
        ("(lambda t: (t.mul_(y), t[:1].neg_(), t))(x.exp())", "x=6,9 y=6,9", "4,9 1,9", "1,9 4,9",
         "the shape of"),
        ("x + y.expand_as(x)", "x=6,9 y=9", "4,9 4,9", "1,9 4,9", SHAPE),
        ("y.expand_as(x).exp()", "x=6,9 y=6,9", "4,9 1,9", "1,9 4,9", "expanded size"),
        ("F.binary_cross_entropy_with_logits(x, y)", "x=6,9 y=6,9", "4,9 4,9", "1,9 4,9", SHAPE),
        ("torch.bmm(x, y)", "x=2,4,5 y=2,5,3", "3,4,5 3,5,3", "1,4,5 3,5,3", "batches|size for"),
        ("x.sum(1) + y", "x=3,8,5 y=1,5", "2,8,5 1,5", "1,8,5 3,5", "the shape of y"),
        ("F.batch_norm(x, None, None, training=True)", "x=3,8", "4,8", "1,8", "fewer than 2"),
        ("F.instance_norm(x)", "x=3,8,5", "4,8,3", "4,8,1", "fewer than 2"),
        ("F.binary_cross_entropy(x, (y > 0).to(x) * 2)", "x=torch.rand(6,9) y=torch.zeros(6,9)",
         "torch.rand(4,9) torch.zeros(4,9)", "torch.rand(4,9) torch.ones(4,9)", "between 0 and 1"),
        (RMS, "x=3,8,4,4", "3,8,4,5", "3,8", "number of dimensions"),
        ("F.avg_pool1d(x, 6)", "x=2,12", "2,6", "2,5", "a window of 6, .* is larger than size 5"),
    ],
)  # fmt: skip
def test_what_a_stage_is_not_for_is_refused(  # noqa: PLR0913, PLR0917 - pytest's
    forward: str,
    main: str,
    works: str,
    refused: str,
    message: str,
    backend: Backend,
    tmp_path: Path,
    compiled_folder: Path,
) -> None:
    sample = Sample(forward, main, f"{works};{refused}")
    planned = made(sample, backend, tmp_path, compiled_folder)
    _, good, bad = inputs_of(sample, "cpu")
    planned.check(*good)
    with pytest.raises((ValueError, RuntimeError), match=message):
        planned.run(*bad)
