"""What is wrong with the triggers of one plugin, as it is found when they are switched on."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host import PluginContext
from tavern_host.contracts.documents import read_document_bytes
from tavern_host.contracts.errors import TavernError
from tavern_tools.api.json_positions import JsonText, nearest
from tavern_triggers.files import check, read_triggers
from tavern_triggers.kinds import Kinds
from tavern_triggers.service import require_target

_STEP = re.compile(r"\.([^.\[\]:;\s]+)|\[(\d+)\]")
_PLACE = re.compile(r"line (\d+)(?:, column (\d+))?")
_MEND = {
    "is not JSON": "mend the JSON at this place",
    "there is no workflow": "correct `workflow`, or add it to the plugin",
    "there is no agent": "correct `agent`, or add it to the plugin",
}


async def check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Return the faults of a plugin's triggers; their targets are looked up for one that is loaded."""
    folder = plugin.folders.get("triggers")
    if folder is None:
        return []
    found, kinds = [], await Kinds(context).now()
    for name, trigger in (await asyncio.to_thread(read_triggers, Path(folder))).items():
        said = trigger if isinstance(trigger, str) else ""
        try:
            if not isinstance(trigger, str):
                if plugin.is_loaded or ":" not in trigger.kind:
                    check(trigger, kinds)
                if plugin.is_loaded:
                    await require_target(context, trigger)
        except TavernError as error:
            said = error.message
        if said:
            found.append(await asyncio.to_thread(_finding, Path(folder) / f"{name}.json", said))
    return found


def _finding(path: Path, said: str) -> Finding:
    line, column = 1, 1
    if (at := _PLACE.search(said)) is not None:
        line, column = int(at[1]), int(at[2] or 1)
    elif "$" in said or said.startswith("there is no "):  # about what is read as JSON
        key = next((key for key in ("workflow", "agent") if said.startswith(f"there is no {key} ")), "")
        place = (key,) if key else tuple(int(i) if i else one for one, i in _STEP.findall(said.partition(": ")[0]))
        place = place if key or said.startswith("$") else _inner(said)
        try:
            marks = JsonText.of(read_document_bytes(path)).marks([place, ("config", *place)])
            line, column = nearest(marks, place if place in marks else ("config", *place))
        except TavernError:  # it is gone by now
            line, column = 1, 1
    hint = next((hint for words, hint in _MEND.items() if words in said), "docs/triggers.md says what a trigger has")
    return Finding(rule="triggers", message=said, hint=hint, file=str(path), line=line, column=column)


def _inner(said: str) -> tuple[str | int, ...]:
    """Return the place in a message such as `triggers/a.json: $.config.cron: …`."""
    _, dollar, rest = said.partition("$")
    return tuple(int(i) if i else one for one, i in _STEP.findall(rest.partition(":")[0])) if dollar else ()
