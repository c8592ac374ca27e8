"""The code blocks of the platform's documents, each by its document, section and number there."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^ *(```|~~~)(\S*)")
_HEADING = re.compile(r"^#{2,6} (\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Block:
    """A code block: the `number`th of its section, counted from 1."""

    document: str
    section: str
    number: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """`000 §5.2.2 (1)`."""
        return f"{self.document} §{self.section} ({self.number})"


def document(spec_dir: Path, name: str) -> str:
    """Return the text of the document whose number is `name`."""
    [path] = (spec_dir / "spec").glob(f"{name}_*.txt")
    return path.read_text("utf-8")


def blocks(spec_dir: Path, name: str) -> list[Block]:
    """Return all code blocks of a document, in order."""
    return list(_blocks(name, document(spec_dir, name)))


def block(spec_dir: Path, name: str, section: str, number: int = 1) -> str:
    """Return the text of one code block."""
    place = f"{name} §{section} ({number})"
    [found] = [b.text for b in blocks(spec_dir, name) if b.place == place]
    return found


def section(spec_dir: Path, name: str, number: str) -> str:
    """Return the text of a section, without the sections within it."""
    text = document(spec_dir, name)
    [found] = re.findall(rf"^#+ {re.escape(number)}\.? .*?(?=^#{{2,6}} \d|\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def plain_json(text: str) -> str:
    """Return JSON without what the documents explain it with: `//` comments, and commas that these leave behind."""
    bare = re.sub(r"(^|\s)//.*$", "", text, flags=re.MULTILINE)
    return re.sub(r",(\s*[}\]])", r"\1", bare)


def data_file(spec_dir: Path, kind: str, end: str) -> str:
    """Return the text of the data file of this kind whose name ends so."""
    [path] = (spec_dir / "data" / "comfytavern").glob(f"{kind}__*{end}")
    return path.read_text("utf-8")


def _blocks(name: str, text: str) -> Iterator[Block]:
    where, counts = "", Counter[str]()
    fence: re.Match[str] | None = None
    body: list[str] = []
    for line in text.splitlines():
        if fence is not None:
            if line.strip() != fence[1]:
                body.append(line)
                continue
            counts[where] += 1
            yield Block(name, where, counts[where], fence[2], textwrap.dedent("\n".join(body)) + "\n")
            fence = None
        elif (fence := _FENCE.match(line)) is not None:
            body = []
        elif heading := _HEADING.match(line):
            where = heading[1]
