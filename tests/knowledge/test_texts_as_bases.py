"""Texts of people become bases: cut where they may be cut, named after their headings, found by a search."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from helpers.command_line import tavern

from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.exchange.texts import MAX_TITLE, PIECE, Piece, pieces_of
from tests.knowledge.conftest import Bench

HANDBOOK = """
Before all headings.

# The inn

The door is closed at night.

Kitchen
-------

We serve ale.

```text
# no heading
```

### Bread

From the mill.

# Rooms
"""
PAGE = """<!-- of the inn --><!DOCTYPE html><html><head><title>t</title><style>b {}</style></head><body>
<nav>Home</nav><h1>The <b>inn</b></h1><p title="a > b">Ale &amp; bread,<br/>every
day.</p><script>alert("<h1>no</h1>")</script>
<ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table><pre>  x
 y</pre></body></html>"""


def test_a_text_is_cut_at_its_headings() -> None:
    assert pieces_of(HANDBOOK) == [
        Piece((), "Before all headings."),
        Piece(("The inn",), "The door is closed at night."),
        Piece(("The inn", "Kitchen"), "We serve ale.\n\n```text\n# no heading\n```"),
        Piece(("The inn", "Kitchen", "Bread"), "From the mill."),
        Piece(("Rooms",), "Rooms"),
    ]


def test_a_page_is_read_as_people_see_it() -> None:
    (piece,) = pieces_of(PAGE)
    assert piece.headings == ("The inn",)
    assert " ".join(piece.text.split()) == "Ale & bread, every day. - one - two | a | b x y"
    assert "  x\n y" in piece.text


@pytest.mark.parametrize(
    "text",
    [
        "A sentence of eight words stands here now. " * 500,
        "这里有一句话。" * 2000,
        "\n\n".join(["A paragraph " + "word " * 60] * 40),
        "x" * 10_000,
        "- item\n" * 3000,
    ],
    ids=["sentences", "chinese", "paragraphs", "no end", "lines"],
)
def test_long_sections_are_cut_and_nothing_is_lost(text: str) -> None:
    pieces = [piece.text for piece in pieces_of(text)]
    assert max(map(len, pieces)) <= PIECE
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert min(map(len, pieces[:-1])) > PIECE // 4


HOSTILE = ["<div>", "<!-- ", "<a b='", '<a "', "<script>", "</", "<!", "<?a", "<pre>", "&#", "<h1>", "> <"]


@pytest.mark.parametrize("part", [*HOSTILE, "#", "\n", "a\n---\n", " ", "- ", "`" * 3 + "\n", "a. "])
def test_hostile_texts_take_no_long_time(part: str) -> None:
    """Ten times as much takes about ten times as long, not a hundred times."""
    took = []
    for size in (50_000, 500_000):
        text = ("<html>" if part in HOSTILE else "") + part * (size // len(part))
        began = time.process_time()
        with contextlib.suppress(InvalidInput):  # too many entries
            pieces_of(text)
        took.append(time.process_time() - began)
    assert took[1] < 0.2 + 40 * took[0]


@pytest.mark.parametrize(
    ("before", "part", "size", "after"),
    [
        ("", "<!---->", 24, "x"),
        ("# a", " ", 10_000, "b"),
        ("# a ", "#", 20_000, "b"),
        ("", "A sentence of eight words stands here now. ", 100_000, ""),
        ("# " + "h" * 10**6 + "\n", "A sentence of eight words stands here now. ", 50_000, ""),
    ],
    ids=["comments", "spaces of a heading", "marks of a heading", "one section", "long heading"],
)
def test_what_a_text_repeats_takes_no_long_time(before: str, part: str, size: int, after: str) -> None:
    began = time.process_time()
    assert max(len(title) for piece in pieces_of("p\n" + before) for title in ("", *piece.headings)) <= MAX_TITLE
    pieces_of(before + part * size + after)
    pieces_of(f"<html>{before}{part * size}{after}")
    assert time.process_time() - began < 2


def test_a_heading_ends_where_its_closing_marks_begin() -> None:
    for line, title in [("# C#", "C#"), ("## Inn ##", "Inn"), ("# Inn # ", "Inn"), ("# #1 of 2", "#1 of 2")]:
        assert pieces_of(f"{line}\ntext") == [Piece((title,), "text")]


@pytest.mark.parametrize("line", ["# {}", "{}\n===", "<html><h1>{}</h1>"])
def test_a_line_that_is_too_long_for_a_heading_is_text(line: str) -> None:
    text = line.format("word " * 300 + "last")
    assert all(not piece.headings for piece in pieces_of(text))
    assert "last" in "".join(piece.text for piece in pieces_of(text))


async def test_a_text_is_imported_found_and_replaced(bench: Bench) -> None:
    report = await bench.kb.import_base("handbook", HANDBOOK.encode("utf-16"))
    assert (report.format, report.entries) == ("text", 5)
    (hit, *_) = await bench.kb.search("ale kitchen", bases=["handbook"])
    assert (hit.name, hit.text.splitlines()[0]) == ("The inn › Kitchen", "We serve ale.")
    (summary,) = [one for one in await bench.kb.bases() if one.id == "handbook"]
    assert summary.name == "The inn"
    await bench.kb.import_base("handbook", b"# Other\n\nShort.", replace=True)
    (summary,) = [one for one in await bench.kb.bases() if one.id == "handbook"]
    assert (summary.name, summary.entries) == ("Other", 1)
    for data in (b"{torn", b"\xff\xfe\x00", b"\x00\x01"):
        with pytest.raises(InvalidInput):
            await bench.kb.import_base("broken", data)


def test_texts_come_by_both_commands(tmp_path: Path) -> None:
    project, file = tmp_path / "p", tmp_path / "Hand book.md"
    tavern("init", "--empty", project)
    file.write_text(HANDBOOK)
    assert "5 entries (text)" in tavern("--project", project, "kb", "import", file, "--base", "one").out
    for number, beginning in enumerate(
        ("[A link](http://inn.example) begins it.", "[![x](y)](z)", "{{ template }}", "[1] note")
    ):
        link = tmp_path / f"link{number}.md"
        link.write_text(beginning)
        assert "1 entries (text)" in tavern("--project", project, "kb", "import", link, "--base", link.stem).out
        assert tavern("--project", project, "import", "--json", "--dry-run", link).json()["kind"] == "text"
    came = tavern("--project", project, "import", "--json", file).json()
    assert [(thing["kind"], thing["id"]) for thing in came["things"]] == [("knowledge base", "hand-book")]
