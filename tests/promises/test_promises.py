"""Each sentence of the documents in this folder's tables has a test that shows it, or is said to promise nothing.

A table quotes whole sentences, so that one that is changed in its document is looked at again here.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TABLES = sorted(Path(__file__).parent.glob("*.yaml"))

_CODE = re.compile(r"^ *(```|~~~).*?^ *\1 *$|<!--.*?-->|^(?: {4}\S.*\n)+", re.DOTALL | re.MULTILINE)
_PART = re.compile(r"^ *(?:[-*]|\d{1,2}\.) +(?=\S)|^(?=#|\|)|^\s*$", re.MULTILINE)
_END = re.compile(r"""(?<=[.!?])[)*]*\s+(?=[A-Z`*\["])""")


def sentences(text: str) -> list[str]:
    """Return the sentences outside of code blocks and headings, blanks folded; a row of a table is one."""
    found = []
    for part in (" ".join(part.split()) for part in _PART.split(_CODE.sub("\n\n", text))):
        if part.startswith("|"):
            found += [] if set(part) <= set("|-: ") else [part]
        elif not part.startswith("#"):
            found += filter(None, _END.split(part))
    return found


@cache
def names_in(file: Path) -> set[str]:
    """Return the names of the tests in a file, which is not imported."""
    parts = ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file.is_file() else ()
    return {part.name for part in parts if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


def read(table: Path) -> dict[str, list[Any]]:
    """Return the table: `promises` with their tests, what is `not_shown` and why, and what only `explains`."""
    found: dict[str, list[Any]] = yaml.safe_load(table.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_sentence_has_an_entry_and_every_test_exists(table: Path) -> None:
    content = read(table)
    shown = {one["says"]: one["shown_by"] for one in content["promises"]}
    not_shown = {one["says"]: one["because"] for one in content["not_shown"]}
    quoted = Counter([one["says"] for one in content["promises"]] + content["explains"] + [*not_shown])
    written = Counter(sentences((ROOT / "docs" / f"{table.stem}.md").read_text(encoding="utf-8")))
    names = {name for tests in shown.values() for name in tests}
    wrong = [f"no entry: {one}" for one in written - Counter({*quoted})]
    wrong += [
        f"not in the document, so look whether its tests show what stands there now: {one}" for one in quoted - written
    ]
    wrong += [f"no test: {one}" for one, tests in shown.items() if not tests]
    wrong += [
        f"no such test: {name}"
        for name in sorted(names)
        if name.partition("::")[2] not in names_in(ROOT / name.partition("::")[0])
    ]
    wrong += [f"no reason: {one}" for one, reason in not_shown.items() if not reason]
    assert wrong == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_no_promise_is_without_a_test(table: Path) -> None:
    if not_shown := read(table)["not_shown"]:
        pytest.skip(f"{len(not_shown)} promises of docs/{table.stem}.md have no test, for the reasons in {table.name}")


def test_sentences_are_taken_out_of_a_page() -> None:
    text = "# Title\n\nOne *is*. Two is\nlong (so. it `is`). `Three`:\n\n- four;\n- five.\n"
    table = "\n| a | b |\n| - | - |\n| c. D | e |\n\n```\nno\n```\n"
    listed = ["One *is*.", "Two is long (so. it `is`).", "`Three`:", "four;", "five."]
    assert sentences(text + table) == [*listed, "| a | b |", "| c. D | e |"]
