"""What a plugin registers, kept between hosts: so that a host starts without the processes of its plugins.

What is kept counts as long as the plugin's files, its settings, its packages and the host are the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from pydantic import Base64Bytes, Field, ValidationError

from tavern_host import __version__
from tavern_host.contracts.hooks import HookInfo
from tavern_host.contracts.wire import Model
from tavern_host.runtime.source import PluginSource
from tavern_host.storage.files import make_folder, write_atomic
from tavern_isolation.hello import Loaded

_FORMAT = 2
_NOT_KEPT = frozenset({"tavern_startup", "tavern_shutdown"})


class Said(Model):
    """What a child answered: the value and the facts on it, as they came over its link."""

    value: Base64Bytes
    facts: Base64Bytes

    @classmethod
    def of(cls, value: bytes, facts: bytes) -> Said:
        """An answer that came."""
        return cls.construct(value=bytes(value), facts=bytes(facts))


class Descriptors(Model):
    """All that a host needs to know to offer what a plugin registers: what was found in it, and by hook what its
    modules (`collected`) and its hook implementations (`answers`, by function) gave."""

    key: str
    loaded: Loaded
    collected: dict[str, Said] = Field(default_factory=dict)
    answers: dict[str, Said] = Field(default_factory=dict)


def is_kept(hook: HookInfo) -> bool:
    """Whether the answer of this hook is a registration, which depends on nothing that it is called with."""
    is_plugins = hook.caller.startswith("plugin:")  # nobody says what those are for
    return hook.policy == "collect" and not hook.arguments and hook.name not in _NOT_KEPT and not is_plugins


def key_of(source: PluginSource, hooks: Iterable[str], *also: str) -> str:
    """What differs whenever a plugin may register something else. Blocking: it looks at every file."""
    files = source.reviewed or _stamps(source.root)
    said = [_FORMAT, __version__, sorted(hooks), sorted((path, str(one)) for path, one in files.items()), *also]
    return sha256(json.dumps([*said, repr(source.entries)]).encode()).hexdigest()


def _stamps(root: Path | None) -> dict[str, str]:
    found = {}
    for folder, folders, names in os.walk(root) if root is not None else ():
        folders[:] = [name for name in folders if name not in ("__pycache__", "node_modules", ".venv")]
        for file in (Path(folder, name) for name in names):
            about = file.lstat()
            found[str(file)] = f"{about.st_mtime_ns} {about.st_size} {about.st_ino}"
    return found


def read(file: Path, key: str) -> Descriptors | None:
    """What was kept under this key, if it is there. Blocking."""
    try:
        kept = Descriptors.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):  # of another version, or never written
        return None
    return kept if kept.key == key else None


def write(file: Path, descriptors: Descriptors) -> None:
    """Keep them. Blocking."""
    make_folder(file.parent)
    write_atomic(file, descriptors.model_dump_json(by_alias=True).encode(), mode=0o600)
