"""A reward function for verl (0.9) that asks a running `kernelgen serve`.

    export KERNELGEN_ADDRESS=http://gpu-machine:8642 KERNELGEN_TOKEN="$(cat token)"
    python -m verl.trainer.main_ppo reward.custom_reward_function.path=verl_reward.py ...

A row's `reward_model.ground_truth` names its problem. Where the grader is at fault, it is asked
again, and then this raises: a 0 would teach that the candidate was wrong. (verl's manager `naive`
ends the run then; its rate-limited one makes a 0 of it.)
"""

import os
import time
from http import HTTPStatus
from typing import Any
from urllib import error, request

import msgspec

import kernelgen

POLICY = kernelgen.RewardPolicy(failed=0.0, correct=0.3, per_speedup=1.0, most=10.0)


class Job(msgspec.Struct, frozen=True):
    """An answer of the service; it has no verdict while it waits."""

    id: str
    verdict: kernelgen.Verdict | None = None


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None
) -> dict[str, float | str]:
    """Return the reward of a model's answer as `score`, and what verl logs beside it."""
    del data_source, extra_info
    for pause_s in (0, 10, 60):
        time.sleep(pause_s)
        job = ask("/grade", {"candidate": solution_str, "problem": ground_truth})
        while job.verdict is None:
            job = ask(f"/jobs/{job.id}?wait=60")
        verdict = job.verdict
        if (score := verdict.reward(POLICY)) is not None:
            return {"score": score, "acc": float(verdict.passed), "status": verdict.status.value}
    raise RuntimeError(f"{ground_truth}: {verdict.status.value}: {verdict.reason}")


def ask(path: str, body: dict[str, str] | None = None) -> Job:
    """Ask the service, and again when it says so while its queue is full."""
    url = os.environ.get("KERNELGEN_ADDRESS", "http://127.0.0.1:8642") + path
    token = f"Bearer {os.environ.get('KERNELGEN_TOKEN', '')}"
    headers = {"Authorization": token, "Content-Type": "application/json"}
    question = request.Request(url, msgspec.json.encode(body) if body else None, headers)
    while True:
        try:
            with request.urlopen(question, timeout=90) as answer:
                return msgspec.json.decode(answer.read(), type=Job)
        except error.HTTPError as refused:  # noqa: PERF203 (rare)
            if refused.code != HTTPStatus.TOO_MANY_REQUESTS:
                raise RuntimeError(f"{url}: {refused}: {refused.read().decode()}") from refused
            time.sleep(float(refused.headers["Retry-After"]))
