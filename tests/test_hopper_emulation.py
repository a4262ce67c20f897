"""Hopper's chain of a matrix product, split, multiply and repair, run on the CPU.

tests/cuda_emulation/hopper.h stands for the instructions that no other device has.
"""

import copy
import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from products_on_the_cpu import (
    BOTH,
    NATURAL,
    SEED_OF_SLOW_ONES,
    Memory,
    aligned_terms,
    compiled,
    cuda_source,
    error_of,
    exact_product,
    for_the_cpu,
    is_right,
    memory_of,
    operands,
    placed,
    run,
    spoiled,
    with_mutants,
)
from shared_builds import Libraries

from kernelgen.problem.library import load_problem
from kernelgen.rendering import choose
from kernelgen.rendering.solution import render

pytestmark = [pytest.mark.sampled, pytest.mark.ci]
BOUND_OF_LONG_SUMS = 1.2e-6  # of which tensor cores cut off more
LONG_DEPTH = 640  # from which sums are long, instead of 4096
GENERAL = frozenset({"general::multiply"})
CHAIN = frozenset({"hopper::multiply", *GENERAL})
ROWS, STRIPS = "split::split_rows", "split::split_strips"
OTHER = ("contiguous", "transposed")


class Kind(NamedTuple):
    """A product that a solution is written for."""

    problem: str
    rows: int
    columns: int
    depth: int
    layouts: tuple[str, str]
    splits: frozenset[str]
    promoted: int
    tile: int = 40

    @property
    def sizes(self) -> dict[str, str]:
        """Return what --set takes."""
        named = {"rows": self.rows, "columns": self.columns, "depth": self.depth}
        if self.problem.startswith("linear"):
            named = {
                "batch_size": self.rows, "out_features": self.columns, "in_features": self.depth,
            }  # fmt: skip
        sizes = {f"constants.{name}": str(size) for name, size in named.items()}
        return {**sizes, "schedule.tile_columns": str(self.tile), "schedule.group_rows": "2"}


# With many rows no block shares the depth, however small the tiles.
MANY = 100_000
KINDS = {
    "short": Kind("matmul", MANY, 80, 128, OTHER, frozenset({ROWS, STRIPS}), 32),
    "medium": Kind("matmul_transposed_left", MANY, 68, 600, BOTH, frozenset({STRIPS}), 64),
    "long": Kind("matmul", MANY, 76, 700, OTHER, frozenset({ROWS, STRIPS}), 128),
    "odd columns": Kind("matmul_transposed_right", MANY, 81, 700, NATURAL, frozenset({ROWS}), 128),
    "odd all": Kind("matmul", MANY, 81, 703, OTHER, frozenset({ROWS, STRIPS}), 128),
    "odd rows": Kind("matmul_transposed_left", MANY + 1, 68, 130, BOTH, frozenset({STRIPS}), 32),
    "deep": Kind("matmul_transposed_both", MANY, 72, 8260, ("transposed", "contiguous"),
                 frozenset({ROWS, STRIPS}), 128, 72),
    "shares": Kind("matmul", 100, 80, 2100, OTHER, frozenset({ROWS, STRIPS}), 64),
    "shipped tile": Kind("matmul", MANY, 168, 576, OTHER, frozenset({ROWS, STRIPS}), 64, 168),
    "gelu": Kind("matmul_add_gelu", MANY, 80, 128, OTHER, frozenset({ROWS, STRIPS}), 32),
    "kept": Kind("linear_instancenorm_add_mul_kept", MANY, 128, 128, NATURAL,
                 frozenset({ROWS}), 32),
}  # fmt: skip
ADD = "ptx::multiply_add(sum, "
# Each is a statement or an expression of the source, and what is wrong instead.
MUTANTS = {
    "no lo of a": (
        f"{ADD}row_lo + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
        f"{ADD}row_hi + 2 * k, column_hi + 2 * k, goes_on || k > 0);",
    ),
    "no lo of b": (f"{ADD}row_hi + 2 * k, column_lo + 2 * k, true);", ";"),
    "no product of hi": (f"{ADD}row_hi + 2 * k, column_hi + 2 * k, true);", ";"),
    "long sums begin anew in each stage": (
        "add_steps<kSteps>(sum, stage, warpgroup, 0, piece > 0);",
        "add_steps<kSteps>(sum, stage, warpgroup, 0, false);",
    ),
    "a long sum's last stage is left out": (
        "if (piece > 0 && k + 1 < kDepthStages) continue;",
        "if (piece > 0) continue;",
    ),
    "only the last sum counts": ("total[n] += sum[n];", "total[n] = sum[n];"),
    "both blocks copy to the same place": ("rank * kColumnBytes", "0"),
    "both warpgroups multiply the same rows": ("warpgroup * 64 * kStageDepth * 2", "0"),
    "scales are not limited": ("max(largest >> 23, 15u)", "largest >> 23"),
    "nothing lost is counted": ("if (count == 0) return;", "return;"),
    "wide rows of b do not matter": (
        "(column < a.b.rows && of_b[column] > kMaxLost)",
        "false",
    ),
    "blocks of a cluster tell only themselves": (
        "__cluster_map_shared_rank(&largest[k % kStripRows], k / kStripRows)",
        "&largest[k % kStripRows]",
    ),
    "a warp tells the largest of its first lane": (
        "largest = __reduce_max_sync(kAllLanes, largest);",
        "__reduce_max_sync(kAllLanes, largest);",
    ),
}


def emulated(kind: Kind) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "_LONG_DEPTH", LONG_DEPTH)
        return for_the_cpu(cuda_source(kind.problem, kind.sizes))


SOURCES: dict[str, Callable[[], str]] = {
    **{name: partial(emulated, kind) for name, kind in KINDS.items()},
    "mutants": lambda: with_mutants(emulated(KINDS["long"]), MUTANTS),
}


@pytest.fixture(scope="session")
def libraries(compiled_folder: Path) -> Libraries:
    def prepare(key: str, library: ctypes.CDLL) -> None:
        library.set_capability(9)
        if key == "kept":
            library.product_prepared_bytes.restype = ctypes.c_int64

    return compiled(SOURCES, compiled_folder, prepare)


def ordinary(*shape: int) -> tuple[Any, Any, Any]:
    """Return operands and a bias; no element is so small that its row is wide."""
    import torch

    a, b, bias = operands(*shape)
    sizes = [x.abs().amax(2, keepdim=True) for x in (a, b)]
    a, b = (torch.where(x.abs() < size / 64, size / 64, x)
            for x, size in zip((a, b), sizes, strict=True))  # fmt: skip
    return a, b, bias


# Their sums are looked at by test_sums_lose_little_to_the_tensor_cores as well, in less time.
SLOW = frozenset(("medium", "deep", "shares"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in KINDS
        if name not in {"gelu", "kept"}
    ],
)
@pytest.mark.parametrize(
    ("batches", "rows", "device"), [(1, 256, (2, 0)), (1, 600, (4, 1)), (3, 68, (6, 2))]
)
def test_any_rows_and_batches(
    name: str, batches: int, rows: int, device: tuple[int, int], libraries: Libraries
) -> None:
    kind = KINDS[name]
    a, b, bias = ordinary(batches, rows, kind.columns, kind.depth)
    kept = bias if device[1] else None
    ran = run(libraries[name], a, b, kept, layouts=kind.layouts, device=device)
    others = {"add_splits"} if name == "shares" else set()
    assert ran.kernels == CHAIN | kind.splits | others
    assert not ran.any_wide
    assert is_right(ran.out, a, b, kept)


@pytest.mark.parametrize("name", KINDS)
def test_how_sums_are_promoted(name: str) -> None:
    kind = KINDS[name]
    assert f"fp32 registers every {kind.promoted} of K" in emulated(kind)


def test_all_else_takes_the_general_kernel(libraries: Libraries) -> None:
    library = libraries["short"]
    cases = [
        ((1, 8, 80, 128), ("unaligned", "transposed")),
        ((1, 8, 80, 128), ("contiguous", "transposed-unaligned")),
        ((1, 8, 80, 128), NATURAL),
        ((1, 8, 80, 128), ("odd-pitch", "transposed")),
        ((2, 8, 80, 128), ("contiguous", "transposed-odd")),
        ((1, 8, 80, 124), OTHER),
        ((1, 8, 84, 128), OTHER),
    ]
    for shape, layouts in cases:
        a, b, bias = operands(*shape)
        ran = run(library, a, b, bias, layouts=layouts)
        assert ran.kernels == GENERAL
        assert is_right(ran.out, a, b, bias)
    a, b, bias = operands(1, 8, 80, 128)
    assert run(library, a, b, bias, layouts=OTHER, shift=1).kernels == GENERAL
    try:
        library.set_capability(10)
        assert run(library, a, b, bias, layouts=OTHER).kernels == GENERAL
    finally:
        library.set_capability(9)


@pytest.mark.parametrize("layout", ["pitched", "broadcast"])
def test_aligned_layouts(layout: str, libraries: Libraries) -> None:
    a, b, bias = operands(3, 20, 80, 128)
    ran = run(libraries["short"], a, b, bias, layouts=(layout, f"transposed-{layout}"),
              device=(4, 0))  # fmt: skip
    assert ran.kernels >= CHAIN
    if layout == "broadcast":
        a, b = a[:1].expand_as(a), b[:1].expand_as(b)
    assert is_right(ran.out, a, b, bias)


@pytest.mark.parametrize("how", ["inf", "nan", "two-inf", "all-ranges", "denormal", "tiny", "huge"])
@pytest.mark.parametrize("side", ["a", "b"])
def test_rows_out_of_the_ordinary(how: str, side: str, libraries: Libraries) -> None:
    import torch

    torch.manual_seed(5)
    a, b = (torch.randn(1, count, 128).sign() * (torch.rand(1, count, 128) + 0.1)
            for count in (140, 80))  # fmt: skip
    a, b = (spoiled(a, how), b) if side == "a" else (a, spoiled(b, how))
    ran = run(libraries["short"], a, b, layouts=OTHER, device=(4, 0))
    assert ran.any_wide == (how not in {"tiny", "huge"})
    assert is_right(ran.out, a, b)


@pytest.mark.parametrize("values", ["positive", "both-signs"])
@pytest.mark.parametrize(
    ("name", "limit"),
    [("short", 5e-7), ("medium", 8e-7), ("shares", 8e-7), ("long", 1.2e-6), ("deep", 1.2e-6)],
)
def test_sums_lose_little_to_the_tensor_cores(
    values: str, name: str, limit: float, libraries: Libraries
) -> None:
    """On tensor cores that align what they sum."""
    import torch

    kind = KINDS[name]
    torch.manual_seed(kind.depth)
    a, b = (0.01 + 0.99 * torch.rand(1, count, kind.depth) for count in (64, kind.columns))
    if values == "both-signs":
        a, b = a * torch.randn_like(a).sign(), b * torch.randn_like(b).sign()
    library = libraries[name]
    with aligned_terms(library):
        ran = run(library, a, b, layouts=kind.layouts, device=(2, 0))
    assert ran.kernels >= CHAIN
    assert not ran.any_wide
    assert error_of(ran.out, a, b) <= limit


def test_the_same_bits_in_whatever_order(libraries: Libraries) -> None:
    import torch

    a, b, bias = operands(1, 200, 80, 2100)
    outs = [run(libraries["shares"], a, b, bias, layouts=OTHER, device=(8, seed)).out
            for seed in (0, 1, 2)]  # fmt: skip
    assert is_right(outs[0], a, b, bias)
    for out in outs[1:]:
        assert torch.equal(out, outs[0])


def test_whole_numbers_are_exact(libraries: Libraries) -> None:
    import torch

    torch.manual_seed(3)
    a, b = (torch.randint(-30, 30, (2, count, 128)).float() for count in (130, 80))
    ran = run(libraries["short"], a, b, layouts=OTHER, device=(4, 1))
    assert not ran.any_wide
    assert torch.equal(ran.out, a @ b.mT)


@pytest.mark.parametrize("how", ["none", "all-ranges", "nan"])
def test_epilogue(how: str, libraries: Libraries) -> None:
    import torch

    a, b, bias = operands(2, 131, 80, 128)
    a, b = a / a.norm(dim=2, keepdim=True), spoiled(b / b.norm(dim=2, keepdim=True), how)
    y = torch.randn(2, 131, 80)
    for kept in None, bias:
        ran = run(libraries["gelu"], a, b, kept, others=(y,), layouts=OTHER, device=(2, 1))
        exact = torch.nn.functional.gelu(exact_product(a, b, kept) + y.double())
        finite = exact.isfinite()
        assert torch.equal(ran.out.isfinite(), finite)
        size = exact_product(a.abs(), b.abs(), None if kept is None else kept.abs()) + y.abs()
        assert ((ran.out - exact).abs() / size)[finite].max().item() <= 1e-6


def parts_of(library: ctypes.CDLL, memory: Memory, b: Any, rows: int) -> ctypes.c_void_p:
    """Return where b is prepared for a product with so many rows, or null if that does without."""
    batches, columns, depth = b.shape
    sizes = [ctypes.c_int64(size) for size in (batches, columns, depth, *b.stride())]
    used = library.product_prepared_bytes(sizes[0], ctypes.c_int64(rows), *sizes[1:3])
    assert used >= 0
    if used == 0:
        return ctypes.c_void_p(None)
    memory.bytes(used)
    place = memory.address()
    status = library.product_prepare(ctypes.c_void_p(b.data_ptr()), place, *sizes, None)
    assert status == 0
    return place


@pytest.mark.parametrize("how", ["none", "range", "nan"])
@pytest.mark.parametrize("layout", ["contiguous", "pitched", "unaligned", "transposed"])
def test_what_is_prepared_serves_all_launches(layout: str, how: str, libraries: Libraries) -> None:
    """Also where b lies so that only the general kernel can read it."""
    import torch

    library = libraries["kept"]
    a, b, bias = ordinary(1, 50, 128, 128)
    b = spoiled(b, how)
    with memory_of(library) as memory:
        kept = placed(memory, b, layout)
        prepared = parts_of(library, memory, kept, a.shape[1])
        assert prepared.value
        for left in a, spoiled(a, "range"), a[:, :20].contiguous():
            plain, ran = (
                run(library, left, b, bias, layouts=("contiguous", layout), device=(4, 0),
                    prepared=(place,)) for place in (ctypes.c_void_p(None), prepared)
            )  # fmt: skip
            assert torch.equal(ran.out.nan_to_num(), plain.out.nan_to_num())
            assert is_right(ran.out, left, b, bias)
            launches = [x.launches.count("split::") for x in (ran, plain)]
            assert launches == ([1, 2] if layout in {"contiguous", "pitched"} else [0, 0])


def test_what_was_prepared_of_other_values_does_not_serve(libraries: Libraries) -> None:
    library = libraries["kept"]
    a, b, bias = ordinary(1, 45, 128, 128)
    with memory_of(library) as memory:
        prepared = parts_of(library, memory, b, 45)
        changed = run(library, a, 2.0 * b, bias, device=(4, 0), prepared=(prepared,)).out
        assert not is_right(changed, a, 2.0 * b, bias)
        again = parts_of(library, memory, 2.0 * b, 45)
        changed = run(library, a, 2.0 * b, bias, device=(4, 0), prepared=(again,)).out
        assert is_right(changed, a, 2.0 * b, bias)


def test_nothing_is_prepared_for_other_shapes_and_devices(libraries: Libraries) -> None:
    library = libraries["kept"]
    with memory_of(library) as memory:
        for shape in (1, 132, 128), (1, 128, 132):
            b = operands(1, 1, *shape[1:])[1]
            assert parts_of(library, memory, b, 45).value is None
        try:
            library.set_capability(8)
            assert parts_of(library, memory, operands(1, 1, 128, 128)[1], 45).value is None
        finally:
            library.set_capability(9)


class Stream:
    """What the rendered Python asks of a stream of torch's."""

    cuda_stream = 0

    def __init__(self) -> None:
        self.waited_for: list[Any] = []

    def wait_event(self, event: Any) -> None:
        """Note the event."""
        self.waited_for.append(event)


class Event:
    """What it asks of an event."""

    def record(self, stream: Stream) -> None:
        """Note the stream."""
        self.stream = stream


class Cuda(NamedTuple):
    """What a rendered module has, in which a CPU stands for the device, and what it does."""

    names: dict[str, Any]
    streams: list[Stream]  # the last is the current one
    capturing: list[bool]  # the last says whether it is captured
    used: list[Any]  # tensors that a stream was said to use, with it


@pytest.fixture
def cuda(libraries: Libraries, monkeypatch: pytest.MonkeyPatch) -> Cuda:
    import torch

    library = libraries["kept"]
    library.set_device(4, 0)
    module = ModuleType("kept")
    exec(
        render(load_problem("linear_instancenorm_add_mul_kept"), "cuda", KINDS["kept"].sizes),
        vars(module),
    )
    # As _library declares it, of which the norm is not there.
    path = vars(library)["_name"]
    loaded = ctypes.CDLL(path)
    for name in "workspace_bytes", "launch", "error_name":
        setattr(loaded, f"segment_norm_{name}", SimpleNamespace())
    monkeypatch.setattr(ctypes, "CDLL", {path: loaded}.__getitem__)
    vars(module)["load_inline"] = lambda **_: path
    found = Cuda(vars(module), [Stream()], [False], [])
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: found.streams[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing[-1])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda tensor, stream: found.used.append((tensor, stream))
    )
    return found


def multiplied(cuda: Cuda, kept: Any, x: Any, weight: Any) -> tuple[Any, bool]:
    """Return x times the weight's transposed, and whether the weight was split ahead of it."""
    import torch

    library = cuda.names["_library"]()
    library.launched.restype = ctypes.c_char_p
    library.launched()
    halves = kept.halves_of(weight, len(x))
    split = b"split::" in library.launched()
    out = torch.full((len(x), len(weight)), torch.nan)
    cuda.names["_multiply"](x[None], weight[None], None, out, prepared=halves)
    return out, split


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda linear: linear.weight.mul_(3.0),
    "by an element": lambda linear: linear.weight[3, 5].fill_(7.0),
    "by a view": lambda linear: linear.weight.view(-1)[:40].zero_(),
    "data": lambda linear: setattr(linear.weight, "data", 2.0 * linear.weight.data),
    "another": lambda linear: setattr(linear, "weight", other_weight(linear)),
    "state": lambda linear: linear.load_state_dict({"weight": other_weight(linear)}),
    "assigned": lambda linear: linear.load_state_dict(
        {"weight": other_weight(linear)}, assign=True
    ),
    "transposed": lambda linear: setattr(linear.weight, "data", linear.weight.data.clone().t()),
}


def other_weight(linear: Any) -> Any:
    import torch

    return torch.nn.Parameter(linear.weight.detach().flip(0) + 1.0)


@pytest.mark.parametrize("change", CHANGES)
def test_results_follow_a_change_of_the_weight(change: str, cuda: Cuda) -> None:
    import torch

    torch.manual_seed(1)
    linear, kept = torch.nn.Linear(128, 128, bias=False), cuda.names["_Prepared"]()
    x = torch.randn(50, 128)
    for expected in True, False, False:
        out, split = multiplied(cuda, kept, x, linear.weight)
        assert split == expected
        assert is_right(out[None], x[None], linear.weight.detach()[None])
    with torch.no_grad():
        CHANGES[change](linear)
    splits = change != "transposed"  # which the general kernel reads as it is
    out, split = multiplied(cuda, kept, x, linear.weight)
    assert split == splits
    assert is_right(out[None], x[None], linear.weight.detach()[None])
    assert not multiplied(cuda, kept, x, linear.weight)[1]


def test_an_optimizer_s_step_is_a_change(cuda: Cuda) -> None:
    import torch

    torch.manual_seed(2)
    linear, kept = torch.nn.Linear(128, 128, bias=False), cuda.names["_Prepared"]()
    x = torch.randn(50, 128)
    for optimizer in (
        torch.optim.SGD(linear.parameters(), 1.0),
        torch.optim.Adam(linear.parameters(), 1.0, foreach=True),
    ):
        multiplied(cuda, kept, x, linear.weight)
        linear.weight.grad = torch.ones_like(linear.weight)
        optimizer.step()
        out, split = multiplied(cuda, kept, x, linear.weight)
        assert split
        assert is_right(out[None], x[None], linear.weight.detach()[None])


def test_another_stream_waits_for_what_is_kept(cuda: Cuda) -> None:
    import torch

    linear, kept = torch.nn.Linear(128, 128), cuda.names["_Prepared"]()
    multiplied(cuda, kept, torch.randn(50, 128), linear.weight)
    cuda.streams.append(Stream())
    assert not multiplied(cuda, kept, torch.randn(50, 128), linear.weight)[1]
    split_on, multiplied_on = cuda.streams
    assert [event.stream for event in multiplied_on.waited_for] == [split_on]
    assert cuda.used[-1][1] is multiplied_on


def test_nothing_is_kept_for_graphs_and_for_weights_without_a_version(cuda: Cuda) -> None:
    import torch

    weight, kept = torch.randn(128, 128), cuda.names["_Prepared"]()
    assert kept.halves_of(weight, 50) is not None
    cuda.capturing.append(True)
    assert kept.halves_of(weight, 50) is None
    out, split = multiplied(cuda, kept, x := torch.randn(50, 128), weight)
    assert not split
    assert is_right(out[None], x[None], weight[None])
    cuda.capturing.append(False)
    with torch.inference_mode():
        assert kept.halves_of(weight * 2.0, 50) is None
    assert kept.halves_of(weight, 50) is not None


def test_copies_of_a_model_keep_nothing_and_its_state_is_torch_s(cuda: Cuda) -> None:
    import torch

    model, x = cuda.names["ModelNew"](128, 128), torch.randn(50, 128)
    kept = vars(model)["_prepared"]
    multiplied(cuda, kept, x, model.linear.weight)
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]
    twin = copy.deepcopy(model)
    assert vars(twin)["_prepared"] is not kept
    assert multiplied(cuda, vars(twin)["_prepared"], x, twin.linear.weight)[1]
    assert not multiplied(cuda, kept, x, model.linear.weight)[1]


def findings(library: ctypes.CDLL) -> Iterator[bool]:
    """Yield what the comparisons say of products that each depend on something else."""
    import torch

    kind = KINDS["long"]
    torch.manual_seed(11)
    left, right = (
        torch.rand(1, 130, kind.depth) + 0.1,
        torch.rand(1, kind.columns, kind.depth) + 0.1,
    )
    first_larger = [x.clone() for x in (left, right)]
    for x in first_larger:
        x[:, :, :64] *= 1000.0
    last_larger = right.clone()
    last_larger[:, :, -8:] *= 1e5
    but_one = torch.arange(kind.depth) != 7
    products = [
        *itertools.product([(left, right)], (0, 1, SEED_OF_SLOW_ONES)),
        (tuple(first_larger), 0),
        ((left, last_larger), 0),
        ((spoiled(left, "large-and-one"), right * but_one), 0),
        ((left * but_one, spoiled(right, "large-and-one")), 0),
        ((spoiled(left, "tiny"), right), 0),
    ]
    for (a, b), seed in products:
        out = run(library, a, b, layouts=kind.layouts, device=(2, seed)).out
        yield is_right(out, a, b, bound=BOUND_OF_LONG_SUMS)


@pytest.mark.mutants
def test_comparisons_find_what_is_wrong(libraries: Libraries) -> None:
    library = libraries["mutants"]
    mutant = ctypes.c_int.in_dll(library, "mutant")
    assert all(findings(library))
    try:
        for number, name in enumerate(MUTANTS, 1):
            mutant.value = number
            assert not all(findings(library)), name
    finally:
        mutant.value = 0
