"""What a launch is as arguments of podman and docker, which take the same. Runs nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tavern_scripts.api.scripts import PROXY_SOCKET, SandboxLaunch
from tavern_scripts.api.staging import StagingError

NOBODY = 65534
LABEL = "tavern-host"
"""The label of containers, with the number of the process that made them."""

_CONFIG = "TAVERN_CONFIG_"
"""How the names of variables begin whose values nobody sees in the list of processes."""

_TMP = "/tmp"


@dataclass(frozen=True)
class Engine:
    """A program that makes containers. `keeps_id`: it runs for an ordinary user, whose number has to be kept inside."""

    program: str
    keeps_id: bool = False
    cpus: float = 1.0


def create_arguments(
    engine: Engine, image: str, launch: SandboxLaunch, places: Mapping[str, Path], owner: tuple[int, int]
) -> list[str]:
    """Return how a container is made: it starts with nothing but what is granted here.

    `places` are the folders in the place of what the launch writes to, `owner` the user and group that it runs as.
    Raises `StagingError` for what cannot be said in arguments.
    """
    limits, memory, cpu = launch.limits, launch.limits.memory, int(launch.limits.cpu) + 1
    user = f"{owner[0]}:{owner[1]}"
    words = [engine.program, "create", "--interactive", "--pull=never", "--network=none", "--ipc=none", "--read-only"]
    words += ["--cap-drop=all", "--security-opt=no-new-privileges", f"--user={user}", "--log-driver=none"]
    words += ["--userns=keep-id"] if engine.keeps_id else []
    words += [f"--memory={memory}", f"--memory-swap={memory}", f"--pids-limit={limits.processes}"]
    words += [f"--cpus={engine.cpus:g}", f"--ulimit=cpu={cpu}:{cpu + 1}", "--ulimit=core=0"]
    words += [f"--ulimit=nofile={limits.files}", f"--ulimit=fsize={limits.file_size}"]
    words += ["--hostname=sandbox", f"--workdir={launch.folder}", f"--label={LABEL}={os.getpid()}"]
    words.append(f"--tmpfs={_TMP}:rw,nosuid,nodev,mode=1777,size={limits.scratch}")
    for mount in launch.mounts:
        source = places.get(mount.target, Path(mount.source))
        words.append(_mount(str(source), mount.target, changes=mount.mode != "read"))
    if launch.proxy is not None:
        words.append(_mount(os.path.realpath(launch.proxy), PROXY_SOCKET, changes=False))
    for name, value in launch.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise StagingError(f"{name!r:.100} cannot be a variable of a container: it has a '=' or a zero byte")
        words.append(f"--env={name}" if name.startswith(_CONFIG) else f"--env={name}={value}")
    program, *rest = launch.argv
    return [*words, f"--entrypoint={program}", image, *rest]


def hidden_variables(launch: SandboxLaunch) -> dict[str, str]:
    """Return the variables that the engine reads from its own environment."""
    return {name: value for name, value in launch.environment.items() if name.startswith(_CONFIG)}


def _mount(source: str, target: str, *, changes: bool) -> str:
    for path in (source, target):
        if not path.startswith("/") or any(character in path for character in ',"\r\n\0') or "/../" in f"{path}/":
            raise StagingError(f"{path!r:.200} cannot be seen in a container: it has a comma, a quote or a step up")
    return f"--mount=type=bind,source={source},target={target}" + ("" if changes else ",readonly")
