"""Adds parts to a plugin that is there: files beside its own, and what its manifest and its package say of them.

Never writes over what somebody wrote: a manifest or a module that could not be written again as it is stays, and its
author is shown what to add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tavern_devtools.parts import NEEDS, OF_PARTS, PARTS, dumped, merge, module_of
from tavern_devtools.scaffold import Scaffold, is_taken, rendered, types_of_page, values_of, write
from tavern_host.contracts.plugins import MANIFEST
from tavern_host.storage.files import write_atomic

_OF_WHOLES = ("name", "displayName", "version", "description", "apiVersion")
"""What only a whole manifest says."""


@dataclass
class Addition:
    """What is added to a plugin: new files, others with their new text, and what its author adds to which file."""

    new: Scaffold
    changed: dict[str, str] = field(default_factory=dict)
    by_hand: dict[str, str] = field(default_factory=dict)


def is_plugin(name: str, folder: Path) -> bool:
    """Return whether a folder is the project of the plugin of this name."""
    try:
        found = yaml.safe_load((folder / name.replace("-", "_") / MANIFEST).read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and found.get("name") == name


def addition(name: str, wanted: Sequence[str], ui: str | None, folder: Path) -> Addition:
    """Return the additions to a plugin of these parts, and of a front end of a kind."""
    values = values_of(name, has_ui=ui is not None, is_new=False)
    package = values["package"]
    needed = [part for part in PARTS if part in {NEEDS.get(one) for one in wanted} and part not in wanted]
    parts = {part: rendered([f"parts/{part}"], values) for part in PARTS if part in (*wanted, *needed)}
    page = rendered([ui], values) | types_of_page(ui, package) if ui is not None else {}
    if page:
        page["tests/test_page.py"] = rendered(["ui"], values)["tests/test_plugin.py"]
    files: dict[str, str] = {"tests/conftest.py": rendered(["common"], values)["tests/conftest.py"]}
    for found in (*parts.values(), page):
        files |= found
    kept = {path for path in files if _is_common(path) or any(path in parts[part] for part in needed)}
    manifest, module = f"{package}/{MANIFEST}", f"{package}/__init__.py"
    ours = {manifest, module, "README.md", "pyproject.toml", *OF_PARTS}
    new = {p: text for p, text in files.items() if p not in ours and not (p in kept and is_taken(folder / p))}
    added = Addition(Scaffold(name, package, dict(sorted(new.items()))))
    said = [yaml.safe_load(found["plugin.yaml"]) for found in parts.values()]
    said += [yaml.safe_load(page[manifest])] if page else []
    _change(added, folder, manifest, _manifest_with((folder / manifest).read_text("utf-8"), said), _lines(said))
    bodies = {part: found["init.py"] for part, found in parts.items() if "init.py" in found}
    if bodies:
        _change(added, folder, module, _module_with(folder / module, bodies, values), "\n".join(bodies.values()))
    if ui is not None:
        plain = rendered(["common"], values_of(name, has_ui=False, is_new=False))["pyproject.toml"]
        whole, file = rendered(["common", ui], values)["pyproject.toml"], folder / "pyproject.toml"
        is_ours = file.is_file() and file.read_text("utf-8") == plain
        lines = f"# for its tests{values['test_needs'].removeprefix(',')}\n{page.get('pyproject.toml', '')}"
        _change(added, folder, "pyproject.toml", whole if is_ours else None, lines)
    return added


def carry_out(added: Addition, folder: Path) -> None:
    """Write the files. Raises `Conflict` where one that is new is there already; then nothing is written."""
    write(added.new, folder)
    for path, text in added.changed.items():
        write_atomic(folder / path, text.encode())


def _is_common(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name in ("__init__.py", "py.typed", "conftest.py", ".gitignore") or path.startswith(".schemas/")


def _change(added: Addition, folder: Path, path: str, text: str | None, lines: str) -> None:
    if text is None:
        added.by_hand[path] = lines.strip()
    elif not (folder / path).is_file() or (folder / path).read_text("utf-8") != text:
        added.changed[path] = text


def _lines(said: Sequence[Mapping[str, Any]]) -> str:
    merged: dict[str, Any] = {}
    for one in said:
        merge(merged, {key: value for key, value in one.items() if key not in _OF_WHOLES})
    return dumped(merged)


def _manifest_with(text: str, said: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a manifest with what parts say, or None where that would lose how it is written."""
    now, more = yaml.safe_load(text), yaml.safe_load(_lines(said))
    whole = yaml.safe_load(text)
    merge(whole, more)
    if whole == now:
        return text
    if dumped(now) == text:
        return dumped(whole)
    appended = f"{text.rstrip()}\n\n{dumped(more)}"
    try:
        is_meant = not now.keys() & more.keys() and yaml.safe_load(appended) == whole
    except yaml.YAMLError:  # it is written in braces
        return None
    return appended if is_meant else None


def _module_with(file: Path, bodies: Mapping[str, str], values: Mapping[str, str]) -> str | None:
    """Return the module of a package with the code of parts, or None where it is not as `plugins new` wrote it."""
    all_bodies = {part: rendered([f"parts/{part}"], values).get("init.py") for part in PARTS}
    known = {part: body for part, body in all_bodies.items() if body is not None}
    text = file.read_text("utf-8") if file.is_file() else module_of([])
    for count in range(len(known) + 1):
        for there in combinations(known, count):
            if module_of([known[part] for part in there]) == text:
                return module_of([known[part] for part in known if part in there or part in bodies])
    return None
