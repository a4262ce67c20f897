"""Each level of the sandbox, tried by system calls that go past Python's own functions.

docs/threat-model.md says the same in words.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_sandbox import LEVELS, inside, plan

from kernelgen.sandbox.record import Level

# Each reaches a process or a file outside that the test has made, and nothing else, also where
# nothing is refused; or it raises OSError.
PROBES = r'''
import ctypes, mmap, struct

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ZERO = ctypes.c_long(0)

def call(number, *arguments):
    whole = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *whole)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def io_uring(path):
    """Open a file by a ring: no call of this thread's names it."""
    about = ctypes.create_string_buffer(120)
    ring = call(425, 4, about)
    entries, completed = struct.unpack_from("II", about)
    array, tail = (struct.unpack_from("I", about, 40 + 4 * at)[0] for at in (6, 1))
    results = struct.unpack_from("I", about, 80 + 4 * 5)[0]
    size = max(array + 4 * entries, results + 16 * completed)
    shared, asked = mmap.mmap(ring, size), mmap.mmap(ring, 64 * entries, offset=0x10000000)
    name = ctypes.create_string_buffer(path.encode())
    asked[:40] = struct.pack("<BBHiQQIIQ", 18, 0, 0, -100, 0, ctypes.addressof(name), 0, 0, 7)
    struct.pack_into("I", shared, array, 0)
    struct.pack_into("I", shared, tail, 1)
    call(426, ring, 1, 1, 1, None, 0)
    (result,) = struct.unpack_from("i", shared, results + 8)
    if result < 0:
        raise OSError(-result, os.strerror(-result))

def aio(path):
    """Read a file by io_submit."""
    context, room, done = ctypes.c_ulong(0), ctypes.create_string_buffer(8), (ctypes.c_long * 4)()
    call(206, 1, ctypes.byref(context))
    fd, at = os.open(path, os.O_RDONLY), ctypes.addressof(room)
    block = struct.pack("<QIIHhIQQqQII", 1, 0, 0, 0, 0, fd, at, 1, 0, 0, 0, 0)
    held = ctypes.create_string_buffer(block)
    call(209, context, 1, (ctypes.c_void_p * 1)(ctypes.addressof(held)))
    call(208, context, 1, 1, done, None)

def connect(family, address, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as sock:
        sock.settimeout(5)
        sock.connect(address)

def fast_open(address):
    with socket.socket() as sock:
        sock.sendto(b"x", socket.MSG_FASTOPEN, address)

def memory():
    here = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    call(310, PID, here, 1, (ctypes.c_size_t * 2)(ADDRESS, 8), 1, 0)

def event(pid):
    about = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 120, 0) + bytes(104))
    return call(298, about, pid, -1, -1, 0)

LIMIT = (ctypes.c_ulong * 2)(64, 64)
MASK = ctypes.byref(ctypes.c_ulong(1))
probes = {
    "a file by io_uring": lambda: io_uring(FILE),
    "a file by aio": lambda: aio(FILE),
    "a file's length": lambda: os.stat(FILE),
    "a file's mode": lambda: os.chmod(FILE, 0o640),
    "a signal": lambda: os.kill(PID, 0),
    "a trace": lambda: call(101, 0x4206, PID, None, None),
    "memory by process_vm_readv": memory,
    "memory by /proc": lambda: open(f"/proc/{PID}/mem", "rb"),
    "an environment": lambda: Path(f"/proc/{PID}/environ").read_bytes(),
    "a descriptor": lambda: call(438, call(434, PID, 0), 0, 0),
    "a counter": lambda: event(PID),
    "a name of a command": lambda: Path(f"/proc/{PID}/cmdline").read_bytes(),
    "a priority": lambda: os.setpriority(os.PRIO_PROCESS, PID, 5),
    "cores": lambda: os.sched_setaffinity(PID, os.sched_getaffinity(0)),
    "limits": lambda: call(302, PID, 7, ctypes.byref(LIMIT), None),
    "a key": lambda: call(250, 10, -4, b"user", KEY, 0),
    "System V memory": lambda: call(29, SEGMENT, 4096, 0),
    "an abstract socket": lambda: connect(socket.AF_UNIX, ABSTRACT),
    "a socket in a folder": lambda: connect(socket.AF_UNIX, SOCKET),
    "TCP": lambda: connect(socket.AF_INET, TCP),
    "multipath TCP": lambda: connect(socket.AF_INET, TCP, 262),
    "TCP fast open": lambda: fast_open(TCP),
    "a page fault in the kernel": lambda: call(323, 0),
}
found = {name: outcome(probe) for name, probe in probes.items()}
'''
# By docs/threat-model.md; a kernel may refuse more.
OPEN: dict[Level, set[str]] = {
    "namespaces": set(),
    "landlock": {
        "a file's length", "a file's mode", "a name of a command", "a priority", "cores", "limits",
        "a key", "System V memory", "a socket in a folder", "multipath TCP", "TCP fast open",
    },
}  # fmt: skip
ON_EVERY_KERNEL = {"a file by aio", "a file's mode", "a signal", "a priority", "cores", "TCP"}
USER_KEYRING, ADD_KEY, KEYCTL, UNLINK = -4, 248, 250, 9


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[str]:
    """A process and files of the user's, as lines of Python that name them."""
    (tmp_path / "scratch").mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    libc = ctypes.CDLL(None)
    key, segment = f"kernelgen-{os.getpid()}".encode(), 0x4B470000 + os.getpid() % 0xFFFF
    ring = ctypes.c_long(USER_KEYRING)
    serial = libc.syscall(ADD_KEY, b"user", key, b"x", ctypes.c_size_t(1), ring)
    held = libc.shmget(segment, ctypes.c_size_t(4096), 0o1600)
    room = ctypes.create_string_buffer(8)
    with (
        subprocess.Popen(["sleep", "600"]) as process,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        abstract.bind(f"\0{key.decode()}")
        named.bind(str(tmp_path / "socket"))
        for sock in (abstract, named):
            sock.listen()
        named_there = {
            "FILE": str(secret),
            "SOCKET": str(tmp_path / "socket"),
            "ABSTRACT": f"\0{key.decode()}",
            "PID": process.pid,
            "ADDRESS": ctypes.addressof(room),
            "TCP": tcp.getsockname(),
            "KEY": key,
            "SEGMENT": segment,
        }
        yield "\n".join(f"{name} = {value!r}" for name, value in named_there.items())
        process.kill()
    libc.shmctl(held, 0, None)
    libc.syscall(KEYCTL, UNLINK, ctypes.c_long(serial), ring)


def let_through(outside: str, level: Level, folder: Path) -> set[str]:
    given = plan(folder, level) if level != "none" else plan(folder, level, landlock_abi=0)
    found = inside(given, f"{outside}\n{PROBES}")
    return {name for name, answer in found.items() if not answer.endswith("Error")}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are x86-64's")
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_lets_through_no_more_than_is_documented(
    outside: str, level: Level, tmp_path: Path
) -> None:
    assert let_through(outside, level, tmp_path) <= OPEN[level]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls' numbers are x86-64's")
def test_without_a_level_these_go_through(outside: str, tmp_path: Path) -> None:
    assert let_through(outside, "none", tmp_path) >= ON_EVERY_KERNEL
