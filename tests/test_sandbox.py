"""Containment: what a contained process can reach, tried from inside; and its end, from outside."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import warm_lane

from kernelgen.child_python import start_code
from kernelgen.errors import ExitCode
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.supervisor.containment import plan_for
from kernelgen.grading.supervisor.grade import grade
from kernelgen.grading.supervisor.workers import ForkServer
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.grading.wire import messages as m
from kernelgen.problem.library import load_problem
from kernelgen.sandbox import landlock, limits, standstill, survey, tree
from kernelgen.sandbox.limits import usual_limits
from kernelgen.sandbox.record import Containment, Level, Limits, Plan
from kernelgen.sandbox.view import view_of
from kernelgen.sandbox.watch import OverLimit, Watch, trim_log

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
NOBODY = 65534
LIMITS = Limits(
    scratch_bytes=32 << 20,
    file_bytes=16 << 20,
    memory_bytes=4 << 30,
    processes=400,
    open_files=200,
)
HAS_NAMESPACES = survey.survey().level == "namespaces"
needs_namespaces = pytest.mark.skipif(
    not HAS_NAMESPACES, reason=f"no namespaces here: {survey.survey().missing}"
)
LEVELS = [
    pytest.param("namespaces", marks=needs_namespaces),
    pytest.param(
        "landlock", marks=pytest.mark.skipif(not landlock.probe_abi(), reason="no Landlock here")
    ),
]
# Runs in a process of its own, whose answer is what it prints: the value of `found`, as JSON.
PROLOGUE = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
import msgspec
from kernelgen.sandbox.enter import enter
from kernelgen.sandbox.record import Plan

def outcome(action):
    try:
        return str(action())
    except OSError as error:
        return type(error).__name__

containment = enter(msgspec.json.decode(sys.argv[1], type=Plan))
"""
EPILOGUE = "\nprint(json.dumps(found), flush=True)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a run: with a scratch folder, and another candidate's beside it."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "candidate.py").write_text("secret")
    return tmp_path


def plan(folder: Path, level: Level = "namespaces", **changes: object) -> Plan:
    made = Plan(
        level=level,
        landlock_abi=landlock.probe_abi(),
        scratch=str(folder / "scratch"),
        limits=LIMITS,
        home=str(Path.home()),
    )
    return msgspec.structs.replace(made, **changes)


def start(given: Plan, code: str, before: str = "") -> "subprocess.Popen[str]":
    script = before + PROLOGUE + textwrap.dedent(code) + EPILOGUE
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", script, msgspec.json.encode(given).decode()],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process


def inside(given: Plan, code: str) -> dict[str, str]:
    """Return `found`, which the code sets inside."""
    process = start(given, code)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    answer: dict[str, str] = json.loads(out)
    return answer


READS = """
found = {name: outcome(lambda: Path(path).read_bytes()[:0]) for name, path in PATHS.items()}
"""


@pytest.mark.parametrize("level", LEVELS)
def test_it_reads_python_and_compilers_and_nothing_of_the_users(folder: Path, level: Level) -> None:
    home = folder / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("secret")
    paths = {
        "interpreter": sys.executable,
        "library": json.__file__,
        "compiler": shutil.which("c++"),
        "problem": str(HERE / "problems" / "tiny_mean.yaml"),
        "grader": str(REPOSITORY / "kernelgen" / "errors.py"),
        "solution": str(REPOSITORY / "solutions" / "groupnorm.py"),
        "other candidate": str(folder / "other" / "candidate.py"),
        "key": str(home / ".ssh" / "id_ed25519"),
    }
    found = inside(plan(folder, level, home=str(home)), f"PATHS = {paths!r}\n{READS}")
    refused = {name for name, answer in found.items() if answer != "b''"}
    assert refused == {"problem", "grader", "solution", "other candidate", "key"}
    assert set(found.values()) <= {"b''", "FileNotFoundError", "PermissionError"}


@pytest.mark.parametrize("level", LEVELS)
def test_it_writes_to_its_scratch_folder_alone(folder: Path, level: Level) -> None:
    kept = folder / "kept"
    kept.mkdir()
    targets = [str(folder / "other" / "x"), "/etc/kernelgen-x", "/usr/kernelgen-x", "/kernelgen-x"]
    targets += [str(Path(json.__file__).with_name("x.py")), "/proc/sys/kernel/core_pattern"]
    found = inside(
        plan(folder, level, writable=(str(kept),)),
        f"""
        found = {{t: outcome(lambda: Path(t).write_bytes(b"")) for t in {targets!r}}}
        found["scratch"] = outcome(lambda: Path("mine").write_bytes(b"1"))
        found["kept"] = outcome(lambda: Path({str(kept)!r}, "mine").write_bytes(b"1"))
        """,
    )
    assert {name for name, answer in found.items() if answer == "1"} == {"scratch", "kept"}
    assert "0" not in found.values()
    assert (kept / "mine").read_bytes() == b"1"
    assert [file.name for file in (folder / "other").iterdir()] == ["candidate.py"]


@needs_namespaces
def test_it_has_no_network_but_itself(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = inside(
            plan(folder),
            f"""
            def reach(address, kind=socket.SOCK_STREAM):
                with socket.socket(socket.AF_INET, kind) as sock:
                    sock.settimeout(5)
                    sock.connect(address)
            own = socket.create_server(("127.0.0.1", 0))
            found = {{
                "outside": outcome(lambda: reach(("192.0.2.1", 80))),
                "datagram": outcome(lambda: reach(("192.0.2.1", 53), socket.SOCK_DGRAM)),
                "the machine": outcome(lambda: reach(("127.0.0.1", {port}))),
                "itself": outcome(lambda: reach(own.getsockname())),
            }}
            """,
        )
    assert found == {
        "outside": "OSError",
        "datagram": "OSError",
        "the machine": "ConnectionRefusedError",
        "itself": "None",
    }


@pytest.mark.skipif(landlock.probe_abi() < 4, reason="Landlock refuses TCP since its version 4")
def test_landlock_alone_refuses_tcp(folder: Path) -> None:
    found = inside(
        plan(folder, "landlock"),
        """
        found = {"tcp": outcome(lambda: socket.create_connection(("127.0.0.1", 9), 5))}
        """,
    )
    assert found == {"tcp": "PermissionError"}


@needs_namespaces
def test_it_sees_its_own_processes_alone(folder: Path) -> None:
    found = inside(
        plan(folder),
        f"""
        pids = sorted(int(p.name) for p in Path("/proc").glob("[0-9]*"))
        found = {{
            "pids": str(pids),
            "outside": outcome(lambda: os.kill({os.getpid()}, 0)),
            "above": outcome(lambda: os.kill(1, signal.SIGKILL)),
            "its memory": outcome(lambda: open("/proc/1/mem", "r+b")),
            "its environment": outcome(lambda: Path("/proc/1/environ").read_bytes()),
        }}
        """,
    )
    assert found["pids"] == "[1, 2]"
    assert found["outside"] == "ProcessLookupError"
    assert found["above"] in ("PermissionError", "None")
    assert found["its memory"] == found["its environment"] == "PermissionError"


@pytest.mark.parametrize("level", LEVELS)
def test_it_has_no_capabilities_and_gets_none(folder: Path, level: Level) -> None:
    found = inside(
        plan(folder, level),
        """
        lines = dict(l.split(":\\t", 1) for l in Path("/proc/self/status").read_text().splitlines())
        found = {name: lines[name] for name in lines if name[:3] in ("Cap", "NoN")}
        """,
    )
    assert found.pop("NoNewPrivs") == "1"
    if os.geteuid() != 0:
        found.pop("CapBnd")  # an ordinary user's is the machine's; no_new_privs closes it
    assert set(found.values()) == {"0" * 16}


@needs_namespaces
def test_what_it_writes_and_opens_is_limited(folder: Path) -> None:
    found = inside(
        plan(folder),
        """
        def fill(place, count):
            for number in range(count):
                Path(place, f"part{number}").write_bytes(bytes(8 << 20))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        found = {
            "scratch": outcome(lambda: fill(".", 5)),
            "shared memory": outcome(lambda: fill("/dev/shm", 1)),
            "one file": outcome(lambda: os.truncate("part0", 17 << 20)),
            "open files": outcome(lambda: [open("/dev/null") for _ in range(300)]),
        }
        """,
    )
    assert set(found.values()) == {"OSError"}


@needs_namespaces
def test_a_fork_bomb_meets_its_limit_and_ends_with_its_process(folder: Path) -> None:
    process = start(
        plan(folder),
        """
        count = 0
        while count < 2000:
            try:
                if os.fork() == 0:
                    os.setsid()
                    signal.pause()
            except BlockingIOError:
                break
            count += 1
        found = {"forks": str(count)}
        """,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert 0 < int(json.loads(out)["forks"]) <= LIMITS.processes
    assert tree.processes_below([process.pid]) == [process.pid]


@needs_namespaces
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("os._exit(7)", 7),
        ("os.abort()", -signal.SIGABRT),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(0, signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    ],
)
def test_the_keeper_ends_as_the_contained_process_did(
    folder: Path, code: str, expected: int
) -> None:
    process = start(plan(folder), code)
    process.communicate(timeout=60)
    assert process.returncode == expected


THREADS = """
import threading, time
for _ in range(3):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_that_has_threads_is_contained_without_them(folder: Path, level: Level) -> None:
    other = str(folder / "other" / "candidate.py")
    code = f"""
    found = {{
        "threads": len(os.listdir("/proc/self/task")),
        "other": outcome(lambda: Path({other!r}).read_text()),
    }}
    """
    process = start(plan(folder, level, hidden=(os.fsencode(folder),)), code, before=THREADS)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["threads"] == 1
    assert found["other"] in {"FileNotFoundError", "PermissionError"}


@needs_namespaces
def test_what_is_contained_dies_with_the_process_that_had_threads(folder: Path) -> None:
    process = start(plan(folder), LEAVES, before=THREADS)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 20
    process.kill()
    process.communicate()
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sleepers() == []


LEAVES = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "86419.5"])
        os._exit(0)
found = {}
print("ready", flush=True)
time.sleep(60)
"""


def sleepers() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"86419.5" in (process / "cmdline").read_bytes().split(b"\0"):
                found.append(process.name)
    return found


@needs_namespaces
def test_everything_it_started_dies_with_its_keeper(folder: Path) -> None:
    process = start(plan(folder), LEAVES)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 20
    while len(sleepers()) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    started = len(sleepers())
    process.kill()
    process.communicate()
    assert started == 3
    # The first process of the table is the test's own orphan: the kernel ends it by itself.
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sleepers() == []


def test_the_view_covers_what_lies_in_a_shown_folder_and_shows_tools_in_a_hidden_one(
    tmp_path: Path,
) -> None:
    given = plan(tmp_path, readable=(str(tmp_path),), hidden=(os.fsencode(tmp_path / "home"),))
    tools = tmp_path / "home" / "tools"
    tools.mkdir(parents=True)
    covered = view_of(given)
    assert covered.shows(str(tmp_path / "x"))
    assert not covered.shows(str(tools / "x"))
    shown = view_of(msgspec.structs.replace(given, readable=(*given.readable, str(tools))))
    assert shown.shows(str(tools / "x"))
    as_home = msgspec.structs.replace(given, readable=(str(tmp_path), str(tools)), hidden=())
    at_home = view_of(msgspec.structs.replace(as_home, home=str(tmp_path / "home")))
    assert at_home.shows(str(tools / "x"))
    assert not at_home.shows(str(tmp_path / "home" / "x"))
    assert not at_home.shows(str(REPOSITORY / "problems" / "groupnorm.yaml"))


def test_what_an_editable_installation_leaves_under_the_packages_name_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = tmp_path / "site" / "kernelgen" / "_data" / "problems" / "x.yaml"
    module = tmp_path / "site" / "admitted.py"
    problem.parent.mkdir(parents=True)
    for file in (problem, module):
        file.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    view = view_of(plan(tmp_path / "scratch", imports=("admitted",), home="/no/such/home"))
    assert view.shows(str(module))
    assert not view.shows(str(problem))


def test_of_a_folder_that_holds_the_home_only_an_admitted_module_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "admitted").mkdir()
    (tmp_path / "other.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = view_of(plan(tmp_path, imports=("admitted",), home=str(tmp_path / "home")))
    assert shown.shows(str(tmp_path / "admitted" / "part.py"))
    assert not shown.shows(str(tmp_path / "other.py"))
    apart = view_of(plan(tmp_path, imports=("admitted",), home="/no/such/home"))
    assert apart.shows(str(tmp_path / "other.py"))


@pytest.fixture
def children() -> Iterator[list[int]]:
    """A process that forks a child, which counts in a loop as its parent does."""
    script = "import os\nos.fork()\nwhile True: pass\n"
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 20
    while len(tree.processes_below([process.pid])) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    pids = tree.processes_below([process.pid])
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    process.wait()


def cpu_ticks(pids: list[int]) -> list[int]:
    texts = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2] for pid in pids]
    return [int(text.split()[11]) for text in texts]


def test_frozen_processes_do_not_run_and_thawed_ones_do(children: list[int]) -> None:
    assert len(children) == 2
    standstill.freeze(lambda: tree.processes_below([children[0]]))
    before = cpu_ticks(children)
    time.sleep(0.3)
    assert cpu_ticks(children) == before
    standstill.thaw(lambda: tree.processes_below([children[0]]))
    deadline = time.monotonic() + 20
    while min(b - a for a, b in zip(before, cpu_ticks(children), strict=True)) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_stopped_processes_that_stay_stopped_are_not_accused(children: list[int]) -> None:
    def below() -> list[int]:
        return tree.processes_below([children[0]])

    for _ in range(20):
        found = standstill.freeze(below, children)
        assert set(found.spent_ns) == set(children)
        time.sleep(0.002)
        standstill.require_still(found, below)
        assert found.since_s < standstill.thaw(below)
        time.sleep(0.002)


def test_a_process_that_was_woken_is_seen_though_it_has_stopped_again(children: list[int]) -> None:
    def below() -> list[int]:
        return tree.processes_below([children[0]])

    found = standstill.freeze(below)
    os.kill(children[1], signal.SIGCONT)
    time.sleep(0.1)
    os.kill(children[1], signal.SIGSTOP)
    with pytest.raises(standstill.Unrest, match="went to 1 of its processes"):
        standstill.require_still(found, below)


def test_a_process_that_is_killed_while_it_is_stopped_has_not_run(children: list[int]) -> None:
    def below() -> list[int]:
        return tree.processes_below([children[0]])

    found = standstill.freeze(below)
    os.kill(children[1], signal.SIGKILL)
    time.sleep(0.1)
    with pytest.raises(standstill.Ended, match="1 of its processes ended"):
        standstill.require_still(found, below)


def test_what_ends_in_a_long_system_call_has_run_until_then() -> None:
    # SIGQUIT comes before SIGSTOP and does not interrupt a read: the child ends without a stop.
    script = (
        "import os, signal, time\n"
        "size = 1 << 28\n"
        "file, room = os.memfd_create('rows'), bytearray(size)\n"
        "os.truncate(file, size)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print('reads', flush=True)\n"
        "    os.preadv(file, [room], 0)\n"
        "    time.sleep(60)\n"
        "time.sleep(0.02)\n"
        "os.kill(child, signal.SIGQUIT)\n"
        "print('told', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script]
    # On a busy machine the child may be there for longer than freezing waits.
    for _ in range(5):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [process.stdout.readline(), process.stdout.readline()] == ["reads\n", "told\n"]
            begin_s = time.perf_counter()
            found = standstill.freeze(lambda: tree.processes_below([process.pid]), [process.pid])
            took_s = time.perf_counter() - begin_s
            for pid in found.spent_ns:
                os.kill(pid, signal.SIGKILL)
        if set(found.spent_ns) == {process.pid}:
            break
    else:
        pytest.skip("the machine is too busy for a child to end in time")
    assert found.since_s - begin_s > 0.8 * took_s


def test_processes_that_continue_each_other_are_frozen() -> None:
    script = (
        "import os, signal\n"
        "other = os.fork() or os.getppid()\n"
        "while True:\n"
        "    os.kill(other, signal.SIGCONT)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    time.sleep(0.5)
    pids = tree.processes_below([process.pid])
    assert len(pids) == 2
    try:
        standstill.freeze(lambda: tree.processes_below([process.pid]))
        before = cpu_ticks(pids)
        time.sleep(0.2)
        assert cpu_ticks(pids) == before
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.wait()


def test_a_watch_ends_what_holds_too_much_memory_or_too_many_processes(
    children: list[int], tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log:
        small = msgspec.structs.replace(LIMITS, memory_bytes=1 << 20)
        with pytest.raises(OverLimit, match=r"GiB; 0\.00 GiB may be"):
            Watch(small, lambda: children, log.fileno()).look()
        few = msgspec.structs.replace(LIMITS, processes=1)
        with pytest.raises(OverLimit, match="2 processes and threads at once; 1 may be"):
            Watch(few, lambda: children, log.fileno()).look()
        Watch(LIMITS, lambda: children, log.fileno()).look()


def test_a_long_log_keeps_its_end_alone_on_the_disk(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb+") as log:
        for _ in range(80):
            log.write(b"x" * (1 << 20))
        log.write(b"the end")
        log.flush()
        trim_log(log.fileno())
        assert os.fstat(log.fileno()).st_blocks * 512 < 16 << 20
        assert os.fstat(log.fileno()).st_size == (80 << 20) + 7
        log.seek(-7, os.SEEK_END)
        assert log.read() == b"the end"


def test_pages_of_files_are_memory_that_a_control_group_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"max": "4000000", "current": "3900000"}
    texts["stat"] = "anon 500000\nactive_file 1000000\ninactive_file 2000000\nshmem 0\n"
    for name, text in texts.items():
        (tmp_path / f"memory.{name}").write_text(text)
    group = (tmp_path, "memory.max", "memory.current")
    monkeypatch.setattr(limits, "_CONTROL_GROUPS", (group,))
    assert limits.available_bytes() == 3_100_000
    (tmp_path / "memory.max").write_text("max")
    assert limits.available_bytes() > 3_100_000


def test_the_usual_limits_leave_room_for_honest_builds() -> None:
    usual = usual_limits()
    assert usual.memory_bytes > usual.scratch_bytes > 64 << 20
    assert usual.processes >= 512


@needs_namespaces
def test_a_worker_is_frozen_as_a_whole_and_still_answers_when_thawed(folder: Path) -> None:
    (folder / "start").mkdir()
    given = plan(folder, limits=msgspec.structs.replace(LIMITS, processes=4096, open_files=4096))
    with ForkServer(folder / "start") as server:
        worker = server.fork(folder / "scratch", {}, given)
        said = worker.receive(60)
        assert isinstance(said, m.Contained)
        assert said.containment.level == "namespaces"
        inside = tree.contained_process(worker.pid)
        worker.freeze()
        assert server.look(worker.pid) is None
        state = Path(f"/proc/{inside}/stat").read_text().rpartition(") ")[2][0]
        assert state == "T"
        worker.thaw()
        build = m.BuildCandidate(file_name="x.py", text="x = 1/0", device="cpu", threads=1)
        worker.send(build)
        failed = worker.receive(60)
        assert isinstance(failed, m.CandidateFailed)
        assert failed.type_name == "ZeroDivisionError"
        worker.pause()
        worker.require_still()
        assert inside is not None
        os.kill(inside, signal.SIGCONT)
        time.sleep(0.1)
        worker.resume()
        # From another thread nothing can be raised: it is kept for whoever asks next.
        with pytest.raises(standstill.Unrest, match="went to 1 of its processes"):
            worker.require_still()
        worker.freeze()
        worker.end()
        assert not Path(f"/proc/{inside}").exists()
        worker.release()


HONEST = HERE / "candidates" / "honest_softmax.py"
USUAL = GradeOptions(problem=load_problem(HERE / "problems" / "tiny_softmax.yaml"), time=False)


@pytest.fixture(scope="module", autouse=True)
def _with_a_secret() -> Iterator[None]:
    """Have something in the environment before the module's lane starts with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELGEN_TEST_SECRET", "secret")
        yield


def graded(path: Path, **changes: object) -> Verdict:
    return warm_lane.graded(path, msgspec.structs.replace(USUAL, **changes))


@needs_namespaces
def test_a_verdict_says_what_was_in_force() -> None:
    verdict = graded(HONEST, limits=LIMITS)
    assert verdict.status is Status.PASSED, verdict.reason
    assert verdict.containment == Containment(
        level="namespaces",
        landlock_abi=landlock.probe_abi(),
        limits=LIMITS,
        missing=survey.survey().missing,
    )
    assert not [text for text in verdict.warnings if "not contained" in text]


def test_a_candidate_that_is_not_contained_is_warned_of() -> None:
    verdict = graded(HONEST, sandbox="off")
    assert verdict.status is Status.PASSED
    assert verdict.containment is not None
    assert (verdict.containment.level, verdict.containment.limits) == ("none", None)
    assert "the candidate was not contained: it was turned off: --sandbox off" in verdict.warnings


SUPPORT = survey.Support(level="none", landlock_abi=0, missing=("namespaces: unshare: not here",))


def test_a_machine_without_containment_is_reported_honestly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelgen.grading.supervisor.containment.survey", lambda: SUPPORT)
    verdict = graded(HONEST)
    assert verdict.status is Status.PASSED
    assert verdict.containment is not None
    assert (verdict.containment.level, verdict.containment.missing) == ("none", SUPPORT.missing)
    assert [text for text in verdict.warnings if "unshare: not here" in text]


@pytest.mark.skipif(not landlock.probe_abi(), reason="no Landlock here")
def test_landlock_takes_the_place_of_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    only = msgspec.structs.replace(SUPPORT, level="landlock", landlock_abi=landlock.probe_abi())
    monkeypatch.setattr("kernelgen.grading.supervisor.containment.survey", lambda: only)
    verdict = graded(HONEST)
    assert verdict.status is Status.PASSED, verdict.reason
    assert verdict.containment is not None
    assert verdict.containment.level == "landlock"


@needs_namespaces
def test_what_cannot_be_entered_is_the_graders_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(*given: Any) -> Plan:
        return msgspec.structs.replace(plan_for(*given), writable=("/no/such/folder",))

    monkeypatch.setattr("kernelgen.grading.supervisor.session.plan_for", impossible)
    verdict = graded(HONEST)
    assert verdict.status is Status.GRADER_ERROR
    assert "could not be contained" in verdict.reason
    assert "/no/such/folder: No such file or directory" in verdict.reason


def test_require_refuses_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "survey", lambda: SUPPORT)
    with pytest.raises(survey.ContainmentError, match="unshare: not here; allow unpriv") as refused:
        grade([HONEST], options=msgspec.structs.replace(USUAL, sandbox="require"))
    assert refused.value.exit_code is ExitCode.GRADER_FAULT


CANDIDATE = """
import ctypes
import os
import torch
import torch.nn as nn

libc = ctypes.CDLL(None)

class ModelNew(nn.Module):
    def forward(self, x):
        {attack}
        return torch.softmax(x, 1)
"""


@needs_namespaces
@pytest.mark.parametrize(
    ("attack", "status", "reason"),
    [
        ("raise KeyError(sorted(os.environ))", Status.RUNTIME_ERROR, "'TORCH_EXTENSIONS_DIR'"),
        ("[bytearray(os.urandom(1)) * (1 << 29) for _ in range(40)]; import time; time.sleep(9)",
         Status.OUT_OF_MEMORY, "its processes hold"),
        ("open('x', 'wb').write(bytes(1 << 20) * 17)", Status.RUNTIME_ERROR, "File too large"),
    ],
)  # fmt: skip
def test_what_a_candidate_may_not_have_ends_with_a_clear_status(
    tmp_path: Path, attack: str, status: Status, reason: str
) -> None:
    candidate = tmp_path / "candidate.py"
    candidate.write_text(CANDIDATE.format(attack=attack))
    limits = msgspec.structs.replace(LIMITS, memory_bytes=1 << 30, processes=4096, open_files=4096)
    verdict = graded(candidate, limits=limits)
    assert verdict.status is status, verdict.reason
    assert reason in verdict.reason
    assert "KERNELGEN_TEST_SECRET" not in verdict.reason


def system_python() -> str | None:
    """Return an interpreter that any user can start and that has msgspec, if there is one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    names = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"]
    for name in names:
        command = [*as_nobody(), name, "-c", "import msgspec, sys; open(sys.executable).close()"]
        done = subprocess.run(command, env=nobodys(), capture_output=True, check=False, cwd="/")
        if done.returncode == 0:
            return name
    return None


def as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def nobodys() -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY), *(entry for entry in sys.path if "site-" in entry)])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": "/nonexistent"}


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """A folder in which an ordinary user may write, and which it can reach."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


def test_a_process_may_have_any_name_when_its_memory_is_asked_for() -> None:
    named = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff\\rVmSwap: x')"
    code = f"{named}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert tree.own_bytes(process.pid) > 0
        process.communicate()


def test_memory_is_counted_after_the_first_thread_of_its_process_has_ended() -> None:
    code = (
        "import ctypes, threading, time\n"
        "def hold():\n"
        "    held = bytes(range(256)) * (1 << 18)\n"
        "    time.sleep(0.3)\n"
        "    print(flush=True)\n"
        "    time.sleep(60)\n"
        "threading.Thread(target=hold).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit(2), of one thread
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        found = [
            tree.own_bytes(process.pid),
            tree.resident_bytes([process.pid], 1 << 40),
            tree.resident_bytes([process.pid], 1),
        ]
        process.kill()
    assert min(found) > 64 << 20


def test_an_ordinary_user_is_contained_as_well(folder_of_nobody: Path) -> None:
    python = system_python()
    if python is None:
        pytest.skip("needs to be root, setpriv, and an interpreter that nobody can start")
    os.chown(folder_of_nobody, NOBODY, NOBODY)
    code = start_code("kernelgen.sandbox.survey", "main()")
    done = subprocess.run(
        [*as_nobody(), python, "-c", code, str(folder_of_nobody.resolve())],
        env=nobodys(),
        capture_output=True,
        check=True,
        cwd="/",
    )
    found = msgspec.json.decode(done.stdout, type=survey.Support)
    assert found.level == survey.survey().level, found.missing
