"""The operator's token: kept in the operator's state folder, so that sessions outlive the server that they began at."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tavern_host.contracts.errors import Misconfigured
from tavern_host.plugins.grants import stamp
from tavern_host.storage.files import make_folder, make_private, read_private, write_atomic

TOKEN_FILE = "operator.token"
_LENGTH = 32
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32}")
_MEND = "`tavern token --renew` makes another"

_log = logging.getLogger("tavern.server")


class OperatorToken:
    """Gives the token that it is now: `fixed`, else what is in the file, which another process may have renewed."""

    def __init__(self, state: Path, fixed: str = "") -> None:
        self._path = state / TOKEN_FILE
        self.fixed = self._known = fixed
        self._stamp: object = None

    @classmethod
    def of_environment(cls, state: Path) -> OperatorToken:
        """Return the one that `TAVERN_TOKEN` says, if it says any, else the one that is kept."""
        return cls(state, os.environ.get("TAVERN_TOKEN", "").strip())

    def __call__(self) -> str:
        """Return the token. Raises `Misconfigured` where it cannot be used, unless one could be before: that stays in
        use."""
        if self.fixed or (self._known and self._stamp == self._now()):
            return self._known
        self._stamp = self._now()  # before it is read: what is written meanwhile is read next time
        try:
            self._known = self._read()
        except Misconfigured as error:
            if not self._known:
                raise
            _log.error("%s; the token from before stays in use", error.message)
        return self._known

    def make(self) -> OperatorToken:
        """Make the token where there is none. Raises `Misconfigured`, also for one that cannot be used."""
        if not self.fixed:
            self._write(make_private)
        self()
        return self

    def renew(self) -> None:
        """Put another one in its place, whatever is there. Raises `Misconfigured`."""
        self._write(partial(write_atomic, mode=0o600))

    def _write(self, write: Callable[[Path, bytes], None]) -> None:
        try:
            make_folder(self._path.parent)
            write(self._path, f"{secrets.token_urlsafe(24)}\n".encode())
        except OSError as error:
            raise Misconfigured(f"the operator's token {self._path} cannot be made: {error.strerror}") from None

    def _now(self) -> object:
        try:
            return stamp(self._path)
        except OSError:
            return None

    def _read(self) -> str:
        try:
            text = read_private(self._path, _LENGTH + 1, _MEND).strip()
            if not _TOKEN.fullmatch(text):
                raise ValueError("it is no token")
            return text.decode()
        except ValueError as error:
            why = f"{error}; {_MEND}"
        except OSError as error:
            why = error.strerror or str(error)
        raise Misconfigured(f"the operator's token {self._path} cannot be used: {why}")
