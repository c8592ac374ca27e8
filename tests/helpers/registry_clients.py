"""Clients of a protocol as they come from the package registries, each in a program that talks to a served host.

Each is installed into an environment that is kept for the next time. Where there is no registry they are left out, with
the reason.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tavern_host.testing.http import TOKEN

_PLACE = Path(tempfile.gettempdir()) / f"tavern-registry-clients-{os.getuid()}"


async def python_passes(url: str, requirement: str, program: str) -> None:
    """Run a program that needs a package of PyPI, with the address and the token; it prints `done`."""
    uv = (sys.executable, "-m", "uv", "pip", "install", "--target", "packages", requirement)
    place = await asyncio.to_thread(_installed, requirement, *uv)
    (place / "client.py").write_text(f"import sys; sys.path.insert(0, 'packages')\n{program}")
    await _passes(url, sys.executable, "-I", "-W", "ignore", place / "client.py", cwd=place)


async def node_passes(url: str, package: str, program: str) -> None:
    """As `python_passes`, for Node.js and a package of npm."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs npm: apt install npm")
    name = package.strip("@").replace("/", "-")
    place = await asyncio.to_thread(_installed, f"node-{name}", "npm", "install", "--no-audit", "--no-fund", package)
    (place / "client.mjs").write_text(program)
    await _passes(url, "node", place / "client.mjs", cwd=place)


def _installed(name: str, *command: str) -> Path:
    """Return a folder into which a command has installed; skip where it cannot."""
    place = _PLACE / name
    if not (place / "installed").exists():
        place.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=280, check=False)
        if done.returncode:
            pytest.skip(f"{command[0]} could not install {name}: {(done.stderr or done.stdout).strip()[-300:]}")
        (place / "installed").touch()
    return place


async def _passes(url: str, *command: str | Path, cwd: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        *(url, TOKEN),
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0 and output.decode().rstrip().endswith("done"), output.decode()[-3000:]
