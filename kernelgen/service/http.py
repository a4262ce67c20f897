"""The service over HTTP: `kernelgen serve`."""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
from litestar import Litestar, Response, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, NotFoundException
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig, ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import Body, Parameter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import kernelgen
from kernelgen.errors import UserError
from kernelgen.grading.queue.journal import Journal
from kernelgen.grading.supervisor.crew import Crew
from kernelgen.grading.verdict import Verdict
from kernelgen.service.desk import Desk, QueueFull, Settings
from kernelgen.service.grader import Grader
from kernelgen.service.questions import JobState, Offer, Request

_LONGEST_WAIT_S = 60.0
_RETRY_AFTER_S = 5
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS_S = (0.25, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service works.

    Attributes:
        ok: whether verdicts can be kept.
        problem: what is wrong; "" if nothing is.
        version: of kernelgen.
        waiting: questions without a verdict.
    """

    ok: bool
    problem: str
    version: str
    waiting: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was not answered: its `detail` says what is wrong, and what to do."""

    status_code: int
    detail: str
    extra: Any = None


_MEANINGS: dict[int, tuple[str, type]] = {
    202: ("accepted; its verdict is not there yet", JobState),
    400: ("the request is malformed, or cannot be graded as it is", Refusal),
    401: ("the token is missing or wrong", Refusal),
    404: ("no such job", Refusal),
    413: ("the request is too long", Refusal),
    429: ("the queue is full; Retry-After says when to ask again", Refusal),
    503: ("the disk is full, or the journal cannot be written", Refusal),
}


def _answers(*codes: int) -> dict[int, ResponseSpec]:
    """Return what a handler answers besides what its return type says."""
    return {
        code: ResponseSpec(data_container=kind, description=text, generate_examples=False)
        for code, (text, kind) in _MEANINGS.items()
        if code in codes
    }


def _refusal(code: int, detail: str, headers: dict[str, str] | None = None) -> Response[Refusal]:
    return Response(Refusal(status_code=code, detail=detail), status_code=code, headers=headers)


def _refuse(_: Any, error: UserError) -> Response[Refusal]:
    return _refusal(400, str(error))


def _busy(_: Any, __: QueueFull) -> Response[Refusal]:
    detail = f"the queue is full; ask again in {_RETRY_AFTER_S} s"
    return _refusal(429, detail, {"Retry-After": str(_RETRY_AFTER_S)})


def _full(_: Any, error: OSError) -> Response[Refusal]:
    return _refusal(503, f"the question cannot be kept: {error.strerror}; ask again later")


def _counting(registry: CollectorRegistry) -> Callable[[Verdict, float], None]:
    """Return what counts a verdict, and the seconds from its question to it."""
    verdicts = Counter("kernelgen_verdicts", "Verdicts by status", ["status"], registry=registry)
    spent = Histogram(
        "kernelgen_seconds", "From acceptance to verdict", buckets=_BUCKETS_S, registry=registry
    )

    def finished(verdict: Verdict, seconds: float) -> None:
        verdicts.labels(verdict.status.value).inc()
        spent.observe(seconds)

    return finished


def application(settings: Settings, journal: Journal, tell: Callable[[str], None]) -> Litestar:
    """Return the ASGI application; its lifespan starts and ends the grader.

    `tell` hears of what an earlier service accepted and this one cannot read.
    """
    registry = CollectorRegistry()
    crew = Crew(settings.jobs * max(1, len(settings.gpus)), gpus=settings.gpus)
    grader = Grader(settings.options, ahead=settings.queue, hands=crew)
    desk = Desk(grader, journal, settings, _counting(registry))
    waiting = Gauge("kernelgen_waiting", "Questions without a verdict", registry=registry)
    waiting.set_function(lambda: desk.waiting)

    @contextlib.asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        async with grader:
            for line in await desk.resume():
                tell(line)
            try:
                yield
            finally:
                await desk.close()

    def check_token(
        connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        given = connection.headers.get("authorization", "").encode()
        wanted = f"Bearer {settings.token}".encode()
        if not handler.opt.get("open") and not hmac.compare_digest(given, wanted):
            raise NotAuthorizedException("send the header `Authorization: Bearer TOKEN`")

    return Litestar(
        _handlers(desk, journal, registry),
        guards=[check_token] if settings.token else [],
        lifespan=[lifespan],
        request_max_body_size=settings.body_bytes,
        exception_handlers={UserError: _refuse, QueueFull: _busy, OSError: _full},
        openapi_config=OpenAPIConfig(
            title="kernelgen",
            version=kernelgen.__version__,
            render_plugins=[JsonRenderPlugin()],
            use_handler_docstrings=True,
        ),
    )


def _handlers(desk: Desk, journal: Journal, registry: CollectorRegistry) -> list[BaseRouteHandler]:
    @post("/grade", status_code=200, responses=_answers(202, 400, 401, 413, 429, 503))
    async def grade(data: Annotated[Request, Body()]) -> Response[JobState]:
        """Have a candidate graded; the same question again is the same job.

        200 comes with the verdict, 202 while it is made: ask `/jobs/ID`.
        """
        state = await desk.ask(data)
        return Response(state, status_code=200 if state.verdict else 202)

    @get("/jobs/{number:str}", responses=_answers(400, 401, 404))
    async def job(
        number: Annotated[str, Parameter(pattern="^[0-9a-f]{64}$")],
        wait: Annotated[float, Parameter(ge=0, le=_LONGEST_WAIT_S)] = 0.0,
    ) -> JobState:
        """Return a job, once its verdict is there or after `wait` seconds."""
        state = await desk.find(number, wait)
        if state is None:
            raise NotFoundException("no such job; ask POST /grade again")
        return state

    @get("/jobs", responses=_answers(401))
    async def jobs() -> list[JobState]:
        """Return the questions that have no verdict yet, the oldest first."""
        return desk.jobs()

    @get("/problems", responses=_answers(401))
    async def problems() -> Offer:
        """Return the names of problems that can be asked, and on what they are graded."""
        return await asyncio.to_thread(desk.offer)

    @get("/health", opt={"open": True}, responses=_answers(503))
    async def health() -> Response[Health]:
        """Return 200 while verdicts can be kept, else 503; needs no token."""
        found = Health(
            ok=not journal.problem,
            problem=journal.problem,
            version=kernelgen.__version__,
            waiting=desk.waiting,
        )
        return Response(found, status_code=200 if found.ok else 503)

    @get("/metrics", media_type=_PROMETHEUS, responses=_answers(401))
    async def metrics_text() -> bytes:
        """Return Prometheus's text format."""
        return generate_latest(registry)

    return [grade, job, jobs, problems, health, metrics_text]
