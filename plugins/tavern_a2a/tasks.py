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
from tavern_agents.api.agents import AGENT_RUNTIME, AgentReply, AgentRequest, AgentRun, AgentRunFilter, AgentStatus
from tavern_agents.api.listening import answered
from tavern_host.clock import now
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import NotFound
from tavern_llm.api.llm import LlmChunk
from tavern_tools.api.asking import typed
from tavern_tools.api.toolcalls import TaskStatus, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER

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
        self._tools = context.services.get(TOOL_MANAGER)

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
            if (asked := await self._question(run)) is not None:
                return await self._answered(run, asked, said.text)
            return await self._runtime.send(run.id, said.text, call=self._call)
        if message.context_id:
            await self._check_context(message.context_id)
        request = AgentRequest(
            profile_id=self._agent,
            message=said.text,
            images=await kept_images(said, self._context),
            conversation_id=message.context_id or None,
        )
        return await self._runtime.start(request, call=self._call)

    async def _check_context(self, context_id: str) -> None:
        """Raise `Refused` for a conversation of another agent, which may not be offered."""
        runs = await self._runtime.runs(AgentRunFilter(conversation_id=context_id, limit=1))
        if runs and runs[0].profile_id != self._agent:
            raise Refused(INVALID_PARAMS, f"no context {context_id!r:.200} of the agent {self._agent}")

    async def _question(self, run: AgentRun) -> ToolTask | None:
        """Return the call by which the agent asks something, where it waits for an answer."""
        for task_id in run.approvals if run.status is AgentStatus.WAITING else ():
            task = await self._tools.task(task_id, call=self._call)
            if task.status is TaskStatus.AWAITING_APPROVAL and task.approval and task.approval.question is not None:
                return task
        return None

    async def _answered(self, run: AgentRun, asked: ToolTask, text: str) -> AgentRun:
        """Answer a question of the agent by a message, as a person at a terminal types it."""
        assert asked.approval is not None and asked.approval.question is not None
        answer = {"answer": typed(asked.approval.question, text)}
        await self._tools.decide(asked.id, "approve", arguments=answer, call=self._call)
        return await self._runtime.get_run(run.id)

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
        options, run_id = params.configuration, ""
        async with aclosing(answered(self._context, lambda: self.begin(params))) as pieces:
            async for piece in pieces:
                if isinstance(piece, AgentRun):
                    run_id = piece.id
                is_heard = isinstance(piece, AgentRun) or (isinstance(piece, LlmChunk) and piece.reasoning)
                if options.return_immediately or not options.blocking or (is_heard and await self._is_asking(run_id)):
                    break
        return await self.task(TaskParams(id=run_id, history_length=options.history_length))

    async def _is_asking(self, run_id: str) -> bool:
        return await self._question(await self._runtime.get_run(run_id)) is not None

    async def task(self, params: TaskParams) -> dict[str, Any]:
        """Return a task as it stands. Raises `Refused`."""
        run = await self.find(params.id)
        reply = await self._runtime.wait(run.id) if run.status.is_final else None
        return _task(run, reply, params.history_length, await self._question(run))

    async def cancelled(self, params: TaskParams) -> dict[str, Any]:
        """Stop a task; return it. Raises `Refused`."""
        if (await self.find(params.id)).status.is_final:
            raise Refused(NOT_CANCELABLE, f"the task {params.id} has ended")
        await self._runtime.interrupt(params.id, call=self._call)
        return await self.task(params)

    async def stream(self, begin: Callable[[], Awaitable[AgentRun]]) -> AsyncGenerator[dict[str, Any]]:
        """Yield a task, pieces of its answer and what the agent thinks as they come, and how it ended, or what it
        asks: then it is the client's turn."""
        said, ids = "", dict[str, str]()
        is_begun = False
        async with aclosing(answered(self._context, begin)) as pieces:
            async for piece in pieces:
                if isinstance(piece, AgentRun):
                    ids = {"taskId": piece.id, "contextId": piece.conversation_id}
                    yield {"task": _task(piece, None, 0, asked := await self._question(piece))}
                    if asked is not None:
                        return
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
                    run = await self._runtime.get_run(ids["taskId"])
                    if (asked := await self._question(run)) is not None:
                        yield {"statusUpdate": {**ids, "status": _status(run, None, asked)}}
                        return
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


def _task(run: AgentRun, reply: AgentReply | None, most: int | None, asked: ToolTask | None) -> dict[str, Any]:
    """Return a run as a task, with at most so many of its last messages."""
    task: dict[str, Any] = {"id": run.id, "contextId": run.conversation_id, "status": _status(run, reply, asked)}
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


def _status(run: AgentRun, reply: AgentReply | None, asked: ToolTask | None = None) -> dict[str, Any]:
    """Return how a run stands; why it ended without a reply, and what it asks or waits for, in words."""
    if asked is not None and asked.approval is not None and (question := asked.approval.question) is not None:
        message = _message(question.message, run.id, run.conversation_id, asked.id)
        message["parts"].append({"data": question.expects})
        asked_at = _stamp(asked.approval.requested_at)
        return {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": asked_at, "message": message}
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
