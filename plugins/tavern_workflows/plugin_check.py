"""What is wrong with the workflows of one plugin, by the checks of every workflow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_document_file
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.plugins import PluginAsset
from tavern_tools.api.json_positions import JsonText, nearest
from tavern_workflows.api.workflows import WORKFLOW_MANAGER, WorkflowProblem
from tavern_workflows.store import Entry, Folder, Scan, WorkflowFiles

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\"([^\"]+)\"\]")
_PLACE = re.compile(r"line (\d+)(?:, column (\d+))?")
_OTHERS = re.compile(r"there is no node type '([^':]+):")
_MEND = {
    "there is no node type": "correct the type, or require the plugin that has it",
    "nothing feeds the interface output": "draw an edge to it, or remove it",
    "is not JSON": "mend the JSON at this place",
}
_ELSE = "docs/workflows.md says what a workflow has; the editor shows the problem at its node"


async def check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Return the faults of a plugin's workflow files; whether their nodes are there is known of one that is
    loaded."""
    folder = plugin.folders.get("workflows")
    if folder is None:
        return []
    scan = await asyncio.to_thread(_scan, plugin.name, folder)
    found = [_finding(one.path, one.message, *_place_in(one.message)) for one in scan.problems]
    for entry in scan.entries.values():
        problems: Sequence[WorkflowProblem] = entry.problems
        if plugin.is_loaded:
            document = await asyncio.to_thread(read_document_file, entry.path)
            with suppress(InvalidInput):  # what is no document at all has the problems that it was read with
                problems = await context.services.get(WORKFLOW_MANAGER).check(document)
        found += await asyncio.to_thread(_placed, entry, problems, plugin.name)
    return found


def _scan(plugin: str, folder: str) -> Scan:
    return WorkflowFiles().scan([Folder.of_plugin(PluginAsset(plugin=plugin, kind="workflows", path=folder))])


def _placed(entry: Entry, problems: Sequence[WorkflowProblem], plugin: str) -> list[Finding]:
    text = JsonText.of(entry.path.read_bytes())
    places = [_location(one.path) for one in problems]
    marks = text.marks(places)
    found = []
    for problem, place in zip(problems, places, strict=True):
        other = _OTHERS.match(problem.message)
        is_others = other is not None and other[1] not in (plugin, "core")
        level = "warning" if problem.severity != "error" or is_others else "error"
        one = _finding(entry.path, str(problem), *nearest(marks, place))
        found.append(one.model_copy(update={"level": level}))
    return found


def _location(path: str) -> tuple[str | int, ...]:
    """Return the keys of a JSON path such as `$.nodes[3].type`."""
    return tuple(int(step[2]) if step[2] else step[1] or step[3] for step in _STEP.finditer(path))


def _place_in(message: str) -> tuple[int | None, int | None]:
    found = _PLACE.search(message)
    return (int(found[1]), int(found[2]) if found[2] else None) if found is not None else (None, None)


def _finding(path: Path, message: str, line: int | None, column: int | None) -> Finding:
    hint = next((hint for words, hint in _MEND.items() if words in message), _ELSE)
    return Finding(rule="workflows", message=message, hint=hint, file=str(path), line=line, column=column)
