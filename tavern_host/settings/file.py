"""The file of saved settings, which several processes may write.

Knows nothing of plugins and their settings.
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue, ValidationError

from tavern_host.contracts.errors import DeadlineExceeded, Misconfigured
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.wire import Model
from tavern_host.settings.secrets import SecretBox
from tavern_host.storage.files import LOCK_SECONDS, holder_of, make_lock_file, write_atomic
from tavern_host.storage.yaml_file import InvalidFile

MAX_BYTES = 16 << 20
"""The largest file."""

_POLL = 0.02


class SavedSettings(Model):
    """What is in the file: values by full key; those of secrets encrypted, apart from the others."""

    version: Literal[1] = 1
    values: dict[str, JsonValue] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)

    def changed(self, changes: Mapping[str, JsonValue], encrypted: Collection[str], box: SecretBox) -> SavedSettings:
        """Return it with new values of settings, None for none; those of `encrypted` keys encrypted with `box`.

        Raises `Misconfigured` where one cannot be encrypted.
        """
        values, secrets = dict(self.values), dict(self.secrets)
        for key, value in changes.items():
            values.pop(key, None)
            before = secrets.pop(key, None)
            if value is not None and key in encrypted:
                secrets[key] = before if before and _holds(box, key, before, value) else box.encrypt(key, value)
            elif value is not None:
                values[key] = value
        return SavedSettings(values=values, secrets=secrets)

    def differences(self, other: SavedSettings) -> list[str]:
        """Return the keys whose saved value is another one, in order."""
        return sorted(differing(self.values, other.values) | differing(self.secrets, other.secrets))


class SettingsFile:
    """The file, and the key with which its secrets are encrypted."""

    def __init__(self, path: Path, box: SecretBox) -> None:
        self.path = path
        self.box = box
        self._seen: tuple[int, ...] = ()

    def read(self) -> SavedSettings:
        """Return the saved settings; empty where there is no file. Raises `InvalidFile` where it was damaged."""
        self._seen = self._signature()
        try:
            about = self.path.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
                raise self._invalid(f"it is no file of at most {MAX_BYTES >> 20} MiB")
            return SavedSettings.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return SavedSettings()
        except ValidationError as error:
            raise self._invalid(f"it cannot be read ({error.error_count()} mistakes)") from None
        except OSError as error:
            raise self._invalid(f"it cannot be read: {error.strerror}") from None

    def has_changed(self) -> bool:
        """Return whether the file is another one than that which was read or written last."""
        return self._signature() != self._seen

    @contextlib.asynccontextmanager
    async def locked(self, *, deadline: float | None = None) -> AsyncIterator[None]:
        """Keep everybody else from writing while the block runs; the lock is a file beside the settings.

        Waits without holding up the host. Raises `DeadlineExceeded` where somebody keeps it for longer than
        `deadline` seconds (None: `LOCK_SECONDS`), `Misconfigured` where the folder cannot be written.
        """
        from filelock import AsyncFileLock, Timeout

        path, deadline = self.path.with_name(f".{self.path.name}.lock"), LOCK_SECONDS if deadline is None else deadline
        lock = AsyncFileLock(
            path, deadline, mode=0o600, poll_interval=_POLL, run_in_executor=False, fallback_to_soft=False
        )
        try:
            make_lock_file(path)
            await lock.acquire()
        except Timeout:
            message = f"settings cannot be saved: {holder_of(path)} has held {path} for {deadline:g} s"
            raise DeadlineExceeded(message) from None
        except OSError as error:
            raise Misconfigured(f"settings cannot be saved: {path}: {error.strerror}") from None
        try:
            yield
        finally:
            await lock.release()

    def write(self, saved: SavedSettings) -> None:
        """Replace what is saved, while the file is locked. Raises `Misconfigured`."""
        content = {"version": saved.version, "values": saved.values, "secrets": saved.secrets}
        data = json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode()
        if len(data) > MAX_BYTES:
            raise Misconfigured(f"settings cannot be saved: all together, they are larger than {MAX_BYTES >> 20} MiB")
        try:
            write_atomic(self.path, data, mode=0o600)
        except OSError as error:
            raise Misconfigured(f"settings cannot be saved: {self.path}: {error.strerror}") from None
        self._seen = self._signature()

    def _signature(self) -> tuple[int, ...]:
        try:
            about = self.path.stat()
        except OSError as error:
            return (error.errno or 0,)
        return about.st_mtime_ns, about.st_size, about.st_ino

    def _invalid(self, message: str) -> InvalidFile:
        hint = "mend it, use the version that wrote it, or remove it: what was saved is lost then"
        return InvalidFile(self.path, [Problem(message=message, hint=hint, file=str(self.path))])


def _holds(box: SecretBox, key: str, secret: str, value: JsonValue) -> bool:
    """Return whether a saved secret is of this value."""
    try:
        return _dump(box.decrypt(key, secret)) == _dump(value)
    except Misconfigured:
        return False


def differing(one: Mapping[str, JsonValue], other: Mapping[str, JsonValue]) -> set[str]:
    return {
        key
        for key in one.keys() | other.keys()
        if (key in one) != (key in other) or _dump(one[key]) != _dump(other[key])
    }


def _dump(value: JsonValue) -> str:
    """Return a value as text: `1 == True` in Python, while in JSON they differ."""
    return json.dumps(value, sort_keys=True)
