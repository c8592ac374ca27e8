"""The plugins that people copy pass their own tests in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CONTRIB = Path(__file__).parents[3] / "contrib"
EXAMPLES = {
    "calendar-trigger": (["tests"], 5),
    "git-workflows": (["tests"], 15),
    "image-generation": (["tests"], 3),
    "image-nodes": (["tests/real/test_image_nodes.py"], 6),
    "my-awesome-plugin": (["tests/test_greeting.py", "tests/test_node_and_tool.py", "tests/test_versions.py"], 26),
    "rss-to-knowledge": (["tests"], 3),
    "speech": (["tests"], 3),
    "sql-query": (["tests"], 12),
    "telegram-bridge": (["tests"], 3),
    "web-search": (["tests"], 3),
}
"""Which tests of an example are run, and how many there are at least. Code-reviewer and warm-theme have no code."""
ALIKE = {"calendar-trigger", "image-generation", "rss-to-knowledge", "speech", "sql-query", "web-search"}
"""Those that cross to their process only as others of these do."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.extended] * (n in ALIKE)) for n in EXAMPLES])
def test_an_example_passes_its_tests_in_a_process_of_its_own(name: str) -> None:
    tests, least = EXAMPLES[name]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--placement", "process", *tests]
    done = subprocess.run(command, cwd=CONTRIB / name, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) >= least
