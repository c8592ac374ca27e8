"""Characters: agents that were made of character cards, and who people are in conversations with them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model

CardFormat = Literal["card_v1", "card_v2", "card_v3"]
ExportFormat = Literal["card", "card_v1", "card_v2", "card_v3", "png", "charx"]


class CharacterSummary(Model):
    """A character: the id is that of its agent, its files and its knowledge base. `picture` is the media type of its
    picture, `problem` why its card cannot be used."""

    id: str
    name: str = ""
    greetings: int = 0
    picture: str | None = None
    problem: str | None = None


class CharacterImport(Model):
    """A card that was imported. `base` is the knowledge base with the `entries` of its book; `unsupported` names what
    is kept and has no effect here."""

    id: str
    name: str
    format: CardFormat
    greetings: int = 0
    base: str | None = None
    entries: int = 0
    picture: str | None = None
    unsupported: list[str] = Field(default_factory=list)


class CharacterFields(Model):
    """What people write on a card, by the names that cards have for it; in a change, None leaves a field as it is.
    `first_mes` is the greeting, `mes_example` the example dialogue."""

    name: str | None = None
    description: str | None = None
    personality: str | None = None
    scenario: str | None = None
    first_mes: str | None = None
    alternate_greetings: list[str] | None = None
    mes_example: str | None = None
    system_prompt: str | None = None
    post_history_instructions: str | None = None
    creator_notes: str | None = None
    tags: list[str] | None = None


class StoredCharacter(Model):
    """A character's card as its file has it. The `revision` differs once the card or the picture does."""

    id: str
    revision: str
    fields: CharacterFields


class CharacterFile(Model):
    """A character's card or picture as a file; `unsupported` names what the format cannot hold."""

    name: str
    media_type: str
    content: bytes
    unsupported: list[str] = Field(default_factory=list)


class BegunConversation(Model):
    """A conversation that begins with the `greeting`; the others are versions of that message."""

    id: str
    agent: str
    greeting: str = ""
    greetings: int = 0


class ImportedChat(Model):
    """A chat that was imported as the conversation `id` with an agent; `unsupported` names what is left out, and how
    often."""

    id: str
    agent: str
    messages: int
    unsupported: list[str] = Field(default_factory=list)


class ImportedPreset(Model):
    """A preset that was imported as the `workflow`; `unsupported` names what of it has no effect."""

    workflow: str
    unsupported: list[str] = Field(default_factory=list)


class Persona(Model):
    """Who a person is in conversations: the `name` is `{{user}}`, the `description` `{{persona}}`."""

    name: str = Field(default="User", min_length=1, max_length=100, pattern=r"\S")
    description: str = Field(default="", max_length=20_000)


_WRITE = "Make agents of character cards, and begin conversations with them."
_READ = "Read the cards of characters with their books, and conversations with them."
_PERSONA = "Read and change who a person is in conversations with characters."


class Characters(ServiceInterface, name="characters", version=2):
    """Makes agents of character cards. Raises `NotFound` for a character that is not there."""

    @reads
    async def list_characters(self) -> list[CharacterSummary]:
        """Return the characters, by id."""

    @reads
    async def picture(self, character: str) -> CharacterFile:
        """Return a character's picture. Raises `NotFound` where it has none."""

    @acts("characters:write", _WRITE)
    async def import_card(
        self,
        content: bytes,
        *,
        name: str = "",
        character: str | None = None,
        replace: bool = False,
        call: CallContext | None = None,
    ) -> CharacterImport:
        """Make an agent of a card: JSON, a PNG, WebP or JPEG picture, or CHARX. `name` is that of the file. Without an
        id it is made of the character's name. Raises `Conflict` for an id that is taken unless it is to be replaced,
        `InvalidInput` for what is no card, which names the command that takes it."""

    @reads_content("characters:read", _READ)
    async def get_card(self, character: str) -> StoredCharacter:
        """Return a character's card."""

    @acts("characters:write", _WRITE)
    async def save_card(
        self,
        character: str,
        fields: CharacterFields,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredCharacter:
        """Change fields of a card; the others stay. The agent's name and description follow where they were the
        card's. Raises `Conflict` where the character is of another revision than expected, `InvalidInput` for a card
        without a name or of more than 8 MiB."""

    @acts("characters:write", _WRITE)
    async def save_picture(
        self,
        character: str,
        content: bytes | None,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> StoredCharacter:
        """Give a character another picture: PNG, WebP or JPEG, or none; a card in it is ignored. Raises as `save_card`
        does."""

    @acts("characters:read", _READ)
    async def export_card(
        self, character: str, *, format: ExportFormat = "card", call: CallContext | None = None
    ) -> CharacterFile:
        """Return a character as a card: `card` is JSON of the version in which it came."""

    @acts("characters:write", _WRITE)
    async def begin(
        self, character: str, *, conversation_id: str | None = None, call: CallContext | None = None
    ) -> BegunConversation:
        """Begin a conversation with the greeting of a character, for the person who asks. Raises `Conflict` for an id
        that is taken."""

    @acts("characters:read", _READ, since=2)
    async def greeting(self, character: str, *, conversation_id: str = "", call: CallContext | None = None) -> str:
        """Return a character's first words where others are, to the person who asks: the first greeting of its card
        that is for groups, else its first; empty where it has none."""

    @acts("characters:write", _WRITE)
    async def import_chat(
        self,
        content: bytes,
        *,
        character: str | None = None,
        conversation_id: str | None = None,
        call: CallContext | None = None,
    ) -> ImportedChat:
        """Make a conversation of a chat of SillyTavern, by default with the character of its name. Raises
        `InvalidInput` for what is no chat, `NotFound` where no character has the name, `Conflict`."""

    @reads_content("characters:read", _READ)
    async def export_chat(self, conversation_id: str, *, branch: str | None = None) -> CharacterFile:
        """Return a branch of a conversation, by default the active one, as a chat of SillyTavern. Raises `NotFound`."""

    @acts("characters:write", _WRITE)
    async def import_preset(
        self, content: bytes, *, name: str = "", character: str | None = None, call: CallContext | None = None
    ) -> ImportedPreset:
        """Make a workflow of a preset of SillyTavern for chat completion, with its prompts in their order, and let a
        character think with it, if one is given. Raises `InvalidInput` for what is no preset."""

    @acts("characters:persona", _PERSONA)
    async def persona(self, *, call: CallContext | None = None) -> Persona:
        """Return who the person is that asks."""

    @acts("characters:persona", _PERSONA)
    async def save_persona(self, persona: Persona, *, call: CallContext | None = None) -> Persona:
        """Say who the person is that asks, in conversations that begin from now on."""


CHARACTERS = ServiceKey(Characters)
