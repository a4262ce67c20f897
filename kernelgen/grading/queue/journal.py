"""A journal: every verdict of a run, appended to a file as it is made, and found there again.

A line is the CRC-32 of a JSON record in hexadecimal, a space, and the record. A line that a crash
has cut or torn does not fit its checksum: it is left out, and its file is graded again.
"""

import contextlib
import fcntl
import os
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kernelgen.errors import UserError
from kernelgen.grading.verdict import Owner, Verdict

_FORMAT = 1


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """The first line."""

    kernelgen_journal: int = _FORMAT


class Environment(msgspec.Struct, frozen=True, kw_only=True, tag="environment"):
    """Facts about the machine that the verdicts after it were made on."""

    facts: dict[str, Any]


class Kept(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """A verdict by the key of what was graded (`job.key_of`)."""

    key: str
    verdict: Verdict


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """How often what has no verdict was taken up, the last time counted before it began."""

    key: str
    times: int


_Record = Header | Environment | Kept | Begun
_DECODER: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(_Record)


class Journal(contextlib.AbstractContextManager["Journal"]):
    """The journal in a file, which is made if need be, and which one run at a time may hold.

    Verdicts stay on the disk; of each, the memory holds its key and its place. Any thread may use
    it. While the disk is full, verdicts wait in memory to be appended with the next one.

    Args:
        path: of the file.

    Attributes:
        environment: what the last run said of its machine.
        torn: how many lines could not be read.
        problem: what keeps verdicts from the disk now; "" if nothing does.

    Raises:
        UserError: it is no journal, or it cannot be opened, or another run holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment: dict[str, Any] = {}
        self.torn = 0
        self.problem = ""
        self._places: dict[str, tuple[int, int]] = {}
        self._begun: dict[str, int] = {}
        self._unwritten: list[tuple[str, bytes]] = []
        self._change = threading.Lock()
        self._file = self._opened()
        try:
            self._end = self._read()
            if not self._end:
                self._append(Header())
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, *_: object) -> None:
        with self._change:
            if self._unwritten:
                self._flush()
            self._file.close()

    @property
    def count(self) -> int:
        """How many verdicts are there."""
        return len(self._places)

    def find(self, key: str) -> Verdict | None:
        """Return the verdict of a key; None if there is none, or none that can be read again."""
        with self._change:
            if (found := self._places.get(key)) is None:
                return None
            place, length = found
            record = _decoded(os.pread(self._file.fileno(), length, place))
        return record.verdict if isinstance(record, Kept) and record.key == key else None

    def begun(self, key: str) -> int:
        """Return how often what has this key was taken up, by runs that had no verdict of it."""
        return self._begun.get(key, 0)

    def note_begun(self, key: str, times: int) -> None:
        """Note that it has been taken up so often; on the disk as `add` is."""
        with self._change:
            self._begun[key] = times
            if not times:
                del self._begun[key]
            self._append(Begun(key=key, times=times))

    def add(self, key: str, verdict: Verdict, environment: Mapping[str, Any]) -> None:
        """Append a verdict, unless it is the grader's fault, which says nothing of the candidate.

        It is on the disk when this returns, unless `problem` says otherwise.
        """
        if verdict.owner is Owner.GRADER:
            return
        with self._change:
            if dict(environment) != self.environment:
                self.environment = dict(environment)
                self._append(Environment(facts=self.environment))
            self._append(Kept(key=key, verdict=verdict), key)

    def _append(self, record: _Record, key: str = "") -> None:
        self._unwritten.append((key, _encoded(record)))
        self._flush()

    def _flush(self) -> None:
        """Write what waits, all of it or nothing."""
        data = b"".join(line for _, line in self._unwritten)
        try:
            _write_at(self._file.fileno(), data, self._end)
            os.fdatasync(self._file.fileno())
        except OSError as error:
            self.problem = f"{self.path}: cannot be written: {error.strerror}"
            # The next line is not to follow half a line.
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            return
        for key, line in self._unwritten:
            if key:
                self._places[key] = (self._end, len(line))
            self._end += len(line)
        self._unwritten.clear()
        self.problem = ""

    def _opened(self) -> BinaryIO:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            file = os.fdopen(descriptor, "r+b")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            message = f"{self.path}: another run is writing it; wait for it, or name another file"
            raise UserError(message) from error
        return file

    def _read(self) -> int:
        """Read all lines; return where the next one goes."""
        place = 0
        for line in self._file:
            record = _decoded(line)
            if not place and not isinstance(record, Header) and not _HEADER.startswith(line):
                raise UserError(f"{self.path}: not a journal of kernelgen's; name a new file")
            if not line.endswith(b"\n"):  # cut by a crash, and written over
                self._file.truncate(place)
                break
            if isinstance(record, Kept):
                self._places[record.key] = (place, len(line))
            elif isinstance(record, Environment):
                self.environment = record.facts
            elif isinstance(record, Begun):
                self._begun[record.key] = record.times
            self.torn += record is None
            place += len(line)
        return place


def _write_at(descriptor: int, data: bytes, place: int) -> None:
    """Write all of some bytes at a place; raises OSError, such as where the disk is full."""
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written


def _encoded(record: _Record) -> bytes:
    data = msgspec.json.encode(record)
    return b"%08x %b\n" % (zlib.crc32(data), data)


_HEADER = _encoded(Header())


def _decoded(line: bytes) -> _Record | None:
    checksum, _, data = line.rstrip(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(data):
        return None
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError:  # an older or newer release's record
        return None
