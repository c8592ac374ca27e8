"""The pages of the documentation whose tests and scripts run in processes do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from documentation.pages import Page
from test_docs import IN_PROCESSES, does_what_it_says, done

FAILING = "<!-- snippet: file test_x.py -->\n```python\ndef test_x():\n    assert False\n```\n"


@pytest.mark.parametrize("path", IN_PROCESSES)
def test_a_page_with_tests_or_scripts_does_what_it_says(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    does_what_it_says(path, tmp_path)


def test_a_page_whose_tests_fail_is_noticed(tmp_path: Path) -> None:
    assert "its tests end with 1" in done(tmp_path / "work", Page("docs/broken.md", FAILING))
