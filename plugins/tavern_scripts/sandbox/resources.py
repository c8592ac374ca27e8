"""The limits that the kernel holds for each process of a sandbox. The time by the clock and the memory of all processes
together are watched elsewhere."""

from __future__ import annotations

import math

from tavern_scripts.api.scripts import SandboxLaunch

_LIBRARIES = 256 * 2**20
"""How much more may be mapped than memory may be used: the code of programs and their libraries."""


def process_limits(launch: SandboxLaunch, *, already: int = 0) -> dict[int, tuple[int, int]]:
    """Return the resource limits of a launch, each as (soft, hard). `already` is how many processes of the same user
    there are before the program begins; None can be told where others count too."""
    import resource

    limits = launch.limits
    seconds = max(1, math.ceil(limits.cpu))
    result = {
        resource.RLIMIT_CPU: (seconds, seconds + 1),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (limits.file_size, limits.file_size),
        resource.RLIMIT_NOFILE: (limits.files, limits.files),
        resource.RLIMIT_NPROC: (limits.processes + already, limits.processes + already),
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_MEMLOCK: (65536, 65536),
        resource.RLIMIT_DATA: (limits.memory, limits.memory),
    }
    if launch.address_space:
        result[resource.RLIMIT_AS] = (limits.memory + _LIBRARIES, limits.memory + _LIBRARIES)
    else:  # the stacks of an engine's own threads are reserved, and hardly used
        result[resource.RLIMIT_DATA] = (limits.memory + _LIBRARIES, limits.memory + _LIBRARIES)
    return result


def limit(pid: int, limits: dict[int, tuple[int, int]]) -> None:
    """Give a process its limits; none becomes larger than it is. Raises `OSError`."""
    import resource

    for kind, (soft, hard) in limits.items():
        _, highest = resource.prlimit(pid, kind)
        if highest != resource.RLIM_INFINITY:
            soft, hard = min(soft, highest), min(hard, highest)
        resource.prlimit(pid, kind, (soft, hard))
