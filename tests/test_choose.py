"""The choice of kernels: shapes and an architecture to a kernel and its schedule, no compiler."""

import math

import msgspec
import pytest

from kernelgen.engines.architectures import ARCHITECTURES, Architecture, architecture
from kernelgen.engines.known import schedule_of
from kernelgen.engines.product.choice import ProductChoice, ProductKernel, choose_product
from kernelgen.engines.product.record import Product
from kernelgen.engines.schedule import ChainSchedule
from kernelgen.engines.segment.record import Extent, Segment, Way
from kernelgen.engines.segment.ways import way_of
from kernelgen.engines.stage import Accumulator, Operand, Result
from kernelgen.errors import UserError
from kernelgen.graph.graph import TensorType
from kernelgen.planning.of_problem import plan_of_problem
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

MAIN_NORMS: dict[str, tuple[Way, int]] = {
    "groupnorm": ("rings", 2097152),
    "groupnorm_silu_add": ("rings", 524288),
    "instancenorm": ("rings", 262144),
    "instancenorm_1d": ("cache", 32768),
    "instancenorm_3d": ("rings", 524288),
    "l1norm": ("rings", 65535),
    "l2norm": ("rings", 65535),
    "layernorm": ("columns", 4194304),
    "log_softmax": ("rings", 393216),
    "rmsnorm": ("registers", 8192),
    "softmax": ("rings", 393216),
}
MAIN_PRODUCTS: dict[str, tuple[ProductKernel, ProductKernel]] = {
    "linear_instancenorm_add_mul": ("hopper", "none"),
    "matmul": ("hopper", "none"),
    "matmul_batched": ("hopper", "none"),
    "matmul_narrow": ("skinny", "none"),
    "matmul_tall_skinny": ("shallow", "shallow"),
    "matmul_transposed_left": ("hopper", "none"),
    "matmul_vector": ("vector", "vector"),
}


def own_stage(problem: Problem, arch: Architecture) -> Product | Segment | None:
    """Return the only stage of a problem with a schedule; None if it has none."""
    stages = plan_of_problem(problem, problem.all_cases()[0], "cuda", arch).plan.stages
    if schedule_of(stages, arch) is None:
        return None
    (found,) = (
        s for s in stages if isinstance(s, Product) or (isinstance(s, Segment) and s.way != "held")
    )
    return found


def own_segment(problem: Problem, arch: Architecture) -> Segment:
    """Return a problem's norm."""
    found = own_stage(problem, arch)
    assert isinstance(found, Segment)
    return found


def own_product(problem: Problem, arch: Architecture) -> ProductChoice | None:
    """Return the kernel of a problem's product; None where torch multiplies."""
    stages = plan_of_problem(problem, problem.all_cases()[0], "cuda", arch).plan.stages
    return next((stage.fast for stage in stages if isinstance(stage, Product)), None)


def own_product_stage(problem: Problem, arch: Architecture) -> Product:
    """Return the stage of a problem's product."""
    stages = plan_of_problem(problem, problem.all_cases()[0], "cuda", arch).plan.stages
    return next(stage for stage in stages if isinstance(stage, Product))


@pytest.mark.parametrize("name", MAIN_NORMS)
def test_norms_of_the_shipped_problems(name: str) -> None:
    problem = load_problem(name)
    way, length = MAIN_NORMS[name]
    chosen = own_segment(problem, "sm_90a")
    assert (chosen.way, chosen.length) == (way, length)
    before = own_segment(problem, "sm_80").way
    assert before == (way if way in {"registers", "cache"} else "slices")


@pytest.mark.parametrize("name", MAIN_PRODUCTS)
def test_products_of_the_shipped_problems(name: str) -> None:
    problem = load_problem(name)
    on_hopper, elsewhere = MAIN_PRODUCTS[name]
    chosen = [own_product(problem, arch) for arch in ARCHITECTURES]
    # Products without a fast kernel stay in torch.
    kernels = ["none" if product is None else product.kernel for product in chosen]
    assert kernels == [elsewhere, on_hopper, elsewhere]


@pytest.mark.parametrize(
    ("length", "weights", "arch", "way"),
    [
        (10240, "none", "sm_80", "registers"),
        (10241, "none", "sm_80", "slices"),
        (10244, "none", "sm_80", "cache"),
        (32772, "none", "sm_80", "slices"),
        (32772, "none", "sm_90a", "rings"),
        (65535, "none", "sm_100a", "rings"),
        (65535, "elementwise", "sm_90a", "slices"),
        (2097152, "elementwise", "sm_90a", "rings"),
        (2097156, "elementwise", "sm_90a", "columns"),
        (1400 * 4096, "none", "sm_90a", "rings"),
        (1400 * 4096 + 4, "none", "sm_90a", "slices"),
        (8388612, "elementwise", "sm_90a", "slices"),
        (8191, "none", "sm_90a", "held"),
        (1020, "none", "sm_90a", "held"),
        (1, "none", "sm_90a", "held"),
    ],
)
def test_what_a_segment_fits_into(length: int, weights: str, arch: Architecture, way: Way) -> None:
    segment = rows(length, elementwise=weights == "elementwise")
    assert way_of(segment, arch) == way
    assert way_of(segment, None) == ("slices" if length >= 256 else "held")


def rows(length: int, *, elementwise: bool) -> Segment:
    """Return the plan of four rows that are each divided by their sum, and weighted."""
    x = Operand(name="x", value="x", type=dense(4, length))
    weight = Operand(
        name="weight", value="weight", type=dense(length), pattern="along", span=(-1, 0)
    )
    return Segment(
        name="norm",
        shape=(4, length),
        dims=(),
        operands=(x, weight) if elementwise else (x,),
        kept=("x",),
        steps=(),
        held="",
        accumulators=(Accumulator(name="sum", kind="sum", of="x"),),
        epilogue=(),
        outcome={"sum": "sum"},
        after=(),
        results=(Result(value="y", of="x", type=dense(4, length)),),
        extent=Extent(kind="dim", by=1, weights=(), length=length),
    )


def dense(*shape: int) -> TensorType:
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return TensorType(shape=shape, strides=strides, dtype="float32")


def test_rows_of_a_batch_by_one_matrix_are_rows_of_one_product() -> None:
    chosen = choose_product(dense(3, 5, 128, 256), dense(512, 256), "sm_90a")
    assert (chosen.batches, chosen.rows, chosen.columns, chosen.depth) == (1, 1920, 512, 256)
    batched = choose_product(dense(3, 5, 128, 256), dense(5, 512, 256), "sm_90a")
    assert (batched.batches, batched.rows) == (15, 128)


@pytest.mark.parametrize(
    ("name", "columns", "promoted", "splits", "cut"),
    [
        ("linear_instancenorm_add_mul", 168, 128, 1, True),
        ("matmul", 128, 128, 1, True),
        ("matmul_batched", 128, 64, 1, False),
    ],
)
def test_how_hopper_sums(name: str, columns: int, promoted: int, splits: int, *, cut: bool) -> None:
    chosen = own_product(load_problem(name), "sm_90a")
    assert chosen is not None
    schedule = schedule_of([own_product_stage(load_problem(name), "sm_90a")], "sm_90a")
    assert isinstance(schedule, ChainSchedule)
    assert schedule.tile_columns == columns
    found = chosen.promoted, chosen.splits, chosen.cut
    assert found == (promoted, splits, cut)


@pytest.mark.parametrize(
    ("depth", "runs"),
    [(16384, 1), (16448, 1), (32768, 2), (98304, 6), (524288, 32), (16400 * 2, 1)],
)
def test_a_depth_that_is_not_held_is_cut_into_runs(depth: int, runs: int) -> None:
    chosen = choose_product(dense(256, depth), dense(256, depth), "sm_90a", adds_up=True)
    assert (chosen.runs, chosen.batches, chosen.depth) == (runs, runs, depth // runs)
    assert chosen.kernel == ("hopper" if depth // runs <= 16384 else "none")
    assert choose_product(dense(256, depth), dense(256, depth), "sm_80", adds_up=True).runs == 1
    assert choose_product(dense(256, depth), dense(256, depth), "sm_90a").runs == 1


@pytest.mark.parametrize(("columns", "kernel"), [(1, "vector"), (16, "skinny")])
def test_other_kernels_take_a_depth_as_long_as_it_is(columns: int, kernel: ProductKernel) -> None:
    chosen = choose_product(dense(256, 1 << 20), dense(columns, 1 << 20), "sm_90a", adds_up=True)
    assert (chosen.kernel, chosen.runs, chosen.batches, chosen.depth) == (kernel, 1, 1, 1 << 20)


def test_few_results_share_the_depth() -> None:
    chosen = choose_product(dense(256, 8192), dense(256, 8192), "sm_90a")
    assert (chosen.splits, chosen.promoted, chosen.cut) == (16, 64, False)
    short = choose_product(dense(4096, 512), dense(4096, 512), "sm_90a")
    assert (short.splits, short.promoted) == (1, 32)


@pytest.mark.parametrize(
    ("rows", "columns", "streamed", "tile", "cluster"),
    [(128, 32768, "b", 128, 2), (5, 600, "b", 16, 2), (300, 4096, "b", 128, 2),
     (4096, 300, "a", 128, 2), (1 << 17, 32, "a", 32, 2), (100, 60, "a", 64, 1)],
)  # fmt: skip
def test_the_larger_factor_of_few_rows_is_streamed(
    rows: int, columns: int, streamed: str, tile: int, cluster: int
) -> None:
    chosen = choose_product(dense(rows, 32768), dense(columns, 32768), "sm_90a")
    assert chosen.kernel == "skinny"
    assert (chosen.streamed, chosen.tile, chosen.cluster) == (streamed, tile, cluster)
    turned = choose_product(
        dense(rows, 32768), dense(32768, columns // 4 * 4).transposed(), "sm_90a"
    )
    assert turned.kernel == "skinny"
    assert choose_product(dense(rows, 32768), dense(columns, 32768), "sm_80").kernel == "none"


def test_skinny_products_keep_all_blocks_busy() -> None:
    """Sixteen clusters of blocks take a share of four each; several waves need no shares."""
    few = choose_product(dense(128, 8192), dense(4096, 8192), "sm_90a")
    assert few.splits == 4
    assert choose_product(dense(128, 32768), dense(32768, 32768), "sm_90a").splits == 1


@pytest.mark.parametrize(("depth", "kernel"), [(16384, "hopper"), (16388, "none"), (130, "hopper")])
def test_the_split_holds_a_row(depth: int, kernel: ProductKernel) -> None:
    chosen = choose_product(dense(4096, depth), dense(4096, depth), "sm_90a")
    assert chosen.kernel == kernel
    assert chosen.a_vectors == chosen.b_vectors == (depth % 4 == 0)


def test_operands_without_neighbours_have_no_fast_kernel() -> None:
    apart = TensorType(shape=(128, 256), strides=(512, 2), dtype="float32")
    assert choose_product(apart, dense(128, 256), "sm_90a").kernel == "none"
    assert choose_product(dense(128, 256), apart, "sm_90a").kernel == "none"
    across = choose_product(dense(256, 128).transposed(), dense(128, 256), "sm_90a")
    assert (across.a_adjacent, across.b_adjacent) == ("rows", "depth")


def test_only_three_architectures_are_rendered_for() -> None:
    assert architecture("sm_80") == "sm_80"
    with pytest.raises(UserError, match="expected one of sm_80, sm_90a, sm_100a, not 'sm_90'"):
        architecture("sm_90")


def test_shapes_need_no_memory() -> None:
    problem = load_problem("softmax")
    constants = {**problem.constants, "batch_size": 1 << 30}
    norm = own_segment(msgspec.structs.replace(problem, constants=constants), "sm_90a")
    assert norm.length == 393216


def test_a_linear_layer_s_weight_gives_its_product_s_size() -> None:
    problem = load_problem("linear_instancenorm_add_mul")
    constants = {**problem.constants, "out_features": 4096}
    changed = msgspec.structs.replace(problem, constants=constants, cases=())
    product = own_product(changed, "sm_90a")
    assert product is not None
    assert (product.columns, product.depth) == (4096, 8192)
