"""The service over HTTP: what is accepted, what is refused, and what a restart finds."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import msgspec
import pytest
import schemathesis
import uvicorn
from litestar.testing import TestClient
from report_runs import failed, passed
from schemathesis.checks import (
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.result import Err
from test_grade_supervisor import HONEST, left_behind, problem_of

from kernelgen.cli import serve
from kernelgen.errors import UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.job import Job
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.verdict import Status, Verdict
from kernelgen.problem.record import digest
from kernelgen.service import http
from kernelgen.service.desk import Settings
from kernelgen.service.http import application

BROKEN = "class ModelNew(:\n"


class FakeCrew(Crew):
    """Grades at once what says `now`, and the rest when told; counts what it is given."""

    made: "FakeCrew"
    environment: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, *_: object, **__: object) -> None:
        FakeCrew.made = self
        self.lanes, self.passing = 1, False
        self.jobs: list[Job] = []
        self.begins: list[Callable[[], None]] = []
        self.futures: list[Future[Verdict]] = []

    def __exit__(self, *_: object) -> None: ...

    def submit(
        self, job: Job, *_: object, begins: Callable[[], None] = lambda: None, **__: object
    ) -> Future[Verdict]:
        """Answer, or wait for `finish`."""
        self.jobs.append(job)
        self.begins.append(begins)
        self.futures.append(Future())
        assert job.data is not None
        if b"now" in job.data or self.passing:
            fault = failed(Status.GRADER_ERROR) if b"fault" in job.data else passed()
            sha256 = digest(job.data)
            self.futures[-1].set_result(msgspec.structs.replace(fault, solution_sha256=sha256))
        return self.futures[-1]

    def cancel(self, future: Future[Verdict]) -> None:
        """Take it back."""
        future.cancel()

    def finish(self) -> None:
        """Pass all that waits, and all that comes."""
        self.passing = True
        for future in self.futures:
            if not future.done():
                future.set_result(passed())


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "Crew", FakeCrew)


def settings(folder: Path, **changes: Any) -> Settings:
    options = GradeOptions(device="cpu", time=False)
    return msgspec.structs.replace(Settings(state=folder, options=options), **changes)


@contextlib.contextmanager
def client(folder: Path, **changes: Any) -> Iterator[TestClient[Any]]:
    with (
        Journal(folder / "verdicts.journal") as journal,
        TestClient(application(settings(folder, **changes), journal, print)) as opened,
    ):
        yield opened


def asked(text: str, **more: object) -> dict[str, object]:
    return {"candidate": text, "problem": "groupnorm", **more}


def until_it_is_submitted() -> None:
    deadline = time.monotonic() + 20
    while not FakeCrew.made.jobs and time.monotonic() < deadline:
        time.sleep(0.01)


def states(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "accepted").iterdir())


@pytest.mark.usefixtures("fake")
def test_a_question_is_a_job_until_its_verdict_is_there(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        first = service.post("/grade", json=asked("later"))
        assert (first.status_code, first.json()["state"]) == (202, "waiting")
        number = first.json()["id"]
        assert states(tmp_path) == [f"{number}.json"]
        assert service.post("/grade", json=asked("later")).json() == first.json()
        assert service.get(f"/jobs/{number}").json() == first.json()
        assert service.get("/health").json()["waiting"] == 1
        FakeCrew.made.finish()
        done = service.get(f"/jobs/{number}", params={"wait": 20}).json()
        assert (done["state"], done["verdict"]["status"]) == ("done", "PASSED")
        again = service.post("/grade", json=asked("later"))
        assert (again.status_code, again.json()) == (200, done)
        assert states(tmp_path) == []
        assert len(FakeCrew.made.jobs) == 1
        text = service.get("/metrics").text
        assert 'kernelgen_verdicts_total{status="PASSED"} 1.0' in text
        assert "kernelgen_waiting 0.0" in text


@pytest.mark.usefixtures("fake")
def test_rules_of_a_request_reach_the_grader(tmp_path: Path) -> None:
    rules = {"time": True, "tolerance": "kernelbench", "timing_budget_s": 2, "baselines": ["eager"]}
    with client(tmp_path) as service:
        number = service.post("/grade", json=asked("now", rules=rules)).json()["id"]
        # Accepted is not yet given to the grader.
        assert service.get(f"/jobs/{number}", params={"wait": 20}).json()["state"] == "done"
        options = FakeCrew.made.jobs[0].options
        assert (options.time, options.tolerance, options.timing_budget_s) == (
            True,
            "kernelbench",
            2,
        )
        assert options.baselines == ("eager",)
        assert options.device == "cpu"
        one, other = (
            service.post("/grade", json=asked("now", **more)).json()["id"]
            for more in ({}, {"rules": {"eval_mode": True}})
        )
        assert one != other


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "validation failed"),
        ({"candidate": 3, "problem": "groupnorm"}, "validation failed"),
        (asked("x", sandbox="off"), "validation failed"),
        (asked("x", rules={"gpu": "0"}), "validation failed"),
        (asked("x", rules={"timing_budget_s": 1e9}), "validation failed"),
        (asked("x", rules={"baselines": ["fast"]}), "fast: no baseline; there are eager"),
        ({"candidate": "x"}, "expected one of `problem`"),
        (asked("x", reference="y"), "expected one of `problem`"),
        (asked("x", problem="../groupnorm.yaml"), "no problem is called so"),
        (asked("x", problem=str(problem_of(HONEST).path)), "no problem is called so"),
        ({"candidate": "x", "reference": "import torch"}, "--allow-references"),
    ],
)
@pytest.mark.usefixtures("fake")
def test_what_cannot_be_graded_is_refused(body: object, says: str, tmp_path: Path) -> None:
    with client(tmp_path) as service:
        answer = service.post("/grade", json=body)
        assert answer.status_code == 400
        assert says in json.dumps(answer.json()).replace("Validation", "validation")
        assert (FakeCrew.made.jobs, states(tmp_path)) == ([], [])


@pytest.mark.usefixtures("fake")
def test_references_are_taken_where_they_are_allowed(tmp_path: Path) -> None:
    source = problem_of(HONEST).reference_source(problem_of(HONEST).all_cases()[0], "cpu")
    with client(tmp_path, takes_references=True) as service:
        taken = service.post("/grade", json={"candidate": "now", "reference": source})
        assert taken.status_code in {200, 202}
        refused = service.post("/grade", json={"candidate": "now", "reference": "x = 1\n"})
        assert refused.status_code == 400
        assert "reference.py" in refused.json()["detail"]


@pytest.mark.usefixtures("fake")
def test_a_full_queue_says_when_to_ask_again(tmp_path: Path) -> None:
    with client(tmp_path, queue=2) as service:
        assert [service.post("/grade", json=asked(str(n))).status_code for n in range(2)] == [
            202
        ] * 2
        full = service.post("/grade", json=asked("2"))
        assert full.status_code == 429
        assert int(full.headers["retry-after"]) >= 1
        assert service.post("/grade", json=asked("1")).status_code == 202
        FakeCrew.made.finish()
        number = service.post("/grade", json=asked("1")).json()["id"]
        service.get(f"/jobs/{number}", params={"wait": 20})
        assert service.post("/grade", json=asked("now 2")).status_code in {200, 202}


@pytest.mark.usefixtures("fake")
def test_without_its_token_nothing_is_answered_but_health(tmp_path: Path) -> None:
    with client(tmp_path, token="secret") as service:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            answers = [
                service.post("/grade", json=asked("now"), headers=headers),
                service.get(f"/jobs/{'0' * 64}", headers=headers),
                service.get("/metrics", headers=headers),
                service.get("/schema/openapi.json", headers=headers),
            ]
            assert {one.status_code for one in answers} == {401}
        assert service.get("/health").status_code == 200
        right = {"authorization": "Bearer secret"}
        assert service.post("/grade", json=asked("now"), headers=right).status_code < 300
        assert service.get(f"/jobs/{'0' * 64}", headers=right).status_code == 404


@pytest.mark.usefixtures("fake")
def test_a_long_request_is_refused_unread(tmp_path: Path) -> None:
    with client(tmp_path, body_bytes=1000) as service:
        assert service.post("/grade", json=asked("x" * 2000)).status_code == 413


@pytest.mark.usefixtures("fake")
def test_a_fault_of_the_graders_is_told_and_asked_again(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        number = service.post("/grade", json=asked("now fault")).json()["id"]
        done = service.get(f"/jobs/{number}", params={"wait": 20}).json()
        assert done["verdict"]["status"] == "GRADER_ERROR"
        service.post("/grade", json=asked("now fault"))
        service.get(f"/jobs/{number}", params={"wait": 20})
        assert len(FakeCrew.made.jobs) == 2
        assert states(tmp_path) == []


@pytest.mark.usefixtures("fake")
def test_a_full_disk_accepts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "x")

    with client(tmp_path) as service:
        monkeypatch.setattr("kernelgen.service.desk.write_whole", full)
        answer = service.post("/grade", json=asked("later"))
        assert answer.status_code == 503
        assert "No space left" in answer.json()["detail"]
        monkeypatch.undo()
        assert service.get("/health").json()["waiting"] == 0


@pytest.mark.usefixtures("fake")
def test_a_folder_that_is_gone_accepts_nothing(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        (tmp_path / "accepted").rmdir()
        answer = service.post("/grade", json=asked("later"))
        assert answer.status_code == 503
        assert "cannot be written to" in answer.json()["detail"]
        assert service.get("/health").json()["waiting"] == 0


@pytest.mark.usefixtures("fake")
def test_a_restart_goes_on_with_what_was_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(tmp_path) as service:
        numbers = [service.post("/grade", json=asked(str(n))).json()["id"] for n in range(3)]
    assert states(tmp_path) == sorted(f"{number}.json" for number in numbers)
    (tmp_path / "accepted" / "torn.json").write_text("{", encoding="utf-8")
    with client(tmp_path, queue=1) as service:
        assert "torn.json" in capsys.readouterr().out
        assert service.get("/health").json()["waiting"] == 3
        FakeCrew.made.finish()
        for number in numbers:
            done = service.get(f"/jobs/{number}", params={"wait": 20}).json()
            assert done["verdict"]["status"] == "PASSED"
    assert states(tmp_path) == ["torn.json"]


@pytest.mark.usefixtures("fake")
def test_what_a_service_died_of_is_graded_once_more_alone_and_then_no_more(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        number = service.post("/grade", json=asked("deadly")).json()["id"]
        until_it_is_submitted()
        assert not FakeCrew.made.jobs[-1].alone
    for died in (1, 2):
        with Journal(tmp_path / "verdicts.journal") as journal:
            assert journal.begun(number) == died - 1
            journal.note_begun(number, died)
        with client(tmp_path) as service:
            if died == 1:
                until_it_is_submitted()
            else:
                done = service.get(f"/jobs/{number}", params={"wait": 20}).json()
                assert done["verdict"]["status"] == "GRADER_ERROR"
                assert "taken up 2 times" in done["verdict"]["reason"]
            assert [job.alone for job in FakeCrew.made.jobs] == [True] * (2 - died)
    assert states(tmp_path) == []


@pytest.mark.usefixtures("fake")
def test_a_service_that_is_closed_counts_no_try(tmp_path: Path) -> None:
    with client(tmp_path) as service:
        number = service.post("/grade", json=asked("slow")).json()["id"]
        until_it_is_submitted()
        FakeCrew.made.begins[-1]()
        with Path(tmp_path / "verdicts.journal").open("rb") as file:
            assert b'"times":1' in file.read()
    with Journal(tmp_path / "verdicts.journal") as journal:
        assert journal.begun(number) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def in_a_thread(app: Any, port: int = 0) -> Iterator[str]:
    """Serve an application; schemathesis needs a socket, and one lifespan for all its requests."""
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.usefixtures("fake")
def test_whatever_is_sent_gets_an_answer_that_the_schema_has(examples: int, tmp_path: Path) -> None:
    given: dict[tuple[str, str], set[int]] = {}
    quick = hypothesis.settings(
        max_examples=examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
    with (
        Journal(tmp_path / "verdicts.journal") as journal,
        in_a_thread(
            application(settings(tmp_path, takes_references=True, queue=5), journal, print)
        ) as address,
    ):
        schema = schemathesis.openapi.from_url(f"{address}/schema/openapi.json")
        modes = [schemathesis.GenerationMode(mode) for mode in ("positive", "negative")]
        for found in schema.get_all_operations():
            assert not isinstance(found, Err)
            operation = found.ok()
            for mode in modes:

                @quick
                @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
                def ask(case: Any) -> None:
                    answer = case.call(timeout=90)
                    case.validate_response(answer, checks=checks)
                    place = (case.path, case.meta.generation.mode.value if case.meta else "")
                    given.setdefault(place, set()).add(answer.status_code)

                with contextlib.suppress(hypothesis.errors.Unsatisfiable):
                    ask()
    assert given["/grade", "negative"] <= {400, 413, 415}
    assert given["/jobs/{number}", "positive"] == {404}
    assert given["/health", "positive"] == {200}


# The command


@contextlib.contextmanager
def served(state: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "kernelgen", "serve", "--state", str(state)]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--device", "cpu", "--no-timing", "--allow-references"]
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None
            assert time.monotonic() < deadline
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            time.sleep(0.1)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@pytest.mark.ci
def test_a_killed_service_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    reference = problem_of(HONEST).reference_source(problem_of(HONEST).all_cases()[0], "cpu")
    texts = [f"{HONEST.read_text(encoding='utf-8')}# {n}\n" for n in range(2)]
    texts += [f"{BROKEN}# {n}\n" for n in range(4)]
    with served(tmp_path, port) as process:
        numbers = [
            httpx.post(
                f"{address}/grade", json={"candidate": text, "reference": reference}, timeout=60
            ).json()["id"]
            for text in texts
        ]
        process.kill()
    with served(tmp_path, port):
        for number, text in zip(numbers, texts, strict=True):
            while True:
                answer = httpx.get(f"{address}/jobs/{number}?wait=20", timeout=60)
                assert answer.status_code == 200
                if answer.json()["state"] == "done":
                    break
            expected = "BROKEN_CONTRACT" if text.startswith(BROKEN) else "PASSED"
            assert answer.json()["verdict"]["status"] == expected
    assert states(tmp_path) == []
    with Journal(tmp_path / "verdicts.journal") as journal:
        assert journal.count == len(texts)
    assert left_behind() == {}


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_others_are_bound_to_with_a_token_alone(
    host: str, *, loopback: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[object] = []
    monkeypatch.setattr("uvicorn.run", lambda *given, **_: ran.append(given))
    arguments = ["--state", str(tmp_path / "state"), "--host", host]
    if loopback:
        serve.command.main(arguments, standalone_mode=False)
    else:
        with pytest.raises(UserError, match="give --token-file FILE as well"):
            serve.command.main(arguments, standalone_mode=False)
        (tmp_path / "token").write_text("two words\n", encoding="utf-8")
        arguments += ["--token-file", str(tmp_path / "token")]
        with pytest.raises(UserError, match="expected one line of printable ASCII"):
            serve.command.main(arguments, standalone_mode=False)
        (tmp_path / "token").write_text("one\n", encoding="utf-8")
        serve.command.main(arguments, standalone_mode=False)
    assert len(ran) == 1


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UserError, match=r"pip install 'kernelgen\[serve\]'"):
        serve.command.main(["--state", str(tmp_path)], standalone_mode=False)
