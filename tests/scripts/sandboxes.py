"""What the tests of sandboxes share: the one that this machine has, small limits, and running a program in it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptBackend, ScriptLimits
from tavern_scripts.sandbox.bubblewrap import Bubblewrap
from tavern_scripts.sandbox.finding import find_bubblewrap, find_setpriv
from tavern_scripts.sandbox.supervised import Supervised

MB = 1 << 20
IS_ROOT = os.geteuid() == 0
PYTHON = os.path.realpath(sys.executable)
LIMITS = ScriptLimits(
    wall=30,
    cpu=10,
    memory=128 * MB,
    processes=16,
    files=64,
    file_size=8 * MB,
    scratch=4 * MB,
    input=MB,
    output=MB,
    log=MB,
)


@dataclass
class Came:
    """What came out of a program."""

    stdout: bytes = b""
    stderr: bytes = b""
    channel: bytes = b""
    ended: SandboxOutput = field(default_factory=lambda: SandboxOutput(kind="ended"))

    @property
    def said(self) -> str:
        """What was said of the end."""
        return self.ended.data.decode()


def bubblewrap() -> Bubblewrap:
    """Return the sandbox by bubblewrap for whoever runs the tests."""
    return Bubblewrap(find_bubblewrap()[0], setpriv=find_setpriv() if IS_ROOT else None)


def landlock() -> Supervised:
    """Return the weaker sandbox."""
    return Supervised(is_limited=True)


def launch(code: str, *words: str, **others: Any) -> SandboxLaunch:
    """Return a launch of Python code."""
    return SandboxLaunch(
        **{"argv": [PYTHON, "-I", "-S", "-c", code, *words], "limits": LIMITS, **others},
    )


def limits(**others: Any) -> ScriptLimits:
    """Return the limits of the tests with others in their place."""
    return LIMITS.model_copy(update=others)


def staged(target: str, source: object, **others: Any) -> SandboxMount:
    """Return a place to write to."""
    return SandboxMount(target=target, source=str(source), mode="staged", **others)


def read(target: str, source: object) -> SandboxMount:
    """Return what is to be read."""
    return SandboxMount(target=target, source=str(source))


async def given(*chunks: bytes) -> AsyncIterator[bytes]:
    """Return what goes to stdin."""
    for chunk in chunks:
        yield chunk


async def run(backend: ScriptBackend, what: SandboxLaunch | str, stdin: bytes = b"", **others: Any) -> Came:
    """Run a launch, or Python code, to its end."""
    came = Came()
    async with aclosing(  # type: ignore[type-var]
        backend.run(launch(what, **others) if isinstance(what, str) else what, given(stdin))
    ) as outputs:
        async for each in outputs:
            if each.kind == "ended":
                came.ended = each
            else:
                setattr(came, each.kind, getattr(came, each.kind) + each.data)
    return came
