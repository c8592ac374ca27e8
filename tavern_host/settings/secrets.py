"""Encrypts the secrets among saved settings with a key of the operator's own.

That keeps them out of backups, screens and copies of the settings. Any user who can read the operator's state
folder, where the key is, can read them all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from tavern_host.contracts.errors import Misconfigured
from tavern_host.storage.files import make_private, read_private

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
        self._make_key()
        return self._cipher().encrypt(json.dumps([name, value]).encode()).decode()

    def decrypt(self, name: str, token: str) -> JsonValue:
        """Return the value that was encrypted under this name.

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
            return Fernet(read_private(self._path, _KEY_BYTES + 1, f"`chmod 600 {self._path}`").strip())
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
            make_private(self._path, Fernet.generate_key())
        except OSError as error:
            raise Misconfigured(f"the key {self._path} cannot be made: {error.strerror}") from None
