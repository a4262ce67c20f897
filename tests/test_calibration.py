"""Rates that are measured and kept: the measuring itself, the cache, and the process apart."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from calibrations import H200, PLAIN_CPU, calibration
from msgspec.structs import replace

from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.oracle.device import measure_quickly
from kernelgen.hardware import measuring, rates
from kernelgen.hardware.calibration import encode, keep, look_up
from kernelgen.hardware.identity import (
    cpu_identity,
    first_gpu,
    gpu_identity,
    torch_release,
)
from kernelgen.hardware.measuring import measure_apart
from kernelgen.sandbox.record import Plan
from kernelgen.sandbox.view import view_of

TINY = rates.Effort(copy_bytes=16 << 20, matrix_size=512, most=3, budget_s=0.01, warm_s=0.0)


# --- measuring ------------------------------------------------------------------------------------


def test_a_cpu_is_measured() -> None:
    told: list[str] = []
    found = rates.measure("cpu", TINY, rates.ALL_FORMATS, told.append)
    assert found.device == cpu_identity()
    assert 0 < found.copy_gbps.median <= found.copy_gbps.best
    assert 0 < found.write_gbps.median <= found.write_gbps.best
    assert [rate.format for rate in found.matrix] == ["fp32"]
    assert found.matrix[0].flops_per_s.median > 1e8
    assert (found.copy_bytes, found.matrix_size) == (16 << 20, 512)
    assert told == ["copies and writes of 16 MiB", "fp32 matrix products of 512 x 512"]


def test_without_formats_no_product_is_measured() -> None:
    found = rates.measure("cpu", TINY, ())
    assert (found.matrix, found.matrix_size) == ((), 0)


def test_a_copy_reads_and_writes_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that says 1 ms a piece of work: 32 MiB are moved in it."""
    monkeypatch.setattr(rates, "wall_times", lambda _work, count: [1e-3] * count)
    found = rates.measure("cpu", TINY, ("fp32",))
    assert found.copy_gbps.median == pytest.approx(2 * (16 << 20) / 1e6)
    assert found.write_gbps.median == pytest.approx((16 << 20) / 1e6)
    fp32 = found.flops_per_s("fp32")
    assert fp32 is not None
    assert fp32.median == pytest.approx(2 * 512**3 / 1e-3)
    assert found.flops_per_s("fp16") is None


@pytest.mark.parametrize(
    ("places_s", "milliseconds"),
    [(60.0, [4, 4, 1, 2, 4, 4, 4, 4]), (0.0, [4])],
    ids=["all eight", "one, for want of time"],
)
def test_the_place_that_copies_fastest_counts(
    places_s: float, milliseconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The write comes last.
    times_s = iter([[each * 1e-3] * 3 for each in (*milliseconds, 0.5)])
    monkeypatch.setattr(rates, "wall_times", lambda _work, _count: next(times_s))
    monkeypatch.setattr(rates, "_free_bytes", lambda _device: 1 << 30)
    found = rates.measure("cpu", replace(TINY, places_s=places_s), ())
    assert next(times_s, None) is None
    assert found.copy_gbps.median == pytest.approx(2 * (16 << 20) / (1e6 * min(milliseconds)))
    assert found.write_gbps.median == pytest.approx((16 << 20) / 0.5e6)


@pytest.mark.parametrize(("free_mib", "buffers"), [(1024, 4), (160, 3), (110, 2), (40, 2)])
def test_places_are_different_buffers_first_and_other_distances_after_that(
    free_mib: int, buffers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is free 0.4 are taken at most, and in any case two buffers."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def noted(work: Any, count: int) -> list[float]:
        if work.args and isinstance(work.args[0], torch.Tensor):
            found.append((work.args[0], work.func.__self__))
        return [1e-3] * count

    monkeypatch.setattr(rates, "wall_times", noted)
    monkeypatch.setattr(rates, "_free_bytes", lambda _device: free_mib << 20)
    size, further = 16 << 20, 4 << 20
    rates._memory_rates(size, "cpu", rates.Stopwatch("cpu", replace(TINY, places_s=60.0)))  # noqa: SLF001
    of = [source.untyped_storage().data_ptr() for source, _ in found]
    assert len(set(of)) == buffers
    assert [target.untyped_storage().data_ptr() for _, target in found] == (
        [*of[1:buffers], of[0]] * 2
    )
    begins = [target.storage_offset() * 4 for _, target in found]
    assert begins == [0] * buffers + [further] * buffers
    assert {(one.nbytes, one.untyped_storage().nbytes()) for pair in found for one in pair} == {
        (size, size + further)
    }


@pytest.mark.parametrize(
    ("free_bytes", "copy_bytes", "matrix_size"),
    [(10 << 30, 1 << 30, 8192), (1 << 30, 128 << 20, 4096), (100 << 20, 16 << 20, 1024)],
)
def test_sizes_shrink_where_memory_is_short(
    free_bytes: int, copy_bytes: int, matrix_size: int
) -> None:
    assert rates._copy_size(1 << 30, free_bytes) == copy_bytes  # noqa: SLF001
    assert rates._matrix_size(8192, free_bytes) == matrix_size  # noqa: SLF001


def test_without_memory_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_free_bytes", lambda _device: 1 << 20)
    with pytest.raises(MemoryError, match="too few to measure copies"):
        rates.measure("cpu", TINY, ())
    found = measure_quickly("cpu", ())
    assert isinstance(found, str)
    assert "too few to measure copies" in found


def test_the_oracle_measures_quickly() -> None:
    found = measure_quickly("cpu", ("fp32",))
    assert not isinstance(found, str)
    assert found.device == rates.identity_of("cpu")
    assert found.flops_per_s("fp32") is not None


# --- identity -------------------------------------------------------------------------------------


def test_the_identity_is_of_what_rates_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "2.11.0+cu130")
    assert gpu_identity("NVIDIA H200", 132, 150_109_880_320, 13000) == H200
    assert gpu_identity("NVIDIA H200", 132, 150_109_880_320, 12080).driver == "12.8"


def test_the_release_of_torch_is_known_without_importing_it() -> None:
    assert str(torch.__version__).startswith(torch_release() + ".")


# --- the cache ------------------------------------------------------------------------------------


def test_what_is_kept_is_found_again_by_the_same_device_alone(tmp_path: Path) -> None:
    found = calibration()
    path = keep(tmp_path, found)
    assert path.parent == tmp_path / "calibration"
    assert path.name.startswith("nvidia-h200-")
    cached = look_up(tmp_path, H200)
    assert (cached.calibration, cached.path, cached.warning) == (found, path, "")
    for other in (
        PLAIN_CPU,
        replace(H200, torch="2.12"),
        replace(H200, driver="13.1"),
        replace(H200, units=114),
    ):
        assert look_up(tmp_path, other).calibration is None
        assert look_up(tmp_path, other).warning == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[]", "is damaged"),
        (encode(calibration()).replace(b'"schema": 1', b'"schema": 2'), "is damaged"),
        (encode(calibration()).replace(b"4000.0", b"-1.0"), "is damaged"),
        (encode(calibration()).replace(b"4000.0", b"0.0"), "is damaged"),
        (encode(calibration()).replace(b"4000.0", b"1e300"), "is damaged"),
        (encode(calibration()).replace(b"Z", b""), "is damaged"),
        (encode(calibration()).replace(b"H200", b"H100"), "is of another device ('NVIDIA H100')"),
        (encode(calibration("cpu")), "is of another device ('Some CPU')"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_of_warning(
    tmp_path: Path, text: bytes, words: str
) -> None:
    path = keep(tmp_path, calibration())
    path.write_bytes(text)
    cached = look_up(tmp_path, H200)
    assert cached.calibration is None
    assert cached.warning.startswith(f"{path} {words}")
    assert cached.warning.endswith("`kernelgen calibrate --force` writes a new one")
    assert len(cached.warning.splitlines()) == 1


def test_a_folder_or_a_pipe_in_its_place_holds_nothing(tmp_path: Path) -> None:
    path = look_up(tmp_path, H200).path
    path.mkdir(parents=True)
    assert look_up(tmp_path, H200).calibration is None
    path.rmdir()
    os.mkfifo(path)
    assert look_up(tmp_path, H200).calibration is None


def test_a_file_in_place_of_the_folder_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "calibration").write_text("")
    assert look_up(tmp_path, H200).calibration is None
    with pytest.raises(UserError, match="cannot be written"):
        keep(tmp_path, calibration())


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, calibration())

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keep(tmp_path, calibration(copy_gbps=1.0))
    assert look_up(tmp_path, H200).calibration == calibration()
    assert len(list((tmp_path / "calibration").iterdir())) == 1


def test_a_contained_candidate_does_not_see_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    path = keep(home / ".cache" / "kernelgen", calibration())
    monkeypatch.setenv("HOME", str(home))
    plan = Plan(level="none", scratch=str(tmp_path / "scratch"), home=str(home))
    view = view_of(plan)
    assert not view.shows(str(path))
    assert view.shows("/usr/bin/env")


# --- the process apart ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ValueError('no')", "measuring the CPU failed with exit code 1; what its process"),
        ("import time; time.sleep(60)", "measuring the CPU did not end within 0.5 s"),
    ],
)
def test_a_process_that_fails_or_hangs_is_told_in_a_line(
    code: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "python_command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(measuring, "_DEADLINE_S", 60.0 if "no" in code else 0.5)
    with pytest.raises(KernelgenFault, match=words):
        measure_apart("cpu")


@pytest.mark.parametrize("quiet", [False, True])
def test_phases_are_told_and_the_end_is_returned(
    *, quiet: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys; from kernelgen.hardware import measuring, rates; "
        "rates.THOROUGH['cpu'] = rates.Effort(copy_bytes=16 << 20, matrix_size=512, most=3, "
        "budget_s=0.01, warm_s=0.0); measuring.main()"
    )
    monkeypatch.setattr(
        measuring, "python_command", lambda _, *rest: [sys.executable, "-c", code, *rest]
    )
    assert measure_apart("cpu", quiet=quiet).device == cpu_identity()
    told = "measuring copies and writes of 16 MiB\nmeasuring fp32 matrix products of 512 x 512\n"
    assert capfd.readouterr().err == ("" if quiet else told)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_one_line() -> None:
    with pytest.raises(KernelgenFault, match="the GPU cannot be measured: torch finds no CUDA"):
        measure_apart("cuda")


# --- on a GPU -------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_torch_and_the_driver_name_the_same_gpu() -> None:
    assert rates.identity_of("cuda") == first_gpu()


@pytest.mark.gpu
def test_a_gpu_s_rates_are_in_the_order_that_its_units_have() -> None:
    found = rates.measure("cuda", rates.THOROUGH["cuda"], rates.ALL_FORMATS)
    by_format = {rate.format: rate.flops_per_s.median for rate in found.matrix}
    assert by_format["fp32"] < by_format["tf32"] < by_format["fp16"]
    assert by_format["tf32"] < by_format["bf16"]
    # A copy is no slower than half of what a write moves, and memory is no faster than any built.
    assert 0.5 * found.write_gbps.median < found.copy_gbps.median < 20_000
    assert found.copy_gbps.best < 1.1 * found.copy_gbps.median


@pytest.mark.gpu
def test_the_quick_rates_are_close_to_the_thorough_ones() -> None:
    thorough = rates.measure("cuda", rates.THOROUGH["cuda"], ("fp32", "fp16"))
    start = time.perf_counter()
    quick = measure_quickly("cuda", ("fp32", "fp16"))
    assert time.perf_counter() - start < 0.5
    assert not isinstance(quick, str)
    assert quick.copy_gbps.median == pytest.approx(thorough.copy_gbps.median, rel=0.1)
    for form in ("fp32", "fp16"):
        one, two = quick.flops_per_s(form), thorough.flops_per_s(form)
        assert one is not None
        assert two is not None
        assert one.median == pytest.approx(two.median, rel=0.25)


@pytest.mark.gpu
def test_quick_copies_go_at_one_rate_wherever_their_buffers_are() -> None:
    """Allocate something else each time, so that the driver puts the buffers elsewhere."""
    found = []
    for count in range(5):
        others = [torch.empty((96 << 20) * (each + 1), device="cuda") for each in range(count)]
        quick = measure_quickly("cuda", ())
        assert not isinstance(quick, str)
        found.append(quick.copy_gbps.median)
        del others
    assert min(found) > 0.95 * max(found)


@pytest.mark.gpu
def test_trying_places_takes_a_few_tenths_of_a_second_and_leaves_no_memory_taken() -> None:
    measure_quickly("cuda", ())
    before = torch.cuda.memory_reserved()
    start = time.perf_counter()
    assert not isinstance(measure_quickly("cuda", ()), str)
    assert time.perf_counter() - start < 0.35
    assert torch.cuda.memory_reserved() <= before
