"""Reads the pages of the documentation: headings, links, code blocks, tables, and the parts that are a reference.

Understands the Markdown that the pages use, not all of Markdown.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```|~~~)(?P<language>\S*)")
_DIRECTIVE = re.compile(r"^ *<!-- snippet: (?P<text>.*?) -->$")
_HEADING = re.compile(r"^(?P<level>#{1,6}) (?P<title>.+)$")
_LINK = re.compile(r"\[(?P<text>[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\((?P<target>[^()\s]+)\)")
_BEGIN = re.compile(r"^<!-- reference: (?P<name>.+?) -->$")
END = "<!-- end of reference -->"
_REFERENCE = re.compile(
    rf"^<!-- reference: (?P<name>.+?) -->\n(?P<text>.*?){re.escape(END)}$", re.DOTALL | re.MULTILINE
)
_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Snippet:
    """A code block: its language, its text, what the comment before it says of it, and where it stands.

    `in_reference` is whether it belongs to a reference part, which is compared with the code as a whole.
    """

    page: str
    line: int
    language: str
    text: str
    directive: str | None
    in_reference: bool

    @property
    def place(self) -> str:
        """`docs/hooks.md:12`, for messages."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One page: its path in the repository and its text."""

    path: str
    text: str

    @classmethod
    def read(cls, path: str) -> Page:
        """Return the page at a path in the repository."""
        return cls(path, (ROOT / path).read_text(encoding="utf-8"))

    @cached_property
    def references(self) -> dict[str, str]:
        """The reference parts by name, each as it stands between its two comments."""
        return {found["name"]: found["text"] for found in _REFERENCE.finditer(self.text)}

    def with_references(self, texts: dict[str, str]) -> str:
        """Return the page's text with reference parts replaced."""
        return _REFERENCE.sub(
            lambda found: f"<!-- reference: {found['name']} -->\n{texts.get(found['name'], found['text'])}{END}",
            self.text,
        )

    @cached_property
    def headings(self) -> list[tuple[int, str]]:
        """All headings with their level, as they are written."""
        found = (_HEADING.match(line) for line in self._prose())
        return [(len(heading["level"]), heading["title"].strip()) for heading in found if heading is not None]

    @cached_property
    def anchors(self) -> dict[str, int]:
        """What a link may name after `#`, as GitHub makes it of the headings, with the number of its heading from 0."""
        anchors: dict[str, int] = {}
        for heading, (_, title) in enumerate(self.headings):
            plain = _LINK.sub(lambda link: link["text"], title)
            base = slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            number = 0
            while slug in anchors:
                number += 1
                slug = f"{base}-{number}"
            anchors[slug] = heading
        return anchors

    @cached_property
    def links(self) -> list[str]:
        """The targets of all links in the prose."""
        prose = "\n".join(re.sub(r"`[^`]*`", "``", line) for line in self._prose())
        return [found["target"] for found in _LINK.finditer(prose)]

    @cached_property
    def snippets(self) -> list[Snippet]:
        """All fenced code blocks, in order. An indented block has the language `indented`."""
        return list(self._snippets())

    def _prose(self) -> Iterator[str]:
        """Yield the lines outside of fenced code."""
        inside = False
        for line in self.text.splitlines():
            if _FENCE.match(line):
                inside = not inside
            elif not inside:
                yield line

    def _snippets(self) -> Iterator[Snippet]:
        in_reference, directive = False, None
        lines = self.text.splitlines()
        at = 0
        while at < len(lines):
            line = lines[at]
            fence, said = _FENCE.match(line), _DIRECTIVE.match(line)
            if _BEGIN.match(line) or line == END:
                in_reference = line != END
            elif said is not None:
                directive = said["text"]
            elif fence is not None:
                end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == fence["fence"]), None)
                if end is None:
                    raise ValueError(f"{self.path}:{at + 1}: this code block has no end")
                body = "\n".join(text.removeprefix(fence["indent"]) for text in lines[at + 1 : end]) + "\n"
                yield Snippet(self.path, at + 2, fence["language"] or "none", body, directive, in_reference)
                at, directive = end, None
            elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip()):
                end = next((i for i in range(at, len(lines)) if not lines[i].startswith("    ")), len(lines))
                body = "\n".join(text.removeprefix("    ") for text in lines[at:end]) + "\n"
                yield Snippet(self.path, at + 1, "indented", body, directive, in_reference)
                at, directive = end - 1, None
            elif line.strip():
                directive = None
            at += 1


def cells(row: str) -> list[str]:
    """Return the cells of one line of a table."""
    return [cell.strip().replace("\\|", "|") for cell in _CELL_END.split(row.strip())[1:-1]]


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of the first table in a text, each by column."""
    after = itertools.dropwhile(lambda line: not line.startswith("|"), text.splitlines())
    lines = list(itertools.takewhile(lambda line: line.startswith("|"), after))
    if len(lines) < 2:
        return []
    columns = cells(lines[0])
    return [dict(zip(columns, cells(line), strict=True)) for line in lines[2:]]


def pages() -> list[str]:
    """Return the paths of all pages: `docs/`, the readme, the contributing guide. Translations have the same snippets,
    links and tables, and are compared with these."""
    found = (p.relative_to(ROOT) for p in (ROOT / "docs").rglob("*.md"))
    return ["README.md", "CONTRIBUTING.md", *sorted(str(p) for p in found if p.parts[1] != "zh")]
