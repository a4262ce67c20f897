"""The folder of compiled files: whole entries or none, several runs at once, a bound."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelgen.build.store import BuildStore


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_was_put_is_got_and_nothing_else(tmp_path: Path) -> None:
    store = BuildStore(tmp_path)
    assert store.get(key("a")) is None
    store.put(key("a"), b"one")
    store.put(key("a"), b"two")
    store.put(key("empty"), b"")
    assert (store.get(key("a")), store.get(key("empty")), store.get(key("b"))) == (
        b"two",
        b"",
        None,
    )


def test_a_torn_entry_is_none_and_goes(tmp_path: Path) -> None:
    store = BuildStore(tmp_path)
    for torn in (b"", b"short", b"\0" * 100):
        (tmp_path / key("a")).write_bytes(torn)
        assert store.get(key("a")) is None
        assert names(tmp_path) == set()
    store.put(key("a"), b"whole")
    held = (tmp_path / key("a")).read_bytes()
    (tmp_path / key("a")).write_bytes(held[:-1])
    assert store.get(key("a")) is None


def test_a_writer_that_is_killed_leaves_no_entry_and_is_cleaned_up_after(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from kernelgen.build.store import BuildStore\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "BuildStore(Path(sys.argv[1])).put(sys.argv[2], b'x' * 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path), key("a")], check=False)
    assert done.returncode == -signal.SIGKILL
    store = BuildStore(tmp_path)
    assert store.get(key("a")) is None
    (left,) = tmp_path.iterdir()
    store.put(key("b"), b"")
    assert left.exists()  # another run may be at it
    os.utime(left, (0, 0))
    store.put(key("c"), b"")
    assert names(tmp_path) == {key("b"), key("c")}


def test_writers_and_readers_at_once_see_whole_entries(tmp_path: Path) -> None:
    entries = {key(str(n)): str(n).encode() * 50_000 for n in range(8)}

    def work(number: int) -> None:
        store = BuildStore(tmp_path, limit_bytes=1 << 20)
        for name, data in [*entries.items()] * 5:
            if number % 2:
                store.put(name, data)
            else:
                assert store.get(name) in {None, data}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert names(tmp_path) == set(entries)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, limit_bytes=3 * 1032)
    for age, name in enumerate("abc"):
        store.put(key(name), b"x" * 1000)
        moment = time.time() - 100 + age
        os.utime(tmp_path / key(name), (moment, moment))
    assert store.get(key("a")) is not None
    store.put(key("d"), b"x" * 1000)
    assert names(tmp_path) == {key("a"), key("c"), key("d")}
    store.put(key("large"), b"x" * 5000)
    assert names(tmp_path) == set()


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("x" * 100)
    BuildStore(tmp_path, limit_bytes=10).put(key("a"), b"x" * 100)
    assert names(tmp_path) == {"README"}
