"""Tasks of the protocol, which are runs of agents, in the form of 1.0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from tavern_a2a.api.requests import SendParams, TaskParams
from tavern_a2a.failures import INVALID_PARAMS, NO_TASK, NOT_CANCELABLE, UNSUPPORTED, Refused
from tavern_a2a.reading import kept_images, read_message
from tavern_agents.api.agents import AGENT_RUNTIME, AgentReply, AgentRequest, AgentRun, AgentStatus
from tavern_agents.api.listening import answered
from tavern_host.clock import now
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_llm.api.llm import LlmChunk

ALIVE = 10.0
"""Seconds after which a client that nothing came for is sent a sign of life."""

_STATES = {
    AgentStatus.REPLY: "COMPLETED",
    AgentStatus.LIMIT: "FAILED",
    AgentStatus.ERROR: "FAILED",
    AgentStatus.INTERRUPTED: "CANCELED",
}


class Tasks:
    """The tasks of one agent, for one caller."""

    def __init__(self, agent: str, context: PluginContext, call: CallContext) -> None:
        self._agent, self._context, self._call = agent, context, call
        self._runtime = context.services.get(AGENT_RUNTIME)

    async def begin(self, params: SendParams) -> AgentRun:
        """Return the run that a message begins, or that it is added to. Raises `Refused`, and what starting raises."""
        said = read_message(params)
        message = params.message
        if message.task_id:
            run = await self.find(message.task_id)
            if message.context_id not in (None, "", run.conversation_id):
                raise Refused(INVALID_PARAMS, f"the task {run.id} is of the context {run.conversation_id}")
            if run.status.is_final:
                raise Refused(UNSUPPORTED, f"the task {run.id} has ended; send the message with its contextId alone")
            if said.images:
                raise Refused(INVALID_PARAMS, "pictures cannot be added to a task that has begun; send a new one")
            return await self._runtime.send(run.id, said.text, call=self._call)
        request = AgentRequest(
            profile_id=self._agent,
            message=said.text,
            images=await kept_images(said, self._context),
            conversation_id=message.context_id or None,
        )
        return await self._runtime.start(request, call=self._call)

    async def find(self, task: str) -> AgentRun:
        """Return the run that a task is. Raises `Refused` where this agent has none of that id."""
        try:
            run = await self._runtime.get_run(task)
        except NotFound:
            run = None
        if run is None or run.profile_id != self._agent:
            raise Refused(NO_TASK, f"no task {task!r:.200} of the agent {self._agent}")
        return run

    async def open(self, task: str) -> AgentRun:
        """Return the run of a task that has not ended. Raises `Refused`."""
        run = await self.find(task)
        if run.status.is_final:
            raise Refused(UNSUPPORTED, f"the task {task} has ended; GetTask returns it")
        return run

    async def sent(self, params: SendParams) -> dict[str, Any]:
        """Return the task of a message, as it has ended unless the client does not want to wait."""
        run = await self.begin(params)
        options = params.configuration
        if options.blocking and not options.return_immediately:
            await self._runtime.wait(run.id)
        return await self.task(TaskParams(id=run.id, history_length=options.history_length))

    async def task(self, params: TaskParams) -> dict[str, Any]:
        """Return a task as it stands. Raises `Refused`."""
        run = await self.find(params.id)
        reply = await self._runtime.wait(run.id) if run.status.is_final else None
        return _task(run, reply, params.history_length)

    async def cancelled(self, params: TaskParams) -> dict[str, Any]:
        """Stop a task; return it. Raises `Refused`."""
        if (await self.find(params.id)).status.is_final:
            raise Refused(NOT_CANCELABLE, f"the task {params.id} has ended")
        await self._runtime.interrupt(params.id, call=self._call)
        return await self.task(params)

    async def stream(self, begin: Callable[[], Awaitable[AgentRun]]) -> AsyncGenerator[dict[str, Any]]:
        """Yield a task, pieces of its answer and what the agent thinks as they come, and how it ended."""
        said, ids = "", dict[str, str]()
        is_begun = False
        async with aclosing(answered(self._context, begin)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AgentRun):
                    ids = {"taskId": piece.id, "contextId": piece.conversation_id}
                    yield {"task": _task(piece, None, 0)}
                elif isinstance(piece, AgentReply):
                    run = await self._runtime.get_run(piece.agent_run_id)
                    if piece.text and said != piece.text:  # pieces are what it said on the way, too
                        yield _artifact_update(ids, piece.text, is_added=False, is_last=True)
                    yield {"statusUpdate": {**ids, "status": _status(run, piece)}}
                elif piece.restarted:
                    said, is_begun = "", False
                elif piece.text:
                    yield _artifact_update(ids, piece.text, is_added=is_begun)
                    said, is_begun = said + piece.text, True
                elif piece.reasoning:
                    yield {"statusUpdate": {**ids, "status": _thinking(piece, ids)}}


async def with_signs_of_life(
    events: AsyncGenerator[dict[str, Any]], seconds: float = ALIVE
) -> AsyncGenerator[dict[str, Any] | None]:
    """Yield what comes, and None where nothing does for so many seconds."""
    following: asyncio.Task[dict[str, Any]] | None = None
    try:
        while True:
            following = following or asyncio.create_task(anext(events), name="listen to an agent")
            done, _ = await asyncio.wait([following], timeout=seconds)
            if not done:
                yield None
                continue
            finished, following = following, None
            try:
                yield finished.result()
            except StopAsyncIteration:
                return
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        await events.aclose()


def _task(run: AgentRun, reply: AgentReply | None, most: int | None) -> dict[str, Any]:
    """Return a run as a task, with at most so many of its last messages."""
    task: dict[str, Any] = {"id": run.id, "contextId": run.conversation_id, "status": _status(run, reply)}
    if reply is not None and reply.text:
        task["artifacts"] = [_artifact(reply.text)]
    history = [] if reply is None or most == 0 else _history(run, reply)
    return task | {"history": history if most is None else history[-most:]} if history else task


def _history(run: AgentRun, reply: AgentReply) -> list[dict[str, Any]]:
    return [
        _message(one.content, run.id, run.conversation_id, index, is_users=one.role == "user")
        for index, one in enumerate(reply.history)
        if one.role in ("user", "assistant") and one.content
    ]


def _status(run: AgentRun, reply: AgentReply | None) -> dict[str, Any]:
    """Return how a run stands; why it ended without a reply, and what it waits for, in words."""
    at = run.finished_at or (now() if reply is None else run.started_at)
    state = _STATES.get(run.status, "WORKING")
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}", "timestamp": _stamp(at)}
    words = run.reason or (reply.error if reply is not None else None)
    if run.status is AgentStatus.WAITING:
        words = "A person has to approve a call, or to answer a question, before the agent continues."
    if words and run.status is not AgentStatus.REPLY:
        status["message"] = _message(words, run.id, run.conversation_id, "status")
    return status


def _thinking(chunk: LlmChunk, ids: dict[str, str]) -> dict[str, Any]:
    at = now()
    thought = _message(chunk.reasoning, ids["taskId"], ids["contextId"], f"thought-{at.timestamp():.6f}")
    return {"state": "TASK_STATE_WORKING", "timestamp": _stamp(at), "message": thought}


def _message(text: str, task: str, context: str, of: object, *, is_users: bool = False) -> dict[str, Any]:
    role = "ROLE_USER" if is_users else "ROLE_AGENT"
    parts = [{"text": text}]
    return {"messageId": f"{task}-{of}", "role": role, "parts": parts, "taskId": task, "contextId": context}


def _artifact(text: str) -> dict[str, Any]:
    return {"artifactId": "reply", "name": "reply", "parts": [{"text": text}]}


def _artifact_update(ids: dict[str, str], text: str, *, is_added: bool, is_last: bool = False) -> dict[str, Any]:
    return {"artifactUpdate": {**ids, "artifact": _artifact(text), "append": is_added, "lastChunk": is_last}}


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
