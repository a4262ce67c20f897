"""The examples, as their readers run them: against the CPU, with candidates that pass and fail."""

import asyncio
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import yaml
from compare_runs import timing
from litestar.testing import TestClient
from report_runs import passed
from test_grade_supervisor import HONEST, problem_of
from test_service_http import BROKEN, FakeCrew, in_a_thread, settings

import kernelgen
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.queue.journal import Journal
from kernelgen.service import http
from kernelgen.service.http import application

EXAMPLES = Path(__file__).parent.parent / "examples"
OPTIONS = GradeOptions(device="cpu", time=False)
TEXT = HONEST.read_text(encoding="utf-8")
PROBLEM = problem_of(HONEST)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, whose own problem the candidates solve."""
    (tmp_path / "problems").mkdir()
    assert PROBLEM.path is not None
    shutil.copy(PROBLEM.path, tmp_path / "problems")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return what imports an example from its file, as verl does."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


# verl


def test_verl_rewards_what_the_service_says(
    folder: Path, example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    verl = example("verl_reward")
    monkeypatch.setenv("KERNELGEN_TOKEN", "secret")
    with Journal(folder / "verdicts.journal") as journal:
        app = application(settings(folder, token="secret"), journal, print)
        with in_a_thread(app) as address:
            monkeypatch.setenv("KERNELGEN_ADDRESS", address)
            good = verl.compute_score("kernels", f"So:\n```python\n{TEXT}```\n", PROBLEM.name)
            assert good == {"score": verl.POLICY.correct, "acc": 1.0, "status": "PASSED"}
            bad = verl.compute_score("kernels", BROKEN, PROBLEM.name, {"num_turns": 1})
            assert bad == {"score": verl.POLICY.failed, "acc": 0.0, "status": "BROKEN_CONTRACT"}
            with pytest.raises(RuntimeError, match="no problem is called so"):
                verl.compute_score("kernels", TEXT, "nonesuch")
            monkeypatch.setenv("KERNELGEN_TOKEN", "wrong")
            with pytest.raises(RuntimeError, match="Authorization: Bearer TOKEN"):
                verl.compute_score("kernels", TEXT, PROBLEM.name)


def test_verl_waits_for_room_and_asks_again_after_a_fault(
    folder: Path, example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    verl = example("verl_reward")
    monkeypatch.setattr(http, "Crew", FakeCrew)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            FakeCrew.made.finish()
            assert httpx.get(f"{address}/jobs/{first}?wait=20", timeout=60).json()["verdict"]

    monkeypatch.setattr(verl, "time", SimpleNamespace(sleep=sleep))
    with (
        Journal(folder / "verdicts.journal") as journal,
        in_a_thread(application(settings(folder, queue=1), journal, print)) as address,
    ):
        monkeypatch.setenv("KERNELGEN_ADDRESS", address)
        body = {"candidate": "later", "problem": "groupnorm"}
        first = httpx.post(f"{address}/grade", json=body, timeout=60).json()["id"]
        found = verl.compute_score("kernels", "now", "groupnorm")
        assert found["score"] == passed().reward(verl.POLICY) > verl.POLICY.correct
        assert slept[0] == 0
        assert slept[1] >= 1
        del slept[:]
        before = len(FakeCrew.made.jobs)
        with pytest.raises(RuntimeError, match="groupnorm: GRADER_ERROR: what GRADER_ERROR found"):
            verl.compute_score("kernels", "now fault", "groupnorm")
        assert slept == [0, 10, 60]
        assert len(FakeCrew.made.jobs) == before + 3


# NeMo Gym


def rollout(text: str, problem: str = PROBLEM.name) -> dict[str, Any]:
    """Return the row, the request and the response of a model that reasoned first."""
    parts = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "content": parts}
    reasoning = {"type": "reasoning", "id": "1", "summary": []}
    return {
        "responses_create_params": {"input": "Write a softmax"},
        "verifier_metadata": {"problem": problem},
        "response": {"id": "2", "model": "m", "output": [reasoning, message]},
    }


def test_nemo_gyms_request_comes_back_with_its_reward(
    folder: Path, example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    gym = example("nemo_gym_verify")
    monkeypatch.setattr(gym, "GRADER", kernelgen.Grader(OPTIONS))
    with TestClient(gym.app) as client:
        assert client.post("/seed_session", json=rollout(TEXT)).json() == {}
        good, bad = (client.post("/verify", json=rollout(text)).json() for text in (TEXT, BROKEN))
        assert good == rollout(TEXT) | {"reward": gym.POLICY.correct, "status": "PASSED"}
        assert (bad["reward"], bad["status"]) == (gym.POLICY.failed, "BROKEN_CONTRACT")
        silent = rollout(TEXT)
        del silent["response"]["output"][1]
        assert client.post("/verify", json=silent).json()["reward"] == gym.POLICY.failed
        assert (folder / "problems" / f"{PROBLEM.name}.yaml").is_file()
        by_path = rollout(TEXT, f"problems/{PROBLEM.name}.yaml")
        without: dict[str, Any] = {"response": {"output": []}}
        for wrong in (by_path, without):
            assert client.post("/verify", json=wrong).status_code == 400


def test_nemo_gym_hears_of_a_fault_and_not_of_a_reward(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    gym = example("nemo_gym_verify")
    monkeypatch.setattr(gym, "GRADER", kernelgen.Grader(OPTIONS, hands=FakeCrew()))
    with TestClient(gym.app) as client:
        answer = client.post("/verify", json=rollout("now fault", "groupnorm"))
        assert answer.status_code == 503
        assert "GRADER_ERROR: what GRADER_ERROR found" in answer.json()["detail"]
        assert len(FakeCrew.made.jobs) == 3


# verifiers


@pytest.fixture
def vf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand-in for `verifiers.v1` 0.4, which brings some 350 MB of packages.

    It has what the example uses: data and configs keep what they are given, a task and a taskset
    have it, and `reward` marks a method.
    """

    class Record:
        def __init__(self, **given: object) -> None:
            self.__dict__.update(given)

    class Task:
        def __init__(self, data: Record, config: object) -> None:
            self.data, self.config = data, config

        def __class_getitem__(cls, _: object) -> type:
            return cls

    class Taskset:
        def __init__(self, config: Record) -> None:
            self.config = config

        def __class_getitem__(cls, _: object) -> type:
            return cls

    def reward(method: Any) -> Any:
        method.reward = True
        return method

    stand_in = ModuleType("verifiers.v1")
    for name in ("TaskData", "TasksetConfig", "Trace"):
        setattr(stand_in, name, type(name, (Record,), {}))
    vars(stand_in).update(Task=Task, Taskset=Taskset, SingleAgentEnv=Record, reward=reward)
    parent = ModuleType("verifiers")
    vars(parent)["v1"] = stand_in
    monkeypatch.setitem(sys.modules, "verifiers", parent)
    monkeypatch.setitem(sys.modules, "verifiers.v1", stand_in)
    return stand_in


async def rewards(environment: Any, task: Any, *answers: str) -> list[float]:
    """Return what the environment makes of a model's answers, while it is up."""
    await environment.start()
    try:
        traces = [SimpleNamespace(last_reply=answer) for answer in answers]
        return list(await asyncio.gather(*map(task.kernel, traces)))
    finally:
        await environment.stop()


@pytest.mark.usefixtures("folder")
def test_verifiers_gets_tasks_and_their_rewards(
    vf: Any, example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("verifiers_environment")
    assert module.__all__ == ["KernelEnv", "KernelTaskset"]
    usual = module.KernelConfig(task="task's").problems
    assert set(usual) <= set(kernelgen.problem.library.problem_names())
    config = module.KernelConfig(task="task's", problems=(PROBLEM.name,))
    (task,) = module.KernelTaskset(config).load()
    assert isinstance(task.data, vf.TaskData)
    assert (task.config, task.kernel.reward) == ("task's", True)
    assert "class Model(nn.Module):" in task.data.prompt
    monkeypatch.setattr(module.KernelTask, "grader", kernelgen.Grader(OPTIONS))
    found = asyncio.run(rewards(module.KernelEnv(), task, TEXT, BROKEN))
    assert found == [module.POLICY.correct, module.POLICY.failed]
    grader = kernelgen.Grader(OPTIONS, hands=FakeCrew())
    monkeypatch.setattr(module.KernelTask, "grader", grader)
    with pytest.raises(RuntimeError, match=f"{PROBLEM.name}: GRADER_ERROR: what GRADER_ERROR"):
        asyncio.run(rewards(module.KernelEnv(), task, "now fault"))
    assert len(FakeCrew.made.jobs) == 3


# pytest


@pytest.mark.ci
def test_a_suite_of_kernels_says_which_fails_and_why(folder: Path) -> None:
    shutil.copy(EXAMPLES / "test_kernels.py", folder)
    (folder / "kernels").mkdir()
    shutil.copy(HONEST, folder / "kernels" / "honest.py")
    (folder / "kernels" / f"{PROBLEM.name}.py").write_text(BROKEN, encoding="utf-8")
    # As on a machine without a GPU: this kernel is for a CPU, and slow.
    hidden = "from kernelgen.hardware import device\n\ndevice.has_gpu_driver = lambda: False\n"
    (folder / "conftest.py").write_text(hidden, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_kernels.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"FAILED test_kernels.py::test_kernel[{PROBLEM.name}]" in done.stdout
    assert "BROKEN_CONTRACT: " in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_suite_of_kernels_takes_none_that_is_surely_slower(
    example: Callable[[str], ModuleType],
) -> None:
    suite = example("test_kernels")
    for candidate_ms, fits in ((3.0, True), (9.0, True), (9.9, False)):
        times = timing(candidate_ms, seed=1, eager_ms=9.0)
        verdicts = {HONEST: passed(timing=times)}
        if fits:
            suite.test_kernel(HONEST, verdicts)
        else:
            with pytest.raises(AssertionError, match=r"slower than eager: 0\.9"):
                suite.test_kernel(HONEST, verdicts)


# GitHub


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory of a runner whose `gh` keeps what it is told in a file `said`.

    Its `kernelgen` takes few samples.
    """
    programs = {
        "kernelgen": f'{sys.executable} -m kernelgen "$@" $([ "$1" = grade ] && echo --samples 3)',
        "gh": 'printf "%s\\n" "$@" > said; cat comment.md >> said',
    }
    (folder / "bin").mkdir()
    for name, line in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{line}\n", encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return folder


@pytest.mark.long
def test_the_workflow_comments_what_broke(machine: Path) -> None:
    text = (EXAMPLES / "compare.yml").read_text(encoding="utf-8")
    # YAML 1.1 reads the key `on` as a boolean.
    flow = yaml.safe_load(text)
    assert flow[True] == "pull_request"
    (job,) = flow["jobs"].values()
    checkouts = [step["with"] for step in job["steps"] if "uses" in step]
    assert [one["path"] for one in checkouts] == ["old", "new"]
    for name in ("old", "new"):
        shutil.copytree(machine / "problems", machine / name / "problems")
        (machine / name / "kernels").mkdir()
        shutil.copy(HONEST, machine / name / "kernels" / "softmax.py")
    (machine / "new" / "kernels" / "softmax.py").write_text(
        f"# problem: {PROBLEM.name}\n{BROKEN}", encoding="utf-8"
    )
    steps = [step for step in job["steps"] if "run" in step]
    codes = []
    for step in steps:
        assert "${{" not in step["run"]
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=machine / step.get("working-directory", "."),
            env={**os.environ, "NUMBER": "7"},
            timeout=300,
            check=False,
        )
        codes.append(done.returncode)
    assert codes == [0, 0, 1]
    said = (machine / "said").read_text(encoding="utf-8")
    told = "pr\ncomment\n7\n--edit-last\n--create-if-none\n--body-file\ncomment.md\n```text\n"
    assert said.startswith(told)
    assert "kernels/softmax.py" in said
    assert "1 broke (bound 2 %)\n```\n" in said


def test_the_image_of_a_service_follows_the_linters_rules() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("no hadolint for this platform")
    text = (EXAMPLES / "serve.Dockerfile").read_text(encoding="utf-8")
    for image, code in ((text, 0), (text.replace("13.0.0-devel-ubuntu24.04", "latest"), 1)):
        found = subprocess.run(
            [linter, "-"], check=False, input=image, text=True, capture_output=True
        )
        assert found.returncode == code, found.stdout
