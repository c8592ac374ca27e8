"""Finds podman or docker, and asks them. Starts nothing that lasts."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tavern_containers.arguments import LABEL, Engine
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.piped_program import PipedProgram
from tavern_scripts.api.scripts import no_input

_NAMES = ("podman", "docker")
_SECONDS = 30.0
_OWN = ("HOME", "PATH", "USER", "TMPDIR", "DBUS_SESSION_BUS_ADDRESS")
_BEGIN = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_")
_MOST = 1 << 20


def variables() -> dict[str, str]:
    """Return the part of the host's environment that an engine sees: where it finds its own files and its socket."""
    return {name: value for name, value in os.environ.items() if name in _OWN or name.startswith(_BEGIN)}


async def find_engine(configured: str, cpus: float) -> Engine:
    """Return the engine that the operator names, or the first that is there. Raises `ServiceUnavailable` where there is
    none, or none that answers."""
    names = (configured,) if configured else _NAMES
    found = [program for name in names if (program := await asyncio.to_thread(shutil.which, name)) is not None]
    if not found:
        raise ServiceUnavailable(f"there is no {' and no '.join(names)} on this machine: install podman or docker")
    reasons = []
    for program in found:
        code, said, errors = await ask([program, "info"])
        if code == 0:
            keeps_id = "podman" in Path(program).name and os.geteuid() != 0
            return Engine(program, keeps_id=keeps_id, cpus=cpus)
        reasons.append(f"{program} runs no containers: {(errors or said).strip()[:500] or f'exit code {code}'}")
    raise ServiceUnavailable("; ".join(reasons))


async def ask(argv: Sequence[str], hidden: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Return the exit code of a command of an engine, and what it wrote. Raises `ServiceUnavailable` for one that
    cannot be started or does not answer."""
    program = PipedProgram(argv, {**variables(), **(hidden or {})})
    said = {"stdout": b"", "stderr": b""}
    try:
        async with asyncio.timeout(_SECONDS):
            await program.start()
            async for output in program.outputs(no_input(), _never()):
                said[output.kind] = (said[output.kind] + output.data)[:_MOST]
    except (OSError, TimeoutError) as error:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error)
        raise ServiceUnavailable(f"{argv[0]} {argv[1]}: {why}") from None
    finally:
        await program.stop()
    code = program.status if program.status is not None else -1
    return code, said["stdout"].decode("utf-8", "replace"), said["stderr"].decode("utf-8", "replace")


async def about(engine: Engine, container: str, part: str) -> dict[str, Any]:
    """Return an engine's facts about a part of a container, such as its `State`; none, where it does not say."""
    code, said, _ = await ask([engine.program, "container", "inspect", container])
    found = _read(said) if code == 0 else None
    known = found[0].get(part) if isinstance(found, list) and found and isinstance(found[0], dict) else None
    return known if isinstance(known, dict) else {}


async def remove_orphans(engine: Engine) -> None:
    """Remove the containers of hosts that were killed."""
    _, said, _ = await ask([engine.program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"])
    for container in said.split():
        labels = (await about(engine, container, "Config")).get("Labels") or {}
        if not await asyncio.to_thread(Path(f"/proc/{labels.get(LABEL)}").exists):
            await ask([engine.program, "rm", "--force", "--volumes", container])


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


async def _never() -> None:
    await asyncio.get_running_loop().create_future()
