"""The audit log's file: lines of JSON, each batch of them sealed by a hash that includes the seal before.

Appends under a lock that all processes share, reads the end, and checks the whole. Knows nothing of what is worth
recording.

A file with seals shows that what was sealed has not been changed since, as long as whoever changed it did not seal
all that follows anew, which needs no secret. What shows that too, and that the end was cut off, is the anchor: a
small file in the operator's own folder with the newest seal. None of it shows who wrote a line, what was never
written, that lines after the newest seal were taken out, or anything at all to somebody whose anchor the same hand
could change.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from io import BufferedReader
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import to_json

from tavern_host.contracts.audit import AuditCheck, AuditEntry
from tavern_host.storage.files import write_atomic

MAX_LINE = 2**20
"""What is longer is no entry of this log."""
LOCK_DEADLINE = 2.0
"""Seconds to wait for other processes that write into the log."""
MARKS = 16
"""How many marks an anchor keeps: the newest, and of each time the log did not agree the one that it lacked."""

Entry = tuple[float, bytes]
"""An entry before it has a number: a time, in seconds since 1970, and the rest as an object in JSON without its first
brace."""

_BLOCK = 2**16
_ENTRY_LINE = b'{"seq":%d,"time":"%b.%06d+00:00",%b\n'
_ENTRY = re.compile(rb'\{"seq":(\d{1,18}),"time":".*\}\n', re.DOTALL)
_SEAL = re.compile(
    rb'(\{"seal":(\d{1,18}),"entries":(\d{1,18}),"last":(\d{1,18}),"recovered":(\d{1,18}),"torn":(\d{1,18}))'
    rb',"hash":"([0-9a-f]{64})"\}\n'
)


@dataclass(frozen=True)
class Mark:
    """A seal that the operator's folder remembers."""

    seal: int
    hash: str


class _Chain:
    """Follows the lines of a log from a seal on, and says what does not fit."""

    def __init__(self, *, seals: int = 0, last: int = 0, hash: str = "") -> None:
        self.seals = seals
        self.last = last
        self.hash = hash
        self.entries = 0
        self.recovered = 0
        self.torn = 0
        self.line = 0
        self._begin()

    def _begin(self) -> None:
        self.waiting = self.waiting_torn = 0
        self._hasher = hashlib.sha256(self.hash.encode())
        self._first_line = self.line + 1
        self.odd: tuple[int, str] | None = None

    def feed(self, piece: bytes, *, begins_line: bool = True) -> tuple[int, str] | None:
        """Take a line, or a part of one that is too long. Return a line's number and what is wrong there, or None."""
        self.line += begins_line
        found = _SEAL.fullmatch(piece) if begins_line else None
        if found is not None:
            return self._seal(found)
        self._hasher.update(piece)
        entry = _ENTRY.fullmatch(piece) if begins_line else None
        if entry is not None and int(entry[1]) == self.last + 1:
            self.last += 1
            self.waiting += 1
        elif begins_line:
            self.waiting_torn += 1
            if entry is not None and self.odd is None:
                self.odd = self.line, f"entry {int(entry[1])} stands after entry {self.last}"
        return None

    def add(self, entries: Sequence[Entry]) -> list[bytes]:
        """Number entries from here on and return their lines, at a fraction of the cost of `feed` for each."""
        lines = []
        second, written = -1, b""
        for number, (moment, body) in enumerate(entries, self.last + 1):
            whole = int(moment)
            if whole != second:
                second, written = whole, _second(whole)
            lines.append(_ENTRY_LINE % (number, written, (moment - whole) * 1_000_000, body))
        batch = b"".join(lines)
        if batch.count(b"\n") != len(lines) or max(map(len, lines), default=0) >= MAX_LINE:
            return self._add_each(entries)
        self.line += len(lines)
        self.last += len(lines)
        self.waiting += len(lines)
        self._hasher.update(batch)
        return lines

    def _add_each(self, entries: Sequence[Entry]) -> list[bytes]:
        """As `add`, where a reader will not see each as one line."""
        lines = []
        for moment, body in entries:
            line = _ENTRY_LINE % (self.last + 1, _second(int(moment)), moment % 1 * 1_000_000, body)
            self.feed(line)
            lines.append(line)
        return lines

    def _seal(self, found: re.Match[bytes]) -> tuple[int, str] | None:
        number, entries, last, recovered, torn = (int(found[n]) for n in range(2, 7))
        self._hasher.update(found[1])
        if self._hasher.hexdigest().encode() != found[7]:
            lines = f"line {self.line}" if self._first_line == self.line else f"lines {self._first_line} to {self.line}"
            what = f"{lines} are not as they were sealed: something was changed, taken out or put in"
            return self.odd or (self._first_line, what)
        if (number, entries, torn) != (self.seals + 1, self.waiting, self.waiting_torn) or last != self.last:
            return self.line, "the seal is not one for the lines before it"
        odd, self.hash, self.seals = self.odd, found[7].decode(), number
        self.entries += entries
        self.recovered += recovered
        self.torn += torn
        self._begin()
        return odd

    def seal(self, *, recovered: int, torn: int) -> bytes:
        """Return the line that seals all that waits."""
        self.seals += 1
        head = (
            f'{{"seal":{self.seals},"entries":{self.waiting},"last":{self.last},"recovered":{recovered},"torn":{torn}'
        )
        self._hasher.update(head.encode())
        self.hash = self._hasher.hexdigest()
        self._begin()
        return f'{head},"hash":"{self.hash}"}}\n'.encode()


# --- writing ------------------------------------------------------------------------------------------


@dataclass
class _End:
    """What a writer knows of the end of the file: its size, and how to go on from there."""

    size: int
    chain: _Chain
    is_torn: bool


class AuditFile:
    """Appends to one log. Not for more than one thread at a time; other processes may append to it too."""

    def __init__(self, path: Path, anchor: Path | None) -> None:
        self._path = path
        self._anchor = anchor
        self._file: int | None = None
        self._end: _End | None = None
        self._marks: list[Mark] | None = None
        self.anchor_problem: str | None = None

    def append(self, entries: Sequence[Entry]) -> tuple[int, OSError | None]:
        """Append a batch of entries and seal it; return how many are in the file, and what kept the rest out.

        `anchor_problem` says afterwards why the anchor could not be brought up to date, where that is so.
        """
        try:
            file = self._locked()
        except OSError as error:
            return 0, error
        try:
            return self._append(file, entries)
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._file is not None:
            os.close(self._file)
        self._file = self._end = None

    def _append(self, file: int, entries: Sequence[Entry]) -> tuple[int, OSError | None]:
        notes: list[Entry] = []
        try:
            end = self._read_end(file, notes)
        except OSError as error:
            return 0, error
        self._end = None
        chain = end.chain
        recovered, torn = chain.waiting, chain.waiting_torn
        lines = [b"\n"] if end.is_torn else []
        lines += chain.add([*notes, *entries])
        lines.append(chain.seal(recovered=recovered, torn=torn))
        written, failure = _write(file, b"".join(lines))
        if failure is not None:
            whole = _whole(lines, written) - end.is_torn - len(notes)
            return min(max(0, whole), len(entries)), failure
        self._end = _End(end.size + written, chain, is_torn=False)
        try:
            os.fsync(file)
        except OSError as error:
            return len(entries), error
        self._mark(Mark(chain.seals, chain.hash))
        return len(entries), None

    def _locked(self) -> int:
        """Return the open file, locked; whoever moved or removed it meanwhile gets a new one."""
        deadline = time.monotonic() + LOCK_DEADLINE
        while True:
            if self._file is None:
                self._file, self._end = _open(self._path), None
            _lock(self._file, fcntl.LOCK_EX, self._path, deadline)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(self._path.lstat(), os.fstat(self._file)):
                    return self._file
            self.close()

    def _read_end(self, file: int, notes: list[Entry]) -> _End:
        size = os.fstat(file).st_size
        is_anchored = self._anchor is None or self._marks is not None
        if self._end is not None and self._end.size == size and is_anchored:
            return self._end
        place, chain = _last_seal(file, size)
        is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        with os.fdopen(os.dup(file), "rb") as reader:
            reader.seek(place)
            for piece, begins_line in _pieces(reader, size - place):
                place += len(piece)
                chain.feed(piece + b"\n" if is_torn and place == size else piece, begins_line=begins_line)
        if chain.waiting or chain.waiting_torn:
            notes.append(_note("audit.recovered", {"entries": chain.waiting, "torn": chain.waiting_torn}))
        self._marks = None
        self._compare(file, size, chain, notes)
        return _End(size, chain, is_torn)

    def _compare(self, file: int, size: int, chain: _Chain, notes: list[Entry]) -> None:
        """Read the anchor, and note it where the log does not have the seal that it marks."""
        if self._anchor is None:
            return
        try:
            marks = read_anchor(self._anchor)
        except (OSError, ValueError) as error:
            mend = "" if isinstance(error, OSError) else "; if that is no loss, remove it"
            self.anchor_problem = f"{self._anchor} {_cannot(error)}{mend}"
            return
        if marks and _sealed_with(file, size, marks[-1].seal) != marks[-1].hash:
            notes.append(_note("audit.broken", {"seal": marks[-1].seal, "seals": chain.seals}))
        else:
            marks = marks[:-1]
        self._marks = marks[: MARKS - 1]

    def _mark(self, newest: Mark) -> None:
        if self._anchor is None or self._marks is None:
            return
        content = {"marks": [{"seal": m.seal, "hash": m.hash} for m in [*self._marks, newest]]}
        try:
            self._anchor.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._anchor, json.dumps(content).encode() + b"\n", mode=0o600)
        except OSError as error:
            self.anchor_problem = f"{self._anchor} {_cannot(error)}"
        else:
            self.anchor_problem = None


def _open(path: Path) -> int:
    """Open a log to append to, made if need be; never through a link, since a project may come from anybody."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.is_symlink():
        raise OSError(errno.ELOOP, "its folder is a symbolic link", str(path))
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def _lock(file: int, kind: int, path: Path, deadline: float) -> None:
    """Lock an open file. Raises `TimeoutError` (an `OSError`) where another process does not let go of it."""
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process does not let go of it", str(path)) from None
            time.sleep(0.005)


def _write(file: int, data: bytes) -> tuple[int, OSError | None]:
    """Write all of `data`; return how much was, and the error that kept the rest."""
    view, written = memoryview(data), 0
    try:
        while written < len(data):
            written += os.write(file, view[written:])
    except OSError as error:
        return written, error
    return written, None


def _whole(lines: Sequence[bytes], written: int) -> int:
    """Return how many lines were written, of the last its newline apart, which the next writer adds."""
    count = 0
    for line in lines:
        if written < len(line) - 1:
            break
        written -= len(line)
        count += 1
    return count


def _note(action: str, details: dict[str, int]) -> Entry:
    return entry_body(
        time.time(), to_json({"actor": "system:host", "action": action, "subject": "", "details": details})
    )


def entry_body(moment: float, fields: bytes) -> Entry:
    """Return what `AuditFile.append` takes, of a time (seconds since 1970) and an object in JSON."""
    return moment, fields[1:]


@lru_cache(maxsize=64)
def _second(second: int) -> bytes:
    return datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").removesuffix("+00:00").encode()


# --- the anchor ---------------------------------------------------------------------------------------


def read_anchor(path: Path) -> list[Mark]:
    """Return the marks of an anchor, oldest first; none where there is none.

    Raises `OSError` where it cannot be read, `ValueError` where it is damaged.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_BLOCK))
        return [Mark(int(mark["seal"]), str(mark["hash"])) for mark in content["marks"]]
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _cannot(error: OSError | ValueError) -> str:
    return f"cannot be used: {error.strerror}" if isinstance(error, OSError) else "is damaged"


# --- reading ------------------------------------------------------------------------------------------


def _pieces(file: BufferedReader, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the next lines, in parts where they are too long, and of each whether a line begins with it."""
    begins_line = True
    while size > 0 and (piece := file.readline(min(MAX_LINE, size))):
        yield piece, begins_line
        begins_line = piece.endswith(b"\n")
        size -= len(piece)


def _backward(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that end before `size`, last first, each with its place; one that is too long is empty."""
    parts: list[bytes] = []
    length = 0
    start = size
    while start > 0:
        stop, start = start, max(0, start - _BLOCK)
        block = os.pread(file, stop - start, start)
        end = len(block)
        while (cut := block.rfind(b"\n", 0, end)) >= 0:
            parts.append(block[cut + 1 : end])
            length += end - cut - 1
            if length:
                yield start + cut + 1, b"".join(reversed(parts)) if length <= MAX_LINE else b""
            parts, length, end = [b"\n"], 1, cut
        length += end
        if length <= MAX_LINE:
            parts.append(block[:end])
    if length:
        yield 0, b"".join(reversed(parts)) if length <= MAX_LINE else b""


def _seals_backward(file: int, size: int) -> Iterator[tuple[int, re.Match[bytes]]]:
    """Yield the seals, last first, and where what follows each begins; at the end one may lack its newline."""
    for place, line in _backward(file, size):
        found = _SEAL.fullmatch(line if line.endswith(b"\n") else line + b"\n")
        if found is not None:
            yield min(size, place + len(line)), found


def _last_seal(file: int, size: int) -> tuple[int, _Chain]:
    """Return where what is not sealed begins, and the chain up to there."""
    for place, found in _seals_backward(file, size):
        return place, _Chain(seals=int(found[2]), last=int(found[4]), hash=found[7].decode())
    return 0, _Chain()


def _sealed_with(file: int, size: int, seal: int) -> str | None:
    """Return the hash of a seal, or None where there is none of that number."""
    for _, found in _seals_backward(file, size):
        if int(found[2]) <= seal:
            return found[7].decode() if int(found[2]) == seal else None
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BufferedReader | None]:
    """Open a log to read; None where there is none. Raises `OSError` where it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    with os.fdopen(file, "rb") as reader:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        yield reader


def verify(path: Path, anchor: Path | None = None) -> AuditCheck:
    """Read a log from its beginning and say whether it is as it was written, or where it is not.

    Takes memory for one line, whatever its size; what is appended meanwhile is left out. What this can show and
    what not is said at the top of this module. Raises `OSError` where the log cannot be read.
    """
    with _opened(path) as file:
        marks, problem = [], None
        with contextlib.ExitStack() as stack:
            if file is not None:
                with contextlib.suppress(TimeoutError):  # whoever holds it cannot keep the operator from checking
                    _lock(file.fileno(), fcntl.LOCK_SH, path, time.monotonic() + LOCK_DEADLINE)
                    stack.callback(fcntl.flock, file.fileno(), fcntl.LOCK_UN)
            try:
                marks = read_anchor(anchor) if anchor is not None else []
            except (OSError, ValueError) as error:
                problem = f"{anchor} {_cannot(error)}, so that nobody can say whether the end was cut off"
            size = os.fstat(file.fileno()).st_size if file is not None else 0
        return _check(_pieces(file, size) if file is not None else iter(()), marks, problem)


def _check(pieces: Iterator[tuple[bytes, bool]], marks: list[Mark], problem: str | None) -> AuditCheck:
    chain = _Chain()
    unseen = set(marks)
    line: int | None = None
    for piece, begins_line in pieces:
        wrong = chain.feed(piece, begins_line=begins_line)
        if wrong is not None:
            line, problem = wrong
            break
        unseen.discard(Mark(chain.seals, chain.hash))
    else:
        if chain.odd is not None:
            line, problem = chain.odd
        elif unseen:
            line, problem = chain.line, _lacking(next(mark for mark in marks if mark in unseen), chain.seals)
    return AuditCheck(
        entries=chain.entries + chain.waiting,
        problem=problem,
        line=line,
        unsealed=chain.waiting,
        recovered=chain.recovered,
        torn=chain.torn + chain.waiting_torn,
    )


def _lacking(mark: Mark, seals: int) -> str:
    if mark.seal > seals:
        return f"the end was cut off: it has {seals} seals, and the operator's anchor knows seal {mark.seal}"
    return f"it was written anew: its seal {mark.seal} is not the one that the operator's anchor knows"


def tail(path: Path, limit: int) -> list[AuditEntry]:
    """Return the newest entries, oldest first; none where there is no log. Raises `OSError` where it is unreadable."""
    found: list[AuditEntry] = []
    with _opened(path) as file:
        if file is None or limit < 1:
            return []
        size = os.fstat(file.fileno()).st_size
        for _, line in _backward(file.fileno(), size):
            entry = _entry(line)
            if entry is not None:
                found.append(entry)
            if len(found) >= limit:
                break
    return found[::-1]


def read_on(path: Path, place: int | None) -> tuple[list[AuditEntry], int]:
    """Return the entries after a place in the log, and the place after them; with None only where the log ends.

    One that is shorter than that is a new one and read from its beginning. Raises `OSError`.
    """
    found: list[AuditEntry] = []
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size if file is not None else 0
        if file is None or place is None:
            return [], size
        place = place if place <= size else 0
        file.seek(place)
        for piece, begins_line in _pieces(file, size - place):
            if not piece.endswith(b"\n") and len(piece) < MAX_LINE:
                break
            place += len(piece)
            entry = _entry(piece) if begins_line else None
            if entry is not None:
                found.append(entry)
    return found, place


def _entry(line: bytes) -> AuditEntry | None:
    if not _ENTRY.fullmatch(line):
        return None
    try:
        return AuditEntry.model_validate_json(line)
    except ValidationError:
        return None
