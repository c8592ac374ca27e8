"""Finds the Pythons of this machine, as uv does; downloads none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

from packaging.version import Version

from tavern_scripts.api.environments import Python
from tavern_scripts.environments.tools import find_uv

_ASKING = 60.0
_KEPT = ("HOME", "PATH", "XDG_DATA_HOME", "XDG_CACHE_HOME", "UV_PYTHON_INSTALL_DIR", "UV_CACHE_DIR")
_LIST = ("python", "list", "--only-installed", "--offline", "--no-config", "--output-format", "json")


async def find_pythons() -> list[Python]:
    """Return the CPythons of this machine, newest first, one of each version. Raises `Refused` without uv."""
    uv = find_uv().mounts[0].source
    process = await asyncio.create_subprocess_exec(
        uv,
        *_LIST,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=await asyncio.to_thread(_environment),
    )
    try:
        async with asyncio.timeout(_ASKING):
            answer, _ = await process.communicate()
    except TimeoutError:
        return []
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return await asyncio.to_thread(_listed, answer)


def _listed(answer: bytes) -> list[Python]:
    try:
        listed = json.loads(answer)
    except ValueError:
        return []
    found: dict[str, Python] = {}
    for each in listed:
        if each.get("implementation") == "cpython" and each.get("variant", "default") == "default" and each.get("path"):
            found.setdefault(each["version"], Python(Path(os.path.realpath(each["path"])), each["version"]))
    return sorted(found.values(), key=lambda each: Version(each.version), reverse=True)


def _environment() -> dict[str, str]:
    """Return the variables for uv: pyenv's own commands only find the Pythons that somebody chose."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    path = [each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(each) != pyenv / "shims"]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PATH": os.pathsep.join([*path, *map(str, (pyenv / "versions").glob("*/bin"))])}
