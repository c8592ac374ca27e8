"""The HTTP routes of characters; each hands over to the service and shapes its answer."""

from __future__ import annotations

from pydantic import Field

from tavern_characters.api.characters import (
    CHARACTERS,
    CharacterFields,
    CharacterFile,
    Characters,
    ExportFormat,
    Persona,
    StoredCharacter,
)
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.wire import Model
from tavern_host.sdk.conditions import conditional, expected


class ImportQuery(Model):
    """The query of `POST /api/characters`: the name of the card's file, and the id that the agent is to have."""

    name: str = Field(default="", max_length=300)
    id: str | None = Field(default=None, max_length=200)
    replace: bool = False


class ExportQuery(Model):
    """The query of `GET /api/characters/{id}/export`."""

    format: ExportFormat = "card"


class PresetQuery(Model):
    """The query of `POST /api/character-presets`: the name of its file, and who is to think with it."""

    name: str = Field(default="", max_length=300)
    character: str | None = Field(default=None, max_length=200)


class ChatQuery(Model):
    """The query of `POST /api/character-chats`."""

    character: str | None = Field(default=None, max_length=200)
    id: str | None = Field(default=None, max_length=200)


class BranchQuery(Model):
    """The query of `GET /api/character-chats/{id}`."""

    branch: str | None = Field(default=None, max_length=200)


async def list_characters(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the characters."""
    return HttpResponse(data=[one.to_json() for one in await _service(context).list_characters()])


async def import_card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make an agent of the card that is the body."""
    asked = request.read_query(ImportQuery)
    made = await _service(context).import_card(
        request.body, name=asked.name, character=asked.id or None, replace=asked.replace, call=request.call
    )
    return HttpResponse(status=201, data=made.to_json())


async def get_card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what a character's card says."""
    return _card(await _service(context).get_card(request.parameters["id"]))


async def save_card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Change fields of a card; those that are left out stay."""
    fields, before = request.read(CharacterFields), await _before(request, context)
    saving = _service(context).save_card(request.parameters["id"], fields, expected_revision=before, call=request.call)
    return _card(await conditional(saving))


async def save_picture(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Give a character the picture that is the body."""
    return await _picture(request, context, request.body)


async def remove_picture(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Take the picture from a character."""
    return await _picture(request, context, None)


async def _picture(request: HttpRequest, context: PluginContext, content: bytes | None) -> HttpResponse:
    before, character = await _before(request, context), request.parameters["id"]
    saving = _service(context).save_picture(character, content, expected_revision=before, call=request.call)
    return _card(await conditional(saving))


async def get_picture(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a character's picture."""
    return _file(await _service(context).picture(request.parameters["id"]))


async def export_card(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a character as a card; the header `X-Unsupported` names what it cannot hold."""
    asked = request.read_query(ExportQuery)
    exporting = _service(context).export_card(request.parameters["id"], format=asked.format, call=request.call)
    return _file(await exporting)


async def begin(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Begin a conversation with a character's greeting."""
    return HttpResponse(
        status=201, data=(await _service(context).begin(request.parameters["id"], call=request.call)).to_json()
    )


async def import_preset(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a workflow of the preset that is the body."""
    asked = request.read_query(PresetQuery)
    made = await _service(context).import_preset(
        request.body, name=asked.name, character=asked.character or None, call=request.call
    )
    return HttpResponse(status=201, data=made.to_json())


async def import_chat(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Make a conversation of the chat that is the body."""
    asked = request.read_query(ChatQuery)
    made = await _service(context).import_chat(
        request.body, character=asked.character or None, conversation_id=asked.id or None, call=request.call
    )
    return HttpResponse(status=201, data=made.to_json())


async def export_chat(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a conversation as a chat."""
    asked = request.read_query(BranchQuery)
    return _file(await _service(context).export_chat(request.parameters["id"], branch=asked.branch or None))


async def get_persona(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with who the person is that asks."""
    return HttpResponse(data=(await _service(context).persona(call=request.call)).to_json())


async def save_persona(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Say who the person is that asks."""
    return HttpResponse(data=(await _service(context).save_persona(request.read(Persona), call=request.call)).to_json())


def _service(context: PluginContext) -> Characters:
    return context.services.get(CHARACTERS)


async def _before(request: HttpRequest, context: PluginContext) -> str:
    """Return the revision that a change is for. Raises `PreconditionFailed`, `PreconditionRequired`, `NotFound`."""
    stored = await _service(context).get_card(request.parameters["id"])
    return expected(request, stored.revision, f"the character {stored.id!r}")


def _card(stored: StoredCharacter) -> HttpResponse:
    return HttpResponse(data=stored.fields.to_json(), headers={"ETag": f'"{stored.revision}"'})


def _file(made: CharacterFile) -> HttpResponse:
    headers = {"X-Unsupported": ", ".join(made.unsupported)} if made.unsupported else {}
    return HttpResponse(body=made.content, content_type=made.media_type, headers=headers)
