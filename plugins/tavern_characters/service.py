"""The service `characters`: cards become agents and come back, and conversations begin with their greetings."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_agents.api.profilefiles import AGENT_PROFILES
from tavern_characters import State
from tavern_characters.api.characters import (
    BegunConversation,
    CardFormat,
    CharacterFields,
    CharacterFile,
    CharacterImport,
    Characters,
    CharacterSummary,
    ExportFormat,
    ImportedChat,
    ImportedPreset,
    Persona,
    StoredCharacter,
)
from tavern_characters.cards import LISTS, Card, id_of
from tavern_characters.chats import as_chat, as_history, read_chat
from tavern_characters.conversations import beginning, group_greeting
from tavern_characters.files import ARCHIVE, MAX_CHARACTERS, PICTURES, CharacterFolder, dumped, read_card
from tavern_characters.personas import person_of, read_persona, write_persona
from tavern_characters.presets import workflow_of
from tavern_host import CallContext, PluginContext
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound, TavernError
from tavern_knowledge.api.containers import CarriedCard, carried_card, container_of, with_archived_card
from tavern_knowledge.api.forms import MAX_JSON, recognise
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE
from tavern_knowledge.api.pictures import with_cards
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

MAX_FILE = 16 << 20
WORKFLOW = "characters/conversation"
"""The workflow with which characters think."""


class CharacterService(Characters):
    """The characters of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._folder = CharacterFolder(context.project.root)
        self._known: dict[str, tuple[object, CharacterSummary]] = {}

    # --- what there is ----------------------------------------------------------------------------

    async def list_characters(self) -> list[CharacterSummary]:
        """Return the characters, by id."""

        def look() -> dict[str, tuple[object, CharacterSummary]]:
            before = self._known
            stamps = {one: self._folder.stamp(one) for one in self._folder.ids()}
            kept = {one: before[one] for one, stamp in stamps.items() if one in before and before[one][0] == stamp}
            return {one: kept.get(one) or (stamp, self._summary(one)) for one, stamp in stamps.items()}

        self._known = await asyncio.to_thread(look)
        return [summary for _, summary in self._known.values()]

    def _summary(self, character: str) -> CharacterSummary:
        try:
            card = self._folder.card(character)
        except TavernError as error:
            return CharacterSummary(id=character, problem=error.message)
        picture = self._folder.picture_type(character)
        return CharacterSummary(id=character, name=card.name(character), greetings=len(card.greetings), picture=picture)

    async def picture(self, character: str) -> CharacterFile:
        """Return a character's picture. Raises `NotFound`."""
        found = await asyncio.to_thread(self._folder.picture, character)
        if found is None:
            raise NotFound(f"the character {character!r:.100} has no picture", character=character[:200])
        return CharacterFile(name=f"{character}{PICTURES[found[0]]}", media_type=found[0], content=found[1])

    # --- cards come in ----------------------------------------------------------------------------

    async def import_card(
        self,
        content: bytes,
        *,
        name: str = "",
        character: str | None = None,
        replace: bool = False,
        call: CallContext | None = None,
    ) -> CharacterImport:
        """Make an agent of a card; see the interface."""
        stem = PurePath(name).stem[:200] or "Character"
        carried, card = await asyncio.to_thread(_read, content, name or "the card")
        async with self._context.own(State).writing:
            id = await self._free_id(card.name(stem), character, replace)
            entries, unsupported = 0, card.unsupported
            if card.book is not None:
                book = {"spec": "lorebook_v3", "data": {**card.book, "name": card.book.get("name") or card.name(stem)}}
                text = await asyncio.to_thread(dumped, book)
                report = await self._context.services.get(KNOWLEDGE_BASE).import_base(
                    id, text, replace=replace, call=call
                )
                entries = report.entries
                unsupported = sorted([*unsupported, *(f"character_book.{one}" for one in report.unsupported)])
            elif replace:
                await self._context.services.get(KNOWLEDGE_BASE).delete_base(id, call=call)
            others = {} if carried.picture is None else {PICTURES[carried.media_type]: carried.picture}
            others |= {ARCHIVE: content} if carried.container == "charx" else {}
            await asyncio.to_thread(self._folder.save, id, card, others)
            try:
                await self._save_profile(id, card.name(stem), card, call)
            except TavernError:
                if not replace:
                    await asyncio.to_thread(self._folder.remove, id)
                    if card.book is not None:
                        await self._context.services.get(KNOWLEDGE_BASE).delete_base(id, call=call)
                raise
        self._context.audit.record("character.imported", subject=id, call=call)
        return CharacterImport(
            id=id,
            name=card.name(stem),
            format=card.format,
            greetings=len(card.greetings),
            base=id if card.book is not None else None,
            entries=entries,
            picture=carried.media_type or None,
            unsupported=unsupported,
        )

    async def _free_id(self, name: str, wanted: str | None, replace: bool) -> str:
        """Return the id of a new character. Raises `Conflict` for a wanted one that is taken."""
        ids = await asyncio.to_thread(self._folder.ids)
        taken = {*ids, *(agent.id for agent in await self._context.services.get(AGENT_RUNTIME).list_agents())}
        taken |= {base.id for base in await self._context.services.get(KNOWLEDGE_BASE).bases()}
        if len(ids) >= MAX_CHARACTERS:
            raise InvalidInput(f"a project has at most {MAX_CHARACTERS:,} characters; delete one first")
        if wanted is not None:
            if wanted in taken and not (replace and wanted in ids):
                raise Conflict(
                    f"there is an agent, character or base {wanted!r} already; give the character another id"
                )
            return wanted
        plain = id_of(name)
        if replace and plain in ids:
            return plain
        return next(one for n in range(1, len(taken) + 2) if (one := plain if n == 1 else f"{plain}-{n}") not in taken)

    async def _save_profile(self, id: str, name: str, card: Card, call: CallContext | None) -> None:
        profiles = self._context.services.get(AGENT_PROFILES)
        profile: dict[str, Any] = {"id": id, "version": "1.0.0", "schema_version": "1.0", "tool_ids_inventory": []}
        profile |= {"core_deliberation_workflow_id": WORKFLOW, "custom_metadata": {}}
        with suppress(NotFound):
            profile = dict((await profiles.get(id)).document)
        profile |= _introduced(card, name)
        profile["custom_metadata"] = {**profile["custom_metadata"], "character": id}
        known = [one for one in profile.get("knowledge_base_references", []) if one.get("source_id") != id]
        own = [] if card.book is None else [{"source_id": id, "access_permissions": ["read"]}]
        profile["knowledge_base_references"] = [*known, *own]
        await profiles.save(id, profile, call=call)

    # --- changes ----------------------------------------------------------------------------------

    async def get_card(self, character: str) -> StoredCharacter:
        """Return a character's card."""
        return (await asyncio.to_thread(self._stored, character))[1]

    def _stored(self, character: str) -> tuple[Card, StoredCharacter]:
        card = self._folder.card(character)
        said = {key: card.texts(key) if key in LISTS else card.text(key) for key in CharacterFields.model_fields}
        revision = self._folder.revision(character, card)
        return card, StoredCharacter(id=character, revision=revision, fields=CharacterFields.model_validate(said))

    async def save_card(
        self,
        character: str,
        fields: CharacterFields,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredCharacter:
        """Change fields of a card; see the interface."""
        changes = {key: value for key, value in fields if value is not None}
        async with self._context.own(State).writing:
            before = await self._expected(character, expected_revision)
            card = before.changed(changes)
            if not card.text("name").strip():
                raise InvalidInput("a character has a name")
            if len(dumped(card.document)) > MAX_JSON:
                raise InvalidInput(f"a card has at most {MAX_JSON >> 20} MiB of JSON")
            await self._introduce(character, before, card, call)
            await asyncio.to_thread(self._folder.save, character, card, {}, ())
            saved = await self.get_card(character)
        self._context.audit.record("character.saved", subject=character, call=call)
        return saved

    async def save_picture(
        self,
        character: str,
        content: bytes | None,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredCharacter:
        """Give a character another picture, or none; see the interface."""
        picture = {} if content is None else await asyncio.to_thread(_without_card, content)
        async with self._context.own(State).writing:
            card = await self._expected(character, expected_revision)
            await asyncio.to_thread(self._folder.save, character, card, picture, PICTURES.values())
            saved = await self.get_card(character)
        self._context.audit.record("character.saved", subject=character, call=call)
        return saved

    async def _expected(self, character: str, expected: str | None) -> Card:
        """Return a character's card. Raises `Conflict` where it is of another revision."""
        card, stored = await asyncio.to_thread(self._stored, character)
        if expected not in (None, stored.revision):
            message = f"the character {character!r} is at revision {stored.revision}, not {expected or 'none'}"
            raise Conflict(message, revision=stored.revision, expected=expected)
        return card

    async def _introduce(self, character: str, before: Card, card: Card, call: CallContext | None) -> None:
        """Let the agent's name and description follow the card's where they were the card's."""
        profiles = self._context.services.get(AGENT_PROFILES)
        with suppress(NotFound):
            profile = await profiles.get(character)
            said, wanted = (_introduced(one, one.name(character)) for one in (before, card))
            changes = {key: text for key, text in wanted.items() if profile.document.get(key) == said[key] != text}
            if changes:
                document = {**profile.document, **changes}
                await profiles.save(character, document, expected_revision=profile.revision, call=call)

    # --- and back ---------------------------------------------------------------------------------

    async def export_card(
        self, character: str, *, format: ExportFormat = "card", call: CallContext | None = None
    ) -> CharacterFile:
        """Return a character as a card; see the interface."""
        card = await asyncio.to_thread(self._folder.card, character)
        book = None
        with suppress(NotFound):
            knowledge = self._context.services.get(KNOWLEDGE_BASE)
            kept = await knowledge.export_base(character, format="character_book", call=call)
            book = await asyncio.to_thread(json.loads, kept.content)
            if card.book is not None and "name" not in card.book:
                book.pop("name", None)
        return await asyncio.to_thread(self._exported, character, card, book, format)

    def _exported(self, character: str, card: Card, book: dict[str, Any] | None, format: ExportFormat) -> CharacterFile:
        if format != "png" and format != "charx":
            version: CardFormat = card.format if format == "card" else format
            document, lost = card.written(book, version)
            return CharacterFile(
                name=f"{character}.json", media_type="application/json", content=dumped(document), unsupported=lost
            )
        picture = self._folder.picture(character)
        v3, lost = card.written(book, "card_v3")
        if format == "charx":
            archive = self._folder.file(character, ARCHIVE)
            kind, content = picture or ("", None)
            place = f"assets/icon/main{PICTURES.get(kind, '')}"
            if archive is not None and carried_card(archive, MAX_JSON).picture == content:
                content = None  # it is in there
            elif content is not None:
                icon = {"type": "icon", "uri": f"embeded://{place}", "name": "main", "ext": PICTURES[kind][1:]}
                assets = v3["data"].get("assets") or []
                v3["data"]["assets"] = [icon, *(one for one in assets if one.get("type") != "icon")]
            made = with_archived_card(archive, dumped(v3), content, place, MAX_FILE)
            return CharacterFile(name=f"{character}.charx", media_type="application/zip", content=made)
        v2, gone = card.written(book, "card_v2")
        is_png = picture is not None and picture[0] == "image/png"
        lost = [*lost, *([] if picture is None or is_png else ["picture: it is no PNG"])]
        lost += [one for one in gone if one not in v3["data"]]
        made = with_cards(picture[1] if picture and is_png else None, {"chara": dumped(v2), "ccv3": dumped(v3)})
        return CharacterFile(name=f"{character}.png", media_type="image/png", content=made, unsupported=lost)

    # --- conversations ----------------------------------------------------------------------------

    async def begin(
        self, character: str, *, conversation_id: str | None = None, call: CallContext | None = None
    ) -> BegunConversation:
        """Begin a conversation with the greeting of a character; see the interface."""
        card = await asyncio.to_thread(self._folder.card, character)
        agent = (await self._context.services.get(AGENT_RUNTIME).get(character)).id
        persona = await self.persona(call=call)
        id = _conversation_id(character, conversation_id)
        exported = await asyncio.to_thread(beginning, id, agent, card, persona, card.name(character))
        if exported is None:
            return BegunConversation(id=id, agent=agent)
        await self._context.services.get(CHAT_HISTORY).import_history(exported, call=call)
        greetings = exported.messages
        return BegunConversation(id=id, agent=agent, greeting=greetings[0].message.content, greetings=len(greetings))

    async def greeting(self, character: str, *, conversation_id: str = "", call: CallContext | None = None) -> str:
        """Return a character's first words where others are; see the interface."""
        card = await asyncio.to_thread(self._folder.card, character)
        persona = await self.persona(call=call)
        return await asyncio.to_thread(group_greeting, card, persona, card.name(character), conversation_id)

    async def import_chat(
        self,
        content: bytes,
        *,
        character: str | None = None,
        conversation_id: str | None = None,
        call: CallContext | None = None,
    ) -> ImportedChat:
        """Make a conversation of a chat of SillyTavern; see the interface."""
        if len(content) > MAX_FILE:
            raise InvalidInput(f"a chat's file has at most {MAX_FILE >> 20} MiB")
        chat = await asyncio.to_thread(read_chat, content)
        if character is None:
            known = [one.id for one in await self.list_characters() if one.name == chat.character]
            if not known:
                name = chat.character[:100]
                raise NotFound(f"there is no character {name!r}: import its card first, or name another one")
            character = known[0]
        else:
            await asyncio.to_thread(self._folder.card, character)
        agent = (await self._context.services.get(AGENT_RUNTIME).get(character)).id
        id = _conversation_id(character, conversation_id)
        exported = await asyncio.to_thread(as_history, chat, id, agent, chat.character)
        if exported is None:
            raise InvalidInput("nothing was said in this chat")
        await self._context.services.get(CHAT_HISTORY).import_history(exported, call=call)
        return ImportedChat(id=id, agent=agent, messages=len(exported.messages), unsupported=chat.unsupported)

    async def export_chat(self, conversation_id: str, *, branch: str | None = None) -> CharacterFile:
        """Return a branch of a conversation as a chat; see the interface."""
        history = await self._context.services.get(CHAT_HISTORY).export_history(conversation_id)
        if branch is not None and branch not in [one.name for one in history.branches]:
            raise NotFound(f"the conversation {conversation_id!r} has no branch {branch!r:.200}")
        content = await asyncio.to_thread(as_chat, history, branch)
        return CharacterFile(name=f"{id_of(conversation_id)}.jsonl", media_type="application/jsonl", content=content)

    async def import_preset(
        self, content: bytes, *, name: str = "", character: str | None = None, call: CallContext | None = None
    ) -> ImportedPreset:
        """Make a workflow of a preset; see the interface."""
        called = PurePath(name).stem[:100] or "preset"
        workflow, unsupported = await asyncio.to_thread(workflow_of, content, called)
        profiles, workflows = self._context.services.get(AGENT_PROFILES), self._context.services.get(WORKFLOW_MANAGER)
        profile = None if character is None else await profiles.get(character)
        taken = {WORKFLOW, *(one.id for one in await workflows.list_workflows())}
        plain = f"characters/{id_of(called)}"
        id = next(one for n in range(1, len(taken) + 2) if (one := plain if n == 1 else f"{plain}-{n}") not in taken)
        await workflows.save(id, workflow, expected_revision="", call=call)
        if profile is not None:
            document = {**profile.document, "core_deliberation_workflow_id": id}
            await profiles.save(profile.id, document, expected_revision=profile.revision, call=call)
        return ImportedPreset(workflow=id, unsupported=unsupported)

    async def persona(self, *, call: CallContext | None = None) -> Persona:
        """Return who the person is that asks."""
        return await asyncio.to_thread(read_persona, self._context.operator_dir, person_of(call))

    async def save_persona(self, persona: Persona, *, call: CallContext | None = None) -> Persona:
        """Say who the person is that asks."""
        await asyncio.to_thread(write_persona, self._context.operator_dir, person_of(call), persona)
        return persona


def _introduced(card: Card, name: str) -> dict[str, str]:
    """Return the settings of a card in an agent's profile."""
    about = " ".join(card.text("creator_notes").split())
    return {"name": name, "description": about if len(about) <= 300 else f"{about[:299]}…"}


def _conversation_id(character: str, wanted: str | None) -> str:
    """Return the id of a new conversation with a character."""
    if wanted is not None and not 0 < len(wanted) <= 200:
        raise InvalidInput("the id of a conversation has 1 to 200 characters")
    return wanted or f"{character}-{new_id('')[1:9]}"


def _read(content: bytes, where: str) -> tuple[CarriedCard, Card]:
    if len(content) > MAX_FILE:
        raise InvalidInput(f"{where}: a card's file has at most {MAX_FILE >> 20} MiB")
    try:
        carried = carried_card(content, MAX_JSON)
        return carried, read_card(carried.text, where)
    except InvalidInput as error:
        form = recognise(content)
        if form is not None and form.kind != "card":
            raise InvalidInput(f"{where} is {form.label}; {form.command} takes it") from None
        raise InvalidInput(error.message if where in error.message else f"{where}: {error.message}") from None


def _without_card(picture: bytes) -> dict[str, bytes]:
    """Return a picture by its suffix, without a card in it. Raises `InvalidInput` for what is none."""
    if len(picture) > MAX_FILE:
        raise InvalidInput(f"a picture has at most {MAX_FILE >> 20} MiB")
    suffix = PICTURES.get(f"image/{container_of(picture)}")
    if suffix is None:
        raise InvalidInput("a character's picture is PNG, WebP or JPEG")
    return {suffix: with_cards(picture, {}) if suffix == ".png" else picture}
