"""What rules look at: a plugin's folder, its manifest, its project."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tavern_host.contracts.plugins import PluginInfo, PluginState

MAX_FILE = 4 << 20
"""The size of the largest file that is read, in bytes."""
_LEFT_OUT = frozenset({"__pycache__", "node_modules", ".venv", ".git", ".tavern"})


@dataclass(frozen=True)
class Project:
    """The folder of a project and its `pyproject.toml`."""

    root: Path
    document: dict[str, Any]

    def table(self, *keys: str) -> dict[str, Any]:
        """Return the table at these keys, an empty one where there is none."""
        found: Any = self.document
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def texts(self, *keys: str) -> list[str]:
        """Return the texts in the list at these keys."""
        found = self.table(*keys[:-1]).get(keys[-1])
        return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


@dataclass(frozen=True)
class Subject:
    """A plugin, and its project where it is in one."""

    folder: Path
    info: PluginInfo
    project: Project | None = None

    def files(self, *suffixes: str) -> Iterator[Path]:
        """Yield the plugin's files with these suffixes, in order."""
        for path in self._all_files:
            if path.suffix in suffixes and path.is_file() and path.stat().st_size <= MAX_FILE:
                yield path

    @cached_property
    def _all_files(self) -> list[Path]:
        found = []
        for folder, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if name not in _LEFT_OUT]  # with what a front end is built of
            found += [Path(folder, name) for name in names]
        return sorted(found)

    @property
    def was_imported(self) -> bool:
        """Whether what is known of it comes from its import, too."""
        return self.info.state in (PluginState.FAILED, PluginState.LOADED)

    @cached_property
    def modules(self) -> dict[Path, ast.Module]:
        """Its Python code by file; what is no Python is the host's to report."""
        found = {}
        for path in self.files(".py"):
            try:
                found[path] = ast.parse(path.read_text(encoding="utf-8"))
            except (SyntaxError, ValueError, RecursionError):
                continue
        return found

    @cached_property
    def text(self) -> str:
        """All that it consists of but the manifest, as one text."""
        kinds = (".py", ".json", ".yaml", ".yml", ".js", ".mjs", ".ts")
        files = (path for path in self.files(*kinds) if path.name != "plugin.yaml" or path.parent != self.folder)
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def shown(self, path: Path) -> str:
        """Return a file as people see it."""
        return f"{self.folder.name}/{path.relative_to(self.folder).as_posix()}"
