"""The bridge: a loop that listens, and a task for each chat that answers its messages one after the other.

What has come is in a file before Telegram learns that it was taken, and is removed from there just before it is
answered: no message is lost with the host, and none is answered twice. The agent's run begins once for each message,
since it has the message's number as its key; one that the end of the host cut off is resumed by the host.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tavern_agents.api.agents import AgentRequest
from tavern_host import AGENT_RUNTIME, CallContext, PluginContext, Principal, TavernError
from tavern_host.storage.files import write_atomic

from .telegram import POLL_SECONDS, TelegramError, call, parts

MOST_WAITING = 100
SENDS = 5
LONGEST_PAUSE = 60.0


class Bridge:
    """Listens and answers until the plugin is unloaded."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._file = context.data_dir / "inbox.json"
        self._offsets: dict[str, int] = {}  # by bot
        self._inbox: list[dict[str, Any]] = []  # {"id", "chat", "text"}, the oldest first
        self._answering: set[int] = set()
        self._has_room, self._writing = asyncio.Event(), asyncio.Lock()

    async def run(self) -> None:
        """Listen for ever; after an error ever more seldom, and each reason is logged once."""
        if await asyncio.to_thread(self._file.is_file):
            kept = json.loads(await asyncio.to_thread(self._file.read_text, "utf-8"))
            self._offsets, self._inbox = kept["offsets"], kept["inbox"]
            self._answer()
        pause, said = 1.0, ""
        while True:
            await self._until_set_up()
            try:
                await self._listen()
                pause, said = 1.0, ""
            except TelegramError as error:
                if str(error) != said:
                    self._context.log.warning("%s; tried again", error)
                said = str(error)
                await asyncio.sleep(max(pause, error.wait))
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _until_set_up(self) -> None:
        """Return when there is a token and an agent, and there is room for messages."""
        settings = self._context.settings
        if not (settings.get("token") and settings.get("agent")):
            changes = settings.changes()
            while not (settings.get("token") and settings.get("agent")):
                await anext(changes)
        if len(self._inbox) >= MOST_WAITING:
            self._has_room.clear()
            await self._has_room.wait()

    async def _listen(self) -> None:
        """Take what has come, up to a minute later; keep it, and have it answered."""
        bot, kinds = str(self._context.settings.get("token")).partition(":")[0], ["message"]
        offset = self._offsets.get(bot, 0)
        updates = await call(self._context, "getUpdates", offset=offset, timeout=POLL_SECONDS, allowed_updates=kinds)
        allowed = set(str(self._context.settings.get("chats") or "").split())
        for update in updates:
            self._offsets[bot] = update["update_id"] + 1
            message = update.get("message") or {}
            chat, text = (message.get("chat") or {}).get("id"), message.get("text")
            if str(chat) not in allowed:
                self._context.log.info("a message of chat %s is ignored: it is not in telegram-bridge.chats", chat)
            elif text:
                self._inbox.append({"id": f"{bot} {update['update_id']}", "chat": chat, "text": text})
        if updates:
            await self._keep()
        self._answer()

    def _answer(self) -> None:
        """Have each chat answered that waits, each by a task of its own."""
        for chat in {message["chat"] for message in self._inbox} - self._answering:
            self._answering.add(chat)
            self._context.tasks.spawn(self._answer_all(chat), name=f"answer chat {chat}")

    async def _answer_all(self, chat: int) -> None:
        """Answer the messages of a chat in their order."""
        try:
            while message := next((one for one in self._inbox if one["chat"] == chat), None):
                answer = await self._answer_of(message)
                self._inbox.remove(message)
                self._has_room.set()
                await self._keep()
                await self._send(chat, answer)
        finally:
            self._answering.discard(chat)

    async def _answer_of(self, message: dict[str, Any]) -> str:
        """Return the agent's reply to a message, or why there is none."""
        context, agents = self._context, self._context.services.get(AGENT_RUNTIME)
        agent, conversation = str(context.settings.get("agent")), f"telegram-{message['chat']}"
        request = AgentRequest(profile_id=agent, message=message["text"], conversation_id=conversation)
        me = Principal(kind="plugin", id=context.plugin)
        once = CallContext(principal=me, idempotency_key=f"update {message['id']}")
        try:
            reply = await agents.wait((await agents.start(request, call=once)).id)
        except TavernError as error:
            context.log.warning("the agent could not answer: %s", error)
            return "I cannot answer now."
        return reply.text if reply.outcome == "reply" else "I could not finish an answer."

    async def _send(self, chat: int, answer: str) -> None:
        """Send an answer; a part is tried again only where Telegram certainly did not take it."""
        waiting, attempt = parts(answer), 1
        while waiting:
            try:
                await call(self._context, "sendMessage", chat_id=chat, text=waiting[0])
                del waiting[0]
            except TelegramError as error:
                if attempt == SENDS or not error.is_refused:
                    self._context.log.warning("an answer to chat %s is lost: %s", chat, error)
                    return
                await asyncio.sleep(max(2.0**attempt, error.wait))
                attempt += 1

    async def _keep(self) -> None:
        """Write what waits into the file."""
        async with self._writing:
            text = json.dumps({"offsets": self._offsets, "inbox": self._inbox}, ensure_ascii=False)
            await asyncio.to_thread(write_atomic, self._file, text.encode())
