"""Grade many small candidates on the CPU, and print how that went.

python scripts/load.py run --count 10000             one run: verdicts a second, memory, resume
python scripts/load.py ray --count 200               one worker of a Ray cluster, then two
python scripts/load.py serve --clients 64 --minutes 10   a service, then 1,000 malformed requests
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from statistics import linear_regression
from typing import Any

from kernelgen.problem.library import load_problem

ROOT = Path(__file__).parents[1]
CANDIDATE = ROOT / "tests" / "candidates" / "honest_cached_constants.py"
PROBLEM = ROOT / "tests" / "problems" / "tiny_polynomial.yaml"
KERNELGEN = [sys.executable, "-m", "kernelgen"]
GRADE = ["--problem", str(PROBLEM), "--device", "cpu", "--no-timing", "-q"]
PORT = 8765
TIMES_ASKED = 2
ADDRESS = f"http://127.0.0.1:{PORT}"
MALFORMED = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"candidate": 3}',
    b'{"candidate": "x"}',
    b'{"problem": "no such problem", "candidate": "x"}',
    b'{"problem": "softmax", "candidate": "x", "rules": {"time": "yes"}}',
    b'{"problem": "softmax", "candidate": "x", "device": "cuda"}',
)


def text_of(number: int) -> str:
    """Return a candidate that no other is; every third has a mistake."""
    text = CANDIDATE.read_text(encoding="utf-8") if number % 3 else "class ModelNew(:\n"
    return f"{text}\n# {number}\n"


def fill(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number:05}.py").write_text(text_of(number), encoding="utf-8")


def memory_mb(pid: int) -> float:
    """Return what a process has in memory, in MiB, what it shares with others included."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def lines_in(journal: Path) -> int:
    return journal.read_bytes().count(b'"type":"verdict"') if journal.exists() else 0


def say_memory(name: str, seen: list[tuple[float, float]]) -> None:
    """Print how memory (in MB) went with the verdicts, once the first tenth has been made."""
    settled = seen[len(seen) // 10 :]
    slope = linear_regression(*zip(*settled, strict=True)).slope
    least, most = min(mb for _, mb in settled), max(mb for _, mb in settled)
    print(f"{name}: {least:.0f} to {most:.0f} MB, {slope * 1e3:+.1f} MB in 1,000 verdicts")


def run(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, journal, report = Path(name, "files"), Path(name, "run"), Path(name, "run.json")
        folder.mkdir()
        fill(folder, count)
        command = [*KERNELGEN, "grade", str(folder), *GRADE, "--resume", str(journal)]
        command += ["--jobs", "2", "--json", str(report)]
        half, seen = count // 2, []
        start = time.monotonic()
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while lines_in(journal) < half:
            time.sleep(2)
            seen.append((float(lines_in(journal)), memory_mb(first.pid)))
        first.send_signal(signal.SIGKILL)
        first.wait()
        killed, kept = time.monotonic(), lines_in(journal)
        print(f"first run: {kept} verdicts, {kept / (killed - start):.2f} a second")
        second = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while lines_in(journal) == kept:
            time.sleep(0.05)
        print(f"killed; the next verdict came {time.monotonic() - killed:.1f} s later")
        while second.poll() is None:
            time.sleep(2)
        verdicts = json.loads(report.read_text(encoding="utf-8"))["verdicts"]
        rate = (lines_in(journal) - kept) / (time.monotonic() - killed)
        print(f"second run: {len(verdicts)} verdicts in all, {rate:.2f} a second")
        print(f"statuses: {dict(Counter(one['status'] for one in verdicts))}")
        print(f"in the journal: {lines_in(journal)}")
        say_memory("memory of the supervisor", seen)


def ray(count: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), count)
        cores = sorted(os.sched_getaffinity(0))
        # A node is as large as what it offers: what it starts inherits its core.
        os.sched_setaffinity(0, cores[:1])
        nodes: Any = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        os.sched_setaffinity(0, cores)
        command = [*KERNELGEN, "grade", name, *GRADE, "--json", "-"]
        try:
            for words in ("here", "one worker", "two workers"):
                if words == "two workers":
                    os.sched_setaffinity(0, cores[1:2])
                    nodes.add_node(num_cpus=1)
                    os.sched_setaffinity(0, cores)
                where = [] if words == "here" else ["--ray", nodes.address]
                start = time.monotonic()
                out = subprocess.run([*command, *where], stdout=subprocess.PIPE, check=False).stdout
                statuses = dict(Counter(one["status"] for one in json.loads(out)["verdicts"]))
                rate = count / (time.monotonic() - start)
                print(f"{words}: {rate:.2f} verdicts a second, {statuses}", flush=True)
        finally:
            nodes.shutdown()


def ask(path: str, body: bytes | None = None) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(ADDRESS + path, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=90) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def client(number: int, until: float, answers: dict[str, list[str]], waits: Counter[int]) -> None:
    """Ask one question after the other, each twice, and note the verdicts by job."""
    chance = random.Random(number)
    problem = load_problem(PROBLEM)
    reference = problem.reference_source(problem.all_cases()[0], "cpu")
    while time.monotonic() < until:
        body = {"reference": reference, "candidate": text_of(chance.randrange(1 << 40))}
        for _ in range(TIMES_ASKED):
            code, job = ask("/grade", json.dumps(body).encode())
            while code == HTTPStatus.TOO_MANY_REQUESTS:
                waits[code] += 1
                time.sleep(1)
                code, job = ask("/grade", json.dumps(body).encode())
            while job["state"] != "done":
                _, job = ask(f"/jobs/{job['id']}?wait=30")
            answers.setdefault(job["id"], []).append(job["verdict"]["status"])


def serve(clients: int, minutes: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        command = [*KERNELGEN, "serve", "--state", name, "--port", str(PORT), "--device", "cpu"]
        service = subprocess.Popen([*command, "--no-timing", "--allow-references"])
        try:
            while True:
                time.sleep(0.2)
                try:
                    ask("/health")
                    break
                except urllib.error.URLError:
                    continue
            until = time.monotonic() + 60 * minutes
            answers: dict[str, list[str]] = {}
            waits: Counter[int] = Counter()
            threads = [
                threading.Thread(target=client, args=(number, until, answers, waits))
                for number in range(clients)
            ]
            for thread in threads:
                thread.start()
            seen = []
            while any(thread.is_alive() for thread in threads):
                time.sleep(2)
                seen.append((float(len(answers)), memory_mb(service.pid)))
            kept = sum(lines_in(path) for path in Path(name).iterdir() if path.is_file())
            doubled = sum(len(set(one)) != 1 or len(one) != TIMES_ASKED for one in answers.values())
            print(
                f"{clients} clients: {len(answers)} jobs in {minutes:g} minutes, each asked twice"
            )
            print(f"answers that differ or are missing: {doubled}; verdicts kept: {kept}")
            print(f"statuses: {dict(Counter(one[0] for one in answers.values()))}; {dict(waits)}")
            say_memory("memory of the service", seen)
            codes = Counter(ask("/grade", MALFORMED[n % len(MALFORMED)])[0] for n in range(1000))
            print(f"1,000 malformed requests: {dict(codes)}; health {ask('/health')[0]}")
        finally:
            service.send_signal(signal.SIGTERM)
            service.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, count in (("run", 10_000), ("ray", 200)):
        kinds.add_parser(kind).add_argument("--count", type=int, default=count)
    service = kinds.add_parser("serve")
    service.add_argument("--clients", type=int, default=64)
    service.add_argument("--minutes", type=float, default=10)
    asked = vars(parser.parse_args())
    work: dict[str, Callable[..., None]] = {"run": run, "ray": ray, "serve": serve}
    work[asked.pop("kind")](**asked)


if __name__ == "__main__":
    main()
