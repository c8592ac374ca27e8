"""`docs/security.md` and the tests of what is not held say the same, in the same words."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import test_escapes_open as open_doors

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## What they do not hold")[2].partition("\n## ")[0]


def documented() -> dict[str, str]:
    """Return the sentences of the page by the test that each names."""
    found = re.findall(r"^- (.+?) \(`(test_\w+)`\)$", SECTION, re.MULTILINE)
    return {test: sentence for sentence, test in found}


def shown() -> dict[str, str]:
    """Return the sentences that the tests say of themselves."""
    tests = {name: test for name, test in vars(open_doors).items() if name.startswith("test_")}
    return {name: inspect.getdoc(test) or "" for name, test in tests.items()}


def test_documented_escapes_match_their_tests() -> None:
    assert sorted(documented()) == sorted(shown())
    assert documented() == shown()
    assert len(documented()) > 20


def test_every_item_of_the_list_is_understood() -> None:
    assert SECTION.count("\n- ") == len(documented())


def test_the_page_says_plainly_what_views_are() -> None:
    first = PAGE.split("\n\n")[1]
    assert first.startswith("In-process views keep honest plugins honest; they do not contain hostile code.")
