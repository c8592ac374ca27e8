"""Knowledge: entries in the published CAIU format, the bases that hold them, and the `knowledgeBase` service.

Keys of entries and bases are those of the published format; unknown ones are kept and written back.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model, OpenModel

NODES, TOOLS = "host:nodes", "host:tools"
"""The bases in which the host's own node types and tools are found; nobody writes them."""


class _Published(OpenModel):
    model_config = ConfigDict(alias_generator=None)


class EntryContent(_Published):
    """What an entry says: text, or a description of the medium at `path` (in the project) or `url`."""

    mime_type: str = "text/plain"
    value: str = ""
    path: str | None = None
    url: str | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)


class KeyGroup(_Published):
    """Keys that count together: `AND` all of them, `OR` any, `NOT` none, `NOT_ALL` not all. A `required` group (ours)
    must hold besides the entry's keywords; any other is enough by itself."""

    group_id: str = ""
    keys: list[str] = Field(default_factory=list)
    logic: Literal["AND", "OR", "NOT", "NOT_ALL"] = "AND"
    required: bool = False


class TriggerCondition(_Published):
    """A condition beside keywords: `always` is as good as a keyword that was found; a `variable_check` compares one of
    the variables that an activation is given with `value`, and must hold besides."""

    type: str
    variable: str | None = None
    operator: str = "equals"
    value: JsonValue = None


class ActivationCriteria(_Published):
    """When an entry reaches a prompt. A key `/…/flags` is a regular expression. All others are ours:

    `scan_depth` is how many of the last messages are searched for its keys; with `case_sensitive` and `whole_words`
    they are compared so: by default without case, and as whole words but for keys with Chinese, Japanese or Korean
    characters. Once called up, it stays for `sticky` messages, then cannot be called up for `cooldown` messages;
    before `delay` messages were said it cannot be either. In a recursive base other entries do not call it up with
    `exclude_recursion`, and it calls up none with `prevent_recursion`; with `delay_until_recursion` only they do, from
    that round on. Of the entries of a `group` one comes in: the one with `group_override` of the highest priority, or
    of the most keys with `group_scoring`, else one by chance, by their `group_weight`.
    """

    keywords: list[str] = Field(default_factory=list)
    key_groups: list[KeyGroup] = Field(default_factory=list)
    use_semantic_search: bool = True
    semantic_threshold: float | None = None
    trigger_conditions: list[TriggerCondition] = Field(default_factory=list)
    trigger_probability: float = Field(default=1.0, ge=0, le=1)
    scan_depth: int | None = Field(default=None, ge=0, le=100)
    case_sensitive: bool = False
    whole_words: bool | None = None
    sticky: int = Field(default=0, ge=0, le=1_000_000)
    cooldown: int = Field(default=0, ge=0, le=1_000_000)
    delay: int = Field(default=0, ge=0, le=1_000_000)
    exclude_recursion: bool = False
    prevent_recursion: bool = False
    delay_until_recursion: int = Field(default=0, ge=0, le=100)
    group: list[str] = Field(default_factory=list)
    group_weight: float = Field(default=100, ge=0, le=1_000_000)
    group_override: bool = False
    group_scoring: bool = False


class TextAround(_Published):
    """A text before or after an entry's own."""

    text: str = ""
    is_enabled: bool = False


class UsageMetadata(_Published):
    """How an entry stands in a prompt. A larger `priority` comes first. With a `depth_offset` it goes that many
    messages before the end of the conversation."""

    priority: float = 100
    role: Literal["null", "system", "user", "assistant", "tool"] | None = None
    depth_offset: int | None = Field(default=None, ge=0)
    once_per_session: bool = False
    exclude_from_history: bool = False
    prefix: TextAround = Field(default_factory=TextAround)
    suffix: TextAround = Field(default_factory=TextAround)


class ManagementMetadata(_Published):
    """What people and programs note about an entry. One that is not enabled is neither found nor activated."""

    tags: list[str] = Field(default_factory=list)
    source: str = "manual_entry"
    created_at: str | None = None
    updated_at: str | None = None
    author_notes: str = ""
    is_enabled: bool = True
    child_ids: list[str] = Field(default_factory=list)
    related_ids: list[str] = Field(default_factory=list)


class KnowledgeEntry(_Published):
    """One entry (a CAIU). Without an `id` it gets one when it is written."""

    id: str = Field(default="", max_length=200)
    version: int = 1
    entry_type: str = Field(default="fact", max_length=200)
    display_name: str | None = Field(default=None, alias="displayName", max_length=1000)
    content: EntryContent = Field(default_factory=EntryContent)
    activation_criteria: ActivationCriteria = Field(default_factory=ActivationCriteria)
    usage_metadata: UsageMetadata = Field(default_factory=UsageMetadata)
    management_metadata: ManagementMetadata = Field(default_factory=ManagementMetadata)
    extensions: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people call the entry: its display name, else its id."""
        return self.display_name or self.id


class BaseAccess(Model):
    """Which agents and plugins may read and write a base: patterns such as `agent:elara`. People always may."""

    read: list[str] = Field(default_factory=lambda: ["*"])
    write: list[str] = Field(default_factory=lambda: ["*"])


class BaseActivation(_Published):
    """How the entries of a base are activated, where the entries do not say so: how many messages are searched, how
    many tokens they may take (0 is no limit), and whether they call each other up."""

    scan_depth: int | None = Field(default=None, ge=0, le=100)
    token_budget: int = Field(default=0, ge=0)
    recursive: bool = False


class BaseHeader(_Published):
    """A base without its entries. Who may read and write it stands as `access` in its `kb_extensions`, how its entries
    are activated as `activation`."""

    kb_id: str = Field(max_length=200)
    kb_version: str = "1.0.0"
    schema_version: str = "1.0"
    display_name: str = Field(default="", alias="kb_displayName", max_length=1000)
    description: str = Field(default="", alias="kb_description", max_length=100_000)
    embedding_model_id: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    tags: list[str] = Field(default_factory=list)
    author: str | None = None
    kb_extensions: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def access(self) -> BaseAccess:
        """Who may read and write the base. Raises `ValidationError` where that is not said properly."""
        return BaseAccess.model_validate(self.kb_extensions.get("access") or {})

    @property
    def activation(self) -> BaseActivation:
        """How its entries are activated; what is not said properly is as if it were not there."""
        try:
            return BaseActivation.model_validate(self.kb_extensions.get("activation") or {})
        except ValidationError:
            return BaseActivation()


class BaseSummary(Model):
    """A base in a list. `id` names it everywhere: that of its file; the `kb_id` in the file is understood as well.
    `problem` is why it cannot be used. `writable` says whether the caller may write: `suggest` lets it add entries that
    a person has to enable."""

    id: str
    name: str = ""
    description: str = ""
    entries: int = 0
    tags: list[str] = Field(default_factory=list)
    file: str | None = None
    writable: Literal["yes", "suggest", "no"] = "no"
    problem: str | None = None


class StoredEntry(Model):
    """An entry where it is stored. `revision` differs whenever its content does."""

    base: str
    revision: str
    entry: KnowledgeEntry


class EntryPage(Model):
    """Entries of a base in their order, and how many there are in all."""

    entries: list[StoredEntry] = Field(default_factory=list)
    total: int = 0


class KnowledgeHit(Model):
    """An entry that was found. `text` is what it says, cut to a length; a larger `score` is better."""

    base: str
    id: str
    name: str
    entry_type: str
    text: str
    tags: list[str] = Field(default_factory=list)
    score: float


class ActivationRequest(Model):
    """What entries are chosen by: the `messages`, oldest first. `bases` are ids and patterns, by default all of the
    project. `budget` is in tokens (0 is none); `used` are those (`BASE/ID`) that were active before in the session. The
    same request gives the same entries: chance comes from `seed` and the number of the messages."""

    messages: list[str] = Field(default_factory=list)
    bases: list[str] | None = None
    seed: str = ""
    budget: int = Field(default=0, ge=0)
    scan_depth: int = Field(default=4, ge=0, le=100)
    used: list[str] = Field(default_factory=list)
    variables: dict[str, JsonValue] = Field(default_factory=dict)


class ActiveEntry(Model):
    """An entry that reaches the prompt: its text with prefix and suffix, where it goes, and why it is in. `placement`
    is where its lorebook wants it, such as `before_char`."""

    base: str
    id: str
    name: str
    text: str
    role: str | None = None
    depth_offset: int | None = None
    placement: str | None = None
    exclude_from_history: bool = False
    priority: float
    tokens: int
    why: list[str] = Field(default_factory=list)


class InactiveEntry(Model):
    """An entry whose keys were found, or that was switched on, and that stays out nevertheless."""

    base: str
    id: str
    why: str


class Activation(Model):
    """The entries for a prompt, those of higher priority first; what was left out; the `tokens` that they take, and
    what to give as `used` the next time in this session."""

    entries: list[ActiveEntry] = Field(default_factory=list)
    left_out: list[InactiveEntry] = Field(default_factory=list)
    tokens: int = 0
    used: list[str] = Field(default_factory=list)


ExportFormat = Literal["world_info", "character_book", "lorebook_v3", "card_v1", "card_v2", "card_v3", "png"]


class ImportReport(Model):
    """What came of a document: the base, its entries, and the fields that are kept but have no effect here, of all and
    by entry, of the first hundred that have such."""

    base: str
    format: str
    entries: int
    unsupported: list[str] = Field(default_factory=list)
    by_entry: dict[str, list[str]] = Field(default_factory=dict)


class KnowledgeFile(Model):
    """A base as a document in another program's format; `unsupported` names what of it the format cannot hold."""

    name: str
    media_type: str
    content: bytes
    unsupported: list[str] = Field(default_factory=list)


class WrittenEntry(Model):
    """An entry as it was written; one that is not enabled is a suggestion that a person has to enable."""

    base: str
    id: str
    revision: str
    is_enabled: bool


_READ = "Read the project's knowledge, within what the caller may read."
_WRITE = "Write the project's knowledge, within what the caller may write."


class KnowledgeBase(ServiceInterface, name="knowledgeBase"):
    """Keeps what agents and people know: bases of entries, searched by words and activated by conversations.

    A base is named by its id, for an agent also by the alias that its profile gives it. An agent reads the bases that
    its profile refers to, and the host's own; it writes where the profile says so. Raises `NotFound` for what is not
    there, `PermissionDenied`.
    """

    @acts("knowledgeBase:read", _READ, level="add")
    async def bases(self, *, call: CallContext | None = None) -> list[BaseSummary]:
        """Return the bases that the caller may read, by id."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def header(self, base: str, *, call: CallContext | None = None) -> BaseHeader:
        """Return a base without its entries."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def list_entries(
        self, base: str, *, limit: int = 100, offset: int = 0, call: CallContext | None = None
    ) -> EntryPage:
        """Return entries of a base, in its order."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def get(self, base: str, entry_id: str, *, call: CallContext | None = None) -> StoredEntry:
        """Return one entry."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def search(
        self,
        query: str,
        *,
        bases: list[str] | None = None,
        tags: list[str] | None = None,
        entry_types: list[str] | None = None,
        limit: int = 5,
        call: CallContext | None = None,
    ) -> list[KnowledgeHit]:
        """Return the entries that fit best, best first. `bases` are ids, aliases and patterns of them: by default all
        that the project has and the caller may read. Entries must have all of `tags` and one of `entry_types`."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def select_tools(
        self, query: str, tool_ids: list[str], *, limit: int = 20, call: CallContext | None = None
    ) -> list[str]:
        """Return the tools of a list that fit a task best, best first, at most `limit`: where few fit, others of the
        list follow in its order. For prompts that have no room for all."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def activate(self, request: ActivationRequest, *, call: CallContext | None = None) -> Activation:
        """Return the entries that a conversation brings into a prompt, each with the reasons."""

    @acts("knowledgeBase:write", _WRITE)
    async def put(
        self,
        base: str,
        entries: list[KnowledgeEntry],
        *,
        revision: str | None = None,
        call: CallContext | None = None,
    ) -> list[StoredEntry]:
        """Write entries, all or none; they have survived the end of the process when this returns.

        A `revision` is what the one entry must have now, empty for one that must be new. Raises `Conflict`,
        `InvalidInput` for what is too large.
        """

    @acts("knowledgeBase:write", _WRITE)
    async def write(
        self,
        text: str,
        *,
        base: str | None = None,
        entry_id: str | None = None,
        name: str | None = None,
        entry_type: str | None = None,
        keywords: list[str] | None = None,
        tags: list[str] | None = None,
        call: CallContext | None = None,
    ) -> WrittenEntry:
        """Write one entry, or change those of its fields that are not None; for agents. The base may be left out where
        the caller may write one alone."""

    @acts("knowledgeBase:write", _WRITE)
    async def delete(self, base: str, entry_ids: list[str], *, call: CallContext | None = None) -> int:
        """Remove entries; return how many there were."""

    @acts("knowledgeBase:write", _WRITE)
    async def save_base(self, header: BaseHeader, *, call: CallContext | None = None) -> BaseSummary:
        """Make a base, or change what is said of it; its entries stay. For people, and plugins on their own."""

    @acts("knowledgeBase:read", _READ, level="add")
    async def export_base(
        self, base: str, *, format: ExportFormat = "world_info", call: CallContext | None = None
    ) -> KnowledgeFile:
        """Return a base as a lorebook or a character card; what the format cannot hold is named."""

    @acts("knowledgeBase:write", _WRITE)
    async def import_base(
        self, base: str, content: bytes, *, replace: bool = False, call: CallContext | None = None
    ) -> ImportReport:
        """Make a base of a lorebook or a character card (JSON or PNG); what has no effect here is kept and named. For
        people, and plugins on their own. Raises `Conflict` for a base that is there unless it is to be replaced."""

    @acts("knowledgeBase:write", _WRITE)
    async def delete_base(self, base: str, *, call: CallContext | None = None) -> bool:
        """Remove a base with its file; False where there is none. For people, and plugins on their own. Raises
        `Conflict` for one that comes with a plugin."""


KNOWLEDGE_BASE = ServiceKey(KnowledgeBase)
