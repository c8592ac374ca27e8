"""The importers of character cards, presets, chats and personas, as `tavern character import` and its siblings take
them."""

from __future__ import annotations

from typing import Any

from tavern_characters.api.characters import CHARACTERS, Persona
from tavern_host import PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest
from tavern_knowledge.api.pictures import CARDS

_OF = "tavern_characters.importing"
_SPEC = {"required": ["spec"], "properties": {"spec": {"type": "string", "pattern": "^chara_card"}}}
_DATA = {"required": ["data"], "properties": {"data": {"type": "object", "required": ["first_mes"]}}}
_V1 = [{"required": ["name", other]} for other in ("first_mes", "personality", "mes_example")]
_CARD: dict[str, Any] = {"type": "object", "anyOf": [_SPEC, _DATA, *_V1], "not": {"required": ["entries"]}}
_CHAT = {"type": "object", "anyOf": [{"required": ["user_name", "character_name"]}, {"required": ["chat_metadata"]}]}
_PERSONAS = {
    "type": "object",
    "required": ["personas", "persona_descriptions"],
    "properties": {key: {"type": "object"} for key in ("personas", "persona_descriptions")},
}
_PICTURE: dict[str, Any] = {"type": "object", "anyOf": [{"required": [key]} for key in CARDS]}


def importers() -> list[ImporterInfo]:
    """Return the kinds of files."""
    card, preset = f"{_OF}:import_card", {"type": "object", "required": ["prompts", "prompt_order"]}
    rows: tuple[tuple[str, str, str, Any, list[str]], ...] = (
        ("character-picture", "picture with a character card", card, _PICTURE, ["png", "webp", "jpeg"]),
        ("character-archive", "archive of a character (CHARX)", card, _PICTURE, ["charx"]),
        ("character", "character card", card, _CARD, ["json"]),
        ("preset", "preset of SillyTavern", f"{_OF}:import_preset", preset, ["json"]),
        ("chat", "chat of SillyTavern", f"{_OF}:import_chat", _CHAT, ["jsonl", "json"]),
        ("personas", "personas of SillyTavern", f"{_OF}:import_persona", _PERSONAS, ["json"]),
    )
    return [
        ImporterInfo.model_validate({"name": name, "title": title, "handler": handler, "marks": marks, "forms": forms})
        for name, title, handler, marks, forms in rows
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


async def import_chat(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Make a conversation of a chat, with the character that it names."""
    file, options = request.file, request.options
    if options.dry_run:
        return ImportReport(things=[ImportedThing(kind="conversation", id=options.name, name=file.name)])
    made = await context.services.get(CHARACTERS).import_chat(
        file.content, conversation_id=options.name or None, call=request.call
    )
    thing = ImportedThing(kind="conversation", id=made.id, name=made.agent, page=f"/chat/{made.id}")
    return ImportReport(things=[thing], without_effect=[*made.unsupported])


async def import_persona(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Let the person be the persona that is wanted by its name, else the default one, else the only one."""
    document, options, service = request.object(), request.options, context.services.get(CHARACTERS)
    names: Any = document["personas"]
    described: Any = document["persona_descriptions"]
    wanted = [key for key, name in names.items() if options.name in (key, name)] if options.name else []
    wanted = wanted or [key for key in names if not options.name and key == document.get("default_persona")]
    wanted = wanted or ([*names] if len(names) == 1 and not options.name else [])
    if len(wanted) != 1:
        listed = ", ".join(str(name) for name in names.values())[:500]
        raise InvalidInput(f"{request.file.name} holds {len(names)} personas: say with --name which you are: {listed}")
    about = described.get(wanted[0])
    text = about.get("description", "") if isinstance(about, dict) else ""
    persona = read_model(Persona, {"name": names[wanted[0]], "description": text}, request.file.name)
    before = await service.persona(call=request.call)
    if not options.replace and before not in (Persona(), persona):
        raise Conflict(f"you are {before.name} already; with --replace you become {persona.name}")
    if not options.dry_run:
        await service.save_persona(persona, call=request.call)
    others = [f"a person has one persona here: {name} is left out" for key, name in names.items() if key != wanted[0]]
    return ImportReport(things=[ImportedThing(kind="persona", id=persona.name)], without_effect=others)
