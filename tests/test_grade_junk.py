"""Candidates that write into the grader's channel: named, in seconds, with little memory.

Each form of garbage is for test_grade_channel.py and test_fuzz_protocol.py.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_lane import graded

from kernelgen.grading.options import GradeOptions
from kernelgen.grading.verdict import SCHEMA_VERSION, Owner, Run, Status, Verdict
from kernelgen.problem.library import load_problem
from kernelgen.report.json_report import decode, encode

HERE = Path(__file__).parent
HONEST = HERE / "candidates" / "honest_softmax.py"
PROBLEM = HERE / "problems" / "tiny_softmax.yaml"

# Finds the sockets of its own process: one of them is the channel to the supervisor.
PRELUDE = """
import json, os, socket, stat, struct, time

KEPT = []  # a socket object that goes closes its descriptor

def channels():
    for number in range(3, 1024) if not KEPT else ():
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                KEPT.append(socket.socket(fileno=number))
        except OSError:
            continue
    return KEPT

def frame(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("!I", len(data)) + data

def pour(piece, count=1):
    for channel in channels():
        channel.setblocking(True)
        try:
            for _ in range(count):
                channel.sendall(piece)
        except OSError:
            continue

BUILT = {"type": "CandidateBuilt", "seconds": 1.0}
MADE = {"type": "Constructed", "seconds": 1.0,
        "parameters": {"mapping": {}, "missing": [], "own": []}}
LEAF = {"type": "scalar", "value": 1}
CALLED = {"type": "Called", "outputs": {"tree": LEAF, "specs": []}, "elapsed_ms": 1e-3,
          "settled": True, "host_ms": 1e-3, "pinned": {}, "pins": {}}

def nested(depth):
    text = json.dumps(CALLED)
    opening = '{"type": "items", "kind": "list", "items": ['
    inner = opening * depth + json.dumps(LEAF) + "]}" * depth
    return text.replace(json.dumps(LEAF), inner).encode()
"""

AT_IMPORT = {
    "a gigabyte of noise": ("pour(os.urandom(1 << 20), 1024)", "a malformed record"),
    "an answer to another question": ("pour(frame(CALLED))", "a Called came"),
    "an answer before its question": ("pour(2 * frame(BUILT))", "where a Constructed was due"),
    "a million answers": ("pour(frame(BUILT), 1 << 20)", "where a Constructed was due"),
}
# The first two answers are forged, and the third, to the call, is the one that matters.
IN_PLACE_OF_A_CALL = {
    "no result": ("CALLED", "the outputs are described impossibly|WRONG_STRUCTURE"),
    "a result nested too deeply to read": ("nested(100_000)", "nested too deeply"),
    "a text that grows": (
        "{**CALLED, 'outputs': {'tree': {**LEAF, 'value': chr(0xe0001) * 600_000}, 'specs': []}}",
        "forward returned",
    ),
}


def verdict_of(folder: Path, line: str) -> Verdict:
    text = HONEST.read_text()
    assert text.count("SOURCE =") == 1
    path = folder / "junk.py"
    path.write_text(text.replace("SOURCE =", f"{PRELUDE}\n{line}\nSOURCE ="))
    options = GradeOptions(problem=load_problem(PROBLEM), time=False)
    verdict = graded(path, options)
    run = Run(schema=SCHEMA_VERSION, environment={}, verdicts=(verdict,))
    # Whatever it said, the report is one that can be read back.
    assert decode(encode(run)) == run
    return verdict


def high_water_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@pytest.fixture
def bounded() -> Iterator[None]:
    """Require that grading is over in seconds and keeps next to nothing of what came."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before, begin = high_water_bytes(), time.monotonic()
    yield
    assert high_water_bytes() - before < 256 << 20
    assert time.monotonic() - begin < 30.0


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", AT_IMPORT)
def test_junk_in_the_channel_is_tampering(name: str, tmp_path: Path) -> None:
    line, said = AT_IMPORT[name]
    verdict = verdict_of(tmp_path, f"{line}\ntime.sleep(60)")
    assert (verdict.status, verdict.owner) == (Status.TAMPERED, Owner.CANDIDATE)
    assert said in verdict.reason
    assert len(verdict.reason) < 4000


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", IN_PLACE_OF_A_CALL)
def test_a_forged_result_is_named(name: str, tmp_path: Path) -> None:
    answer, said = IN_PLACE_OF_A_CALL[name]
    forge = f"pour(frame(BUILT) + frame(MADE) + frame({answer}))"
    verdict = verdict_of(tmp_path, f"{forge}\ntime.sleep(60)")
    assert verdict.owner is Owner.CANDIDATE
    assert verdict.status in {Status.TAMPERED, Status.WRONG_STRUCTURE}
    assert any(words in f"{verdict.status.value} {verdict.reason}" for words in said.split("|"))
    assert len(verdict.reason) < 4000


@pytest.mark.usefixtures("bounded")
def test_a_failure_that_tells_a_novel_is_told_in_part(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, "raise type('E' * 10**6, (ValueError,), {})('x' * 10**7)")
    assert (verdict.status, verdict.owner) == (Status.RUNTIME_ERROR, Owner.CANDIDATE)
    assert len(verdict.reason) <= 50_000


def test_a_candidate_that_closes_the_channel_and_lives_on_is_told_so(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, "[c.close() for c in channels()]\ntime.sleep(600)")
    assert (verdict.status, verdict.owner) == (Status.CRASHED, Owner.CANDIDATE)
    assert "it closed its connection to the grader" in verdict.reason
