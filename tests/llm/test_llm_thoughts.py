"""Thoughts and answers are told apart, wherever the text is cut."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tavern_llm.thoughts import ThoughtSplitter

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "a", "`", "```\n", "<th", "ink>"]), max_size=12)


def split(*pieces: str) -> tuple[str, str]:
    """Return the text and the thoughts."""
    splitter, text, thoughts = ThoughtSplitter(), "", ""
    for kind, piece in [found for one in pieces for found in splitter.feed(one)] + splitter.finish():
        if kind == "void":
            text = ""
        elif kind == "text":
            text += piece
        else:
            thoughts += piece
    return text, thoughts


@given(PIECES)
@example(["<think>", "a", "</think>", "</think>", "\n", "a"])
@example(["a", "</think>", " " * 1001, "a"])
def test_where_a_text_is_cut_makes_no_difference(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert split(*pieces) == split(*whole) == split(whole)
    text, thoughts = split(whole)
    if "<think>" not in whole and "</think>" not in whole:
        assert (text, thoughts) == (whole, "")


def test_spaces_without_an_end_are_not_held() -> None:
    splitter = ThoughtSplitter()
    found = [kind for piece in ("Why?", "</think>", *" " * 1000) for kind, _ in splitter.feed(piece)]
    assert "void" in found
