"""Every code block of the platform's documents about tools, and every file of its data about them, is read by a test of
this folder, or is about something else. A block that is added to the documents fails here."""

from __future__ import annotations

from pathlib import Path

import pytest
from platform_documents import blocks

TESTS = "".join(p.read_text("utf-8") for p in Path(__file__).parent.rglob("test_*.py") if p != Path(__file__))

ELSEWHERE = {
    "000 §6.1 (1)": "the folders of plugins",
    "000 §7.4 (1)": "a diagram of the parts, whose steps §7.1 to §7.3 tell",
    "000 §12.3 (1)": "a diagram of the parts, whose steps §12.2 tells",
    "000 §15.1.1 (1)": "types of manifests",
    "000 §15.1.2 (1)": "the platform's loader of plugins",
    "000 §15.1.3 (1)": "a route of plugins",
    "000 §15.3.1 (1)": "front end",
    "000 §17.1 (1)": "settings",
    "000 §17.2 (1)": "settings; its fence begins within a line",
    "003 §2.3.3 (1)": "the platform's loader of tool files",
}
"""Code blocks that are not about tools, and what they are about."""


@pytest.mark.parametrize(("name", "count"), [("000", 27), ("002", 4), ("003", 7)])
def test_every_code_block_is_read_by_a_test(spec_dir: Path, name: str, count: int) -> None:
    found = blocks(spec_dir, name)
    assert len(found) == count
    assert [
        block.place
        for block in found
        if block.place not in ELSEWHERE
        and f'"{block.section}"' not in TESTS
        and f"{name} §{block.section}" not in TESTS
    ] == []


def test_every_data_file_about_tools_is_read(spec_dir: Path) -> None:
    files = [p for kind in ("tam", "tool", "workflow") for p in (spec_dir / "data" / "comfytavern").glob(f"{kind}__*")]
    assert len(files) == 10
    assert [path.name for path in files if path.name.rpartition("_architecture_")[2] not in TESTS] == []
