"""What is wrong with the knowledge bases of one plugin, as the store finds it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.files import BaseFolder, check_id, parse
from tavern_tools.api.json_positions import JsonText, nearest

_STEP = re.compile(r"\.([^.\[\]:]+)|\[(\d+)\]")
_PLACE = re.compile(r"line (\d+), column (\d+)")
_EACH = re.compile(r"; (?=\$)")


async def check_plugin(plugin: CheckedPlugin) -> list[Finding]:
    """Return the faults of a plugin's bases."""
    folder = plugin.folders.get("knowledge")
    return [] if folder is None else await asyncio.to_thread(_check, Path(folder))


def _check(folder: Path) -> list[Finding]:
    files, found = BaseFolder(folder), []
    for path in sorted(folder.glob("*.json")):
        try:
            check_id(path.stem)
            data = files.read(path.stem)[0]
        except InvalidInput as error:
            found.append(_finding(path, error.message, 1, 1))
            continue
        try:
            parse(data, path.stem)
        except InvalidInput as error:
            found += _placed(path, data, error.message)
    return found


def _placed(path: Path, data: bytes, said: str) -> list[Finding]:
    if (at := _PLACE.search(said)) is not None:
        return [_finding(path, said, int(at[1]), int(at[2]))]
    if not said.startswith("$"):  # about the file as a whole
        return [_finding(path, said, 1, 1)]
    problems = _EACH.split(said)
    places = [tuple(int(i) if i else key for key, i in _STEP.findall(one.partition(":")[0])) for one in problems]
    marks = JsonText.of(data).marks(places)
    return [_finding(path, one, *nearest(marks, place)) for one, place in zip(problems, places, strict=True)]


def _finding(path: Path, message: str, line: int, column: int) -> Finding:
    hint = "mend the JSON at this place" if "is not JSON" in message else "docs/knowledge.md says what a base has"
    return Finding(rule="knowledge", message=message, hint=hint, file=str(path), line=line, column=column)
