"""Regular expressions from users: searches and replaces with them, within a time that always ends.

Patterns are JavaScript's, as `/pattern/flags` or plain. The library `regex` checks the clock while it matches and
leaves the interpreter to others meanwhile; `within` does the work on a thread, so that neither a pattern nor the
length of a text can hold up the host. Nothing here is about what a node does with the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput
from tavern_nodes.api.jsregex import PatternError, translate
from tavern_nodes.api.macros import MAX_TEXT

if TYPE_CHECKING:
    import regex

T = TypeVar("T")

LIMIT_SECONDS = 2.0
"""How long one node may search with patterns of users."""

GRACE_SECONDS = 1.0
"""How much later the node continues without the thread, if that has not ended by itself."""

MAX_SEARCHED = 1_000_000
"""The longest text that is searched, in characters: a search keeps up to some hundred bytes for each."""

_LITERAL = re.compile(r"/(.+)/([a-z]*)", re.DOTALL)
_KNOWN_FLAGS = frozenset("dgimsuv")


class OutOfTime(Exception):
    """The allowance is used up; `within` turns it into an error that names the node."""


class Allowance:
    """The time that is left for a piece of work, on a thread that really computes."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left. Raises `OutOfTime` where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise OutOfTime
        return left


async def within(work: Callable[[Allowance], T], who: str, seconds: float = LIMIT_SECONDS) -> T:
    """Return `work(allowance)`, done on a thread of its own. Raises `InvalidInput` naming `who` where the time is not
    enough, else what the work raises.

    Cancelling the caller leaves the thread to its allowance.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]

    def body() -> None:
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = work(Allowance(seconds))
        except BaseException as error:  # the waiting side must receive any error
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=body, name=who, daemon=True).start()
    try:
        with clock.awaits_thread():
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                return await outcome
    except (OutOfTime, TimeoutError):
        raise InvalidInput(
            f"{who}: the patterns took longer than {seconds:g} s on this text; make them simpler "
            "(a repeat within a repeat, such as (a+)+, is slow) or fewer, or the text shorter"
        ) from None


@dataclass(frozen=True)
class Replacement:
    """What takes the place of a match, as JavaScript's `replace` reads it: `$1`, `$<name>`, `$&`, `` $` ``, `$'`, `$$`.

    `trim` are texts that are cut out of what a match brings in.
    """

    parts: tuple[str | int, ...]
    trim: tuple[str, ...] = ()

    def of(self, match: regex.Match[str]) -> Iterator[str]:
        """Yield the pieces for one match."""
        for part in self.parts:
            if isinstance(part, str):
                yield part
                continue
            text = match.string
            piece = match[part] if part >= 0 else text[: match.start()] if part == _BEFORE else text[match.end() :]
            for unwanted in self.trim:
                piece = (piece or "").replace(unwanted, "")
            yield piece or ""


_BEFORE, _AFTER = -1, -2
_PLACE = re.compile(r"\$(?:(\$)|(&)|(`)|(')|([0-9]{1,2})|<([^>]*)>)")


@dataclass(frozen=True)
class UserPattern:
    """A compiled pattern; `every` says whether it replaces all its matches (the flag `g`) or the first."""

    source: str
    compiled: regex.Pattern[str]
    every: bool

    @property
    def _name(self) -> str:
        shown = self.source if len(self.source) <= 60 else f"{self.source[:59]}…"
        return f"the pattern {shown!r}"

    def occurs_in(self, text: str, allowance: Allowance) -> bool:
        """Return whether the pattern matches somewhere in `text`. Raises `OutOfTime`."""
        check_searchable(text, self._name)
        try:
            return self.compiled.search(str(text), timeout=allowance.left()) is not None
        except TimeoutError:
            raise OutOfTime from None
        except MemoryError:
            raise InvalidInput(f"{self._name} needs too much memory on this text") from None

    def matches(self, text: str, allowance: Allowance, who: str) -> Iterator[regex.Match[str]]:
        """Yield all matches, as JavaScript does: after an empty one it looks behind the next character. Raises
        `OutOfTime`, and `InvalidInput` naming `who` where the text is too long, or needs too much memory."""
        check_searchable(text, who)
        at: int | None = 0
        try:
            while at is not None:
                found, at, empty_at = self.compiled.finditer(str(text), at, timeout=allowance.left()), None, -1
                for match in found:
                    allowance.left()
                    if match.start() == empty_at:  # where the library looks for more than nothing
                        at = empty_at + 1
                        break
                    yield match
                    empty_at = match.end() if match.start() == match.end() else -1
        except TimeoutError:
            raise OutOfTime from None
        except MemoryError:
            raise InvalidInput(f"{who}: {self._name} needs too much memory on this text") from None

    def replaced(self, text: str, replacement: Replacement, allowance: Allowance, who: str) -> str:
        """Return `text` with its matches replaced. Raises `OutOfTime`, and `InvalidInput` naming `who` where the
        text is or grows too long."""
        pieces: list[str] = []
        end = length = 0
        for match in self.matches(text, allowance, who):
            pieces.append(text[end : match.start()])
            length += len(pieces[-1])
            for piece in replacement.of(match):
                pieces.append(piece)
                length += len(piece)
                if length > MAX_TEXT:
                    raise InvalidInput(
                        f"{who}: {self._name}: the result would have {length:,} characters; "
                        f"at most {MAX_TEXT:,} are possible"
                    )
            end = match.end()
            if not self.every:
                break
        return "".join([*pieces, text[end:]])

    def replacement(self, template: str, trim: tuple[str, ...] = ()) -> Replacement:
        """Read a replacement for this pattern; a group that it does not have stays as it is written."""
        parts: list[str | int] = []
        end = 0
        for place in _PLACE.finditer(template):
            parts.append(template[end : place.start()])
            parts.extend(self._place(place))
            end = place.end()
        return Replacement((*parts, template[end:]), trim)

    def _place(self, place: re.Match[str]) -> tuple[str | int, ...]:
        dollar, whole, before, after, digits, name = place.groups()
        if dollar:
            return ("$",)
        if whole or before or after:
            return (0 if whole else _BEFORE if before else _AFTER,)
        groups = self.compiled.groups
        if name is not None:
            names = self.compiled.groupindex
            return (names[name],) if name in names else ("",) if names else (place[0],)
        if 1 <= int(digits) <= groups:
            return (int(digits),)
        if len(digits) == 2 and 1 <= int(digits[0]) <= groups:
            return (int(digits[0]), digits[1])
        return (place[0],)


def split_literal(text: str) -> tuple[str, str] | None:
    """Return the pattern and flags of `/pattern/flags`, or None for a text that is not written so."""
    match = _LITERAL.fullmatch(text)
    return (match[1], match[2]) if match else None


def compile_pattern(source: str, flags: str = "", allowance: Allowance | None = None) -> UserPattern:
    """Return a pattern that is ready for use; compiling takes some milliseconds, so do it on the thread too.

    Raises `PatternError` in a clause that says what is wrong with it, and `OutOfTime` where nothing is left.
    """
    if allowance is not None:
        allowance.left()
    return _compiled(source, flags)


@functools.lru_cache(maxsize=512)
def _compiled(source: str, flags: str) -> UserPattern:
    import regex

    unknown = sorted(set(flags) - _KNOWN_FLAGS)
    if unknown:
        raise PatternError(f"the flag {unknown[0]!r} is not known; there is {', '.join(sorted(_KNOWN_FLAGS))}")
    translated = translate(source, flags)
    try:
        compiled = regex.compile(translated, regex.VERSION0)
    except regex.error as error:
        raise PatternError(str(error)) from None
    except (RecursionError, OverflowError, MemoryError):
        raise PatternError("it is too complicated") from None
    return UserPattern(source, compiled, every="g" in flags)


def check_searchable(text: Any, who: str) -> None:
    """Raise `InvalidInput` naming `who` for a text that is too long to be searched."""
    if len(text) > MAX_SEARCHED:
        raise InvalidInput(f"{who}: the text has {len(text):,} characters; patterns search at most {MAX_SEARCHED:,}")
