"""Reads the settings that plugins declare in JSON files of their own, as first-party manifests say (`settingsInFiles`).

Reads nothing else in such a file: what it is, and whether it can be used, is for the plugin that uses it to say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tavern_host.contracts.documents import read_document, read_document_bytes
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.manifest import FileSettings, Manifest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.settings import SettingItem
from tavern_host.plugins.manifest import entry_folders

MAX_FILE = 1 << 20
"""How many bytes a file has at most."""

_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_HINT = "this setting is left out; the rest of the plugin works"


def with_file_settings(manifest: Manifest, root: Path, rules: Iterable[FileSettings]) -> tuple[Manifest, list[Problem]]:
    """Return a manifest with the settings that the plugin's files declare, and what is wrong with some.

    Files that cannot be read are passed over: the plugin that uses them reports them. The names of files in problems
    begin at `root`, the plugin's folder.
    """
    folders = entry_folders(manifest, root)
    problems: list[Problem] = []
    found: dict[str, SettingItem] = {}
    for rule in rules:
        if rule.folder not in folders:
            continue
        for file in _files(folders[rule.folder], rule.suffix):
            label = str(file.relative_to(root.parent))
            for item in _declared(manifest.name, rule, _document(file, rule.options), label, problems):
                known = found.setdefault(item.key, item)
                if known != item:  # two versions of one thing share their settings
                    message = f"{rule.options}: {item.key!r} stands in two files, and not in the same words"
                    problems.append(Problem(message=message, hint=_HINT, file=label))
    if found:
        manifest = manifest.model_copy(update={"config_options": [*manifest.config_options, *found.values()]})
    return manifest, problems


def _files(folder: Path, suffix: str) -> Iterator[Path]:
    for inner, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(inner, name) for name in sorted(names) if name.endswith(suffix))


def _declared(
    plugin: str, rule: FileSettings, document: dict[str, Any], label: str, problems: list[Problem]
) -> Iterator[SettingItem]:
    owner = next((document[key] for key in rule.owner if document.get(key)), None)
    options = document.get(rule.options)
    if not isinstance(owner, str) or not isinstance(options, list):
        return
    for index, given in enumerate(options):
        where = f"{rule.options}[{index}]"
        key = given.get("key") if isinstance(given, dict) else None
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            message = f"{where}: its key must be letters, digits, - and _, found {key!r:.80}"
            problems.append(Problem(message=message, hint=_HINT, file=label))
            continue
        try:
            yield SettingItem.model_validate({**given, "key": f"extensions.{plugin}.{rule.folder}.{owner}.{key}"})
        except ValidationError as error:
            for mistake in error.errors(include_url=False, include_input=False):
                place = ".".join(str(part) for part in mistake["loc"])
                message = f"{where} ({key}): {place + ': ' if place else ''}{mistake['msg']}"
                problems.append(Problem(message=message, hint=_HINT, file=label))


def _document(file: Path, key: str) -> dict[str, Any]:
    """Return the value in a file; nothing, where it cannot be read or does not hold the key."""
    with suppress(TavernError):
        data = read_document_bytes(file)
        if len(data) <= MAX_FILE and f'"{key}"'.encode() in data:
            return read_document(data)
    return {}
