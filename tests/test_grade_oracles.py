"""One oracle for a problem's candidates: what it keeps for the next one, and what it never does."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from kernelgen.errors import KernelgenFault
from kernelgen.grading.oracle import device
from kernelgen.grading.oracle.device import OracleArena, OracleMemory
from kernelgen.grading.supervisor.oracle_client import OracleClient, oracle_setup
from kernelgen.grading.supervisor.oracles import Oracles
from kernelgen.grading.supervisor.session import is_light
from kernelgen.grading.supervisor.timing_lock import TimingLock
from kernelgen.grading.timing.clock import Clock
from kernelgen.grading.verdict import Judged, Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.arena import open_arena
from kernelgen.problem.library import load_problem
from kernelgen.problem.record import Problem

PROBLEMS = Path(__file__).parent / "problems"
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": ""}
RANDOM_SIZE = """
import random
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, 3)

    def forward(self, x):
        return self.layer(x)

def get_inputs():
    return [torch.randn(2, 4)]

def get_init_inputs():
    return [4 if random.random() < 2 else random.random()]
"""


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracles]:
    made = Oracles(tmp_path_factory.mktemp("oracles"), TimingLock())
    yield made
    made.close()


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    file = tmp_path / "line.py"
    file.write_text(RANDOM_SIZE, encoding="utf-8")
    return load_problem(file)


def setup_of(problem: Problem, seed: int) -> m.SetUpOracle:
    return msgspec.structs.replace(oracle_setup(problem, "cpu", None), seed=f"{seed:032x}")


def made_by(oracle: OracleClient, setup: m.SetUpOracle) -> tuple[bytes, bytes]:
    """Return the bytes of the parameters and of one call's inputs."""
    oracle.ask(setup)
    opened = oracle.ask(m.OpenCase(case=0))
    arena = open_arena(opened.construct.arena, oracle.worker.channel.take_fds())

    def held(tensors: m.Tensors) -> bytes:
        parts = [arena.view(one.offset, one.nbytes) for one in tensors.specs]
        return b"".join(bytes(part.tolist()) for part in parts)

    parameters = held(opened.construct.given)
    inputs = held(oracle.ask(m.MakeInputs(call=1)).tensors)
    arena.close()
    return parameters, inputs


def test_a_kept_oracle_does_for_a_seed_what_a_new_one_does(
    oracles: Oracles, problem: Problem, tmp_path: Path
) -> None:
    found = {}
    pids = set()
    for seed in (1, 2):
        with oracles.lend(setup_of(problem, seed), ENVIRONMENT) as oracle:
            found[seed] = made_by(oracle, setup_of(problem, seed))
            pids.add(oracle.worker.pid)
    assert len(pids) == 1
    assert found[1][0] != found[2][0], "the next candidate's parameters are its own"
    assert found[1][1] != found[2][1], "the next candidate's inputs are its own"
    fresh = Oracles(tmp_path, TimingLock())
    try:
        with fresh.lend(setup_of(problem, 2), ENVIRONMENT) as oracle:
            assert made_by(oracle, setup_of(problem, 2)) == found[2]
    finally:
        fresh.close()


@pytest.mark.parametrize(
    ("status", "kept"),
    [(Status.WRONG_VALUES, True), (Status.TAMPERED, False), (Status.GRADER_ERROR, False)],
)
def test_an_oracle_that_may_have_been_harmed_is_not_lent_again(
    oracles: Oracles, problem: Problem, status: Status, *, kept: bool
) -> None:
    setup = setup_of(problem, 3)
    with contextlib.suppress(Judged), oracles.lend(setup, ENVIRONMENT) as oracle:
        first = oracle.worker.pid
        oracle.ask(setup)
        raise Judged(status, "")
    with oracles.lend(setup, ENVIRONMENT) as oracle:
        assert (oracle.worker.pid == first) is kept
        assert oracle.ask(setup)


def test_an_oracle_that_could_not_answer_is_not_lent_again(
    oracles: Oracles, problem: Problem
) -> None:
    setup = setup_of(problem, 4)
    with oracles.lend(setup, ENVIRONMENT) as oracle:
        first = oracle.worker.pid
        oracle.ask(setup)
        with pytest.raises(Judged):
            oracle.ask(m.MakeInputs(call=1))  # no case is open
        assert not oracle.healthy
    with oracles.lend(setup, ENVIRONMENT) as oracle:
        assert oracle.worker.pid != first


def test_two_candidates_of_a_problem_have_its_oracle_in_turn(
    oracles: Oracles, problem: Problem
) -> None:
    setup = setup_of(problem, 5)
    told: list[str] = []

    def second() -> None:
        waiting = lambda: told.append("waits")  # noqa: E731
        with oracles.lock.working(), oracles.lend(setup, ENVIRONMENT, waiting):
            told.append("has it")

    thread = threading.Thread(target=second, daemon=True)
    with oracles.lock.working(), oracles.lend(setup, ENVIRONMENT) as oracle:
        thread.start()
        while not told:
            thread.join(0.001)
        # A file that waits for an oracle keeps nobody from being timed.
        with oracles.lock.alone():
            assert oracle.ask(setup)
        assert told == ["waits"]
    thread.join(60)
    assert told == ["waits", "has it"]


def test_where_an_oracle_is_cheap_nobody_waits_for_another_borrower(
    oracles: Oracles, problem: Problem
) -> None:
    setup = setup_of(problem, 9)
    with (
        oracles.lend(setup, ENVIRONMENT, pytest.fail, cheap=True) as one,
        oracles.lend(setup, ENVIRONMENT, pytest.fail, cheap=True) as other,
    ):
        pids = {borrowed.worker.pid for borrowed in (one, other) if borrowed.ask(setup)}
    assert len(pids) == 2
    with oracles.lend(setup, ENVIRONMENT, pytest.fail, cheap=True) as again:
        assert again.worker.pid in pids


def test_large_main_cases_lie_beside_each_other_only_where_they_wait_for_room() -> None:
    main = m.CaseBytes(tensors=8 << 30, parameters=1 << 20)
    assert is_light(main, "cuda")
    assert not is_light(main, "cpu")
    assert not is_light(m.CaseBytes(tensors=8 << 30, parameters=1 << 30), "cuda")
    assert is_light(m.CaseBytes(tensors=1 << 20, parameters=0), "cpu")
    assert not is_light(None, "cuda")


def test_a_problem_is_looked_at_once_and_its_baselines_are_prepared(
    oracles: Oracles, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = OracleClient.ask

    def noted(self: OracleClient, message: m.Request[m.AnswerT], *rest: float) -> m.AnswerT:
        asked.append(type(message).__name__)
        return ask(self, message, *rest)

    monkeypatch.setattr(OracleClient, "ask", noted)
    for seed in (6, 7):
        setup = setup_of(problem, seed)
        first = oracles.preview(setup, ENVIRONMENT, compiles=("eager",)).result()
        assert first.main
        with oracles.lend(setup, ENVIRONMENT):
            pass
    assert asked.count("MeasureCase") == 1
    assert asked.count("CompileBaselines") == 1


def test_a_problem_that_cannot_be_graded_says_so_each_time(
    oracles: Oracles, tmp_path: Path
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(RANDOM_SIZE.replace("nn.Linear(size, 3)", "nothing"), encoding="utf-8")
    setup = setup_of(load_problem(file), 8)
    for _ in range(2):
        with pytest.raises(Judged) as refused:
            oracles.preview(setup, ENVIRONMENT, compiles=()).result()
        assert refused.value.status is Status.INVALID_PROBLEM


def test_a_run_of_many_problems_keeps_little_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelgen.grading.supervisor.oracles._MOST_PREVIEWS", 1)
    monkeypatch.setattr("kernelgen.grading.supervisor.oracles._MOST_IDLE", 1)
    setups = []
    for size in (4, 5):
        file = tmp_path / f"line_{size}.py"
        file.write_text(RANDOM_SIZE.replace("[4 if", f"[{size} if").replace("2, 4", f"2, {size}"))
        setups.append(setup_of(load_problem(file), size))
    folder = tmp_path / "oracles"
    folder.mkdir()
    made = Oracles(folder, TimingLock())
    try:
        for setup in (*setups, setups[0]):
            made.preview(setup, ENVIRONMENT, compiles=()).result()
            for thread in threading.enumerate():
                if thread.name == "kernelgen-preview":
                    thread.join()
            kept = [len(vars(made)[name]) for name in ("_previews", "_live", "_threads")]
            assert kept == [1, 1, 1]
    finally:
        made.close()


def test_after_a_stop_nothing_is_started_and_what_ran_is_closed(
    problem: Problem, tmp_path: Path
) -> None:
    made = Oracles(tmp_path, TimingLock())
    setup = setup_of(problem, 9)
    lent = contextlib.ExitStack()
    try:
        oracle = lent.enter_context(made.lend(setup, ENVIRONMENT))
        made.stop()
        # As the files do that ^C has ended, each in a thread of its own.
        with pytest.raises(KernelgenFault, match="stopped"):
            made.failure_alone(setup, ENVIRONMENT)
        assert len(list(tmp_path.glob("server-*"))) == 1
    finally:
        made.close()
    lent.close()  # after the server: what it said is closed, too
    with pytest.raises(ValueError, match="closed"):
        oracle.worker.log_tail()


@pytest.mark.parametrize(
    ("free_gb", "wanted_gb", "rest_s"),
    [(50, None, 0.0), (39, None, 0.2), (39, 30, 0.0), (29, 30, 0.2), (39, 90, 0.2)],
)
def test_what_is_given_back_is_cleared_before_a_call_is_timed(
    monkeypatch: pytest.MonkeyPatch, free_gb: int, wanted_gb: int | None, rest_s: float
) -> None:
    cached = [20 * 10**9]
    rests = [0.0]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_gb * 10**9, 100 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: cached[0])
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cached.__setitem__(0, 0))
    monkeypatch.setattr(device, "sleep", rests.append)
    OracleMemory(Clock("cuda")).leave_room(None if wanted_gb is None else wanted_gb * 10**9)
    assert sum(rests) == pytest.approx(rest_s)
    assert cached == [0 if rest_s else 20 * 10**9]


@pytest.mark.parametrize(
    ("free_gb", "kept_gb", "has_room"), [(13, 0, True), (11, 0, False), (50, 5, False)]
)
def test_what_is_compared_later_leaves_a_candidate_what_it_needed(
    monkeypatch: pytest.MonkeyPatch, free_gb: int, kept_gb: int, *, has_room: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_gb * 10**9, 100 * 10**9))
    monkeypatch.setattr(OracleArena, "total_bytes", 10 * 10**9)
    arena = OracleArena("cuda", lambda: None)
    assert arena.has_room_to_keep(kept_gb * 10**9, 2 * 10**9) is has_room
