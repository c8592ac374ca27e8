"""Starts a program with exactly the descriptors that it is to have, at exactly their numbers, in a new session. It
knows nothing of sandboxes.

`subprocess` can close what is inherited but not choose numbers, `os.posix_spawn` the other way round; what glibc adds
to posix_spawn (2.34) does both without a fork of the host's memory.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

_SETSIGDEF = 0x04
_SETSIGMASK = 0x08
_SETSID = 0x80
_OPAQUE = 1024
"""More bytes than any C library has for its spawn attributes, spawn actions and signal sets."""

_ACTIONS = "posix_spawn_file_actions_"


def spawn(
    argv: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int], *, name: str | None = None
) -> int:
    """Start `argv[0]` (a path) and return its pid; `descriptors` says which of ours is which number there.

    Nothing else is inherited. With `name` the process is called so in place of its path. Signals are as they are by
    default. Raises `OSError`.
    """
    import fcntl

    moved: list[int] = []
    try:
        highest = max(descriptors) + 1
        sources = dict(descriptors)
        for number, source in descriptors.items():
            if source < highest:  # it could be overwritten by another one before it is its turn
                sources[number] = fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, highest)
                moved.append(sources[number])
        closefrom = _library()
        if closefrom is None:
            return _listed(argv[0], [name or argv[0], *argv[1:]], environment, sources)
        return _exact(closefrom, argv[0], [name or argv[0], *argv[1:]], environment, sources)
    finally:
        for number in moved:
            os.close(number)


@functools.cache
def _library() -> ctypes.CDLL | None:
    """Return the C library where it can close all descriptors from a number on."""
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, f"{_ACTIONS}addclosefrom_np") else None


def _exact(
    library: ctypes.CDLL,
    program: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
) -> int:
    actions, attributes = ctypes.create_string_buffer(_OPAQUE), ctypes.create_string_buffer(_OPAQUE)
    signals, none = ctypes.create_string_buffer(_OPAQUE), ctypes.create_string_buffer(_OPAQUE)
    pid = ctypes.c_int(0)
    call = functools.partial(_call, library)
    call(f"{_ACTIONS}init", actions)
    try:
        call("posix_spawnattr_init", attributes)
        try:
            call("posix_spawnattr_setflags", attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID))
            library.sigfillset(signals)
            library.sigemptyset(none)
            call("posix_spawnattr_setsigdefault", attributes, signals)
            call("posix_spawnattr_setsigmask", attributes, none)
            highest = max(descriptors)
            for number in range(highest + 1):
                if number in descriptors:
                    call(f"{_ACTIONS}adddup2", actions, ctypes.c_int(descriptors[number]), ctypes.c_int(number))
                else:
                    call(f"{_ACTIONS}addclose", actions, ctypes.c_int(number))
            call(f"{_ACTIONS}addclosefrom_np", actions, ctypes.c_int(highest + 1))
            call(
                "posix_spawn",
                ctypes.byref(pid),
                os.fsencode(program),
                actions,
                attributes,
                _strings([os.fsencode(word) for word in argv]),
                _strings([os.fsencode(f"{name}={value}") for name, value in environment.items()]),
            )
        finally:
            library.posix_spawnattr_destroy(attributes)
    finally:
        getattr(library, f"{_ACTIONS}destroy")(actions)
    return pid.value


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = int(getattr(library, name)(*arguments))
    if code:
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _strings(words: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)


def _listed(program: str, argv: Sequence[str], environment: Mapping[str, str], descriptors: Mapping[int, int]) -> int:
    """As `_exact`, for other C libraries: what is inherited is looked up beforehand."""
    actions = [(os.POSIX_SPAWN_DUP2, source, number) for number, source in descriptors.items()]
    others = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    closing = [(os.POSIX_SPAWN_CLOSE, number) for number in others if number not in descriptors and _inherited(number)]
    every = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
    return os.posix_spawn(
        program,
        list(argv),
        dict(environment),
        file_actions=[*closing, *actions],
        setsid=True,
        setsigmask=[],
        setsigdef=every,
    )


def _inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:
        return False  # it was the one for listing them
