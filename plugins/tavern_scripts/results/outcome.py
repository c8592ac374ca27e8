"""What a script says while it runs, and its result: from stdout, or from a channel of its own where stray prints cannot
break it. Knows of limits and of nothing else."""

from __future__ import annotations

import json
import re
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_host.common.redaction import redacted
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.wire import without_surrogates
from tavern_scripts.api.scripts import SandboxOutput, ScriptErrorType, ScriptLimits
from tavern_scripts.results.refusal import Refused

PROGRESS = re.compile(r"::progress(?: +(?P<share>\d+(?:\.\d+)?%?)(?= |$))?(?: +(?P<text>.*))?$")
"""A line of stderr with a script's progress: `::progress 0.5 half of it`, `::progress 50%`, `::progress reading`.

It is safe to print: it can neither end nor change a result, and is no part of the log.
"""

MAX_NESTING = 100
"""How deeply a result may be nested."""

_LONGEST_LINE = 8_000
_LONGEST_TEXT = 200
_NOTHING: Mapping[str, str] = {}
_TAIL = 4_000
_LINES_AT_ONCE, _LINES_OF_A_FLOOD = 5_000, 100
_MOST_STDERR = 64 << 20
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?$)')
"""A text in JSON, or the beginning of one that does not end: each character is looked at once."""

_NODE_ERROR = re.compile(r"(?:Uncaught )?\w*(?:Error|Exception)\b")
_NOT_READ = re.compile(r"^SyntaxError\b|ERR_UNKNOWN_FILE_EXTENSION", re.MULTILINE)
_MAX_INTEGER = 2**63

_REASONS = {
    "memory": "it used more memory than {memory:,} MB",
    "cpu": "it computed for more than {cpu:g} s",
    "processes": "it began more than {processes} processes",
    "files": "it wrote a file of more than {file_size:,} MB, or filled the space that it may write to",
}


@dataclass(frozen=True)
class LogEvent:
    """A line of a script's log, or how far it is."""

    text: str
    progress: float | None = None
    is_progress: bool = False


class Log:
    """Lines within a limit: of what is too much the middle is left out, with a mark."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head: list[str] = []
        self._tail: deque[tuple[str, int]] = deque()
        self._head_size = self._tail_size = self._dropped = 0
        self._is_headed = False
        self.size = 0
        self.skipped = 0
        """How many bytes were left out before they came here."""

    def add(self, line: str) -> None:
        """Add a line."""
        size = len(line.encode("utf-8", "replace")) + 1
        self.size += size
        if not self._is_headed and self._head_size + size <= self._half:
            self._head.append(line)
            self._head_size += size
            return
        self._is_headed = True
        self._tail.append((line, size))
        self._tail_size += size
        while self._tail_size > self._half and len(self._tail) > 1:
            _, gone = self._tail.popleft()
            self._tail_size -= gone
            self._dropped += gone

    def lines(self) -> list[str]:
        """Return the lines that were kept."""
        dropped = self._dropped + self.skipped
        mark = [f"… {dropped:,} bytes are left out here …"] if dropped else []
        return [*self._head, *mark, *(line for line, _ in self._tail)]

    def end(self, most: int = _TAIL) -> str:
        """Return the last of it."""
        found: list[str] = []
        for line in reversed(self.lines()):
            most -= len(line) + 1
            if most < 0 and found:
                break
            found.append(line)
        return "\n".join(reversed(found))[-_TAIL:]


class _Lines:
    """Takes bytes apart into lines that can be shown; one that is too long is broken."""

    def __init__(self, hidden: Mapping[str, str]) -> None:
        self._rest = b""
        self._hidden = hidden
        self.dropped = 0

    def feed(self, data: bytes, most: int) -> list[str]:
        """Return the lines that end in `data`; of more than `most` of them, the first and the last."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(lines) > most:  # looking at all of them would hold up the host
            half = most // 2
            gone = b"".join(lines[half:-half])
            self.dropped += len(gone) + len(lines) - 2 * half
            lines = [*lines[:half], *lines[-half:]]
        found = [self._shown(line) for line in lines]
        while len(self._rest) > _LONGEST_LINE:
            found.append(self._shown(self._rest[:_LONGEST_LINE]))
            self._rest = self._rest[_LONGEST_LINE:]
        return found

    def close(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [self._shown(rest)] if rest else []

    def _shown(self, line: bytes) -> str:
        return plain(line.decode("utf-8", "replace").removesuffix("\r"), self._hidden)


class Outcome:
    """Listens to one script. `heard` is called with each line of its log and of its progress, as they come.

    With `channel` the result is what is written to the descriptor 3, and all of stdout is log. With `any_text` what is
    printed need not be JSON; with `is_text` it is never read as that. `hidden` are texts that must not stand in logs
    and errors, the longest first, with what stands there instead. `unreadable` says why a script whose syntax is wrong
    could not be read.
    """

    def __init__(
        self,
        limits: ScriptLimits,
        heard: Callable[[LogEvent], None],
        *,
        channel: bool = False,
        any_text: bool = False,
        is_text: bool = False,
        hidden: Mapping[str, str] = _NOTHING,
        unreadable: str | None = None,
    ) -> None:
        self.log = Log(limits.log)
        self.output = 0
        self._errors = Log(min(limits.log, 4 * _TAIL))
        self._limits = limits
        self._heard = heard
        self._channel = channel
        self._any_text, self._is_text = any_text or is_text, is_text
        self._hidden = hidden
        self._unreadable = unreadable
        self._result = bytearray()
        self._said = 0
        self._stderr, self._stdout = _Lines(hidden), _Lines(hidden)

    def take(self, output: SandboxOutput) -> None:
        """Take what came out. Raises `Refused` where the result grows beyond its limit."""
        if output.kind == "stderr":
            self._heard_bytes(len(output.data))
            for line in self._stderr.feed(output.data, self._most_lines()):
                self._told(line)
        elif output.kind == "stdout" and self._channel:
            self._heard_bytes(len(output.data))
            self._print(output.data)
        elif output.kind in ("stdout", "channel"):
            self._result += output.data
            self.output = len(self._result)
            if self.output > self._limits.output:
                raise Refused(
                    ScriptErrorType.OUTPUT,
                    f"the script gave more than the {self._limits.output:,} bytes that a result may have",
                    "print a summary, or write a file into the folder that TAVERN_OUTPUT names",
                )

    def result(self, ended: SandboxOutput) -> JsonValue:
        """Return the result of a script that has ended. Raises `Refused` where it gave none."""
        self.close()
        failure = self._failure(ended)
        if failure is not None:
            raise failure
        try:
            text = self._result.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(ScriptErrorType.OUTPUT, f"the result is no UTF-8 text (byte {error.start:,})") from None
        if self._channel:
            return self._document(text, "what was written to TAVERN_RESULT_FD")
        start = None if self._is_text else start_of_last_document(text)
        if start is None:
            return self._without_document(text)
        try:
            value = self._document(text[start:], "what was printed last")
        except Refused:
            if self._any_text:
                return self._without_document(text)
            raise
        self._print(text[:start].encode("utf-8", "replace"), to_its_end=True)
        return value

    def close(self) -> None:
        """Take what stands in lines that were not ended."""
        for line in self._stderr.close():
            self._told(line)
        self._print(b"", to_its_end=True)
        self.log.skipped = self._stderr.dropped + self._stdout.dropped

    def printed(self) -> None:
        """Put what was printed into the log, for a script that gave no result; `close` comes before."""
        if not self._channel:
            self._print(bytes(self._result), to_its_end=True)
            self._result.clear()

    def errors(self) -> str:
        """Return the end of what was written to stderr."""
        return self._errors.end()

    def _most_lines(self) -> int:
        return _LINES_AT_ONCE if self.log.size <= self._limits.log else _LINES_OF_A_FLOOD

    def _heard_bytes(self, count: int) -> None:
        self._said += count
        if self._said > max(_MOST_STDERR, self._limits.log):
            message = f"the script was ended: it wrote more than {_MOST_STDERR >> 20} MB that are no result"
            raise Refused(ScriptErrorType.RESOURCE, message, self.errors())

    def _print(self, data: bytes, *, to_its_end: bool = False) -> None:
        for line in [*self._stdout.feed(data, self._most_lines()), *(self._stdout.close() if to_its_end else ())]:
            self._logged(line)

    def _told(self, line: str) -> None:
        """Take a line of stderr."""
        found = PROGRESS.match(line) if line.startswith("::progress") else None
        if found is None:
            self._errors.add(line)
            self._logged(line)
            return
        text = (found["text"] or "").strip()[:_LONGEST_TEXT]
        self._heard(LogEvent(text, _share(found["share"]), is_progress=True))

    def _logged(self, line: str) -> None:
        self.log.add(line)
        if self.log.size <= self._limits.log:
            self._heard(LogEvent(line))

    def _without_document(self, text: str) -> JsonValue:
        if self._any_text:
            return "\n".join(plain(line, self._hidden) for line in text.strip("\r\n").splitlines()) or None
        self.printed()
        if not text.strip():
            message = "the script printed no result; it must print JSON as the last thing on stdout (null for none)"
        else:
            last = text.rstrip().rpartition("\n")[2]
            shown = plain(last, self._hidden)
            message = f"the last thing on stdout must be JSON on lines of its own, found {shown!r:.120}"
        raise Refused(ScriptErrorType.OUTPUT, message, self.errors())

    def _document(self, text: str, what: str) -> JsonValue:
        problem = "it is empty"
        if text.strip():
            try:
                value: JsonValue = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
                return _mended(value, MAX_NESTING)
            except RecursionError:
                problem = f"it is nested more than {MAX_NESTING} deep"
            except ValueError as error:
                problem = str(error)
        raise Refused(ScriptErrorType.OUTPUT, f"{what} is no JSON that can be used: {problem}", self.errors())

    def _failure(self, ended: SandboxOutput) -> Refused | None:
        limits, errors = self._limits, self.errors()
        if ended.reason == "broken":
            why = plain(ended.data.decode("utf-8", "replace").strip(), self._hidden)[:_TAIL]
            return Refused(ScriptErrorType.SECURITY, f"the sandbox could not be made, so nothing was run: {why}")
        if ended.reason is not None:
            said = _REASONS[ended.reason].format(
                memory=limits.memory >> 20,
                cpu=limits.cpu,
                processes=limits.processes,
                file_size=limits.file_size >> 20,
            )
            return Refused(ScriptErrorType.RESOURCE, f"the script was ended: {said}", errors)
        code = ended.exit_code
        if code == 0:
            return None
        if self._unreadable is not None and _NOT_READ.search(errors):
            return Refused(ScriptErrorType.DEPENDENCY, self._unreadable, errors)
        last = _last_words(errors)
        if last.startswith("MemoryError") or "JavaScript heap out of memory" in errors:
            said = _REASONS["memory"].format(memory=limits.memory >> 20)
            return Refused(ScriptErrorType.RESOURCE, f"the script failed: {said}", errors)
        how = f"exit code {code}" if code is None or code > 0 else _signal(-code)
        said = f": {last[:300]}" if last else "; it wrote nothing to stderr"
        return Refused(ScriptErrorType.SCRIPT, f"the script ended with {how}{said}", errors)


def _last_words(errors: str) -> str:
    """Return the line that says why a program ended: the last one, or what Node.js says before its version."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    if lines and lines[-1].startswith("Node.js v"):
        lines = [line for line in lines if _NODE_ERROR.match(line)] or lines[:-1]
    return lines[-1] if lines else ""


def start_of_last_document(text: str) -> int | None:
    """Return where the JSON document begins that ends a text, at the beginning of a line; None where there is none.

    What looks like a result and is followed by something else does not count. Reads each line once.
    """
    end = len(text.rstrip())
    if end == 0:
        return None
    start = text.rfind("\n", 0, end) + 1
    if text[end - 1] not in "}]":
        return start if _is_json(text[start:end]) else None
    depth = 0
    while True:
        line = _STRING.sub("", text[start:end])
        depth += line.count("}") + line.count("]") - line.count("{") - line.count("[")
        if depth <= 0:
            begins = text[start:end].lstrip()[:1] in ("{", "[")
            return start if depth == 0 and begins else None
        if start == 0:
            return None
        end = start - 1
        start = text.rfind("\n", 0, end) + 1


def plain(line: str, hidden: Mapping[str, str] = _NOTHING) -> str:
    """Return a line as it may be shown anywhere: without escape sequences, control characters and hidden texts."""
    for text, shown in hidden.items():
        if shown == MASK:
            line = redacted(line, (text,))
        elif text in line:  # a path, and no part of a longer name
            line = re.sub(rf"(?<![\w.-]){re.escape(text)}(?![\w.-])", shown, line)
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    return _CONTROLS.sub("\ufffd", line)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    value = float(text.removesuffix("%")[:40])
    return max(0.0, min(1.0, value / 100 if text.endswith("%") else value))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON; write null, or a text")


def _integer(digits: str) -> int | float:
    if len(digits) > 20 or not -_MAX_INTEGER <= int(digits) < _MAX_INTEGER:
        raise ValueError(f"the number {digits[:40]} has more than 64 bits; write it as a text")
    return int(digits)


def _mended(value: JsonValue, room: int) -> JsonValue:
    """Return a value without half characters, which no other program could read."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large; write it as a text")
    if not isinstance(value, dict | list):
        return value
    if room == 0:
        raise RecursionError
    if isinstance(value, list):
        return [_mended(item, room - 1) for item in value]
    return {str(_mended(key, 0)): _mended(item, room - 1) for key, item in value.items()}


def _signal(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
