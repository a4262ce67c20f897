"""A hostile peer writes into a channel: it gives a record or a named error, and keeps nothing."""

import contextlib
import copy
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgen.grading.supervisor.explain import explain_failure, last_place, own_words
from kernelgen.grading.verdict import Status
from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import (
    CANDIDATE_LIMIT_BYTES,
    Channel,
    ChannelClosed,
    ChannelGarbage,
)
from kernelgen.grading.wire.tree import (
    MAX_DEPTH,
    Entries,
    Items,
    Node,
    Opaque,
    Scalar,
    SpecialFloat,
    TensorLeaf,
    TensorSpec,
)
from kernelgen.solution.declared_kernels import declared_kernels
from kernelgen.solution.file import read_solution

Pair = tuple[Channel[object], socket.socket]

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)

SPEC = TensorSpec(dtype="float32", shape=(2, 3), stride=(3, 1), device="cpu", offset=0, nbytes=24)
TREE = Items(
    "tuple",
    (TensorLeaf(0), Entries((("mean", Scalar(1.5)), ("text", Scalar("x")))), SpecialFloat("nan")),
)
TENSORS = m.Tensors(tree=TREE, specs=(SPEC,))
PINS: dict[str, bool | str | int] = {"tf32": False, "default_dtype": "float32", "threads": 2}
CALLED = m.Called(
    outputs=TENSORS, elapsed_ms=0.5, host_ms=0.75, settled=True, pinned=PINS, pins=PINS
)
FROM_CANDIDATE: tuple[m.Message, ...] = (
    m.CandidateBuilt(seconds=1.5),
    m.Constructed(
        seconds=0.5,
        parameters=m.ParametersGiven(mapping={"w": "weight"}, missing=("b (3)",), own=()),
    ),
    CALLED,
    m.InputsReturned(inputs=TENSORS),
    m.BuffersReturned(numbers=(3,), buffers=TENSORS),
    m.CandidateFailed(phase="call", type_name="ValueError", message="no", line=3, trace=("x",)),
)


def frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def connected(limit_bytes: int = CANDIDATE_LIMIT_BYTES) -> Pair:
    ours, theirs = socket.socketpair()
    return Channel(ours, m.FromCandidate, limit_bytes), theirs


@pytest.fixture
def pair() -> Iterator[Pair]:
    channel, peer = connected()
    yield channel, peer
    channel.close()
    peer.close()


def outcome(data: bytes) -> object:
    """Return what a channel makes of bytes after which the peer is gone."""
    channel, peer = connected()
    sender = threading.Thread(target=send_and_leave, args=(peer, data))
    sender.start()
    try:
        record = channel.receive(5.0)
    except (ChannelClosed, ChannelGarbage) as error:
        return error
    finally:
        channel.close()
        sender.join()
    return record


def send_and_leave(peer: socket.socket, data: bytes) -> None:
    with peer:
        try:
            peer.sendall(data)
        except OSError:
            return


@pytest.mark.parametrize("record", FROM_CANDIDATE, ids=lambda record: type(record).__name__)
def test_a_record_cut_anywhere_is_an_end(record: m.Message) -> None:
    data = frame(msgspec.json.encode(record))
    for length in range(0, len(data), max(1, len(data) // 60)):
        assert isinstance(outcome(data[:length]), ChannelClosed)
    assert outcome(data) == record


@given(splits=st.lists(st.integers(1, 40), max_size=40), kinds=st.lists(st.sampled_from(
    FROM_CANDIDATE), min_size=1, max_size=4))  # fmt: skip
@FUZZ
def test_records_in_pieces_of_any_size_arrive_whole(
    splits: list[int], kinds: list[m.Message]
) -> None:
    data = b"".join(frame(msgspec.json.encode(record)) for record in kinds)
    channel, peer = connected()
    received: list[object] = []
    with peer:
        for size in [*splits, len(data)]:
            peer.sendall(data[:size])
            data = data[size:]
            with contextlib.suppress(TimeoutError):
                while len(received) < len(kinds):
                    received.append(channel.receive(1e-4 if data else 1.0))
    channel.close()
    assert received == kinds


@given(data=st.binary(max_size=3000), announced=st.integers(0, (1 << 32) - 1) | st.none())
@FUZZ
def test_junk_ends_in_a_named_error(data: bytes, announced: int | None) -> None:
    head = len(data) if announced is None else announced
    assert isinstance(outcome(struct.pack("!I", head) + data), ChannelClosed | ChannelGarbage)


WORDS = [
    *(b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"-1.0", b"-0.0", b"1e308", b"null"),
    *(b"true", b'""', b"[]", b"{}", b"9" * 30, b"9" * 5000, b"-" + b"9" * 30, b"\xff", b"\xc0\x80"),
    *(b'"\\ud800"', b"\x00", b"\\u0000", b",", b":", b'"', b"]", b"}", b'"type":"Verified",'),
]


@given(record=st.sampled_from(FROM_CANDIDATE), data=st.data())
@FUZZ
def test_a_mutated_record_is_a_record_or_garbage(record: m.Message, data: st.DataObject) -> None:
    text = msgspec.json.encode(record)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        word = data.draw(st.sampled_from(WORDS) | st.binary(max_size=6))
        text = text[:start] + word + text[start + data.draw(st.integers(0, 12)) :]
    found = outcome(frame(text))
    assert isinstance(found, ChannelGarbage | m.Message)
    if isinstance(found, m.Message):
        # A message that is taken can be sent on, and arrives as it was taken.
        assert msgspec.json.decode(msgspec.json.encode(found), type=m.FromCandidate) == found


NUMBERS = st.sampled_from(
    ["NaN", "Infinity", "1e400", "-1", "-1e-9", "1e300", "9" * 400, "null", "true", '"1"', "[]"]
)
TIMES = [(m.CandidateBuilt, "seconds"), (m.Constructed, "seconds")]
TIMES += [(m.Called, "elapsed_ms"), (m.Called, "host_ms")]


@pytest.mark.parametrize(
    ("kind", "field"), TIMES, ids=lambda value: getattr(value, "__name__", value)
)
@given(number=NUMBERS)
@FUZZ
def test_a_time_that_no_clock_gives_is_garbage(kind: type, field: str, number: str) -> None:
    (record,) = (record for record in FROM_CANDIDATE if type(record) is kind)
    fields: dict[str, Any] = msgspec.to_builtins(record)
    fields[field] = msgspec.Raw(number.encode())
    assert isinstance(outcome(frame(msgspec.json.encode(fields))), ChannelGarbage)


def nested(depth: int) -> bytes:
    opening, closing = b'{"type":"items","kind":"list","items":[', b"]}"
    leaf = b'{"type":"scalar","value":1}'
    tree = opening * depth + leaf + closing * depth
    return b'{"type":"InputsReturned","inputs":{"tree":%s,"specs":[]}}' % tree


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, MAX_DEPTH + 2, 100, 480, 600, 20_000])
def test_a_value_nested_deeper_than_any_is_described_is_garbage(depth: int) -> None:
    found = outcome(frame(nested(depth)))
    assert isinstance(found, m.InputsReturned if depth <= MAX_DEPTH + 1 else ChannelGarbage)


@pytest.mark.parametrize("size", [1 << 63, -(1 << 63), 10**4000])
@pytest.mark.parametrize("field", ["shape", "stride", "offset", "nbytes"])
def test_a_size_that_is_no_machine_word_is_garbage(field: str, size: int) -> None:
    fields: Any = msgspec.to_builtins(CALLED)
    fields = copy.deepcopy(fields)
    fields["outputs"]["specs"][0][field] = (size,) if field in {"shape", "stride"} else size
    assert isinstance(outcome(frame(msgspec.json.encode(fields))), ChannelGarbage)


def test_a_report_of_settings_without_an_end_is_garbage() -> None:
    many = msgspec.structs.replace(CALLED, pins={f"name {n}": n for n in range(200)})
    long = msgspec.structs.replace(CALLED, pins={"name": "x" * 200})
    for record in (many, long):
        assert isinstance(outcome(frame(msgspec.json.encode(record))), ChannelGarbage)


# --- quantity -------------------------------------------------------------------------------------


def peak_growth_bytes(work: Any) -> int:
    """Return by how much this process grew at most while it worked."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = high_water_bytes()
    work()
    return high_water_bytes() - before


def high_water_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def flood(peer: socket.socket, head: bytes, piece: bytes, total_bytes: int) -> threading.Thread:
    def pour() -> None:
        try:
            peer.sendall(head)
            for _ in range(total_bytes // len(piece)):
                peer.sendall(piece)
        except OSError:
            return

    thread = threading.Thread(target=pour)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(b"", b"\xa5" * (1 << 16), id="noise"),
        pytest.param(struct.pack("!I", CANDIDATE_LIMIT_BYTES), b"[" * (1 << 16), id="brackets"),
        pytest.param(struct.pack("!I", CANDIDATE_LIMIT_BYTES), b'"' * (1 << 16), id="quotes"),
        pytest.param(b"", frame(b"0"), id="small records"),
    ],
)
def test_a_gigabyte_of_junk_is_not_kept(pair: Pair, head: bytes, piece: bytes) -> None:
    channel, peer = pair

    def meet() -> None:
        with pytest.raises(ChannelGarbage):
            channel.receive(10.0)
        channel.close()  # as the supervisor does with a worker that it ends

    begin = time.monotonic()
    pouring = flood(peer, head, piece, 1 << 30)
    assert peak_growth_bytes(meet) < 64 << 20
    pouring.join(10.0)
    assert not pouring.is_alive()
    assert time.monotonic() - begin < 10.0


def test_the_longest_record_grows_no_further_than_its_objects(pair: Pair) -> None:
    channel, peer = pair
    spec = msgspec.json.encode(msgspec.structs.replace(SPEC, shape=(), stride=())) + b","
    begin = b'{"type":"InputsReturned","inputs":{"tree":{"type":"scalar","value":1},"specs":['
    end = b"]}}"
    count = (CANDIDATE_LIMIT_BYTES - len(begin) - len(end)) // len(spec)
    data = begin + (spec * count)[:-1] + end
    sender = threading.Thread(target=peer.sendall, args=(frame(data),))
    sender.start()

    def meet() -> None:
        record = channel.receive(20.0)
        assert isinstance(record, m.InputsReturned)

    assert peak_growth_bytes(meet) < 256 << 20
    sender.join()


def open_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_descriptors_that_nobody_asked_for_are_closed(pair: Pair) -> None:
    channel, peer = pair
    before = open_descriptors()
    reading, writing = os.pipe()
    data = frame(msgspec.json.encode(FROM_CANDIDATE[0]))
    for byte in data[:20]:
        socket.send_fds(peer, [bytes([byte])], [writing] * 3)
    with pytest.raises(ChannelGarbage, match="descriptors"):
        channel.receive(1.0)
    os.close(writing)
    # The last copies of the pipe's end were in the channel: the pipe is at its end.
    peer.close()
    channel.close()
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert open_descriptors() == before - 2


def test_a_bomb_of_descriptors_does_not_use_up_the_process_s_own(pair: Pair) -> None:
    channel, peer = pair
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_descriptors()
    with Path(os.devnull).open() as nothing:
        for _ in range(8):
            socket.send_fds(peer, [b"\0"], [nothing.fileno()] * 200)
    with pytest.raises(ChannelGarbage):
        channel.receive(1.0)
    assert open_descriptors() <= min(before + 4, soft)


# --- trees ----------------------------------------------------------------------------------------

LEAVES = (
    st.builds(TensorLeaf, st.integers(-3, 6))
    | st.builds(Scalar, st.none() | st.booleans() | st.text(max_size=5) | st.integers())
    | st.builds(SpecialFloat, st.sampled_from(["inf", "-inf", "nan", "x"]))
    | st.builds(Opaque, st.text(max_size=5))
)


def _containers(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    items = st.lists(inner, max_size=4).map(tuple)
    part = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([0.5, -1e300, "", "a"])
    key = part | st.lists(part, max_size=3).map(tuple)
    keyed = st.lists(st.tuples(key, inner), max_size=3).map(tuple)
    return st.builds(Items, st.sampled_from(["list", "tuple", "?"]), items) | st.builds(
        Entries, keyed
    )


TREES: st.SearchStrategy[Node] = st.recursive(LEAVES, _containers, max_leaves=12)


@given(tree=TREES)
@FUZZ
def test_a_tree_arrives_as_it_was_sent(tree: Node) -> None:
    record = m.InputsReturned(inputs=m.Tensors(tree=tree, specs=(SPEC,)))
    assert outcome(frame(msgspec.json.encode(record))) == record


# --- texts ----------------------------------------------------------------------------------------

SOLUTION = read_solution(Path("candidate.py"), b"class ModelNew: pass\n")
FRAGMENTS = st.text(max_size=20) | st.sampled_from([
    'File "candidate.py", line ', "9" * 5000, " in forward", "\n", "error: ", "): ",
    "candidate.cpp(", "main.cpp:", "undefined symbol: ", "ptxas", "__global__ ", "@jit", "(",
    "\x00", "\x85",
])  # fmt: skip
TEXTS = st.lists(FRAGMENTS, max_size=8).map("".join)


@given(
    failed=st.builds(
        m.CandidateFailed,
        phase=TEXTS,
        type_name=TEXTS | st.just("TypeError"),
        message=TEXTS,
        line=st.none() | st.integers(),
        in_build=st.booleans(),
        out_of_memory=st.booleans(),
        trace=st.lists(TEXTS, max_size=3).map(tuple),
        generated=st.dictionaries(st.sampled_from(["main.cpp", "cuda.cu"]) | TEXTS, TEXTS),
    ),
    printed=TEXTS,
)
@FUZZ
def test_any_failure_is_explained(failed: m.CandidateFailed, printed: str) -> None:
    status, reason = explain_failure(failed, SOLUTION, "in forward", printed)
    assert status in {Status.OUT_OF_MEMORY, Status.BUILD_ERROR, Status.RUNTIME_ERROR}
    assert reason
    assert isinstance(last_place(printed, SOLUTION) + own_words(printed), str)


@given(text=TEXTS)
@FUZZ
def test_any_text_declares_its_kernels(text: str) -> None:
    assert declared_kernels(text).words >= declared_kernels(text).cuda
