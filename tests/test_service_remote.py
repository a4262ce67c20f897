"""Grading by a service elsewhere: what is sent, what comes back, and what a restart costs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from test_service_http import FakeCrew, free_port, in_a_thread, settings

from kernelgen.cli import program
from kernelgen.errors import UserError
from kernelgen.grading.queue.job import release
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.verdict import Run, Status
from kernelgen.service import http
from kernelgen.service.http import application
from kernelgen.service.remote import Remote

SOLUTION = "# problem: groupnorm\n# now\nclass ModelNew: ...\n"


@contextmanager
def serving(state: Path, port: int = 0, **changes: Any) -> Iterator[str]:
    """Answer at a port, by a crew that grades nothing."""
    state.mkdir(exist_ok=True)
    with (
        Journal(state / "verdicts.journal") as journal,
        in_a_thread(application(settings(state, **changes), journal, print), port) as url,
    ):
        yield url


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "Crew", FakeCrew)
    monkeypatch.setattr(FakeCrew, "environment", {"gpu": "a GPU elsewhere"})


def grade(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(program, ["grade", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_run_is_as_one_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{name}.py" for name in ("first", "second")]
    for file in files:
        file.write_text(f"{SOLUTION}# {file.stem}\n")
    files.append(tmp_path / "unlucky.py")
    files[-1].write_text(f"{SOLUTION}# a fault\n")
    record, journal = tmp_path / "run.json", tmp_path / "run.journal"
    with serving(tmp_path / "state", token="secret") as url:
        code, says = grade(*files, "--remote", url)
        assert (code, "KERNELGEN_TOKEN" in says) == (2, True)
        monkeypatch.setenv("KERNELGEN_TOKEN", "secret")
        given = ("--remote", url, "--json", record, "--resume", journal, "--samples", 5)
        code, says = grade(*files, *given, "--tolerance", "1e-4")
    assert code == 3
    run = msgspec.json.decode(record.read_bytes(), type=Run)
    statuses = {verdict.solution: verdict.status for verdict in run.verdicts}
    assert list(statuses) == list(map(str, files))
    assert list(statuses.values()) == [Status.PASSED, Status.PASSED, Status.GRADER_ERROR]
    assert run.environment["gpu"] == "a GPU elsewhere"
    (asked, *_) = FakeCrew.made.jobs
    assert asked.options.problem is not None
    assert asked.options.problem.name == "groupnorm"
    assert (asked.options.max_samples, asked.options.min_samples) == (5, 5)
    assert asked.options.tolerance == 1e-4
    assert len(journal.read_bytes().splitlines()) >= 3


def test_a_service_that_restarts_is_asked_again(tmp_path: Path) -> None:
    file, port = tmp_path / "slow.py", free_port()
    file.write_text(SOLUTION.replace("now", "later"))
    found: list[tuple[int, str]] = []
    with serving(tmp_path / "state", port) as url:
        client = threading.Thread(
            target=lambda: found.append(grade(file, "--remote", url)), daemon=True
        )
        client.start()
        until(lambda: bool(FakeCrew.made.jobs))  # its service's own, made when it began
    before = FakeCrew.made
    with serving(tmp_path / "other", port):  # which knows nothing of it
        until(lambda: FakeCrew.made is not before and bool(FakeCrew.made.jobs))
        FakeCrew.made.finish()
        client.join(60)
    assert found[0][0] == 0, found[0][1]


def until(holds: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError


def test_problems_of_a_checkout_are_named_and_others_sent(tmp_path: Path) -> None:
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    text = (
        "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.relu()\n\ndef get_inputs():\n    return [torch.ones(3)]\n\n"
        "def get_init_inputs():\n    return []\n"
    )
    (level / "19_ReLU.py").write_text(text)
    (level / "20_Other.py").write_text(text.replace("relu", "tanh"))
    runs = tmp_path / "run"
    runs.mkdir()
    for number in (19, 20):
        (runs / f"level_1_problem_{number}_sample_0_kernel.py").write_text(SOLUTION[22:])
    given = (runs, "--kernelbench", tmp_path, "--remote")
    problems = {"1/19": level / "19_ReLU.py"}
    with serving(tmp_path / "state", problems=problems) as url:
        code, says = grade(*given, url)
        assert code == 3
        assert "--allow-references" in says
        (job,) = FakeCrew.made.jobs
        assert job.options.problem is not None
        assert job.options.problem.name == "19_ReLU"
    with serving(tmp_path / "other", problems=problems, takes_references=True) as url:
        assert grade(*given, url)[0] == 0
        names = {job.options.problem.path.name for job in FakeCrew.made.jobs if job.options.problem}
        assert names == {"19_ReLU.py", "reference.py"}


@pytest.mark.parametrize(
    ("url", "says"),
    [("ftp://here", "expected a URL"), ("http://127.0.0.1:9", "no kernelgen serve answers")],
)
def test_what_is_no_service_is_refused_at_once(url: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        Remote(url)


def test_another_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path / "state") as url:
        other = {**release(), "kernelgen": "another"}
        monkeypatch.setattr("kernelgen.service.remote.release", lambda: other)
        with pytest.raises(UserError, match="install the same on both"):
            Remote(url)


def test_options_that_a_service_decides_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(SOLUTION)
    for option in (("--device", "cpu"), ("--sanitize",), ("--allow-import", "triton")):
        code, says = grade(file, "--remote", "http://127.0.0.1:9", *option)
        assert code == 2
        assert "exclude each other" in says


def test_jobs_and_problems_are_listed(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as url:
        asked = {"candidate": SOLUTION.replace("now", "later"), "problem": "groupnorm"}
        number = httpx.post(f"{url}/grade", json=asked).json()["id"]
        assert httpx.get(f"{url}/jobs").json() == [{"id": number, "state": "waiting"}]
        offer = httpx.get(f"{url}/problems").json()
        assert "groupnorm" in offer["problems"]
        assert offer["release"]["kernelgen"]
        FakeCrew.made.finish()
        assert httpx.get(f"{url}/jobs/{number}?wait=20").json()["state"] == "done"
        assert httpx.get(f"{url}/jobs").json() == []
