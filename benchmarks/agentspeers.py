"""Other Python libraries that run agents: the same turn by LangChain's `create_agent` on LangGraph and by pydantic-ai,
in this process, with a model that answers at once. Each is used as its documentation shows.

Those that are not installed (`pip install -e '.[bench]'`) are left out, and named.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.agentsubject import PROMPT, QUESTION, REPLY, now, subject
from benchmarks.harness import Result, Side, compare_sides

Run = Callable[[], Awaitable[None]]


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


async def _ask_langchain(agent: Any, config: Any = None) -> None:
    state = await agent.ainvoke({"messages": [{"role": "user", "content": QUESTION}]}, config)
    assert state["messages"][-1].content == REPLY, state


def _langchain_tool() -> Any:
    from langchain_core.tools import StructuredTool

    return StructuredTool.from_function(coroutine=now, name="now", description="Tells the time.")


@asynccontextmanager
async def _langchain() -> AsyncIterator[Run]:
    from langchain.agents import create_agent

    agent = create_agent(_desk_model(), [_langchain_tool()], system_prompt=PROMPT)

    async def run() -> None:
        await _ask_langchain(agent)

    yield run


@asynccontextmanager
async def _langgraph_sqlite() -> AsyncIterator[Run]:
    from langchain.agents import create_agent
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as place:
        async with AsyncSqliteSaver.from_conn_string(str(Path(place) / "agents.db")) as saver:
            await saver.conn.execute("PRAGMA journal_mode = WAL")
            await saver.conn.execute("PRAGMA synchronous = NORMAL")
            agent = create_agent(_desk_model(), [_langchain_tool()], system_prompt=PROMPT, checkpointer=saver)

            async def run() -> None:
                await _ask_langchain(agent, {"configurable": {"thread_id": str(next(numbers))}})

            yield run


@asynccontextmanager
async def _pydantic_ai() -> AsyncIterator[Run]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(REPLY)])
        return ModelResponse(parts=[ToolCallPart("now", {})])

    agent = Agent(FunctionModel(answer), instructions=PROMPT)
    agent.tool_plain(now)

    async def run() -> None:
        assert (await agent.run(QUESTION)).output == REPLY

    yield run


PEERS = {
    "langchain": (("langchain", "langgraph"), "create_agent in memory", _langchain, 1.0),
    "langgraph-checkpoint-sqlite": (
        ("langgraph-checkpoint-sqlite", "langchain"),
        "create_agent with AsyncSqliteSaver, WAL, NORMAL",
        _langgraph_sqlite,
        0.5,
    ),
    "pydantic-ai-slim": (("pydantic-ai-slim",), "Agent in memory", _pydantic_ai, None),
}
"""By distribution: those whose versions are printed, what is used, how, and the part of its time that a turn here may
take. Ours is stored in each case."""


def turn() -> list[Result]:
    """Measure a turn here and in the peer, and return the ratios of their costs."""
    return asyncio.run(_turn())


async def _turn() -> list[Result]:
    results = []
    async with subject() as bench:
        for distribution, (told, what, opened, limit) in PEERS.items():
            try:
                versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in told)
            except importlib.metadata.PackageNotFoundError:
                print(f"{distribution} is not installed and left out", file=sys.stderr)
                continue
            async with opened() as run:
                name = f"{what} ({versions})"
                results.append(
                    await compare_sides("turn, stored", Side(bench.turn), Side(run), floor_name=name, limit=limit)
                )
    return results


FIGURES: dict[str, Callable[[], list[Result]]] = {"turn": turn}
