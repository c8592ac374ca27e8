"""`tavern --version` imports nothing that does the work."""

from __future__ import annotations

import subprocess
import sys


def test_the_version_costs_no_import_of_what_does_the_work() -> None:
    script = (
        "import sys; sys.argv = ['tavern', '--version']\n"
        "from tavern_host.cli import main; main()\n"
        "print(sorted({'pluggy', 'aiohttp', 'pydantic', 'yaml', 'click', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.splitlines()[-1] == "[]"
