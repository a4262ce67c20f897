"""Grading by `kernelgen serve` elsewhere: the same crew, whose lanes send it each file."""

import contextlib
import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.options import Phase
from kernelgen.grading.queue.job import AnyLane, Job, LaneStopped, release
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.verdict import Verdict
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem
from kernelgen.service.far_lane import FarLane
from kernelgen.service.questions import JobState, Offer, Request, Rules, kernelbench_name

_TIMEOUT_S = 30.0
_WAIT_S = 5  # for a verdict, before it is asked for again
_AGAIN_S = 1.0
_LATER = frozenset((408, 425, 429, 500, 502, 503, 504))  # HTTP's for what may work soon


class Remote(Crew):
    """Grades files by a service; what `Crew` is on one machine.

    A service that restarts, or cannot be reached for a while, is asked again until it answers.

    Args:
        url: of the service, such as `https://gpu.example:8642`.
        token: that it asks for; "" if it asks for none.
        jobs: how many files to send at once.
        journal: has verdicts that are not made again, and gets the others as they are made.

    Raises:
        UserError: nothing answers there as a service, it refuses the token, or it has another
            kernelgen.
    """

    def __init__(
        self, url: str, *, token: str = "", jobs: int = 8, journal: Journal | None = None
    ) -> None:
        self._service = _Service(url, token)
        try:
            self._offer = self._service.offer()
        except urllib.error.HTTPError as error:
            message = "the token is missing or wrong; set KERNELGEN_TOKEN" * (
                error.code == HTTPStatus.UNAUTHORIZED
            )
            raise UserError(f"--remote {url}: {message or error}") from error
        except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError) as error:
            raise UserError(f"--remote {url}: no kernelgen serve answers: {error}") from error
        own, its = release()["kernelgen"], self._offer.release["kernelgen"]
        if own != its:
            message = f"has another kernelgen than this machine: {its}, not {own}"
            raise UserError(f"--remote {url}: {message}; install the same on both")
        super().__init__(jobs, journal=journal)
        self.devices = self._offer.devices

    def _start_shared(self) -> None:
        """Nothing: the service has what lanes share."""

    @contextlib.contextmanager
    def _opened(self, number: int, gpu: str) -> Iterator[AnyLane]:
        del number, gpu
        yield _RemoteLane(self._service, self._offer)


class _Service:
    """The service's answers."""

    def __init__(self, url: str, token: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise UserError(f"--remote {url}: expected a URL such as http://HOST:8642")
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self.host = urlsplit(url).netloc or url

    def offer(self) -> Offer:
        """Return what the service grades, and on what."""
        return msgspec.json.decode(self._answer("/problems"), type=Offer)

    def job(self, number: str) -> JobState:
        """Return a job, once its verdict is there or after a while."""
        return msgspec.json.decode(self._answer(f"/jobs/{number}?wait={_WAIT_S}"), type=JobState)

    def ask(self, request: Request) -> JobState:
        """Have a candidate graded."""
        return msgspec.json.decode(self._answer("/grade", request), type=JobState)

    def _answer(self, path: str, data: Request | None = None) -> bytes:
        """Return what is answered; raises what urllib does, HTTPError for a refusal."""
        body = None if data is None else msgspec.json.encode(data)
        asked = urllib.request.Request(self._url + path, body, self._headers)  # noqa: S310 - http(s)
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            found: bytes = reply.read()
        return found


class _RemoteLane(FarLane):
    """A lane whose files are graded by a service."""

    def __init__(self, service: _Service, offer: Offer) -> None:
        super().__init__()
        self._service, self._offer = service, offer

    def grade_ready(self, ready: Job, number: int, phase: Phase, stop: threading.Event) -> Verdict:
        """Grade a file; raises LaneStopped. The service keeps the verdict of one that is left."""
        del number
        try:
            request = _request(ready, self._offer)
        except UserError as error:
            return ready.fault(str(error))
        phase(f"at {self._service.host}")
        known = ""
        while not (stop.is_set() or self._stopped.is_set()):
            found = self._asked(request, known, phase)
            if isinstance(found, str):
                return ready.fault(f"{self._service.host} refuses it: {found}")
            if found is not None and found.verdict is not None:
                return found.verdict
            known = "" if found is None else found.id
            stop.wait(0.0 if known else _AGAIN_S)
        raise LaneStopped

    def _asked(self, request: Request, known: str, phase: Phase) -> JobState | str | None:
        """Return the job of a question, why there is none, or None if it is to be asked again."""
        try:
            state = self._service.job(known) if known else self._service.ask(request)
            if state.verdict is not None:
                self.environment = self._service.offer().environment
        except urllib.error.HTTPError as error:
            is_unknown = error.code == HTTPStatus.NOT_FOUND and bool(known)
            return None if is_unknown or error.code in _LATER else _detail(error)
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            phase(f"waits for {self._service.host}: {error}")
            return None
        return state


def _detail(error: urllib.error.HTTPError) -> str:
    """Return what a service says of a refusal."""
    with contextlib.suppress(msgspec.DecodeError, OSError):
        return str(msgspec.json.decode(error.read(), type=dict[str, Any]).get("detail", error))
    return str(error)


def _request(job: Job, offer: Offer) -> Request:
    """Return a file as a question; raises UserError where the service has no such problem."""
    problem, options = job.options.problem, job.options
    assert problem is not None
    assert job.data is not None
    candidate = job.data.decode(errors="surrogateescape").encode(errors="replace").decode()
    rules = Rules(**{name: getattr(options, name) for name in Rules.__struct_fields__})
    return Request(candidate=candidate, rules=rules, **_problem(problem, offer))


def _problem(problem: Problem, offer: Offer) -> dict[str, str]:
    """Return what tells a service a problem: its name there, or a reference's text."""
    is_own = problem.name in offer.problems and _is_shipped(problem)
    name = problem.name if is_own else kernelbench_name(problem.path)
    if name in offer.problems:
        return {"problem": name}
    if problem.path.suffix != ".py":
        message = "the service has no such problem; it takes its own, and KernelBench's files"
        raise UserError(f"{problem.path}: {message}")
    return {"reference": problem.path.read_text(encoding="utf-8")}


def _is_shipped(problem: Problem) -> bool:
    with contextlib.suppress(UserError):
        return load_problem(problem.name) == problem
    return False
