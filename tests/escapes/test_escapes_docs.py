"""`docs/security.md` and the tests of what is not held say the same, in the same words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
SHOWING = (HERE / "test_escapes_open.py", HERE / "real" / "test_escapes_of_processes.py")
PAGE = (HERE.parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## What they do not hold")[2].partition("\n## ")[0]


def documented() -> dict[str, str]:
    """Return the sentences of the page by the test that each names."""
    found = re.findall(r"^- (.+?) \(`(test_\w+)`\)$", SECTION, re.MULTILINE)
    return {test: sentence for sentence, test in found}


def shown() -> dict[str, str]:
    """Return the sentences that the tests say of themselves."""
    parts = [part for file in SHOWING for part in ast.parse(file.read_text(encoding="utf-8")).body]
    tests = [part for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {test.name: ast.get_docstring(test) or "" for test in tests if test.name.startswith("test_")}


def test_documented_escapes_match_their_tests() -> None:
    assert sorted(documented()) == sorted(shown())
    assert documented() == shown()
    assert len(documented()) > 20


def test_every_item_of_the_list_is_understood() -> None:
    assert SECTION.count("\n- ") == len(documented())


def test_the_page_says_plainly_what_views_are() -> None:
    first = PAGE.split("\n\n")[2]
    assert first.startswith("In-process views keep honest plugins honest; they do not contain hostile code.")
