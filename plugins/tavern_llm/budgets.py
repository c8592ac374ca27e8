"""How many tokens each principal may use in a day (UTC), and how many it has used.

Kept among the operator's files of the project, since a project may come from anybody, and over restarts.
"""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import Principal
from tavern_host.contracts.errors import LimitReached, Misconfigured
from tavern_host.storage.sqlite import DatabaseThread, Schema
from tavern_llm.api.llm import LlmChunk, LlmRequest, LlmResponse, LlmUsage

if TYPE_CHECKING:
    import sqlite3

SETTING = "extensions.tavern-llm.budgets"

BYTES_PER_TOKEN = 4
"""How long a token is taken to be, in bytes of UTF-8, where a server does not count."""

DAY = 86_400

USAGE = Schema(
    "usage.sqlite3",
    (
        (
            "CREATE TABLE used (day INTEGER NOT NULL, principal TEXT NOT NULL, tokens INTEGER NOT NULL,"
            " PRIMARY KEY (day, principal)) WITHOUT ROWID",
        ),
    ),
)
"""Tokens by day since 1970 and principal."""


def estimated_tokens(*texts: str) -> int:
    """Return about how many tokens texts are."""
    return math.ceil(sum(len(text.encode("utf-8", "replace")) for text in texts) / BYTES_PER_TOKEN)


def prompt_tokens(request: LlmRequest) -> int:
    """Return about how many tokens a request's messages are."""
    calls = (call.arguments for message in request.messages for call in message.tool_calls)
    return estimated_tokens(*(message.content for message in request.messages), *calls)


class Charge:
    """What one request uses, also where its answer breaks off: `prompt` is how long its messages are, in tokens."""

    def __init__(self, prompt: int) -> None:
        self.tokens = 0
        self._prompt = prompt
        self._arrived: list[str] = []

    def saw(self, chunk: LlmChunk) -> None:
        """Count a piece of an answer."""
        self._arrived += chunk.text, chunk.reasoning, chunk.call.arguments if chunk.call else ""

    def done(self, usage: LlmUsage, *texts: str) -> None:
        """Count a whole answer of these texts, by the server's own figures where it has any."""
        prompt, completion = usage.prompt_tokens, usage.completion_tokens
        self._arrived.clear()
        self.tokens += self._prompt if prompt is None else prompt
        self.tokens += estimated_tokens(*texts) if completion is None else completion

    def answered(self, response: LlmResponse) -> None:
        """Count a whole answer."""
        calls = (call.arguments for call in response.tool_calls)
        self.done(response.usage, response.text, response.reasoning or "", *calls)

    def broke_off(self) -> None:
        """Count what came of an answer that has no end; a request that was not answered at all costs nothing."""
        if self._arrived:
            self.tokens += self._prompt + estimated_tokens(*self._arrived)
            self._arrived.clear()


class Budgets:
    """The budgets of the setting, and the days of their use."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._database = DatabaseThread(context.operator_dir, USAGE, context.log, "token budgets")
        self._reserved: Counter[str] = Counter()

    @asynccontextmanager
    async def charged(self, principal: Principal, prompt: Callable[[], int]) -> AsyncIterator[Charge | None]:
        """Let a request be made whose messages are `prompt()` tokens long, and remember what it used; None where there
        is no budget.

        Raises `LimitReached` where the budget is used up, `Misconfigured` for a setting that is no budget.
        """
        who, budget = str(principal), self._budget_of(str(principal))
        if budget is None:
            yield None
            return
        size, now = prompt(), clock.seconds()
        used = await self._used(int(now // DAY), who) + self._reserved[who]
        if used + size > budget or used >= budget:
            day = datetime.fromtimestamp(now, UTC).date().isoformat()
            raise LimitReached(
                f"{who} has used {used} of the {budget} tokens that it may use on {day} (UTC), and this request needs "
                f"about {size}; the operator sets budgets in {SETTING}",
                retry_after=DAY - now % DAY,
                used=used,
                budget=budget,
            )
        charge = Charge(size)
        self._reserved[who] += size
        try:
            yield charge
        finally:
            charge.broke_off()
            try:
                if charge.tokens:
                    await self._add(int(now // DAY), who, charge.tokens)
            finally:
                self._reserved -= Counter({who: size})  # keeps what is above 0

    async def close(self) -> None:
        """Close the database."""
        await self._database.close()

    def _budget_of(self, principal: str) -> int | None:
        """Return the smallest budget whose pattern fits."""
        if "operator" in self._context.settings.left_out("budgets"):
            raise Misconfigured(f"{SETTING} cannot be read, so that nothing is asked of a model; save it again")
        budgets = self._context.settings.get("budgets") or {}
        if problem := budgets_problem(budgets):
            raise Misconfigured(f"{SETTING}: {problem}")
        return min((most for pattern, most in budgets.items() if fnmatch.fnmatchcase(principal, pattern)), default=None)

    async def _used(self, day: int, principal: str) -> int:
        def work(connection: sqlite3.Connection) -> int:
            query = "SELECT tokens FROM used WHERE day = ? AND principal = ?"
            row = connection.execute(query, (day, principal)).fetchone()
            return int(row[0]) if row else 0

        return await self._database.read(work, 0)

    async def _add(self, day: int, principal: str, tokens: int) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM used WHERE day < ?", (day - 1,))
            connection.execute(
                "INSERT INTO used VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens",
                (day, principal, tokens),
            )

        await self._database.write(work)


def budgets_problem(value: object) -> str | None:
    """Return why a value of the setting is none, or None."""
    if isinstance(value, dict) and all(
        isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 for tokens in value.values()
    ):
        return None
    return 'expected tokens per day by pattern of principals, such as {"agent:*": 100000}'
