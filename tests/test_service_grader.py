"""The grader for asyncio programs: what is asked, what is answered, and what is left behind."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from test_grade_supervisor import HONEST, left_behind, problem_of

import kernelgen
from kernelgen.errors import KernelgenFault, UserError
from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import Status
from kernelgen.service.grader import Candidate, Grader

pytestmark = pytest.mark.ci

CANDIDATES = Path(__file__).parent / "candidates"
PROBLEM = problem_of(HONEST)
OPTIONS = GradeOptions(problem=PROBLEM, time=False, device="cpu")
TEXT = HONEST.read_text(encoding="utf-8")
BROKEN = "class ModelNew(:\n"


def test_texts_and_files_get_their_verdicts(tmp_path: Path) -> None:
    async def main() -> None:
        async with kernelgen.Grader(OPTIONS, jobs=2) as grader:
            good = await grader.grade_text(TEXT, PROBLEM)
            assert (good.status, good.solution) == (Status.PASSED, "candidate.py")
            bad = await grader.grade_text(f"```python\n{BROKEN}```\n", name="sample_3.py")
            assert (bad.status, bad.solution) == (Status.BROKEN_CONTRACT, "sample_3.py")
            with pytest.raises(UserError, match="nonesuch"):
                await grader.grade_text(TEXT, "nonesuch")
            own = GradeOptions(problem=PROBLEM, device="cpu", min_samples=3, max_samples=3)
            # Tests beside this one may take the processor from every call.
            for number in range(5):
                timed = await grader.grade_text(f"{TEXT}# {number}\n", options=own)
                if timed.timing is not None:
                    break
            assert timed.timing is not None
            file = tmp_path / "file.py"
            file.write_text(BROKEN, encoding="utf-8")
            missing = tmp_path / "missing.py"
            asked: list[Path | str | Candidate] = [file, Candidate(text=TEXT), str(missing)]
            found = {str(one): verdict.status async for one, verdict in grader.grade(asked)}
            assert sorted(found.values()) == ["BROKEN_CONTRACT", "BROKEN_CONTRACT", "PASSED"]
            assert found[str(missing)] is Status.BROKEN_CONTRACT

    asyncio.run(main())
    assert left_behind() == {}


def test_a_generator_is_taken_as_there_is_room(tmp_path: Path) -> None:
    taken: list[int] = []

    async def many() -> AsyncIterator[Candidate]:
        for number in range(30):
            taken.append(number)
            yield Candidate(text=f"{BROKEN}# {number}\n")

    async def main() -> None:
        async with Grader(OPTIONS, jobs=1, ahead=3, journal=tmp_path / "run") as grader:
            done = 0
            async for _, verdict in grader.grade(many()):
                assert verdict.status is Status.BROKEN_CONTRACT
                done += 1
                assert len(taken) <= done + 3
            assert done == 30

    asyncio.run(main())


def test_cancelling_leaves_nothing_running_and_others_go_on() -> None:
    hanging = (CANDIDATES / "broken_hang_in_forward.py").read_text(encoding="utf-8")

    async def main() -> None:
        async with Grader(OPTIONS, jobs=1) as grader:
            first = asyncio.create_task(grader.grade_text(hanging))
            second = asyncio.create_task(grader.grade_text(f"{TEXT}# second\n"))
            third = asyncio.create_task(grader.grade_text(f"{TEXT}# third\n"))
            await asyncio.sleep(6)
            for task in (second, first):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await third).passed
            left = asyncio.create_task(grader.grade_text(hanging))
            await asyncio.sleep(1)
        with pytest.raises(KernelgenFault, match="left before the verdict"):
            await left

    asyncio.run(main())
    assert left_behind() == {}
    assert not [one for one in threading.enumerate() if one.name.startswith("kernelgen-")]


def test_leaving_the_loop_takes_the_rest_back() -> None:
    def endless() -> Iterator[Candidate]:
        number = 0
        while True:
            number += 1
            yield Candidate(text=f"{TEXT}# {number}\n")

    async def main() -> None:
        async with Grader(OPTIONS, jobs=1) as grader:
            verdicts = grader.grade(endless())
            async for _, verdict in verdicts:
                assert verdict.passed
                break
            await verdicts.aclose()
            assert (await grader.grade_text(BROKEN)).status is Status.BROKEN_CONTRACT

    asyncio.run(main())


def test_what_is_asked_twice_is_answered_once(tmp_path: Path) -> None:
    journal = tmp_path / "run"

    async def ask(count: int) -> list[str]:
        async with Grader(OPTIONS, jobs=2, journal=journal) as grader:
            asked = [grader.grade_text(TEXT, name=f"file_{number}.py") for number in range(count)]
            verdicts = await asyncio.gather(*asked)
        assert all(one.passed for one in verdicts)
        return [one.solution for one in verdicts]

    assert asyncio.run(ask(3)) == ["file_0.py", "file_1.py", "file_2.py"]
    size = journal.stat().st_size
    assert asyncio.run(ask(2)) == ["file_0.py", "file_1.py"]
    assert journal.stat().st_size == size
    assert journal.read_bytes().count(b'"PASSED"') == 1
