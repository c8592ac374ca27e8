"""The operator's key for a project: what is sealed with it was written by this operator's hosts, on this project.

A project may come from anybody, with all that is in its folder; the key lies with the operator and never in there.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import secrets
from hashlib import blake2b
from pathlib import Path

from tavern_host.storage.files import make_folder, unfinished

_SIZE = 32
_SEAL = "sha256"


class ProjectKey:
    """The key in a folder of the operator's, made on first use. Blocking: used from threads."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "key"
        self._key: bytes | None = None

    def prepare(self) -> None:
        """See to it that there is a key. Raises `OSError`."""
        self._read()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return the seal (HMAC) that proves a content of this name to be from here. Raises `OSError` without a key."""
        return hmac.digest(self._read(), _message(name, content), _SEAL)

    def has_sealed(self, name: object, content: object, seal: object) -> bool:
        """Return whether a content of this name is from here, whatever kinds of values these are. Raises `OSError`."""
        key = self._read()
        if not (isinstance(name, str) and isinstance(content, bytes) and isinstance(seal, bytes)):
            return False
        return hmac.compare_digest(hmac.digest(key, _message(name, content), _SEAL), seal)

    def mark(self, what: str, size: int) -> bytes:
        """Return bytes that only this operator can know. Raises `OSError`."""
        return blake2b(what.encode(), key=self._read(), digest_size=size).digest()

    def _read(self) -> bytes:
        if self._key is None:
            try:
                self._key = self._path.read_bytes()
            except FileNotFoundError:
                self._make()
                self._key = self._path.read_bytes()
        if len(self._key) != _SIZE:
            self._key = None
            raise OSError(errno.EINVAL, "it is damaged; remove it, and a new one is made", str(self._path))
        return self._key

    def _make(self) -> None:
        """Make the file, whole or not at all; of several who do at the same moment, the first one's counts."""
        make_folder(self._path.parent)
        with (
            unfinished(self._path.parent, secrets.token_bytes(_SIZE), 0o600) as temporary,
            contextlib.suppress(FileExistsError),
        ):
            self._path.hardlink_to(temporary)


def _message(name: str, content: bytes) -> bytes:
    label = name.encode("utf-8", "surrogatepass")
    return b"%d:%b%b" % (len(label), label, content)
