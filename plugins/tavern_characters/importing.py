"""The importers of character cards and presets, as `tavern character import` and its siblings take them."""

from __future__ import annotations

from typing import Any

from tavern_characters.api.characters import CHARACTERS
from tavern_host import PluginContext
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_knowledge.api.pictures import CARDS

_OF = "tavern_characters.importing"
_SPEC = {"required": ["spec"], "properties": {"spec": {"type": "string", "pattern": "^chara_card"}}}
_DATA = {"required": ["data"], "properties": {"data": {"type": "object", "required": ["first_mes"]}}}
_CARD: dict[str, Any] = {"type": "object", "anyOf": [_SPEC, _DATA, {"required": ["name", "first_mes"]}]}
_PICTURE: dict[str, Any] = {"type": "object", "anyOf": [{"required": [key]} for key in CARDS]}


def importers() -> list[ImporterInfo]:
    """Return the kinds of files."""
    card, preset = f"{_OF}:import_card", {"type": "object", "required": ["prompts", "prompt_order"]}
    rows: tuple[tuple[str, str, str, Any, str], ...] = (
        ("character-picture", "picture with a character card", card, _PICTURE, "png"),
        ("character", "character card", card, _CARD, "json"),
        ("preset", "preset of SillyTavern", f"{_OF}:import_preset", preset, "json"),
    )
    return [
        ImporterInfo.model_validate({"name": name, "title": title, "handler": handler, "marks": marks, "forms": [form]})
        for name, title, handler, marks, form in rows
    ]


async def import_card(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make an agent of a card."""
    file, options = request.file, request.options
    if options.dry_run:
        return ImportReport(things=[ImportedThing(kind="agent", id=options.name, name=file.name)])
    made = await context.services.get(CHARACTERS).import_card(
        file.content, name=file.name, character=options.name or None, call=request.call
    )
    things = [ImportedThing(kind="agent", id=made.id, name=made.name, page=f"/agents/{made.id}")]
    if made.base is not None:
        thing = ImportedThing(kind="knowledge base", id=made.base, name=f"{made.entries} entries")
        things.append(thing.model_copy(update={"page": f"/knowledge/{made.base}"}))
    return ImportReport(things=things, without_effect=[*made.unsupported])


async def import_preset(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make a workflow of a preset."""
    file, options = request.file, request.options
    if options.dry_run:
        return ImportReport(things=[ImportedThing(kind="workflow", id=options.name, name=file.name)])
    made = await context.services.get(CHARACTERS).import_preset(
        file.content, name=options.name or file.name, call=request.call
    )
    thing = ImportedThing(kind="workflow", id=made.workflow, page=f"/workflows/{made.workflow}")
    return ImportReport(things=[thing], without_effect=[*made.unsupported])
