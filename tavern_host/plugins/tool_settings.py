"""What the kernel reads in a plugin's tool files: the settings that they declare (`configSchema`, `spec/000` §6.3), as
settings of the plugin, and which tools are scripts.

Looks at nothing else in a tool file: what a tool is, and whether it can be used, is not the kernel's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tavern_host.contracts.documents import read_document, read_document_bytes
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.settings import SettingItem, tool_settings_prefix

SUFFIX = ".tool.json"
MAX_FILE = 1 << 20
"""How many bytes a tool file has at most."""

_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_SCRIPTS = ("script", "external-script")
_HINT = "this setting is left out; the rest of the plugin works"


def tool_options(plugin: str, folder: Path, root: Path) -> tuple[list[SettingItem], list[Problem]]:
    """Return the settings that the tool files beneath `folder` declare, by file, and what is wrong with some.

    Their keys are `extensions.{plugin}.tools.{toolId}.{key}`. Files that cannot be read are passed over: whoever reads
    the tools tells of them. `root` is what the names of files in problems begin at.
    """
    found: dict[str, SettingItem] = {}
    problems: list[Problem] = []
    for file, document in tool_documents(folder, holding=b'"configSchema"'):
        label = str(file.relative_to(root.parent))
        for item in _declared(plugin, document, label, problems):
            known = found.setdefault(item.key, item)
            if known != item:  # two versions of one tool share their settings
                message = f"configSchema: {item.key!r} stands in two files, and not in the same words"
                problems.append(Problem(message=message, hint=_HINT, file=label))
    return list(found.values()), problems


def script_tools(folder: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the tools beneath a folder that are scripts: the id, what is said of the script, and the whole file."""
    for _, document in tool_documents(folder, holding=b"script"):
        tool_id = document.get("id") or document.get("toolId")
        script = document.get("implementation") or document.get("handler")
        if isinstance(tool_id, str) and isinstance(script, dict) and script.get("type") in _SCRIPTS:
            yield tool_id, script, document


def tool_documents(folder: Path, *, holding: bytes) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the tool files beneath a folder that hold these bytes, with what stands in them. Those that cannot be read
    are passed over, and so is a folder that is none."""
    for file in _files(folder):
        document = _document(file, holding)
        if document:
            yield file, document


def _files(folder: Path) -> Iterator[Path]:
    with suppress(ValueError):  # a name that no folder can have
        for inner, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (Path(inner, name) for name in sorted(names) if name.endswith(SUFFIX))


def _declared(plugin: str, document: dict[str, Any], label: str, problems: list[Problem]) -> Iterator[SettingItem]:
    tool_id = document.get("id") or document.get("toolId")
    schema = document.get("configSchema")
    if not isinstance(tool_id, str) or not isinstance(schema, list):
        return
    for index, given in enumerate(schema):
        where = f"configSchema[{index}]"
        key = given.get("key") if isinstance(given, dict) else None
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            message = f"{where}: its key must be letters, digits, - and _, found {key!r:.80}"
            problems.append(Problem(message=message, hint=_HINT, file=label))
            continue
        try:
            yield SettingItem.model_validate({**given, "key": f"{tool_settings_prefix(plugin, tool_id)}{key}"})
        except ValidationError as error:
            for mistake in error.errors(include_url=False, include_input=False):
                place = ".".join(str(part) for part in mistake["loc"])
                message = f"{where} ({key}): {place + ': ' if place else ''}{mistake['msg']}"
                problems.append(Problem(message=message, hint=_HINT, file=label))


def _document(file: Path, holding: bytes) -> dict[str, Any]:
    try:
        data = read_document_bytes(file)
        if len(data) > MAX_FILE or holding not in data:
            return {}
        return read_document(data)
    except TavernError:
        return {}
