"""Conversations that are kept, with their branches: the `chatHistory` service."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from tavern_agents.api.memory import KeptMemory
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads_content
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatMessage


class HistoryMessage(Model):
    """A message of a conversation; `parent_id` is the one that it follows, None for the first. `run_id` is the run of
    an agent, or of a workflow, that it came from."""

    id: str
    parent_id: str | None = None
    message: ChatMessage
    created_at: datetime
    run_id: str | None = None


class HistorySummary(Model):
    """What a list of conversations shows. `messages` are those of all branches; `title` is the name that somebody gave
    it, or how its first message begins."""

    id: str
    title: str = ""
    messages: int
    created_at: datetime
    changed_at: datetime


class HistoryBranch(Model):
    """A branch: a name for the message `head`, and so for the `messages` messages that lead to it."""

    name: str
    head: str
    messages: int
    created_at: datetime
    changed_at: datetime


class HistoryDetails(HistorySummary):
    """A conversation and its branches. The `active` one is meant where none is named."""

    active: str
    branches: list[HistoryBranch]


class HistoryNode(Model):
    """A message's place in the tree of a conversation. `depth` is 1 for a first message; `text` is how its content
    begins; `calls` are the tools that it calls. `summary` is what a model gets in the place of the messages that lead
    to this one, itself among them, where they were too long for it."""

    id: str
    parent_id: str | None = None
    depth: int
    role: str
    text: str
    calls: list[str] = Field(default_factory=list)
    created_at: datetime
    run_id: str | None = None
    summary: str | None = None


class ExportedBranch(Model):
    """A branch as it is exported."""

    name: str = Field(min_length=1, max_length=200)
    head: str
    created_at: datetime
    changed_at: datetime


class ExportedSummary(Model):
    """What stands for the messages up to `until` where a conversation is too long for its model."""

    until: str
    text: str


class ExportedMemory(Model):
    """What agents, by their ids, remember at a message and at those behind it, until another says otherwise."""

    message_id: str
    agents: dict[str, KeptMemory]


class HistoryExport(Model):
    """A whole conversation as JSON: its messages, each behind its parent, and its branches. `pictures` are those of
    messages by the hash of their Blob, in Base64, as far as they are not too large for a file like this."""

    format: Literal["tavern-chat-history"] = "tavern-chat-history"
    version: Literal[1] = 1
    id: str = Field(min_length=1, max_length=200)
    title: str | None = Field(default=None, max_length=200)
    created_at: datetime
    changed_at: datetime
    active: str
    branches: list[ExportedBranch]
    messages: list[HistoryMessage]
    summaries: list[ExportedSummary] = Field(default_factory=list)
    memories: list[ExportedMemory] = Field(default_factory=list)
    pictures: dict[str, str] = Field(default_factory=dict)


_READ = "Read the conversations of people with agents."


class ChatHistory(ServiceInterface, name="chatHistory", version=3):
    """Keeps conversations: trees of messages that only grow, with branches that point into them.

    What a branch points at moves: to messages that are added behind it, or to other ones. Where a method would move it
    away from messages, the caller names as `head` the message that it knows as the branch's head, and gets `Conflict`
    where that is another by now; `details` have the `head` as it is. Nor can a branch be moved away on which an agent
    works. `branch` is the active one by default.
    """

    @reads_content("chatHistory:read", _READ)
    async def list_histories(self, *, limit: int = 50, offset: int = 0) -> list[HistorySummary]:
        """Return conversations, the latest changed first."""

    @reads_content("chatHistory:read", _READ)
    async def load(self, history_id: str, *, last: int | None = None) -> list[HistoryMessage]:
        """Return the messages that lead to the head of the active branch, oldest first, at most the `last` ones; none
        for a conversation that is not there yet."""

    @acts("chatHistory:write", "Write and delete conversations.")
    async def append(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        parent_id: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages behind the head of the active branch. They have survived the end of the process when this
        returns. Raises `Conflict` where `parent_id` is given and is not that head, `InvalidInput` for a message that
        is too large."""

    @acts("chatHistory:write", "Write and delete conversations.")
    async def delete(self, history_id: str, *, call: CallContext | None = None) -> bool:
        """Forget a conversation with all its branches; False where there is none."""

    @reads_content("chatHistory:read", _READ, since=2)
    async def get_history(self, history_id: str) -> HistoryDetails:
        """Return a conversation's branches. Raises `NotFound`."""

    @reads_content("chatHistory:read", _READ, since=2)
    async def load_branch(
        self, history_id: str, branch: str | None = None, *, leaf: str | None = None, last: int | None = None
    ) -> list[HistoryMessage]:
        """Return the messages that lead to the head of a branch, or to the message `leaf`, oldest first, at most the
        `last` ones; none for a conversation that is not there yet. Raises `NotFound` for a branch or message that is
        not there."""

    @reads_content("chatHistory:read", _READ, since=2)
    async def children(self, history_id: str, message_id: str | None = None) -> list[HistoryMessage]:
        """Return the messages right behind one, oldest first, or the first messages of the conversation: each is
        another way to continue. Raises `NotFound`."""

    @reads_content("chatHistory:read", _READ, since=2)
    async def tree(self, history_id: str, *, limit: int = 1000, offset: int = 0) -> list[HistoryNode]:
        """Return the messages of all branches in the order in which they were kept, parents before children. Raises
        `NotFound`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def add(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        branch: str | None = None,
        parent_id: str | None = None,
        head: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages behind the head of a branch, or behind any message `parent_id`, beside what follows it
        already; the branch moves to the last of them. A conversation that is not there yet begins with them.

        Raises `Conflict` (a `parent_id` that is not the branch's head needs `head`), `NotFound`, `InvalidInput`.
        """

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def edit(
        self,
        history_id: str,
        message_id: str,
        content: str,
        *,
        head: str,
        branch: str | None = None,
        keep_rest: bool = False,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep a copy of a message with another text beside it, and move the branch there. With `keep_rest`, what
        follows it in the branch is copied behind it. The old messages stay. Raises `Conflict`, `NotFound`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def swipe(
        self,
        history_id: str,
        message_id: str,
        messages: list[ChatMessage],
        *,
        head: str,
        branch: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep another answer beside the one that a message is a part of, with all calls of that turn and their
        results, and move the branch there. Raises `Conflict`, `NotFound`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def activate(
        self,
        history_id: str,
        branch: str | None = None,
        *,
        message_id: str | None = None,
        head: str | None = None,
        exactly: bool = False,
        call: CallContext | None = None,
    ) -> HistoryDetails:
        """Make a branch the active one. With `message_id`, it moves there, which needs `head`: to the latest of the
        messages that follow that one, or `exactly` to it. Raises `Conflict`, `NotFound`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def fork(
        self, history_id: str, name: str, *, message_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Make a branch that points at a message, by default at the head of the active branch; it does not become
        the active one. Raises `Conflict` for a name that is taken, `NotFound`, `InvalidInput`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def fork_history(
        self, history_id: str, new_id: str, *, message_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Begin a conversation with copies of the messages that lead to one, by default to the head of the active
        branch. Raises `Conflict` for an id that is taken, `NotFound`, `InvalidInput`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def rename_branch(
        self, history_id: str, branch: str, name: str, *, call: CallContext | None = None
    ) -> HistoryDetails:
        """Give a branch another name. Raises `Conflict`, `NotFound`, `InvalidInput`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=3)
    async def rename_history(
        self, history_id: str, title: str | None, *, call: CallContext | None = None
    ) -> HistoryDetails:
        """Give a conversation a title of 1 to 200 characters, or with None the one that follows from what was said.
        Raises `NotFound`, `InvalidInput`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def delete_branch(self, history_id: str, branch: str, *, call: CallContext | None = None) -> HistoryDetails:
        """Forget the name of a branch; its messages stay in the tree. Raises `Conflict` for the active one and for
        one on which an agent works, `NotFound`."""

    @reads_content("chatHistory:read", _READ, since=2)
    async def export_history(self, history_id: str) -> HistoryExport:
        """Return a whole conversation. Raises `NotFound`."""

    @acts("chatHistory:write", "Write and delete conversations.", since=2)
    async def import_history(
        self, exported: HistoryExport, *, history_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Keep an exported conversation, under another id if one is given. Its messages keep their ids, but for those
        that another conversation has. Raises `Conflict` for a conversation that is there, `InvalidInput`."""


CHAT_HISTORY = ServiceKey(ChatHistory)
