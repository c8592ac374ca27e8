"""The whole example plugin passes its own tests in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "contrib" / "my-awesome-plugin"


def test_the_example_plugin_passes_its_tests_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--placement", "process"]
    done = subprocess.run(
        [*command, "tests/test_greeting.py", "tests/test_node_and_tool.py", "tests/test_versions.py"],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 25
