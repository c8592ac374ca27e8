"""docs/architecture.md and CONTRIBUTING.md name rooms, files and functions: each must be there, and each room named."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from documentation.pages import ROOT

KERNEL = ROOT / "tavern_host"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = {
    "From discovery to a hook call": 14,
    "A tool call, from HTTP to its result": 47,
    "A run, from the command to its events": 18,
    "An agent's turn, from the message to the answer": 8,
}
"""The walks of the page, and in how many files each may be."""

_STEP = re.compile(r"^\d+\. `([^`]+\.py)`: (.*)$", re.MULTILINE)


@cache
def definitions(file: str) -> frozenset[str]:
    """Return the names that a file defines: functions, classes, and methods also as `Class.method`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{method.name}" for method in methods)
    return frozenset(names)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(("title", "most"), WALKS.items())
def test_walk_names_functions_of_few_files(title: str, most: int) -> None:
    steps = _STEP.findall(section(title))
    assert steps and len(steps) == len(re.findall(r"^\d+\. ", section(title), re.MULTILINE))
    assert len({file for file, _ in steps}) <= most
    missing = []
    for file, sentence in steps:
        named = [name for name in re.findall(r"`([A-Za-z_.]+)`", sentence) if not name.endswith(".yaml")]
        found = [name for name in named if name in definitions(file)]
        assert found, f"{file}: none of {named} is defined there"
        missing += [f"{file}: {name}" for name in named if "." in name and name not in definitions(file)]
    assert missing == []


@pytest.mark.parametrize("path", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_every_file_named_exists(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    named = re.findall(r"`((?:tavern_host|plugins|tests|docs)/[\w/.-]*)`", text)
    assert named
    assert [name for name in named if "NNN" not in name and not (ROOT / name).exists()] == []


def test_every_room_of_the_kernel_is_named() -> None:
    rooms = {folder.name for folder in KERNEL.iterdir() if (folder / "__init__.py").is_file()}
    for path in ("docs/architecture.md", "CONTRIBUTING.md"):
        text = (ROOT / path).read_text(encoding="utf-8")
        assert {room for room in rooms if not re.search(rf"`(?:tavern_host/)?{room}/`", text)} == set(), path


def test_every_room_says_what_is_in_it() -> None:
    packages = [*KERNEL.glob("*/__init__.py"), *(ROOT / "plugins").glob("tavern_*/*/__init__.py")]
    assert [str(p) for p in packages if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))] == []
