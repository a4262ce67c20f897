"""Records over a socket, and what arrives in their place; test_fuzz_protocol.py mutates them."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from kernelgen.grading.wire import messages as m
from kernelgen.grading.wire.channel import Channel, ChannelClosed, ChannelGarbage

Pair = tuple[Channel[object], socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    channel: Channel[object] = Channel(ours, m.FromCandidate)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


BUILT = m.CandidateBuilt(seconds=1.5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"PASSED",
        b"\xff\xfe",
        b'{"type":"Verified","status":"PASSED","reason":""}',
        b'{"type":"CandidateBuilt","seconds":"fast"}',
        b'{"type":"CandidateBuilt","seconds":1.0,"extra":1}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_record_of_the_candidates_is_garbage(pair: Pair, data: bytes) -> None:
    channel, peer = pair
    sender = threading.Thread(target=peer.sendall, args=(frame(data),))
    sender.start()
    with pytest.raises(ChannelGarbage):
        channel.receive(2.0)
    sender.join()


def test_an_announced_gigabyte_is_refused_unread(pair: Pair) -> None:
    channel, peer = pair
    peer.sendall(struct.pack("!I", 1 << 30))
    with pytest.raises(ChannelGarbage, match="over the limit"):
        channel.receive(1.0)


def test_a_record_that_the_other_side_would_refuse_is_not_sent() -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[object] = Channel(ours, m.ToCandidate, sends_bytes=1000)
    failed = m.CandidateFailed(phase="call", type_name="x", message="y" * 1000)
    with pytest.raises(ChannelGarbage, match="over the limit of 1000"):
        channel.send(failed)
    channel.send(BUILT)
    other: Channel[object] = Channel(theirs, m.FromCandidate)
    assert other.receive(1.0) == BUILT
    channel.close()
    other.close()


def test_a_peer_that_does_not_read_does_not_block_the_sender_for_ever(pair: Pair) -> None:
    channel, _ = pair
    text = "x" * (8 << 20)
    begin = time.monotonic()
    message = m.BuildCandidate(file_name="a.py", text=text, device="cpu", threads=1)
    with pytest.raises(TimeoutError):
        channel.send(message, timeout_s=0.2)
    assert time.monotonic() - begin < 5.0


def test_a_descriptor_rides_along(pair: Pair) -> None:
    channel, peer = pair
    reading, writing = os.pipe()
    socket.send_fds(peer, [frame(msgspec.json.encode(BUILT))], [writing])
    os.close(writing)
    channel.receive(1.0)
    (received,) = channel.take_fds()
    os.write(received, b"here")
    assert os.read(reading, 4) == b"here"
    os.close(received)
    os.close(reading)


def test_a_record_of_another_process_is_refused_where_one_sender_is_expected() -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[m.CandidateBuilt] = Channel(ours, m.CandidateBuilt, one_sender=True)
    other: Channel[m.CandidateBuilt] = Channel(theirs, m.CandidateBuilt)
    other.send(m.CandidateBuilt(seconds=1.0))
    assert channel.receive(5.0) == m.CandidateBuilt(seconds=1.0)
    pid = os.fork()
    if pid == 0:
        other.send(m.CandidateBuilt(seconds=2.0))
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(ChannelGarbage, match="another process"):
        channel.receive(5.0)
    channel.close()
    other.close()


def test_the_end_of_a_connection_is_no_sender() -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[m.CandidateBuilt] = Channel(ours, m.CandidateBuilt, one_sender=True)
    with theirs:
        Channel[m.CandidateBuilt](theirs, m.CandidateBuilt).send(m.CandidateBuilt(seconds=1.0))
    assert channel.receive(5.0) == m.CandidateBuilt(seconds=1.0)
    with pytest.raises(ChannelClosed):
        channel.receive(5.0)
    channel.close()


def test_a_strangers_descriptor_is_closed_where_nobody_waits_for_it() -> None:
    ours, theirs = socket.socketpair()
    channel: Channel[m.CandidateBuilt] = Channel(ours, m.CandidateBuilt, one_sender=True)
    record = frame(msgspec.json.encode(m.CandidateBuilt(seconds=1.0)))
    for data in (record, b"\0"):  # the second is never read
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver, _ = listener.accept()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30))
        sender.settimeout(0.0)
        with contextlib.suppress(BlockingIOError):
            while True:
                sender.send(bytes(1 << 16))
        socket.send_fds(theirs, [data], [sender.fileno(), receiver.fileno()])
        receiver.close()
        os.close(sender.detach())
    begin = time.monotonic()
    with pytest.raises(ChannelGarbage, match="descriptors"):
        channel.receive(5.0)
    channel.close()
    assert time.monotonic() - begin < 5.0
    theirs.close()
