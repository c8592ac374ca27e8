"""Whether keys occur in a conversation, and where: words, texts, and regular expressions within a time that ends.

A key with Chinese, Japanese or Korean characters is found within words; others stand as words of their own, unless the
entry says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.knowledge import ActivationCriteria
from tavern_knowledge.words import is_cjk, is_pattern, normal
from tavern_nodes.api.jsregex import PatternError
from tavern_nodes.api.patterns import Allowance, OutOfTime, UserPattern, compile_pattern, split_literal

MAX_MESSAGES = 100
MAX_SCANNED = 200_000
"""How many characters of the last messages, and of entries, are searched for keys."""
PATTERN_SECONDS = 1.0
"""How long the regular expressions of one activation may search together; those behind that do not occur."""


@dataclass(frozen=True)
class Message:
    """A message to be searched, and its number from 1; what entries say has the number 0."""

    number: int
    text: str
    normal: str


def last_messages(messages: Sequence[str]) -> list[Message]:
    """Return the messages that may be searched, the oldest first."""
    found: list[Message] = []
    left = MAX_SCANNED
    for number in range(len(messages), max(0, len(messages) - MAX_MESSAGES), -1):
        if left <= 0:
            break
        text = messages[number - 1][-left:]
        left -= len(text)
        found.append(Message(number, text, normal(text)))
    return found[::-1]


@dataclass
class Scanned:
    """Messages in which keys are looked for, the latest of them first."""

    among: Sequence[Message]
    patterns: Patterns

    def place(self, key: str, criteria: ActivationCriteria) -> str | None:
        """Return where a key occurs, None where it does not."""
        pattern = self.patterns.of(key) if is_pattern(key) else None
        for message in reversed(self.among):
            occurs = _occurs(key, message, criteria) if pattern is None else self.patterns.occurs(pattern, message)
            if occurs:
                return f"message {message.number}" if message.number else "another entry"
        return None


class Patterns:
    """The regular expressions of one activation, which share the time that they may take, to be compiled and to search.
    Those for which none is left do not occur."""

    def __init__(self) -> None:
        self._left = PATTERN_SECONDS
        self._compiled: dict[str, UserPattern | OutOfTime | None] = {}

    def of(self, key: str) -> UserPattern | OutOfTime | None:
        """Return the regular expression that a key is; None for one that is none, which is then a text."""
        if key not in self._compiled:
            source, flags = split_literal(key.strip()) or (key, "")
            try:
                with self._spending() as allowance:
                    self._compiled[key] = compile_pattern(source, flags, allowance)
            except PatternError:
                self._compiled[key] = None
            except OutOfTime as error:
                self._compiled[key] = error
        return self._compiled[key]

    def occurs(self, pattern: UserPattern | OutOfTime, message: Message) -> bool:
        """Return whether a regular expression occurs; False where the time is used up."""
        if isinstance(pattern, OutOfTime):
            return False
        try:
            with self._spending() as allowance:
                return pattern.occurs_in(message.text, allowance)
        except (OutOfTime, InvalidInput):  # of the latter, it needs too much memory on this text
            return False

    @contextmanager
    def _spending(self) -> Iterator[Allowance]:
        """Give the time that is left, and take from it what the block uses."""
        allowance = Allowance(self._left)
        try:
            yield allowance
        finally:
            try:
                self._left = allowance.left()
            except OutOfTime:
                self._left = 0


@dataclass
class Searched:
    """All that keys may be looked for in: the last messages, and what entries say that came in."""

    messages: list[Message]
    heard: list[Message] = field(default_factory=list)
    patterns: Patterns = field(default_factory=Patterns)

    @property
    def text(self) -> str:
        """The messages in normal form."""
        return "\n".join(message.normal for message in self.messages)

    def hear(self, texts: Sequence[str]) -> str:
        """Search the texts of entries too, as far as there is room; return them in normal form."""
        left = MAX_SCANNED - sum(len(one.text) for one in self.heard)
        added = []
        for text in texts:
            if left > 0:
                added.append(Message(0, text[:left], normal(text[:left])))
                left -= len(text)
        self.heard += added
        return "\n".join(message.normal for message in added)

    def now(self, depth: int, hears: bool) -> Scanned:
        """Return the last `depth` messages, with what entries say where that is heard."""
        among = self.messages[max(0, len(self.messages) - depth) :]
        return Scanned([*self.heard, *among] if hears else among, self.patterns)

    def up_to(self, count: int, depth: int) -> Scanned:
        """Return the last `depth` of the first `count` messages of the conversation."""
        before = self.messages[0].number - 1 if self.messages else 0
        return Scanned(self.messages[max(0, count - depth - before) : max(0, count - before)], self.patterns)


def _occurs(key: str, message: Message, criteria: ActivationCriteria) -> bool:
    text = message.text if criteria.case_sensitive else message.normal
    wanted = key.strip() if criteria.case_sensitive else normal(key.strip())
    if not wanted or wanted not in text:
        return False
    whole = criteria.whole_words
    return _stands_alone(wanted, text) if whole or (whole is None and not is_cjk(wanted)) else True


def _stands_alone(word: str, text: str) -> bool:
    """Return whether a word occurs with no letter or digit beside it; Chinese characters are none in this sense."""
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
        if not _continues(before, word[0]) and not _continues(after, word[-1]):
            return True
        at = text.find(word, at + 1)
    return False


def _continues(beside: str, edge: str) -> bool:
    return (beside.isalnum() or beside == "_") and not is_cjk(beside) and (edge.isalnum() or edge == "_")
