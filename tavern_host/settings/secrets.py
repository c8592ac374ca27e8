"""Encrypts the secrets among saved settings with a key of the operator's own.

That keeps them out of backups, screens and copies of the settings. Any user who can read the operator's state
folder, where the key is, can read them all.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tavern_host.contracts.errors import Misconfigured
from tavern_host.storage.files import make_folder, unfinished

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_FILE = "secret.key"
_KEY_BYTES = 44
"""A Fernet key: 32 bytes as base64."""


class SecretBox:
    """Encrypts and decrypts with the key in a folder. It keeps no key in memory, so that one that is put back counts
    at once; `cryptography` is imported with the first secret."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEY_FILE

    def encrypt(self, name: str, value: JsonValue) -> str:
        """Return a value encrypted, bound to the setting's name. Makes the key where there is none.

        Raises `Misconfigured` where there is a key that cannot be used, or none can be made.
        """
        if not os.path.lexists(self._path):
            self._make_key()
        return self._cipher().encrypt(json.dumps([name, value]).encode()).decode()

    def decrypt(self, name: str, token: str) -> JsonValue:
        """Return what was encrypted under this name.

        Raises `Misconfigured`: no key, one that cannot be used, another key, another name.
        """
        from cryptography.fernet import InvalidToken

        try:
            content = json.loads(self._cipher().decrypt(token.encode()))
        except InvalidToken:
            raise Misconfigured(f"it was saved with another key than that in {self._path}") from None
        if not isinstance(content, list) or len(content) != 2 or content[0] != name:
            raise Misconfigured("it was saved for another setting")
        value: JsonValue = content[1]
        return value

    def _cipher(self) -> Fernet:
        from cryptography.fernet import Fernet

        try:
            about = self._path.stat()
            if not stat.S_ISREG(about.st_mode) or about.st_size > _KEY_BYTES + 1:
                raise self._unusable("it is no key")
            if about.st_uid not in (0, os.geteuid()):
                raise self._unusable("it belongs to another user")
            if about.st_mode & 0o007:
                raise self._unusable(f"every user can read or write it; `chmod 600 {self._path}`")
            return Fernet(self._path.read_bytes().strip())
        except FileNotFoundError:
            raise Misconfigured(f"the key {self._path} is missing") from None
        except OSError as error:
            raise self._unusable(error.strerror or "it cannot be read") from None
        except ValueError:
            raise self._unusable("it is no key") from None

    def _unusable(self, why: str) -> Misconfigured:
        return Misconfigured(f"the key {self._path} cannot be used: {why}")

    def _make_key(self) -> None:
        """Make the key, whole from its first moment; where another process was first, its key stays."""
        from cryptography.fernet import Fernet

        try:
            make_folder(self._path.parent)
            with unfinished(self._path.parent, Fernet.generate_key(), 0o600) as temporary:
                self._path.hardlink_to(temporary)  # as O_EXCL does, it fails where there is one
        except FileExistsError:
            return
        except OSError as error:
            raise Misconfigured(f"the key {self._path} cannot be made: {error.strerror}") from None
