"""Where threads of stopped processes are, and what follows from looks at a candidate's."""

import ctypes
import itertools
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelgen.build.toolchain import find_compiler
from kernelgen.grading.timing import looks as looks_module
from kernelgen.grading.timing.looks import Looks, Meanwhile
from kernelgen.grading.timing.waits import BatchTime, Claim, Waits
from kernelgen.grading.wire.trace import Trace, Work
from kernelgen.sandbox import standing, standstill
from kernelgen.sandbox.standing import Kind, _executable, _is_library, computes_in_a_library

LOOKS = 20
# Where other tests have the cores, threads of one operator mostly wait for each other.
TRIES = 4
VECTOR_FUNCTION = """
#include <immintrin.h>
typedef __m256 (*function)(__m256);
extern "C" __attribute__((target("avx2"))) void run(function of) {
  __m256 y = _mm256_setzero_ps();
  for (;;) y = _mm256_mul_ps(of(y), _mm256_set1_ps(0.3f));
}
"""


def seen(script: str, *arguments: str) -> list[bool | None]:
    """Return what looks at a process find once it says that it begins."""
    begun = [sys.executable, "-c", f"import torch\n{script}", *arguments]
    process = subprocess.Popen(begun, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        found = []
        for _ in range(LOOKS):
            standstill.freeze(lambda: [process.pid])
            found.append(computes_in_a_library([process.pid]))
            standstill.thaw(lambda: [process.pid])
        return found
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_operator_of_torch_s_is_a_library_s_on_any_number_of_threads(threads: int) -> None:
    script = (
        f"torch.set_num_threads({threads})\n"
        "x = torch.randn(8, 1 << 16)\n"
        "x.exp()\n"
        "print(flush=True)\n"
        "while True: x.exp()\n"
    )
    assert any(seen(script).count(True) > 0.7 * LOOKS for _ in range(TRIES))


def test_threads_that_wait_for_the_next_operator_compute_nothing() -> None:
    script = (
        "torch.set_num_threads(2)\n"
        "x = torch.randn(1 << 16)\n"
        "x.exp()\n"
        "print(flush=True)\n"
        "while True:\n"
        "    x.exp()\n"
        "    for _ in range(100_000): pass\n"
    )
    assert any(seen(script).count(True) < 0.4 * LOOKS for _ in range(TRIES))


def test_a_thread_computes_after_the_first_one_of_its_process_has_ended() -> None:
    script = (
        "import ctypes, threading, time\n"
        "def compute():\n"
        "    torch.set_num_threads(1)\n"  # one that loses its turn does so where it computes
        "    x = torch.randn(8, 1 << 16)\n"
        "    time.sleep(0.5)\n"
        "    print(flush=True)\n"
        "    while True: x.exp()\n"
        "threading.Thread(target=compute).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2), of one thread
    )
    assert seen(script).count(True) > 0.7 * LOOKS


def test_the_product_of_another_package_is_a_library_s() -> None:
    script = (
        "numbers = torch.randn(96, 96).numpy()\n"  # small enough for one thread
        "product = numbers @ numbers\n"
        "print(flush=True)\n"
        "while True: numbers.dot(numbers, out=product)\n"
    )
    assert seen(script).count(True) > 0.7 * LOOKS


def test_python_is_no_library_s() -> None:
    assert True not in seen("print(flush=True)\nwhile True: pass\n")


LOOKER = """
import subprocess, sys
from kernelgen.sandbox import kernel
from kernelgen.sandbox.standing import computes_in_a_library
kernel.drop_capabilities()
hides = "import ctypes; ctypes.CDLL(None).prctl(4, 0); print(flush=True); input()"
begun = subprocess.Popen([sys.executable, "-c", hides], stdin=-1, stdout=-1)
begun.stdout.readline()
print([computes_in_a_library([begun.pid], shown=shown) for shown in (True, False)])
begun.communicate()
"""


def test_a_process_that_hides_where_it_stands_may_compute_in_any_library() -> None:
    looked = subprocess.check_output([sys.executable, "-c", LOOKER])
    assert looked == b"[True, None]\n"


def test_a_library_s_code_on_a_stack_that_is_none_is_the_library_s() -> None:
    here = Path("/proc/thread-self")
    assert _is_library(here, counter=0x1800, stack=0, mappings=[(0x1000, 0x2000, "library")])


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/usr/lib/libc.so.6", "for others"),
        ("/v/site-packages/torch/lib/libc10.so", "for others"),
        ("/usr/lib/libm-2.31.so", "for others"),
        ("/usr/lib/ld-linux-x86-64.so.2", "for others"),
        ("/v/site-packages/torch/lib/libgomp-a34b3233.so.1", "waits"),
        ("", "for others"),
        ("/v/lib/libmkl_core.so.2", "library"),
        ("/v/site-packages/jaxlib/libjax_common.so", "library"),
        ("/v/site-packages/numba/_dispatcher.so", "other"),
        ("/tmp/torch_extensions/libcustom.so", "other"),
    ],
)
def test_a_file_s_name_says_for_whom_it_works(file: str, kind: Kind) -> None:
    told = f"1000-2000 r-xp 00000000 fe:01 12 {file}\n".encode()
    assert _executable(told) == [(0x1000, 0x2000, kind)]


def test_processes_that_map_more_than_anybody_reads_may_compute_in_any_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing, "_MOST_BYTES", 1000)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        time.sleep(0.1)
        standstill.freeze(lambda: [process.pid])
        found = [computes_in_a_library([process.pid], shown=shown) for shown in (True, False)]
        process.kill()
    assert found == [True, None]


def test_a_library_under_another_name_is_as_large() -> None:
    bindings = Path(torch.__file__).parent.resolve() / "lib" / "libtorch_python.so"
    told = (
        "7f0000000000-7f0000f00000 r-xp 00000000 fe:01 12 /tmp/tail.so\n"
        "7f0001000000-7f0001200000 r-xp 01000000 fe:01 12 /tmp/tail.so\n"
        "7f0002000000-7f0002f00000 r-xp 00000000 fe:01 13 /tmp/own.so\n"
        "7f0003000000-7f0006000000 r-xp 00000000 fe:01 14 /tmp/torch/lib/libtorch_python.so\n"
        f"7f0007000000-7f000a000000 r-xp 00000000 fe:01 15 {bindings}\n"
        "7f000b000000-7f000d000000 r-xp 00000000 fe:01 16 /tmp/libgomp-1.so\n"
        "7f000e000000-7f0010000000 r-xp 00000000 fe:01 17 /tmp/libm.so.6\n"
        "7f0011000000-7f0013000000 rwxp 00000000 00:00 0 \n"
    )
    kinds = [kind for _, _, kind in _executable(told.encode())]
    as_own = ["library", "library", "other", "library", "other"]
    assert kinds == [*as_own, "library", "library", "for others"]


FILLED_STACK = """
#include <cstdint>
extern "C" void of(volatile uintptr_t* p) { p[0] = p[0]; }
extern "C" __attribute__((noinline)) void fill() {
  volatile uintptr_t here[8192];
  for (auto& word : here) word = (uintptr_t)&of;
  of(here);
}
"""


def test_what_lies_on_a_stack_is_no_caller_of_an_operator_s(tmp_path: Path) -> None:
    built = tmp_path / "fill.so"
    (tmp_path / "fill.cpp").write_text(FILLED_STACK)
    compiler = find_compiler().command
    source = str(tmp_path / "fill.cpp")
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", str(built), source], check=True)
    script = (
        "import ctypes, sys\n"
        "fill = ctypes.CDLL(sys.argv[1]).fill\n"
        "torch.set_num_threads(1)\n"
        "x = torch.randn(8, 1 << 16)\n"
        "print(flush=True)\n"
        "while True:\n"
        "    fill()\n"
        "    x.exp()\n"
    )
    assert seen(script, str(built)).count(True) > 0.7 * LOOKS


def test_names_of_files_end_no_line_of_what_is_mapped(tmp_path: Path) -> None:
    compiler = find_compiler().command
    built = tmp_path / "a\x0bb\rc\u2028d\ne.so"
    empty = [*compiler, "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", str(tmp_path / "e.so")]
    subprocess.run(empty, check=True)
    (tmp_path / "e.so").rename(built)
    assert True not in seen(
        "import ctypes, sys\nctypes.CDLL(sys.argv[1])\nprint(flush=True)\nwhile True: pass\n",
        str(built),
    )


def test_a_process_that_waits_is_not_running() -> None:
    found = seen("import time\nprint(flush=True)\ntime.sleep(60)\n")
    assert found.count(None) >= LOOKS - 2


def test_a_vector_function_that_other_code_calls_is_that_code_s(tmp_path: Path) -> None:
    library = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    name = "Sleef_expf8_u10avx2"
    if "avx2" not in Path("/proc/cpuinfo").read_text() or not hasattr(ctypes.CDLL(library), name):
        pytest.skip("no such vector function on this machine")
    (tmp_path / "run.cpp").write_text(VECTOR_FUNCTION)
    built = tmp_path / "run.so"
    source = str(tmp_path / "run.cpp")
    compiler = find_compiler().command
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", str(built), source], check=True)
    script = (
        "import ctypes, sys\n"
        "run = ctypes.CDLL(sys.argv[1]).run\n"
        f"of = ctypes.cast(ctypes.CDLL(sys.argv[2]).{name}, ctypes.c_void_p)\n"
        "print(flush=True)\n"
        "run(of)\n"
    )
    assert seen(script, str(built), library).count(True) < 0.3 * LOOKS


def batch_time(wait_ms: float, gauge_ms: float = 1.0) -> BatchTime:
    return BatchTime(wait_ms=wait_ms, gauge_ms=gauge_ms, in_place=True, at_once=True)


class FakeRunner:
    """Runs batches of calls that sleep."""

    def __init__(self, call_ms: float, gauge_ms: float) -> None:
        self.call_ms, self.gauge_ms, self.batches = call_ms, gauge_ms, 0

    def __call__(self, calls: int, meanwhile: Meanwhile) -> BatchTime:  # noqa: D102
        self.batches += 1
        with meanwhile():
            time.sleep(calls * self.call_ms / 1e3 + 0.005)
        return batch_time(calls * self.call_ms, self.gauge_ms)


def judged(  # noqa: PLR0913 - a row of the table
    monkeypatch: pytest.MonkeyPatch,
    pattern: tuple[bool | None, ...],
    recorded: float,
    *,
    traced_ms: float = 1.0,
    operators: int = 1,
    call_ms: float = 1.0,
    gauge_ms: float = 1.0,
) -> tuple[str, int]:
    found = itertools.cycle(pattern)
    monkeypatch.setattr(looks_module, "computes_in_a_library", lambda *_, **__: next(found))
    host = SimpleNamespace(pause=lambda: None, resume=lambda: None, processes=list, shown=True)
    run = FakeRunner(call_ms, gauge_ms)
    looks = Looks(host, run, most_calls=1000)
    claim = Claim(device_ms=1.0, host_ms=1.0, gauge_ms=1.0, call_bytes=1, batch_bytes=1)
    timed = Waits("cpu", claim, 8, controls=[batch_time(1.0)])
    timed.batches = [batch_time(8.0)]
    works = (Work(name="aten::mm", kind="operator", count=operators, time_us=1.0),)
    trace = Trace(works=works, busy_us=1e3 * recorded * traced_ms, call_us=1e3 * traced_ms)
    return looks.objection(trace, timed), run.batches


def test_work_of_libraries_that_was_not_recorded_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for recorded in (0.0, 0.1, 0.2):
        objection, _ = judged(monkeypatch, (True,) * 9 + (False,), recorded)
        assert "a library of torch's" in objection
        assert f"recorded {recorded:.0%}" in objection


@pytest.mark.parametrize(
    ("pattern", "recorded"),
    [
        ((False,), 0.0),
        ((False, None, False, True), 0.0),
        ((False, True, False), 0.3),
        ((None,), 0.0),
        ((True,), 0.9),  # the trace has it all
        ((False, True, True, True), 0.7),
    ],
)
def test_what_was_recorded_is_not_held_against_a_candidate(
    monkeypatch: pytest.MonkeyPatch, pattern: tuple[bool | None, ...], recorded: float
) -> None:
    assert judged(monkeypatch, pattern, recorded)[0] == ""


def test_work_of_libraries_beside_much_that_was_recorded_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for recorded in (0.45, 0.6, 0.75):
        objection, _ = judged(monkeypatch, (True,) * 99 + (False,), recorded)
        assert f"recorded {recorded:.0%}" in objection


def test_short_operators_take_as_much_again_before_they_are_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judged(monkeypatch, (True,), 0.6, operators=200)[0] == ""


def test_what_slows_traced_calls_down_may_be_there_to_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looks_module, "_MOST_BATCHES", 100)
    pattern = (True,) * 9 + (False,)
    assert judged(monkeypatch, pattern, 0.6, call_ms=2.0, traced_ms=2.0)[0] == ""
    assert "recorded 60%" in judged(monkeypatch, pattern, 0.6, call_ms=2.0, traced_ms=4.0)[0]


def test_honest_code_that_was_slower_while_it_was_traced_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pattern = (True, False, True, True, False)
    assert judged(monkeypatch, pattern, 0.6, traced_ms=10.0)[0] == ""


def test_few_looks_that_all_say_one_thing_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks_module, "_MOST_BATCHES", 30)
    assert "a library of torch's" in judged(monkeypatch, (None,) * 5 + (True,), 0.0)[0]
    assert judged(monkeypatch, (None,) * 15 + (True,), 0.0)[0] == ""


def test_honest_code_is_done_within_a_few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, (False,), 0.1)[1] <= 18


def test_slower_calls_than_those_that_were_timed_show_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objection, _ = judged(monkeypatch, (False,), 0.0, call_ms=4.0)
    assert "not what was timed" in objection


def test_slower_calls_on_a_machine_that_is_as_much_slower_are_those_that_were_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judged(monkeypatch, (False,), 0.0, call_ms=4.0, gauge_ms=4.0)[0] == ""
