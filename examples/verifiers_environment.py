"""An environment for Prime Intellect's verifiers (0.4): kernels, rewarded for their speed.

    export PYTHONPATH=examples
    vf-eval verifiers_environment --env.agent.harness.id null --env.taskset.problems softmax

Where the grader is at fault, it is asked again, and then the reward raises: verifiers keeps such a
rollout as an error, while a 0 would teach that the candidate was wrong.
"""

from collections.abc import Iterator
from typing import ClassVar

import verifiers.v1 as vf

import kernelgen
from kernelgen.grading.options import GradeOptions

__all__ = ["KernelEnv", "KernelTaskset"]
POLICY = kernelgen.RewardPolicy(failed=0.0, correct=0.3, per_speedup=1.0, most=10.0)
PROMPT = "Write ModelNew in CUDA, as one block of Python. It replaces:\n\n```python\n{}```\n"


class KernelConfig(vf.TasksetConfig):
    """Names of the problems to ask for."""

    problems: list[str] = ["groupnorm", "layernorm", "softmax"]  # noqa: RUF012 (pydantic copies it)


class KernelTask(vf.Task[vf.TaskData]):
    """A kernel for the problem that the task is named for."""

    grader: ClassVar = kernelgen.Grader(GradeOptions(baselines=("eager",)))

    @vf.reward
    async def kernel(self, trace: vf.Trace) -> float:
        """Return what the model's last answer is worth."""
        for _ in range(3):
            verdict = await self.grader.grade_text(trace.last_reply, self.data.name)
            if (reward := verdict.reward(POLICY)) is not None:
                return reward
        raise RuntimeError(f"{self.data.name}: {verdict.status.value}: {verdict.reason}")


class KernelTaskset(vf.Taskset[KernelTask, KernelConfig]):
    """A task for each problem."""

    def load(self) -> Iterator[KernelTask]:  # noqa: D102
        for problem in map(kernelgen.load_problem, self.config.problems):
            prompt = PROMPT.format(problem.reference_source(problem.all_cases()[0], "cuda"))
            yield KernelTask(vf.TaskData(name=problem.name, prompt=prompt), self.config.task)


class KernelEnv(vf.SingleAgentEnv):
    """Keeps one grader for all rollouts of a worker."""

    async def start(self) -> None:  # noqa: D102
        await KernelTask.grader.__aenter__()

    async def stop(self) -> None:  # noqa: D102
        await KernelTask.grader.__aexit__()
