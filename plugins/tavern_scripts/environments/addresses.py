"""Addresses of package indexes: which host to allow, which folder to show, and what of them is secret."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from tavern_host.common.redaction import redacted
from tavern_host.contracts.settings import MASK
from tavern_scripts.environments.public_indexes import file_host

_LINK = re.compile(r"""href\s*=\s*["']([^"'#?]+)""", re.IGNORECASE)
_PAGES = 50
_PAGE_SIZE = 1 << 20


@dataclass
class Reached:
    """What an installer has to reach: hosts as patterns, folders of this machine, and secrets that nobody is shown."""

    hosts: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    secrets: dict[str, None] = field(default_factory=dict)

    def add(self, address: str, *, is_index: bool = True) -> None:
        """Add an address or a path; of an index in a folder also the folders beside it that its pages link to."""
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
            default = 443 if parts.scheme == "https" else 80
            try:
                port = parts.port or default
            except ValueError:
                return
            self.hosts[f"{host}:{port}"] = None
            if files := file_host(parts.hostname):
                self.hosts[f"{files}:443"] = None
            if parts.password or parts.username:
                self.secrets[unquote(parts.password or parts.username or "")] = None
                self.secrets[parts.password or parts.username or ""] = None
            return
        folder = folder_of(address)
        if folder is not None and folder.exists():
            self.folders[str(folder)] = None
            if is_index and folder.is_dir():
                self.folders.update(dict.fromkeys(map(str, _linked(folder))))


def folder_of(address: str) -> Path | None:
    """Return the folder that an address is, if it is one of this machine."""
    if address.startswith("file:"):
        return Path(unquote(urlsplit(address).path))
    return None if "://" in address else Path(address).expanduser()


def without_credentials(address: str) -> str:
    """Return an address as it can be shown."""
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def words(text: str) -> list[str]:
    """Return the parts of a setting that are separated by blanks or commas."""
    return [word for word in re.split(r"[\s,]+", text) if word]


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Return `text` without secrets and without credentials in addresses."""
    return re.sub(r"(?<=://)[^/\s@]+@", f"{MASK}@", redacted(text, secrets))


def _linked(index: Path) -> list[Path]:
    """Return the folders outside of an index to which the first of its pages link."""
    found: dict[Path, None] = {}
    for page in _pages(index):
        try:
            with page.open(encoding="utf-8", errors="replace") as file:
                text = file.read(_PAGE_SIZE)
        except OSError:
            continue
        for link in _LINK.findall(text):
            if "://" in link and not link.startswith("file:"):
                continue
            raw = Path(unquote(urlsplit(link).path))
            target = Path(os.path.normpath(page.parent / raw))
            if target.is_relative_to(index) or not target.exists():
                continue
            beside = target.is_relative_to(index.parent) and target.parent != index.parent
            found[index.parent / target.relative_to(index.parent).parts[0] if beside else target.parent] = None
    return [folder for folder in found if folder != Path("/") and not index.is_relative_to(folder)]


def _pages(index: Path) -> list[Path]:
    try:
        folders = sorted(entry for entry in index.iterdir() if entry.is_dir())[:_PAGES]
    except OSError:
        return []
    return [page for page in (index / "index.html", *(folder / "index.html" for folder in folders)) if page.is_file()]
