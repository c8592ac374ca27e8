"""Puts the figures of a benchmark into the page that tells of them, between `<!-- figures: NAME -->` and
`<!-- end of figures -->`; all else on the page is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.harness import Report

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def write_figures(report: Report, page: Path = PAGE) -> None:
    """Write a report's table in the place of the one that a page has. Raises `ValueError` where it has none."""
    text = page.read_text(encoding="utf-8")
    pattern = rf"(<!-- figures: {re.escape(report.benchmark)} -->\n).*?(<!-- end of figures -->)"
    table = report.to_markdown()
    written, count = re.subn(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text, flags=re.DOTALL)
    if not count:
        raise ValueError(f"{page} has no place for the figures of {report.benchmark}: <!-- figures: … -->")
    page.write_text(written, encoding="utf-8")
