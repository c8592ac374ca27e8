"""What waits for a person within the call of a client, put to the person at the client (elicitation): approvals and
questions, of the called tool and of the agents that work for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Literal

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue

from tavern_host.context import PluginContext, Subscription
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, InvalidInput, LimitReached
from tavern_host.contracts.events import Event
from tavern_tools.api.toolcalls import TaskStatus, ToolQuestion, ToolResult, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER

Asked = ServerRequestContext[Any, Any]

_EVENT = "APPROVAL_REQUEST"
_APPROVE, _ANSWER = "approve", "answer"
_MOST_HELD = 100
"""How many calls wait for clients to come back with what a person said."""
_YES_OR_NO: dict[str, Any] = {_APPROVE: {"type": "boolean", "title": "Approve this call"}}
_PLAIN = ("string", "integer", "number", "boolean")
_KEYWORDS = ("type", "title", "description", "default", "enum", "minimum", "maximum", "minLength", "maxLength")


@dataclass(eq=False)
class Attended:
    """A call that is being made for a client, by the `person` there, in the trace `trace_id`; `open` are the tasks that
    wait for them, each with why it is asked about once more."""

    tool_id: str
    person: CallContext
    trace_id: str
    making: asyncio.Task[ToolResult]
    events: Subscription
    open: list[tuple[str, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        """Notice what waits for a person within the call, until it has ended."""
        async for event in self.events:
            if isinstance(event, Event) and event.payload.get("traceId") == self.trace_id:
                self.open.append((str(event.payload["taskId"]), ""))
                self.news.set()


class People:
    """Asks the people at the clients of one server."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._tools = context.services.get(TOOL_MANAGER)
        self._held: dict[str, Attended] = {}

    async def attend(
        self, ctx: Asked, tool_id: str, person: CallContext, work: Awaitable[ToolResult]
    ) -> ToolResult | types.InputRequiredResult:
        """Return the result of a call, or the question that a client has to ask first, and come back with."""
        events = self._context.events.subscribe(_EVENT)
        making = asyncio.ensure_future(_awaited(work))
        attended = Attended(tool_id, person, person.trace_id, making, events)
        following = self._context.tasks.spawn(attended.follow(), name="follow what waits for an MCP client's person")

        async def close() -> None:
            try:
                await asyncio.wait([making])
            finally:
                making.cancel()  # the plugin is being unloaded
                await events.close()
            await asyncio.wait([following])

        self._context.tasks.spawn(close(), name="the end of an MCP client's call")
        return await self._asking(ctx, attended)

    async def resume(
        self, ctx: Asked, tool_id: str, person: CallContext, state: str, said: object
    ) -> ToolResult | types.InputRequiredResult | None:
        """Take what a person said about a call that is held under a state; None where there is none of theirs."""
        held = self._held.get(state)
        if held is None or (held.tool_id, held.person.principal) != (tool_id, person.principal):
            return None
        del self._held[state]
        held.person = person  # of the request of now
        if held.open:
            await self._take(held, said)
        return await self._asking(ctx, held)

    async def _asking(self, ctx: Asked, attended: Attended) -> ToolResult | types.InputRequiredResult:
        """Ask what waits, one after the other, until the call has ended."""
        making = attended.making
        try:
            while not making.done():
                if not attended.open:
                    news = asyncio.ensure_future(attended.news.wait())
                    await asyncio.wait([making, news], return_when=asyncio.FIRST_COMPLETED)
                    news.cancel()
                    attended.news.clear()
                    continue
                task_id, note = attended.open[0]
                task = await self._tools.task(task_id, call=attended.person)
                if task.status is not TaskStatus.AWAITING_APPROVAL:
                    attended.open.pop(0)
                elif ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    return required(task, self._hold(attended), note)
                else:
                    message, schema = form_of(task, note)
                    asking = asyncio.ensure_future(ctx.session.elicit_form(message, schema, ctx.request_id))
                    await asyncio.wait([making, asking], return_when=asyncio.FIRST_COMPLETED)
                    if asking.done():
                        await self._take(attended, asking.result())
                    else:
                        asking.cancel()
            return making.result()
        except BaseException:
            making.cancel()
            raise

    def _hold(self, attended: Attended) -> str:
        """Keep a call until its client comes back; return its state. Raises `LimitReached`."""
        if len(self._held) >= _MOST_HELD:
            ended = next((state for state, one in self._held.items() if one.making.done()), None)
            if ended is None:
                raise LimitReached(f"{_MOST_HELD} calls of clients wait for a person already")
            del self._held[ended]
        state = f"call_{secrets.token_urlsafe(18)}"
        self._held[state] = attended
        return state

    async def _take(self, attended: Attended, said: object) -> None:
        """Take what a person said about the first of what waits; ask once more where it does not fit."""
        task_id, _ = attended.open.pop(0)
        task = await self._tools.task(task_id, call=attended.person)
        try:
            await self.decide(task, said, attended.person)
        except InvalidInput as error:
            attended.open.insert(0, (task_id, error.message))

    async def decide(self, task: ToolTask, said: object, person: CallContext) -> None:
        """Decide by what a person said, unless somebody else was quicker or its time is over: a question is answered,
        and else only a yes approves."""
        content: Any = said.content or {} if isinstance(said, types.ElicitResult) and said.action == "accept" else None
        question = None if task.approval is None else task.approval.question
        arguments: dict[str, JsonValue] | None = None
        is_yes = content is not None and (question is not None or content.get(_APPROVE) is True)
        if is_yes and question is not None:
            arguments = {_ANSWER: content if _is_plain(question) else _answer(question, content.get(_ANSWER))}
        decision: Literal["approve", "refuse"] = "approve" if is_yes else "refuse"
        with contextlib.suppress(Conflict):
            await self._tools.decide(task.id, decision, arguments=arguments, comment="by the MCP client", call=person)


async def _awaited(work: Awaitable[ToolResult]) -> ToolResult:
    return await work


def required(task: ToolTask, state: str, note: str = "") -> types.InputRequiredResult:
    """Return the question that a client has to ask before it repeats a request with a state."""
    message, schema = form_of(task, note)
    asked = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.InputRequiredResult(input_requests={_APPROVE: types.ElicitRequest(params=asked)}, request_state=state)


def response_of(responses: Any) -> object:
    """Return a person's answer, of the responses that a client brings."""
    return (responses or {}).get(_APPROVE)


def form_of(task: ToolTask, note: str = "") -> tuple[str, dict[str, Any]]:
    """Return the question to a person about a task, and the form for the answer, as the protocol allows forms."""
    question = None if task.approval is None else task.approval.question
    if question is None:
        reason = f" ({task.approval.reason})" if task.approval is not None else ""
        message = f"{task.tool_id} is to be called{reason}, with {_json(task.arguments)[:4000]}"
        return message, _object(_YES_OR_NO, [_APPROVE])
    message = f"{question.message}\n({note})" if note else question.message
    expects: Any = question.expects
    if _is_plain(question):
        fields = {
            name: {key: one[key] for key in _KEYWORDS if key in one} for name, one in expects["properties"].items()
        }
        return message, _object(fields, [name for name in expects.get("required", []) if name in fields])
    if question.kind == "choice":
        answer = {"type": "string", **expects}
        if "items" in expects:
            answer = {"type": "array", "items": {"type": "string", **expects["items"]}, "minItems": 1}
    else:
        answer = {"type": "string", "title": "Answer"}
        if question.kind == "form":
            answer["description"] = f"An object as JSON, by this JSON Schema: {_json(expects)[:4000]}"
        elif question.kind == "file":
            answer["description"] = "The path of one of the project's files"
    return message, _object({_ANSWER: answer}, [_ANSWER])


def _is_plain(question: ToolQuestion) -> bool:
    """Return whether a question is a form of plain fields, the only ones that the protocol has."""
    fields: Any = question.expects.get("properties", {})
    return question.kind == "form" and all(
        isinstance(one, dict)
        and one.get("type") in _PLAIN
        and all(isinstance(choice, str) for choice in one.get("enum", []))
        for one in fields.values()
    )


def _answer(question: ToolQuestion, value: Any) -> JsonValue:
    if question.kind == "form" and isinstance(value, str):
        try:
            return json.loads(value)  # type: ignore[no-any-return]
        except ValueError:
            return value
    return value  # type: ignore[no-any-return]


def _object(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": required}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
