"""What an attack is. It uses nothing but Python's own modules: the same files run in the sandbox and tell the tests there
what is expected.

To add an attack, write a function in the file of its kind, `on_files`, `on_processes`, `on_network`, `on_kernel` or
`on_resources`; what needs the service, the proxy or dependencies is in `test_service_attacks`.

1. The name says in the third person what it does. For JavaScript too, add a function of the same name to
   `on_javascript`.
2. It returns its loot, or raises. `target` tells where things are: `outside` is a folder of the host with `secret.txt` and
   `writable.txt`, `script`, `output` and `cache` are the attack's own folders, `tcp udp unix abstract datagrams` are
   servers of the host that answer with the secret, `victim_pid` is one of its processes.
3. `refused` are the errors (of the kernel, or parts of a message) of which one must stop it inside; `"nothing"` means that
   it returns without loot. Any other error fails the test: an attack with a slip in it proves nothing.
4. The same code must work without a sandbox, as the same user, and return loot; with `damages` it must also leave that
   trace in the playground. Where that could do harm, `control` replaces parts of the target by something that is permitted
   or small, or `namespaced` runs it in namespaces of its own, as their root; inside, such an attack does nothing, and
   counts as having got out, where it is root among the mounts of the host. Nothing may be able to harm the machine that
   runs the tests, not even through a hole: aim at what the tests have made, and let bombs end at a bound.
5. Attacks run one after the other in one sandbox, each in a process of its own. One that is `alone` has a sandbox for
   itself: there a limit may end it (`ends`: `memory`, `cpu`, `files`, `wall` for the time, `output`, `signal 9`, `exit 134`).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

Function = Callable[[SimpleNamespace], object]
MEGABYTE = 1 << 20
SHARED = "it is root among the mounts of the host"
"""The loot of an attack on namespaces that has got that far without doing anything: it would do harm there."""


@dataclass(frozen=True)
class Attack:
    """One way to break out; the module's docstring says more."""

    name: str
    python: Function | None
    refused: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the target has besides the playground."""
    control: Mapping[str, Any] = field(default_factory=dict)
    """What the target has in place of it outside of a sandbox: what is permitted there, or harmless."""
    namespaced: bool = False
    damages: str = ""
    rounds: int = 1
    """In how many runs in the same folders it does something; the loot of the last one counts."""
    keeps_its_loot: bool = False
    """What it does inside is allowed there; only what is seen on the host counts."""
    degraded: str = ""
    """Why the degraded sandbox does not fend it off: one of those that it says itself."""
    may_lack: str = ""
    """An error of the control that means that this machine does not have what is attacked."""
    no_attack: bool = False
    """It belongs to the tests of what is left."""
    alone: bool = False
    ends: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    goes_on: float | None = None
    """After so many seconds it is ended, counted from when it has said its loot: it would go on for ever."""
    survives: bool = False
    """Without a sandbox something of it lives on."""

    def target(self, common: Mapping[str, Any]) -> SimpleNamespace:
        """Return the target of the attack inside, or outside of a sandbox."""
        return SimpleNamespace(**{**common, **self.extra, **({} if common["inside"] else self.control)})


ATTACKS: dict[str, Attack] = {}


def attack(*refused: str, **options: Any) -> Callable[[Function], Function]:
    """Put a function on the list."""

    def put(function: Function) -> Function:
        ATTACKS[function.__name__] = Attack(function.__name__, function, refused, **options)
        return function

    return put


def attempt(one: Attack, common: Mapping[str, Any]) -> tuple[object, str]:
    """Carry out an attack; return its loot, or what stopped it."""
    is_shared = os.geteuid() == 0 and os.readlink("/proc/self/ns/mnt") == common["mounts"]
    if one.namespaced and is_shared:
        return SHARED, ""
    assert one.python is not None
    try:
        loot = one.python(one.target(common))
    except OSError as problem:
        return None, errno.errorcode.get(problem.errno or 0, repr(problem))
    except BaseException as problem:
        return None, f"{type(problem).__name__}: {problem}"
    return loot, "" if loot else "nothing"


def say(loot: object, error: str = "") -> None:
    """Say at once what the only attack of a program got: it goes on, or is about to be ended."""
    print("ended", json.dumps([[loot, error]], default=str), flush=True)
