"""Writes plugins with the permissions of the hooks that they have: as folders, and as installed packages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from documentation.platform import hooks


def write(file: Path, text: str) -> None:
    """Write a file, its folder made if need be. What was compiled of it is removed: it may be of the same second."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()


def write_whole(
    root: Path, name: str, files: str | Mapping[str, str] | None, hooked: Iterable[str] = (), **manifest: Any
) -> Path:
    """Write a plugin into a folder and return that. `files` is its code, or its files by path; `hooked` are hooks whose
    permission it declares, `manifest` further keys of its manifest, `permissions` among them."""
    permissions = dict(manifest.pop("permissions", {}))
    permissions["hooks"] = [*permissions.get("hooks", []), *(hooks()[hook].permission for hook in hooked)]
    document = {"name": name, "displayName": name, "version": "1.0.0", "permissions": permissions, **manifest}
    write(root / "plugin.yaml", yaml.safe_dump(document, sort_keys=False))
    for path, text in ({"__init__.py": files} if isinstance(files, str) else files or {}).items():
        write(root / path, text)
    return root


def write_distribution(
    site: Path, entry: str, package: str, dist: str | None = None, version: str = "1.0.0", *, requested: bool = True
) -> Path:
    """Write what `pip install` writes beside a package: a distribution with an entry point for it, and the mark of one
    that was asked for."""
    name = dist or package
    info = site / f"{name}-1.0.0.dist-info"
    write(info / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    write(info / "entry_points.txt", f"[tavern_host.plugins]\n{entry} = {package}\n")
    write(info / "RECORD", f"{package}/__init__.py,,\n{package}/plugin.yaml,,\n")
    if requested:
        write(info / "REQUESTED", "")
    return info
