"""compute-sanitizer's text, in the forms of 2021 to 2026, as findings by kernel."""

import pytest

from kernelgen.grading.tools.sanitizer import in_words
from kernelgen.grading.tools.sanitizer_log import MOST_FINDINGS, Tool, read_log

CLEAN: dict[Tool, str] = {
    "memcheck": "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n",
    "racecheck": """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
""",
}
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at shift(const float *, float *, int)+0x70
=========     by thread (255,0,0) in block (3,0,0)
=========     Access to 0x7f2a4fa01000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a4fa00000 of size 4,096 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0x1189] in shift.so
=========
========= Invalid __global__ read of size 4 bytes
=========     at shift(const float *, float *, int)+0x70
=========     by thread (254,0,0) in block (3,0,0)
=========     Access to 0x7f2a4fa01004 is out of bounds
=========
========= Invalid __shared__ write of size 8 bytes
=========     at store(float2 *, int)+0xb0 in norm.cu:39
=========     by thread (0,1,0) in block (0,0,0)
=========     Address 0x4008 is misaligned
=========         Device Frame: finish(float2 *)+0x20 in norm.cu:52
=========         Device Frame: void norm<float, 8>(const T1 *, T1 *, long)+0x130 in norm.cu:77
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========
========= Leaked 1,024 bytes at 0x7f2a50000000
=========     Saved host backtrace up to driver entry point at allocation time
=========
========= LEAK SUMMARY: 1024 bytes leaked in 1 allocations
========= ERROR SUMMARY: 5 errors
"""  # noqa: E501 (as the tool writes it)
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at total(float *, const float *)+0x90 in total.cu:41
=========     and Read access at total(float *, const float *)+0x100 in total.cu:51 [508 hazards]
=========     and Write access at total(float *, const float *)+0x90 in total.cu:41 [4 hazards]
=========
========= Warning: Race reported between Read access at warp(int *)+0x20
=========     and Write access at warp(int *)+0x60 [32 hazards]
=========
========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect. Try using --num-cuda-barriers to fix the issue
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""  # noqa: E501 (as the tool writes it)


@pytest.mark.parametrize("tool", CLEAN)
def test_a_clean_run_has_no_findings_and_is_complete(tool: Tool) -> None:
    log = read_log(tool, CLEAN[tool])
    assert (log.findings, log.complete, log.trouble) == ((), True, "")


def test_accesses_are_counted_by_kind_and_kernel() -> None:
    log = read_log("memcheck", MEMCHECK)
    assert log.complete
    read, write = (in_words(finding) for finding in log.findings)
    assert read == (
        "memcheck: invalid __global__ read of size 4 bytes in shift(const float *, float *, int), "
        "2 times; first: thread (255,0,0) in block (3,0,0), "
        "Access to 0x7f2a4fa01000 is out of bounds"
    )
    assert write == (
        "memcheck: invalid __shared__ write of size 8 bytes in "
        "void norm<float, 8>(const T1 *, T1 *, long), once; first: norm.cu:39, "
        "thread (0,1,0) in block (0,0,0), Address 0x4008 is misaligned"
    )


def test_leaks_and_api_errors_are_no_findings() -> None:
    kinds = {finding.what for finding in read_log("memcheck", MEMCHECK).findings}
    assert kinds == {
        "invalid __global__ read of size 4 bytes",
        "invalid __shared__ write of size 8 bytes",
    }


def test_races_are_told_with_both_places_and_their_hazards() -> None:
    error, warning = read_log("racecheck", RACECHECK).findings
    assert (error.severity, error.count, error.kernel) == (
        "error", 512, "total(float *, const float *)"
    )  # fmt: skip
    assert error.what == "race between a write and a read"
    assert error.first == "write at total.cu:41, read at total.cu:51, write at total.cu:41"
    assert (warning.severity, warning.count, warning.kernel) == ("warning", 32, "warp(int *)")
    assert warning.first == "read at warp(int *)+0x20, write at warp(int *)+0x60"


@pytest.mark.parametrize(
    ("place", "kernel", "source"),
    [
        ("copy(float *, int)+0x70", "copy(float *, int)", ""),
        ("copy(float *, int)+0x70 in copy.cu:7", "copy(float *, int)", "copy.cu:7"),
        ("copy():0x160 in copy.cu:6", "copy()", "copy.cu:6"),
        ("0x3b0 in void copy<float>(T1 *)", "void copy<float>(T1 *)", ""),
        ("0x578 in dir/copy.cu:120:copy(Matrix)", "copy(Matrix)", "dir/copy.cu:120"),
        ("0xda0 in dir/copy.py:175:a::copy<b::c>(int)", "a::copy<b::c>(int)", "dir/copy.py:175"),
        ("void at::native::copy<4, at::f<int>>(int, T1)+0x1d0 in C.cuh:9",
         "void at::native::copy<4, at::f<int>>(int, T1)", "C.cuh:9"),
        ("matmul_kernel+0xec0 in m.py:43", "matmul_kernel", "m.py:43"),
        ("0x79d8", "", ""),
    ],
)  # fmt: skip
def test_a_place_is_read_in_every_form(place: str, kernel: str, source: str) -> None:
    text = f"========= Invalid __global__ write of size 1 bytes\n=========     at {place}\n"
    (finding,) = read_log("memcheck", text).findings
    assert (finding.kernel, finding.first) == (kernel, source)


def test_what_only_may_go_wrong_is_a_warning() -> None:
    text = (
        "========= Potential invalid __shared__ read of size 4 bytes\n"
        "=========     at remote(int *)+0x170\n"
        "=========     by thread (0,0,0) in block (0,0,0)\n"
    )
    (finding,) = read_log("racecheck", text).findings
    assert finding.severity == "warning"


def test_a_run_that_never_came_to_a_kernel_says_why() -> None:
    # From the tool itself, run on a program that does not use CUDA.
    text = """\
========= COMPUTE-SANITIZER
========= Error: Target application terminated before first instrumented API call
========= Tracking kernels launched by child processes requires the --target-processes all option.
========= Error: couldn't find exit code.
"""
    log = read_log("memcheck", text)
    assert (log.findings, log.complete) == ((), False)
    assert log.trouble == "Error: Target application terminated before first instrumented API call"


def test_lines_of_the_program_itself_are_not_read() -> None:
    report = MEMCHECK.replace("=========", "")
    assert read_log("memcheck", report).findings == ()


def test_findings_and_their_texts_are_bounded_and_errors_come_first() -> None:
    races = "".join(
        f"========= {'Error' if number == 40 else 'Warning'}: Race reported between Write access "
        f"at k{number}{'x' * 5000}(int)+0x10\n=========     and Read access at k(int)+0x20\n"
        for number in range(60)
    )
    log = read_log("racecheck", races)
    assert len(log.findings) == MOST_FINDINGS
    assert log.findings[0].kernel.startswith("k40x")
    assert max(len(finding.kernel) for finding in log.findings) < 400
