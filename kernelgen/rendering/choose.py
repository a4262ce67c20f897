"""The schedules that the sizes of a plan's stages suggest: arithmetic, no GPU is asked."""

from kernelgen.planning.plan import Plan, Product, Segment
from kernelgen.planning.products.choice import (
    MULTIPROCESSORS,
    ProductChoice,
    architecture,
    hopper_columns,
)
from kernelgen.problem.schedules import CPU
from kernelgen.rendering.schedule import (
    CacheSchedule,
    ChainSchedule,
    ColumnsSchedule,
    CppProductSchedule,
    CppSchedule,
    GeneralSchedule,
    RegistersSchedule,
    RingSchedule,
    Schedule,
)


def scheduled(plan: Plan) -> Product | Segment | None:
    """Return a plan's stage whose kernel has a schedule; None if it has none, or several."""
    found = [
        stage
        for stage in plan.stages
        if isinstance(stage, Product) or (isinstance(stage, Segment) and stage.way != "held")
    ]
    return found[0] if len(found) == 1 else None


def schedule_of(stage: Product | Segment, arch: str) -> Schedule:
    """Return the schedule that the sizes of a stage suggest, for an architecture or a CPU."""
    if isinstance(stage, Product):
        return product_schedule(stage.fast, arch)
    return segment_schedule(stage, arch)


def segment_schedule(stage: Segment, arch: str) -> Schedule:
    """Return the schedule of a segment's fast kernel, or of its C++."""
    if arch == CPU:
        return CppSchedule()
    match stage.way:
        case "rings":
            slices = -(-stage.length // RingSchedule().slot_length)
            held = RingSchedule().slots * MULTIPROCESSORS[architecture(arch)]
            return RingSchedule(ahead=2) if 3 * slices > held else RingSchedule()
        case "columns":
            return ColumnsSchedule()
        case "registers":
            return RegistersSchedule()
        case "cache":
            return CacheSchedule()
        case _:
            return GeneralSchedule()


def product_schedule(product: ProductChoice, arch: str) -> Schedule:
    """Return the schedule of a product's fast kernel, or of its C++."""
    if arch == CPU:
        return CppProductSchedule()
    if product.kernel == "hopper":
        return ChainSchedule(tile_columns=hopper_columns(product, architecture(arch)))
    return GeneralSchedule()
