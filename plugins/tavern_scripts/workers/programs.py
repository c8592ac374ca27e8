"""Programs of the machine that run in the sandbox as long as somebody listens to them: the launch of each."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden, InvalidInput
from tavern_scripts.api.scripts import NetworkAccess, ProgramRequest, SandboxLaunch, SandboxMount, SecurityContext
from tavern_scripts.policy.planner import Planner
from tavern_scripts.sandbox.layout import installation
from tavern_scripts.workers.run_resources import RunResources

_SEEN_ALREADY = ("/usr/", "/bin/", "/lib/", "/lib64/", "/sbin/")
"""What every sandbox shows of the machine."""


async def launch_of_program(
    request: ProgramRequest, planner: Planner, resources: RunResources, stack: AsyncExitStack, call: CallContext
) -> SandboxLaunch:
    """Return the launch of a program in the sandbox; the proxy that it may need is closed with the stack.

    Raises `InvalidInput`, `Forbidden` for hosts that the policy does not allow, `Refused`.
    """
    policy = planner.policy()
    asked = SecurityContext(network_access=NetworkAccess(allow_hosts=request.hosts))
    granted = planner.granted(asked, {}, has_folder=True)
    if granted.denied:
        raise Forbidden(f"{request.argv[0]} asks for more than it gets: {'; '.join(granted.denied)}")
    program = request.argv[0]
    mounts = await asyncio.to_thread(_mounts, request)
    environment = {
        "PATH": f"{Path(program).parent}:/usr/local/bin:/usr/bin:/bin",
        **dict.fromkeys(("HOME", "TMPDIR"), "/tmp"),
        **dict.fromkeys(("LANG", "LC_ALL"), "C.UTF-8"),
    }
    way = await resources.network(granted.hosts, program, stack, call) if granted.hosts else None
    if way is not None:
        mounts += [*way.mounts, *(_mount(place, "read") for place in installation(program))]
        environment |= way.environment
    return SandboxLaunch(
        argv=[*(way.prefix if way is not None else ()), *request.argv],
        environment={**environment, **request.environment},
        folder=request.folder,
        mounts=list({mount.target: mount for mount in mounts}.values()),
        limits=policy.limits.model_copy(update={"cpu": policy.session_cpu}),
        proxy=way.proxy if way is not None else None,
        address_space=False,
    )


def _mounts(request: ProgramRequest) -> list[SandboxMount]:
    """Return the mounts besides the program. Blocking. Raises `InvalidInput`."""
    for path in (request.argv[0], *request.read, *request.write):
        if not Path(path).is_absolute() or os.path.normpath(path) != path or not Path(path).exists():
            raise InvalidInput(f"{path!r:.200} is no absolute path of something that is there")
    read = [_mount(path, "read") for path in request.read if not path.startswith(_SEEN_ALREADY)]
    return [*read, *(_mount(path, "write") for path in request.write)]


def _mount(path: str, mode: Literal["read", "write"]) -> SandboxMount:
    return SandboxMount(target=path, source=path, mode=mode)
