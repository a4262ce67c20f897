"""Records over a socket: four bytes of length, then JSON; file descriptors may ride along.

The reader trusts nothing: a length over the limit, a text that is no such record, descriptors that
nobody waits for, or an end in the middle of a record are each an error, and a deadline bounds every
wait. What a stranger has sent is closed where nobody waits for it: the last copy of a connection
with data that nobody reads may take as long to close as its maker likes (SO_LINGER).
"""

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

_HEAD = struct.Struct("!I")
ORACLE_LIMIT_BYTES = 64 << 20
# Of what a candidate's process sends. It goes on to the oracle, whose answer may quote it, and JSON
# may grow when it is written anew (a character as its escape): the general limit is well above.
CANDIDATE_LIMIT_BYTES = 8 << 20
_MAX_FDS = 4
# Linux takes no more in one message. With less room here it would close the rest itself, at once.
_MOST_FDS = 253
_INT = struct.Struct("i")
_NO_LINGER = struct.pack("ii", 0, 0)
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid
_NOTES_BYTES = socket.CMSG_SPACE(_MOST_FDS * _INT.size) + socket.CMSG_SPACE(_CREDENTIALS.size)

ReceivedT = TypeVar("ReceivedT")


class ChannelClosed(Exception):  # noqa: N818 (an ending, not always an error)
    """The other side is gone."""


class ChannelGarbage(Exception):  # noqa: N818
    """The other side sent something that is no record of the protocol."""


class Channel(Generic[ReceivedT]):
    """One end of a connection.

    Args:
        sock: a connected stream socket of the AF_UNIX family.
        accepts: the union of record types that may arrive here.
        limit_bytes: the longest record that may arrive here.
        one_sender: everything has to come from the process that sends the first byte, a stranger's,
            and without descriptors.
        sends_bytes: the longest that the other side takes.

    Attributes:
        sender: with `one_sender`, the process that everything came from; 0 before anything has.
    """

    def __init__(
        self,
        sock: socket.socket,
        accepts: Any,
        limit_bytes: int = ORACLE_LIMIT_BYTES,
        *,
        one_sender: bool = False,
        sends_bytes: int = ORACLE_LIMIT_BYTES,
    ) -> None:
        self._sock, self._limit_bytes = sock, limit_bytes
        self._sends_bytes = sends_bytes
        self._one_sender = one_sender
        self.sender = 0
        if one_sender:
            # The kernel then says with all that arrives which process has sent it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._decoder = msgspec.json.Decoder(accepts)
        self._buffer = bytearray()
        self._fds: list[int] = []

    def send(
        self, message: msgspec.Struct, fds: tuple[int, ...] = (), timeout_s: float | None = None
    ) -> None:
        """Send one record.

        Raises:
            TimeoutError: the other side did not read for `timeout_s`; use the channel no more.
            ChannelClosed: the other side is gone.
            ChannelGarbage: the record is too long to be sent; nothing of it was.
        """
        data = msgspec.json.encode(message)
        if len(data) > self._sends_bytes:
            raise ChannelGarbage(
                f"a record of {len(data)} bytes is over the limit of {self._sends_bytes}"
            )
        frame = _HEAD.pack(len(data)) + data
        try:
            self._sock.settimeout(timeout_s)  # an OSError where this side is closed
            if fds:
                sent = socket.send_fds(self._sock, [frame], list(fds))
                frame = frame[sent:]
            self._sock.sendall(frame)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> ReceivedT:
        """Return the next record.

        Raises:
            TimeoutError: none was complete after `timeout_s`.
            ChannelClosed: the other side is gone.
            ChannelGarbage: what came is no record.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _HEAD.unpack(self._read(_HEAD.size, deadline))
        if length > self._limit_bytes:
            raise ChannelGarbage(f"a record of {length} bytes was announced, over the limit")
        data = self._read(length, deadline, keep=_HEAD.size)
        del self._buffer[: _HEAD.size + length]
        try:
            message: ReceivedT = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChannelGarbage(str(error)) from error
        except RecursionError as error:
            raise ChannelGarbage("a record nested too deeply") from error
        return message

    def has_news(self, timeout_s: float) -> bool:
        """Whether bytes came, or an end, within this time; none of it is consumed."""
        readable, _, _ = select.select([self._sock], [], [], timeout_s)
        return bool(self._buffer or readable)

    def take_fds(self) -> list[int]:
        """Return the file descriptors that came with the records so far; the caller closes them."""
        taken, self._fds = self._fds, []
        return taken

    def shut(self) -> None:
        """Shut the connection down, from any thread; blocked readers on both sides wake."""
        # Closing would not wake a thread that waits in recv, and would free the number for reuse.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and any descriptor that was not taken."""
        self._close_fds()
        if self._one_sender:
            # With what nobody has read of it.
            _aside(self._sock.close)
        else:
            self._sock.close()

    def _take_notes(self, notes: list[tuple[int, int, bytes]], *, anything: bool) -> None:
        """Keep the descriptors that came along, and see who has sent them, if anything came."""
        for level, kind, data in notes:
            if level != socket.SOL_SOCKET:
                continue
            if kind == socket.SCM_RIGHTS:
                whole = len(data) - len(data) % _INT.size
                self._fds += [fd for (fd,) in _INT.iter_unpack(data[:whole])]
            elif kind == socket.SCM_CREDENTIALS and self._one_sender and anything:
                pid, _, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
                self.sender = self.sender or pid
                if pid != self.sender:
                    self._close_fds()
                    raise ChannelGarbage("it came from another process than the one that was asked")

    def _close_fds(self) -> None:
        fds = self.take_fds()
        if fds and self._one_sender:
            _aside(lambda: _close_all(fds))
        else:
            _close_all(fds)

    def _read(self, count: int, deadline: float | None, keep: int = 0) -> bytes:
        """Return `count` bytes after the first `keep`, not consumed: a timeout loses nothing."""
        while len(self._buffer) < keep + count:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise TimeoutError
            try:
                self._sock.settimeout(remaining)
                data, notes, _, _ = self._sock.recvmsg(1 << 16, _NOTES_BYTES)
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            self._take_notes(notes, anything=bool(data))
            if len(self._fds) > (0 if self._one_sender else _MAX_FDS):
                self._close_fds()
                raise ChannelGarbage("more descriptors came along than any record has")
            if not data:
                raise ChannelClosed("end of stream")
            self._buffer += data
        return bytes(self._buffer[keep : keep + count])


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        try:
            connection = socket.socket(fileno=fd)
        except OSError:  # it is none
            os.close(fd)
            continue
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        connection.close()


def _aside(work: Callable[[], object]) -> None:
    """Do what may take for ever in a thread of its own, which keeps no process from ending."""
    threading.Thread(target=work, daemon=True, name="kernelgen-close").start()
