"""ncu's pages: which launch each is of, and the numbers on it that are read."""

import pytest
from ncu_report import BEFORE, MISSING, SECTIONS, report

from kernelgen.profile.details import errors, read_launches

TIME = "gpu__time_duration.sum"
READ = "dram__bytes_read.sum"


def test_each_launch_has_its_own_page() -> None:
    names = [
        "void copy<float, 4>(const float *, float *, long)",
        "void at::<unnamed>::softmax<float, long>(T3 *, const T1 *)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_cublas",
    ]
    found = read_launches(report(*({"kernel": name, TIME: "2000"} for name in names)))
    assert [launch.kernel for launch in found] == names
    assert {launch.launched for launch in found} == {"(1056, 1, 1)x(512, 1, 1)"}
    for launch in found:
        assert launch.page.startswith(f"  {launch.kernel} (1056")
        assert launch.page.count("Section: Command line") == 1
        assert launch.page.endswith(SECTIONS.rstrip())
        assert launch.time_us == 2.0


def test_time_and_bytes_are_read() -> None:
    (launch,) = read_launches(report({}))
    assert (launch.time_us, launch.dram_read_bytes, launch.dram_written_bytes) == (480, 1e9, 9.8e8)
    assert launch.dram_bytes == 1.98e9


@pytest.mark.parametrize(
    ("metric", "unit", "value"),
    [(TIME, "nsecond", 1.2345), (READ, "B", 1234.5), (TIME, "us", None), (READ, "Kbyte", None)],
)
def test_only_base_units_are_read(metric: str, unit: str, value: float | None) -> None:
    (launch,) = read_launches(report({metric: "1,234.5"}, units={metric: unit}))
    assert (launch.time_us if metric == TIME else launch.dram_read_bytes) == value


def test_what_was_not_counted_is_absent() -> None:
    (launch,) = read_launches(report({READ: MISSING}))
    assert (launch.dram_read_bytes, launch.dram_bytes) == (None, None)
    assert launch.dram_written_bytes == 9.8e8


def test_no_page_is_no_launch() -> None:
    assert read_launches(BEFORE + "==WARNING== No kernels were profiled.\n") == ()
    assert read_launches("") == ()


def test_errors_are_told_once() -> None:
    text = BEFORE + "==ERROR== No counters.\n==ERROR== No counters.\n==ERROR==  Another.\n"
    assert errors(text) == ("No counters.", "Another.")
