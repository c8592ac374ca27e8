"""Texts of people as bases: plain text, Markdown and HTML, cut into pieces that a search finds and a prompt can hold.

A piece ends before a heading, else at the end of a paragraph, a line or a sentence, and is named after the headings
that it stands below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

from tavern_host.contracts.errors import InvalidInput

PIECE = 1_500
"""Characters of a piece at most."""
MAX_PIECES = 20_000
MAX_TITLE = 1_000
"""Characters of a heading at most; a longer one is text."""
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_UNDERLINE = re.compile(r"(?:=+|-{3,})[ \t]*")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_ENDS = (
    re.compile(r"\n[ \t]*\n\s*"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；…])"),
    re.compile(r"\s+"),
)
"""Where a piece may end, the best place first."""
_IS_JSON = re.compile(r"\s*(?:\{(?![{%])|\[(?!!\[|[^\]\n\[\"{]+\](?:[(\[]|: |[ \t]+\S))|\Z)")
"""What JSON begins with; a text may begin with a link or with a mark of a template."""
_SPACES = re.compile(r"\s*")
_IS_HTML = re.compile(r"\s*(?:<!--.*?-->\s*)*+<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_MARKUP = re.compile(r"<!--|<(/?)([a-zA-Z][a-zA-Z0-9-]*)|<[!?]")
_ENDS_TAG = re.compile(r"""[>"']""")
_LEFT_OUT = frozenset({"script", "style", "template", "noscript", "svg", "nav", "iframe", "object", "title"})
_INLINE = frozenset(
    {
        "a",
        "abbr",
        "b",
        "bdi",
        "bdo",
        "cite",
        "code",
        "del",
        "dfn",
        "em",
        "font",
        "i",
        "ins",
        "kbd",
        "label",
        "mark",
        "q",
    }
    | {"s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "img", "wbr"}
)
"""The elements within a line; all others end it."""


@dataclass(frozen=True)
class Piece:
    """A part of a text, and the headings that it stands below, the outermost first."""

    headings: tuple[str, ...]
    text: str


def text_in(data: bytes) -> str | None:
    """Return the text in a file; None for one that is no text of a person: JSON, and what is not UTF-8."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or _IS_JSON.match(text) else text


def pieces_of(text: str) -> list[Piece]:
    """Return the pieces of a text. Raises `InvalidInput` where there are too many."""
    found: list[Piece] = []
    for headings, section in _sections(_markdown(text) if _IS_HTML.match(text) else text):
        for part in _parts(section):
            found.append(Piece(headings, part))
            if len(found) > MAX_PIECES:
                raise InvalidInput(f"the text makes more than {MAX_PIECES:,} entries: import it in parts")
    return found


def _sections(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the text between headings of Markdown, without what only stands in a block of code."""
    above: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line.strip())
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        level, title = (0, "") if fence or mark else _heading(line, lines)
        if not level:
            lines.append(line)
            continue
        yield _section(above, lines, level)
        above = [*((n, name) for n, name in above if n < level), (level, title)]
        lines = []
    yield _section(above, lines, 0)


def _section(above: list[tuple[int, str]], lines: list[str], level: int) -> tuple[tuple[str, ...], str]:
    """Return the headings and the text of a section before a heading of a level. Of one without text that has no other
    below it, the heading is all that it says."""
    text = "\n".join(lines)
    is_alone = above and level <= above[-1][0] and not text.strip()
    return tuple(name for _, name in above), above[-1][1] if is_alone else text


def _heading(line: str, before: list[str]) -> tuple[int, str]:
    """Return the level and the text of a heading, 0 for any other line; an underlined one is taken from `before`."""
    if (found := _HEADING.fullmatch(line)) and len(found[2]) <= MAX_TITLE:
        title = found[2].rstrip()
        bare = title.rstrip("#")
        return len(found[1]), bare.rstrip() if bare.endswith((" ", "\t")) else title
    is_under = (
        _UNDERLINE.fullmatch(line) and before and before[-1].strip() and not before[-1].startswith((" ", "|", "-"))
    )
    if is_under and len(before[-1]) <= MAX_TITLE and (len(before) == 1 or not before[-2].strip()):
        return (1 if line.startswith("=") else 2), before.pop().strip()
    return 0, ""


def _parts(section: str) -> Iterator[str]:
    """Yield a section in parts of at most `PIECE` characters."""
    text, at = section.strip(), 0
    while len(text) - at > PIECE:
        cut = next((end for ends in _ENDS if (end := _last(ends, text, at)) > at + PIECE // 3), at + PIECE)
        yield text[at:cut].strip()
        at = next(_SPACES.finditer(text, cut)).end()
    if text:
        yield text[at:]


def _last(ends: re.Pattern[str], text: str, at: int) -> int:
    most = at + PIECE
    return max((found.start() for found in ends.finditer(text, at, most + 1) if found.start() <= most), default=0)


# --- HTML -------------------------------------------------------------------------------------------------


def _markdown(page: str) -> str:
    """Return the text that people read on a page, with headings of Markdown. Each character is looked at once, whatever
    the page leaves open, which `html.parser` of Python before 3.11.13 does not hold to."""
    parts: list[str] = []
    at, verbatim = 0, 0
    while (found := _MARKUP.search(page, at)) is not None:
        parts.append(_words(page[at : found.start()], verbatim))
        closes, tag = found[1] == "/", (found[2] or "").lower()
        at = page.find("-->", found.end()) + 3 if found[0] == "<!--" else _after_tag(page, found.end())
        if tag in _LEFT_OUT and not closes and page[at - 2 : at] != "/>":
            end = re.compile(rf"</{tag}\b", re.IGNORECASE).search(page, at)
            at = 0 if end is None else end.start()
        elif tag == "pre":
            verbatim = max(0, verbatim + (-1 if closes else 1))
        if at <= found.start():  # nothing ends it
            at = len(page)
            break
        parts.append(_mark(tag, closes=closes))
    parts.append(_words(page[at:], verbatim))
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def _after_tag(page: str, at: int) -> int:
    """Return where a tag has ended, 0 where it does not; a `>` in a quoted value is none."""
    while (found := _ENDS_TAG.search(page, at)) is not None and found[0] != ">":
        at = page.find(found[0], found.end()) + 1
        if at == 0:
            return 0
    return 0 if found is None else found.end()


def _words(text: str, verbatim: int) -> str:
    return unescape(text if verbatim else re.sub(r"\s+", " ", text))


def _mark(tag: str, *, closes: bool) -> str:
    """Return the text that stands for a tag."""
    if not tag or tag in _INLINE:
        return ""
    if tag in ("td", "th"):
        return "" if closes else " | "
    if closes:
        return "" if tag == "li" else "\n\n"
    if re.fullmatch("h[1-6]", tag):
        return f"\n\n{'#' * int(tag[1])} "
    return {"li": "\n- ", "tr": "\n", "br": "\n"}.get(tag, "\n\n")
