"""Pages in Chinese say the same as those in English: as many headings, the same code, links and rows of tables."""

from __future__ import annotations

import posixpath

import pytest
from documentation.pages import ROOT, Page

PAIRS = {
    "README.zh-CN.md": "README.md",
    **{f"docs/zh/{path.name}": f"docs/{path.name}" for path in sorted((ROOT / "docs" / "zh").glob("*.md"))},
}


def _links(page: Page) -> list[str]:
    """Return where the links of a page lead, a translated page and its headings counting as the English ones."""
    found = [_original(page.path, target) for target in page.links if "://" not in target]
    return sorted(target for target in found if target != PAIRS.get(page.path, page.path))


def _original(page: str, target: str) -> str:
    file, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file)) if file else page
    original = PAIRS.get(path, path)
    if anchor and path != original:
        anchors = Page.read(path).anchors
        assert anchor in anchors, f"{page}: {target} names no heading"
        anchor = list(Page.read(original).anchors)[anchors[anchor]]
    return f"{original}#{anchor}" if anchor else original


def _rows(page: Page) -> list[int]:
    """Return how many columns each row of the tables has."""
    return [line.count(" | ") for line in page.text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("path", PAIRS)
def test_a_translation_has_all_of_the_original(path: str) -> None:
    translated, original = Page.read(path), Page.read(PAIRS[path])
    assert [level for level, _ in translated.headings] == [level for level, _ in original.headings]
    said = [(one.language, one.text, one.directive) for one in translated.snippets]
    assert said == [(one.language, one.text, one.directive) for one in original.snippets]
    assert _rows(translated) == _rows(original)
    assert _links(translated) == _links(original)


def test_the_first_pages_are_translated() -> None:
    assert set(PAIRS) >= {"README.zh-CN.md", "docs/zh/README.md", "docs/zh/models.md"}
    for translated, original in PAIRS.items():
        names = {posixpath.basename(target) for target in Page.read(original).links}
        assert original == "docs/models.md" or posixpath.basename(translated) in names
