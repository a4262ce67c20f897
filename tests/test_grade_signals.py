"""The supervisor is killed: nothing of what it started is left, nor what can be helped on disk."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci

HERE = Path(__file__).parent
HONEST = HERE / "candidates" / "honest_softmax.py"
CUDA = HERE / "candidates" / "cuda" / "honest_torch_extension.py"

CODES = {
    signal.SIGINT: 130,
    signal.SIGTERM: 128 + signal.SIGTERM,
    signal.SIGHUP: 128 + signal.SIGHUP,
    signal.SIGKILL: -signal.SIGKILL,
}
_USUAL = (signal.SIGINT, signal.SIGKILL)
GONE_WITHIN_S = 10.0


def using(folder: Path) -> dict[int, str]:
    """Return the processes that were started with this folder for temporary files, by id."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            environment = (process / "environ").read_bytes()
            status = (process / "stat").read_text().rpartition(")")[2].split()[0]
            name = (process / "comm").read_text().strip()
        except OSError:
            continue  # another user's, or it has just ended
        if os.fsencode(folder) in environment and status != "Z":
            found[int(process.name)] = name
    return found


def until(condition: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Grading:
    """A `kernelgen grade -v` of one file, with a folder of its own for temporary files."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        solution = folder / "solution.py"
        problem = text.splitlines()[0].removeprefix("# problem: ")
        solution.write_text(text)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "kernelgen", "grade", str(solution), "-v"),
                *("--problem", str(HERE / "problems" / f"{problem}.yaml"), *options),
            ],
            env={**os.environ, "TMPDIR": str(self.temporary)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, words: str) -> None:
        """Read what is printed until a phase begins."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if words in line:
                return
        pytest.fail(f"no phase {words!r}: {''.join(seen)}")

    def runs(self, name: str) -> bool:
        """Whether a process of this name was started."""
        return name in using(self.temporary).values()

    def strike(self, number: signal.Signals) -> None:
        """Send a signal, and require that nothing is left."""
        assert len(using(self.temporary)) >= 2
        os.kill(self.process.pid, number)
        assert self.process.wait(20) == CODES[number]
        assert until(lambda: not using(self.temporary), GONE_WITHIN_S), using(self.temporary)
        if number is not signal.SIGKILL:
            assert list(self.temporary.iterdir()) == []

    def end(self) -> None:
        """End whatever a failed test has left."""
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        for pid in using(self.temporary):
            os.kill(pid, signal.SIGKILL)


Starts = Callable[..., Grading]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starts]:
    running: list[Grading] = []

    def start(text: str, *options: str) -> Grading:
        running.append(Grading(tmp_path, text, *options))
        return running[-1]

    yield start
    for grading in running:
        grading.end()


def with_line(line: str, before: str) -> str:
    text = HONEST.read_text()
    assert text.count(before) == 1
    return text.replace(before, line + before).replace("import ctypes\n", "import ctypes, time\n")


each_signal = pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=[] if number in _USUAL else pytest.mark.long) for number in CODES],
    ids=lambda number: number.name,
)


@each_signal
def test_in_an_import(started: Starts, number: signal.Signals) -> None:
    grading = started(with_line("time.sleep(60)\n", "SOURCE ="))
    grading.wait_for("building")
    time.sleep(0.5)
    grading.strike(number)


@each_signal
def test_in_a_build_while_the_compiler_runs(started: Starts, number: signal.Signals) -> None:
    # torch's own headers take a compiler seconds; the comment is in no build cache.
    text = HONEST.read_text().replace("no_implicit_headers=True, ", "")
    text = text.replace("#include <cmath>", f"#include <cmath>  // {uuid.uuid4()}")
    grading = started(text)
    grading.wait_for("building")
    assert until(lambda: grading.runs("cc1plus"), 60.0)
    grading.strike(number)


@each_signal
def test_in_a_call(started: Starts, number: signal.Signals) -> None:
    grading = started(with_line("        time.sleep(60)\n", "        y = torch.empty_like(x)"))
    grading.wait_for("case 1")
    time.sleep(0.5)
    grading.strike(number)


@each_signal
def test_in_the_timing(started: Starts, number: signal.Signals) -> None:
    slow = with_line("        time.sleep(0.05)\n", "        y = torch.empty_like(x)")
    grading = started(slow, "--timing-budget", "60", "--samples", "1000")
    grading.wait_for("timing")
    time.sleep(0.3)
    grading.strike(number)


def test_before_anything_has_started_up(started: Starts) -> None:
    grading = started(HONEST.read_text())
    # The fork server, and not the compilers that are asked for their versions before it.
    assert until(
        lambda: sum(name.startswith("python") for name in using(grading.temporary).values()) >= 2,
        20.0,
    )
    grading.strike(signal.SIGTERM)


@pytest.mark.long
@pytest.mark.nvcc
@each_signal
def test_in_a_build_without_a_gpu(started: Starts, number: signal.Signals) -> None:
    skip_with_gpu()
    grading = started(CUDA.read_text())
    grading.wait_for("there is no GPU")
    assert until(lambda: grading.runs("cicc") or grading.runs("cudafe++"), 60.0)
    grading.strike(number)


@pytest.mark.long
@pytest.mark.nvcc
def test_in_an_import_without_a_gpu(started: Starts) -> None:
    skip_with_gpu()
    text = CUDA.read_text()
    assert text.count("\nimport torch\n") == 1
    grading = started(
        text.replace("\nimport torch\n", "\nimport time\nimport torch\ntime.sleep(60)\n")
    )
    grading.wait_for("there is no GPU")
    time.sleep(3.0)  # it imports torch first
    grading.strike(signal.SIGKILL)


def skip_with_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("with a GPU the candidate builds itself")
