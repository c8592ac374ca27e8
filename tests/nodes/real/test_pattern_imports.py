"""The library for patterns is imported only when a pattern is compiled."""

from __future__ import annotations

import subprocess
import sys


def test_the_library_is_imported_only_when_a_pattern_is_compiled() -> None:
    code = (
        "import sys, tavern_host, tavern_nodes.nodes; tavern_host.nodes_of(tavern_nodes.nodes); "
        "print([name for name in ('regex', 'yaml', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
