"""Writes what was made of another program's file as a folder plugin of the project. Like any other it waits for its
review: nothing of it runs before."""

from __future__ import annotations

import json
import re
import shutil
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tavern_host import __version__
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.names import RESERVED

MOST_TOOLS = 300
_LONGEST = 40
_SECRET = re.compile(r"key|token|secret|passw|cookie|credential", re.IGNORECASE)


@dataclass
class PluginFolder:
    """A plugin that is to be written: its name, and its files by path."""

    name: str
    title: str
    description: str
    version: str = "0.1.0"
    files: dict[str, bytes] = field(default_factory=dict)

    def add_tool(self, document: Mapping[str, Any]) -> None:
        """Add a tool's file."""
        stem = re.sub(r"[^\w.-]+", "_", str(document["id"]).partition(":")[2])[:80]
        path, number = f"tools/{stem}.tool.json", 2
        while path.lower() in {known.lower() for known in self.files}:
            path, number = f"tools/{stem}-{number}.tool.json", number + 1
        self.add(path, json_text(document))

    def add(self, path: str, text: str) -> None:
        """Add a file."""
        self.files[path] = text.encode("utf-8", "replace")

    def manifest(self) -> str:
        """Return its `plugin.yaml`."""
        major, minor = (int(part) for part in __version__.split(".")[:2])
        below = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
        about = {
            "name": self.name,
            "displayName": one_line(self.title, 80) or self.name,
            "version": self.version,
            "description": one_line(self.description, 400) or one_line(self.title, 400) or self.name,
            "apiVersion": f">={major}.{minor},<{below}",
            "tools": {"entry": "./tools"},
        }
        return yaml.safe_dump(about, allow_unicode=True, sort_keys=False, width=10_000)

    def write(self, plugins: Path) -> None:
        """Write it into the project's folder of plugins, all of it or nothing. Raises `Conflict` where there is one of
        this name, `InvalidInput` where it cannot be written. Blocking."""
        target = plugins / self.name
        self._require_free(target)
        making = plugins / f".{new_id('importing')}"
        try:
            for path, data in {"plugin.yaml": self.manifest().encode(), **self.files}.items():
                file = making / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            self._require_free(target)
            making.rename(target)
        except OSError as error:
            raise InvalidInput(f"plugins/{self.name} cannot be written: {error.strerror or error}") from None
        finally:
            shutil.rmtree(making, ignore_errors=True)

    def _require_free(self, target: Path) -> None:
        if target.exists() or target.is_symlink():
            raise Conflict(
                f"the project has a plugin in plugins/{self.name} already; remove it, or import it as another"
            )


def name_of(wanted: str, fallback: str) -> str:
    """Return the name of a plugin like a text: words of small letters and digits."""
    plain = unicodedata.normalize("NFKD", wanted).encode("ascii", "ignore").decode()
    plain = re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", plain).lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST].strip("-")
    if not name or not name[0].isalpha():
        name = f"{fallback}-{name}".strip("-")
    return f"{fallback}-{name}" if name == RESERVED or name.startswith("tavern-") else name


def filled(program: str, /, **values: str) -> str:
    """Return one of the programs beside this module with values in the place of its `$names`."""
    text = Path(__file__).with_name("programs").joinpath(program).read_text(encoding="utf-8")
    return re.sub(rf"\$({'|'.join(values)})\b", lambda match: values[match[1]], text)


def is_picked(patterns: list[str], *names: str) -> bool:
    """Return whether one of the names fits one of the patterns; without patterns all are picked."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def is_secret(name: str) -> bool:
    """Return whether a setting of this name is one that nobody is to see."""
    return _SECRET.search(name) is not None


def one_line(text: Any, most: int) -> str:
    """Return a text as one line, cut."""
    return " ".join(text.split())[:most] if isinstance(text, str) else ""


def json_text(value: Any) -> str:
    """Return JSON as people write it. No text of another program holds a prompt macro: these go into prompts."""
    return json.dumps(value, ensure_ascii=False, indent=2).replace("{{{", "{ { {") + "\n"
