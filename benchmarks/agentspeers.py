"""Other Python libraries that run agents: the first turn of a conversation, and one of 200 turns, by LangChain's
`create_agent` on LangGraph and by pydantic-ai, in this process, with a model that answers at once. Each is used as its
documentation shows.

Those that are not installed (`pip install -e '.[bench]'`) are left out, and named.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.metadata
import importlib.util
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.agentsubject import PROMPT, QUESTION, REPLY, Subject, now, subject
from benchmarks.harness import Result, Side, compare_sides, frozen, measured

Turn = Callable[[str], Awaitable[None]]
"""Lets an agent work on the question in a conversation, which may be a new one."""
TURNS = 200
"""How many turns a conversation has that is measured as a whole."""
ROUNDS = 3


def _desk_model() -> Any:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class DeskModel(BaseChatModel):
        """Asks for one call, then replies."""

        @property
        def _llm_type(self) -> str:
            return "desk"

        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *more: Any, **options: Any) -> ChatResult:
            if isinstance(messages[-1], ToolMessage):
                answer = AIMessage(REPLY)
            else:
                answer = AIMessage("", tool_calls=[{"name": "now", "args": {}, "id": f"call_{len(messages)}"}])
            return ChatResult(generations=[ChatGeneration(message=answer)])

        async def _agenerate(self, messages: list[BaseMessage], *more: Any, **options: Any) -> ChatResult:
            return self._generate(messages)

    return DeskModel()


async def _ask_langchain(agent: Any, before: list[Any], config: Any = None) -> list[Any]:
    """Return the messages of a conversation after a turn."""
    state = await agent.ainvoke({"messages": [*before, {"role": "user", "content": QUESTION}]}, config)
    messages: list[Any] = state["messages"]
    assert messages[-1].content == REPLY, state
    return messages


def _langchain_tool() -> Any:
    from langchain_core.tools import StructuredTool

    return StructuredTool.from_function(coroutine=now, name="now", description="Tells the time.")


@asynccontextmanager
async def _langchain() -> AsyncIterator[Turn]:
    from langchain.agents import create_agent

    agent = create_agent(_desk_model(), [_langchain_tool()], system_prompt=PROMPT)
    known: dict[str, list[Any]] = {}

    async def turn(conversation: str) -> None:
        known[conversation] = await _ask_langchain(agent, known.get(conversation, []))

    yield turn


@asynccontextmanager
async def _langgraph_sqlite() -> AsyncIterator[Turn]:
    from langchain.agents import create_agent
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    with tempfile.TemporaryDirectory() as place:
        async with AsyncSqliteSaver.from_conn_string(str(Path(place) / "agents.db")) as saver:
            await saver.conn.execute("PRAGMA journal_mode = WAL")
            await saver.conn.execute("PRAGMA synchronous = NORMAL")
            agent = create_agent(_desk_model(), [_langchain_tool()], system_prompt=PROMPT, checkpointer=saver)

            async def turn(conversation: str) -> None:
                await _ask_langchain(agent, [], {"configurable": {"thread_id": conversation}})

            yield turn


@asynccontextmanager
async def _pydantic_ai() -> AsyncIterator[Turn]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(REPLY)])
        return ModelResponse(parts=[ToolCallPart("now", {})])

    agent = Agent(FunctionModel(answer), instructions=PROMPT)
    agent.tool_plain(now)

    known: dict[str, list[ModelMessage]] = {}

    async def turn(conversation: str) -> None:
        result = await agent.run(QUESTION, message_history=known.get(conversation))
        assert result.output == REPLY, result
        known[conversation] = result.all_messages()

    yield turn


@dataclass(frozen=True)
class Peer:
    """A library with the distributions whose versions are printed, what is used of it, and which part of its time our
    first turn, and our conversation as a whole, may take. Ours is stored in each case."""

    distributions: tuple[str, ...]
    what: str
    opened: Callable[[], AbstractAsyncContextManager[Turn]]
    first: float | None = None
    whole: float | None = None


PEERS = (
    Peer(("langchain", "langgraph"), "create_agent in memory", _langchain, first=1.0),
    Peer(
        ("langgraph-checkpoint-sqlite", "langchain"),
        "create_agent with AsyncSqliteSaver, WAL, NORMAL",
        _langgraph_sqlite,
        first=1.0,
        whole=0.5,
    ),
    Peer(("pydantic-ai-slim",), "Agent in memory", _pydantic_ai, whole=1.2),
)


def turn() -> list[Result]:
    """Measure the first turn of a conversation here and in the peer, then a long conversation, and return the ratios of
    their costs."""
    return asyncio.run(_turn())


async def _turn() -> list[Result]:
    results = []
    async with subject() as bench:
        for peer in PEERS:
            try:
                versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in peer.distributions)
            except importlib.metadata.PackageNotFoundError:
                print(f"{peer.distributions[0]} is not installed and left out", file=sys.stderr)
                continue
            name, names = f"{peer.what} ({versions})", map(str, itertools.count())
            async with peer.opened() as theirs:
                first = Side(partial(_first, theirs, names))
                results.append(
                    await compare_sides(
                        "first turn, stored", Side(bench.turn), first, floor_name=name, limit=peer.first
                    )
                )
                results.append(await _whole(bench, theirs, name, peer.whole))
    return results


async def _first(turn: Turn, names: Iterator[str]) -> None:
    await turn(next(names))


async def _whole(bench: Subject, theirs: Turn, name: str, limit: float | None) -> Result:
    """Compare the CPU time of a conversation from its first turn to its last."""
    pairs = []
    with frozen():
        for number in range(ROUNDS):
            spent = []
            for turn in (bench.turn_in, theirs):
                gc.collect()
                began = time.process_time()
                for _ in range(TURNS):
                    await turn(f"whole {name} {number}")
                spent.append(time.process_time() - began)
            pairs.append((spent[0], spent[1]))
    return measured(f"{TURNS} turns of one conversation, stored", pairs, name, limit, unit="ms", scale=1e3)


FIGURES: dict[str, Callable[[], list[Result]]] = {"turn": turn}
