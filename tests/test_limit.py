"""The least time of a problem on a device, at rates that the test invents."""

from pathlib import Path

import pytest
from calibrations import RATES, calibration
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kernelgen.engines import engine
from kernelgen.grading.timing.limit import (
    Work,
    accurate_enough,
    floor_of,
    formats_for,
    limit_of,
    work_of,
)
from kernelgen.planning.cost import PlanCost, StageCost
from kernelgen.problem.record import Minimal, Problem

GROUPNORM = Work(minimal_bytes=15_032_386_048)
LINEAR = Work(minimal_bytes=369_131_520, flops=137_438_953_472)
DECLARED = replace(LINEAR, flops_declared=True)


def test_what_only_moves_bytes_is_limited_by_the_copy_rate() -> None:
    limit = limit_of(4.0, GROUPNORM, calibration(copy_gbps=4000.0))
    assert limit is not None
    assert limit.limit_ms == pytest.approx(15_032_386_048 / 4000e6)
    assert limit.fraction == pytest.approx(limit.limit_ms / 4.0)
    assert (limit.bound, limit.source, limit.minimal_flops) == ("memory", "counted", 0)
    assert (limit.rate, limit.flops_per_s) == ("", None)


def test_products_at_1e_5_cost_three_half_products_where_these_beat_fp32() -> None:
    limit = limit_of(2.0, LINEAR, calibration())
    assert limit is not None
    assert limit.limit_ms == pytest.approx(137_438_953_472 * 3 / 750e12 * 1e3)
    assert (limit.bound, limit.rate) == ("arithmetic", "three fp16 products")
    assert limit.flops_per_s == pytest.approx(250e12)


@pytest.mark.parametrize(
    ("rates", "name", "flops_per_s"),
    [
        ({"fp32": 50e12, "fp16": 100e12}, "fp32", 50e12),
        ({"fp32": 50e12, "fp16": 160e12}, "three fp16 products", 160e12 / 3),
        ({"fp32": 0.2e12}, "fp32", 0.2e12),
    ],
)
def test_the_rate_is_the_best_that_is_accurate_enough(
    rates: dict[str, float], name: str, flops_per_s: float
) -> None:
    limit = limit_of(1.0, LINEAR, calibration(rates=rates))  # type: ignore[arg-type]
    assert limit is not None
    assert limit.rate == name
    assert limit.flops_per_s == pytest.approx(flops_per_s)


@pytest.mark.parametrize(
    ("tolerance", "bits", "best"),
    [
        (1e-7, 24, "fp32"),
        (1e-5, 24, "three fp16 products"),
        (1e-4, 24, "three bf16 products"),
        (1e-2, 24, "fp16"),
        (1e-5, 11, "fp16"),
        (1e-5, 8, "bf16"),
        (1e-5, 53, "three fp16 products"),
    ],
)
def test_a_tolerance_or_a_narrow_factor_admits_cheaper_products(
    tolerance: float, bits: int, best: str
) -> None:
    work = Work(minimal_bytes=1, flops=10**15, tolerance=tolerance, operand_bits=bits)
    limit = limit_of(1.0, work, calibration())
    assert limit is not None
    assert limit.rate == best


def test_rates_that_were_not_measured_leave_the_bytes() -> None:
    limit = limit_of(1.0, LINEAR, calibration(rates={}))
    assert limit is not None
    assert (limit.bound, limit.rate, limit.flops_per_s) == ("memory", "", None)
    assert limit.minimal_flops == LINEAR.flops


def test_few_operations_leave_the_bytes_as_the_bound_and_name_the_rate() -> None:
    work = Work(minimal_bytes=8_594_137_088, flops=4_294_967_296)
    limit = limit_of(1.0, work, calibration())
    assert limit is not None
    assert (limit.bound, limit.rate) == ("memory", "three fp16 products")


def test_nothing_to_do_has_no_limit() -> None:
    assert limit_of(1.0, Work(minimal_bytes=0), calibration()) is None


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**15),
    st.floats(1e-7, 1e-2),
    st.floats(1.0, 1e4),
    st.sampled_from([8, 11, 24, 53]),
)
def test_a_looser_tolerance_never_raises_the_limit(
    moved: int, flops: int, tolerance: float, copy_gbps: float, bits: int
) -> None:
    rates = calibration(copy_gbps=copy_gbps)
    strict = Work(minimal_bytes=moved, flops=flops, tolerance=tolerance, operand_bits=bits)
    loose = replace(strict, tolerance=2 * tolerance)
    one, two = limit_of(1.0, strict, rates), limit_of(1.0, loose, rates)
    if one is None or two is None:
        assert one is two is None
        return
    assert two.limit_ms <= one.limit_ms
    assert one.limit_ms >= moved / (copy_gbps * 1e6)


def test_only_the_formats_that_may_count_are_measured() -> None:
    assert formats_for(GROUPNORM) == ()
    assert formats_for(LINEAR) == ("fp32", "fp16")
    assert "fp32" in {way.name for way in accurate_enough(GROUPNORM)}


# --- the floor ------------------------------------------------------------------------------------


def test_counted_operations_accuse_nobody() -> None:
    floor = floor_of(0.1, LINEAR, calibration())
    assert floor.floor_ms == 0.1
    assert "369131520 bytes takes 0.1 ms" in floor.reason
    assert "does not need all of its inputs" in floor.warning


def test_declared_operations_take_what_the_fastest_format_takes_and_a_margin_less() -> None:
    floor = floor_of(0.1, DECLARED, calibration())
    assert floor.floor_ms == pytest.approx(DECLARED.flops / (1.2 * RATES["bf16"]) * 1e3)
    assert "137438953472 operations that the problem declares" in floor.reason
    assert "declares more than is needed" in floor.warning


def test_declared_bytes_are_called_so() -> None:
    work = replace(GROUPNORM, bytes_declared=True)
    floor = floor_of(3.0, work, None)
    assert floor.floor_ms == 3.0
    assert "that the problem declares" in floor.reason
    assert "declares more than is needed" in floor.warning


@pytest.mark.parametrize("rates", [None, calibration("cpu"), calibration(rates={})])
def test_declared_operations_need_a_gpu_s_rates_to_accuse(rates: object) -> None:
    floor = floor_of(0.1, DECLARED, rates)  # type: ignore[arg-type]
    assert floor.floor_ms == 0.1


# --- declared or counted --------------------------------------------------------------------------

COUNTED = PlanCost(
    stages=(StageCost(work=engine.Work(flops=200)),), minimal_bytes=100, operand_bits=11
)


PROBLEM = Problem(name="p", summary="s", path=Path("p.yaml"), sha256="", tolerance=1e-4)


def test_what_is_not_declared_is_counted() -> None:
    work = work_of(COUNTED, PROBLEM, "cuda")
    assert work == Work(minimal_bytes=100, flops=200, operand_bits=11, tolerance=1e-4)


def test_what_is_declared_wins_one_by_one() -> None:
    work = work_of(COUNTED, replace(PROBLEM, minimal=Minimal(flops=7)), "cuda")
    assert (work.minimal_bytes, work.flops) == (100, 7)
    assert (work.bytes_declared, work.flops_declared) == (False, True)
    limit = limit_of(1.0, work, calibration())
    assert limit is not None
    assert limit.source == "declared"


def test_other_sizes_on_a_cpu_are_not_those_declared() -> None:
    declared = replace(PROBLEM, minimal=Minimal(bytes=9))
    assert work_of(COUNTED, declared, "cpu").minimal_bytes == 9
    smaller = replace(declared, cpu_constants={"rows": 1})
    assert work_of(COUNTED, smaller, "cpu").minimal_bytes == 100
    own = replace(smaller, cpu_minimal=Minimal(bytes=3))
    assert work_of(COUNTED, own, "cpu").minimal_bytes == 3
