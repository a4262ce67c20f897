"""A resources server in NeMo Gym's style: POST /verify takes a rollout and adds its `reward`.

    uvicorn --app-dir examples --port 8643 nemo_gym_verify:app

A row's `verifier_metadata` is {"problem": NAME}. Where the grader is at fault, it is asked again,
and then the answer is 503, which fails the rollout: a trainer that does not know NeMo Gym's
`mask_sample` would learn from a 0 that the candidate was wrong.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from litestar import Litestar, post
from litestar.exceptions import ClientException, ServiceUnavailableException
from litestar.params import Body

import kernelgen
from kernelgen.grading.options import GradeOptions
from kernelgen.problem.library import problem_names

POLICY = kernelgen.RewardPolicy(failed=0.0, correct=0.3, per_speedup=1.0, most=10.0)
GRADER = kernelgen.Grader(GradeOptions(baselines=("eager",)))


@post("/seed_session", status_code=200)
async def seed_session() -> dict[str, str]:
    """Begin a rollout: there is nothing to prepare."""
    return {}


@post("/verify", status_code=200)
async def verify(data: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
    """Return the request with the reward of the model's last message."""
    try:
        problem, output = data["verifier_metadata"]["problem"], data["response"]["output"]
        messages = [one for one in output if one["type"] == "message"]
        parts = messages[-1]["content"] if messages else []
        text = "".join(part.get("text", "") for part in parts)
    except (AttributeError, KeyError, TypeError) as error:
        raise ClientException(f"not a rollout of NeMo Gym: {error!r}") from error
    # A path would be read, and a reference in it run.
    if problem not in problem_names():
        raise ClientException(f"verifier_metadata: no problem is called {problem!r}")
    for _ in range(3):
        verdict = await GRADER.grade_text(text, problem)
        if (reward := verdict.reward(POLICY)) is not None:
            return data | {"reward": reward, "status": verdict.status.value}
    raise ServiceUnavailableException(f"{problem}: {verdict.status.value}: {verdict.reason}")


@contextlib.asynccontextmanager
async def lifespan(_: Litestar) -> AsyncIterator[None]:
    """Keep one grader for all requests."""
    async with GRADER:
        yield


app = Litestar([seed_session, verify], lifespan=[lifespan])
