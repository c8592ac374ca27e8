"""Shortens a text by picking the sentences that say most of it. No model is asked, and the same text always gives the
same summary.

Sentences are scored by the words that are frequent in the whole text; each word that a picked sentence has counts less
for the next, so that not the same is said twice.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from dataclasses import dataclass

MAX_READ = 1_000_000
"""How many characters are read; what comes behind them has no part in the summary."""

MAX_SENTENCES = 2_000
"""How many of the best sentences are looked at closely."""

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_SENTENCE = re.compile(
    r"""
    [^.!?…。！？｡\n]*+
    (?: [。！？｡…!?]++["'”’」』）)\]]*+
      | \.++["'”’)\]]*+(?=\s|\Z)
      | \n
      | \.++
      | \Z )
    """,
    re.VERBOSE,
)
_WORD = re.compile(rf"[{_CJK}]++|[^\W_{_CJK}]++(?:['’][^\W_{_CJK}]++)*+")
_IS_CJK = re.compile(rf"[{_CJK}]")
_ABBREVIATION = re.compile(
    r"(?:\b[^\W\d_]|\b(?:mr|mrs|ms|dr|prof|st|no|vs|etc|e\.g|i\.e|z\.B|bzw|ca))\.$", re.IGNORECASE
)
_LITTLE = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can could did do does for from had has have he her his i if in into is it "
        "its may me more my no not of on one or our she so some such than that the their them then there these they "
        "this to was we were what when which who will with would you your",
    )
) | frozenset("的了是在和也就都而及与着或一不我你他她它这那有为以于上下中个们到说要会可")
_FIRST_BONUS = 0.1
_SAID = 0.1


@dataclass(frozen=True)
class _Sentence:
    place: int
    text: str
    words: tuple[str, ...]


def summarize(text: str, length: int) -> str:
    """Return at most `length` characters that stand for `text`: all of it where it fits, else sentences of it in
    their order, else, where no sentence fits, the beginning of the best one."""
    text = text.strip()
    if len(text) <= length:
        return text
    if length <= 0:
        return ""
    sentences = [
        _Sentence(place, each, _words(each)) for place, each in enumerate(dict.fromkeys(_sentences(text[:MAX_READ])))
    ]
    picked = _pick(sentences, length)
    return (
        _joined([each.text for each in sorted(picked, key=lambda each: each.place)])
        if picked
        else _cut(_best(sentences).text, length)
    )


def _pick(sentences: list[_Sentence], length: int) -> list[_Sentence]:
    """Return the sentences that say most and fit into `length` together, the best ones first."""
    weights = _weights(sentences)
    scored = [(-_score(each, weights), each.place, each) for each in sentences if len(each.text) <= length]
    waiting = heapq.nsmallest(MAX_SENTENCES, scored)
    heapq.heapify(waiting)
    picked: list[_Sentence] = []
    left = length
    while waiting:
        score, _, best = heapq.heappop(waiting)
        if len(best.text) + bool(picked) > left:
            continue
        now = -_score(best, weights)
        if now > score and waiting and now > waiting[0][0]:
            heapq.heappush(waiting, (now, best.place, best))  # its words were said meanwhile: its turn comes later
            continue
        if picked and now >= 0:
            break
        picked.append(best)
        left -= len(best.text) + (len(picked) > 1)
        for word in set(best.words):
            weights[word] *= _SAID
    return picked


def _best(sentences: list[_Sentence]) -> _Sentence:
    weights = _weights(sentences)
    return max(sentences, key=lambda each: (_score(each, weights), -each.place))


def _weights(sentences: list[_Sentence]) -> dict[str, float]:
    """Return how much each word counts: the square of its share of the most frequent one; one that is there once says
    little of the text."""
    counts = Counter(word for each in sentences for word in each.words)
    most = max(counts.values(), default=1) + 1
    return {word: (count / most) ** 2 for word, count in counts.items()}


def _score(sentence: _Sentence, weights: dict[str, float]) -> float:
    if not sentence.words:
        return 0.0
    total = math.fsum(weights[word] for word in set(sentence.words)) / math.sqrt(len(sentence.words))
    return total * (1 + _FIRST_BONUS / (1 + sentence.place))


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text; a line's end ends one too, an abbreviation's or a number's point does not."""
    found: list[str] = []
    held: list[str] = []
    for match in _SENTENCE.finditer(text):
        part = match[0]
        held.append(part)
        if part.endswith(".") and (
            not text[match.end() : match.end() + 1].isspace() or _ABBREVIATION.search(part[-12:])
        ):
            continue
        whole = "".join(held).strip()
        held.clear()
        if whole:
            found.append(" ".join(whole.split()))
    rest = " ".join("".join(held).split())
    return [*found, rest] if rest else found


def _words(text: str) -> tuple[str, ...]:
    """Return the words by which a sentence is compared, without the little ones; of scripts without spaces, each two
    characters that follow each other."""
    words: list[str] = []
    for match in _WORD.finditer(text.casefold()):
        word = match[0]
        if _IS_CJK.match(word):
            words += [
                word[at : at + 2] for at in range(max(1, len(word) - 1)) if not _LITTLE.issuperset(word[at : at + 2])
            ]
        elif word not in _LITTLE:
            words.append(word)
    return tuple(words)


def _joined(sentences: list[str]) -> str:
    """Return sentences as one text; after a full-width end stands no space."""
    text = ""
    pieces: list[str] = []
    for each in sentences:
        if text and not (_IS_CJK.match(text[-1]) or text[-1] in "。！？｡」』）…"):
            pieces.append(" ")
        pieces.append(each)
        text = each
    return "".join(pieces)


def _cut(text: str, length: int) -> str:
    """Return the beginning of a text, at a word's end where there is one near, with an ellipsis."""
    if length < 2:
        return "…"[:length]
    start = text[: length - 1]
    at = start.rfind(" ")
    if at > length // 2:
        start = start[:at]
    return f"{start.rstrip()}…"
